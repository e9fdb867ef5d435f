# SPDX-License-Identifier: Apache-2.0
"""Tests P4RuntimeClient over a Unix socket and over TCP with mutual TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from finsy.proto import p4r

from native.certificates import Authority
from native.drain import Drain
from native.fake_switch import FakeSwitch
from sluice._native import P4RuntimeClient


def named(name: str) -> Any:
    return lambda event: event[0] == name


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority", "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "stranger", "stranger")


def serve(authority: Authority, *alternatives: str, listen: str = "127.0.0.1:0") -> FakeSwitch:
    """Creates a switch that accepts only clients with certificates of the authority."""
    certificate, key = authority.issue("switch", *alternatives)
    credentials = grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority.certificate, require_client_auth=True
    )
    return FakeSwitch(listen, credentials)


@pytest.fixture
def switch(authority: Authority) -> Iterator[FakeSwitch]:
    with serve(authority, "IP:127.0.0.1") as switch:
        yield switch


def identity(authority: Authority, trusted: Authority | None = None) -> tuple[bytes, bytes, bytes]:
    certificate, key = authority.issue("controller")
    return ((trusted or authority).certificate, certificate, key)


def check_session(client: P4RuntimeClient, switch: FakeSwitch) -> None:
    """Checks that the session's stream works, and a Write too."""
    events: Drain[Any] = Drain(client)
    events.until(named("connected"))
    request = p4r.WriteRequest(device_id=1)
    client.write(3, request.SerializeToString())
    assert events.until(named("write_done")) == ("write_done", 3, 0, "", [])
    assert switch.writes == [request]
    assert switch.requests.get(timeout=10).arbitration.device_id == 1


def end_of(client: P4RuntimeClient) -> tuple[int, str]:
    """Waits until the session ends and returns its status code and message."""
    _, code, message = Drain[Any](client).until(named("closed"))
    return code, message


class TestUnixSocket:
    @pytest.mark.parametrize("prefix", ["unix:", "unix://"])
    def test_a_session_passes(self, tmp_path: Path, prefix: str) -> None:
        path = tmp_path / "switch.sock"
        with (
            FakeSwitch(f"unix:{path}") as switch,
            closing(P4RuntimeClient(f"{prefix}{path}", 1, (0, 5))) as client,
        ):
            check_session(client, switch)

    def test_nobody_listens(self, tmp_path: Path) -> None:
        path = tmp_path / "none.sock"
        code, message = end_of(P4RuntimeClient(f"unix:{path}", 1, (0, 5)))
        assert code == 14
        assert f"P4Runtime server at unix:{path}: No such file" in message

    @pytest.mark.parametrize(
        ("address", "problem"),
        [("unix:", "names no path"), ("unix:/" + "x" * 107, "more than 107 bytes")],
    )
    def test_paths_are_checked(self, address: str, problem: str) -> None:
        with pytest.raises(ValueError, match=problem):
            P4RuntimeClient(address, 1, (0, 5))

    def test_it_takes_no_tls(self, authority: Authority) -> None:
        with pytest.raises(ValueError, match="takes no TLS"):
            P4RuntimeClient("unix:/x", 1, (0, 5), tls=identity(authority))


class TestMutualTls:
    def test_a_session_passes(self, switch: FakeSwitch, authority: Authority) -> None:
        tls = identity(authority)
        with closing(P4RuntimeClient(switch.address, 1, (0, 5), tls=tls)) as client:
            check_session(client, switch)

    def test_a_session_passes_over_ipv6(self, authority: Authority) -> None:
        with (
            serve(authority, "IP:::1", listen="[::1]:0") as switch,
            closing(P4RuntimeClient(switch.address, 1, (0, 5), tls=identity(authority))) as client,
        ):
            check_session(client, switch)

    def test_a_client_of_another_authority_is_refused(
        self, switch: FakeSwitch, authority: Authority, stranger: Authority
    ) -> None:
        tls = identity(stranger, trusted=authority)
        code, _ = end_of(P4RuntimeClient(switch.address, 1, (0, 5), tls=tls))
        assert code != 0
        assert switch.requests.empty()

    def test_a_client_in_the_clear_is_refused(self, switch: FakeSwitch) -> None:
        code, _ = end_of(P4RuntimeClient(switch.address, 1, (0, 5)))
        assert code != 0
        assert switch.requests.empty()

    def test_a_switch_of_another_authority_is_refused(
        self, switch: FakeSwitch, authority: Authority, stranger: Authority
    ) -> None:
        tls = identity(authority, trusted=stranger)
        code, message = end_of(P4RuntimeClient(switch.address, 1, (0, 5), tls=tls))
        assert (code, "UnknownIssuer" in message) == (14, True), message
        assert switch.requests.empty()

    def test_a_switch_of_another_name_is_refused(self, authority: Authority) -> None:
        with serve(authority, "DNS:r1.example") as switch:
            tls = identity(authority)
            code, message = end_of(P4RuntimeClient(switch.address, 1, (0, 5), tls=tls))
            assert (code, "not valid for name" in message) == (14, True), message
            named_client = P4RuntimeClient(
                switch.address, 1, (0, 5), tls=tls, server_name="r1.example"
            )
            with closing(named_client) as client:
                check_session(client, switch)

    @pytest.mark.parametrize(
        ("broken", "problem"),
        [(0, "the CA certificate"), (1, "the client certificate"), (2, "the client key")],
    )
    def test_what_is_no_pem_is_named(self, authority: Authority, broken: int, problem: str) -> None:
        tls = list(identity(authority))
        tls[broken] = b"no PEM"
        with pytest.raises(ValueError, match=problem):
            P4RuntimeClient("127.0.0.1:9559", 1, (0, 5), tls=(tls[0], tls[1], tls[2]))

    def test_a_name_is_checked_and_needs_tls(self, authority: Authority) -> None:
        with pytest.raises(ValueError, match="neither a DNS name nor"):
            P4RuntimeClient(
                "127.0.0.1:1", 1, (0, 5), tls=identity(authority), server_name="no name"
            )
        with pytest.raises(ValueError, match="give tls too"):
            P4RuntimeClient("127.0.0.1:1", 1, (0, 5), server_name="r1.example")
