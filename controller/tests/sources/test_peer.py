# SPDX-License-Identifier: Apache-2.0
"""Tests how the controller finds out from the kernel which user has opened a TCP connection. If the
user is unknown, the connection must be refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.sources import peer
from sluice.sources.peer import AllowedUsers, Endpoint, RefusedPeer, UnknownOwner, user_of
from sluice.wire.errors import WireError

USER = 12345
HOSTS = pytest.mark.parametrize("host", ["127.0.0.1", "::1"])


def text(address: tuple[object, ...]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


@contextmanager
def connection(host: str, uid: int) -> Iterator[tuple[str, str, int]]:
    """Opens a connection in a process of the user.

    Yields its address, the server's address, and a descriptor. A write to the descriptor closes the
    connection.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        lifeline, ours = os.pipe()
        child = os.fork()
        if child == 0:
            os.setresuid(uid, uid, uid)
            os.close(ours)
            with socket.create_connection(server.getsockname()[:2]):
                os.read(lifeline, 1)
            os._exit(0)
        accepted, address = server.accept()
        try:
            yield text(address), text(server.getsockname()), ours
        finally:
            accepted.close()
            os.close(ours)
            os.close(lifeline)
            os.waitpid(child, 0)


@HOSTS
@pytest.mark.parametrize("uid", [0, USER])
def test_the_user_of_a_connection(host: str, uid: int) -> None:
    with connection(host, uid) as (there, here, _):
        assert user_of(Endpoint.parse(there), Endpoint.parse(here)) == uid
        assert AllowedUsers(here, [str(uid)]).admit(there) == ("root" if uid == 0 else str(USER))
        with pytest.raises(
            RefusedPeer, match=r"user .* may not connect; allowed: frr-of-no-host, 7"
        ):
            AllowedUsers(here, ["frr-of-no-host", "7"]).admit(there)


def test_root_by_name() -> None:
    with connection("127.0.0.1", 0) as (there, here, _):
        assert AllowedUsers(here, ["frr", "root"]).admit(there) == "root"


@HOSTS
def test_a_closed_end_is_nobodys_though_the_kernel_says_root(host: str) -> None:
    """Checks that a connection is refused if its client has closed it.

    For the remains of a closed socket, the kernel reports uid 0, whoever the user was.
    """
    with connection(host, USER) as (there, here, lifeline):
        os.write(lifeline, b"x")
        allowed = AllowedUsers(here, ["root"])

        def reason() -> str:
            with pytest.raises(RefusedPeer) as refused:
                allowed.admit(there)
            return str(refused.value)

        while f"user {USER}" in reason():
            pass
        assert "cannot be determined" in reason()


def test_a_listener_on_the_same_port_is_not_the_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.create_server(("", 0)) as other:
        here, there = (Endpoint.parse(text(one.getsockname())) for one in (ours, other))
        with pytest.raises(UnknownOwner):
            user_of(there._replace(address=here.address), here)


@given(st.binary(max_size=200))
def test_any_answer_is_refused_unless_it_is_about_the_connection(answer: bytes) -> None:
    with pytest.raises((UnknownOwner, WireError)):
        peer._user(answer, bytes(range(36)))


@pytest.mark.parametrize("address", ["", "peer", "127.0.0.1", "1:2:3", "127.0.0.1:x"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(RefusedPeer, match="cannot be determined"):
        AllowedUsers("127.0.0.1:2620", ["root"]).admit(address)
