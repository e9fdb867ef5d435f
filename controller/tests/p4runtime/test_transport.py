# SPDX-License-Identifier: Apache-2.0
"""Tests that every connection reads the TLS files again.

Also tests that a key file that every user can read is refused, and a Unix socket of another user.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sluice.connection_config import HostPort, SwitchConfig, TlsConfig, UnixAddress
from sluice.p4runtime import transport
from sluice.p4runtime.session import P4RuntimeError

FAR = HostPort("192.0.2.1", 9559)


@pytest.fixture
def tls(tmp_path: Path) -> TlsConfig:
    config = TlsConfig(tmp_path / "ca.pem", tmp_path / "r1.pem", tmp_path / "r1.key")
    for path in (config.ca, config.certificate, config.key):
        path.write_text(path.name)
    config.key.chmod(0o600)
    return config


def test_keys_are_read_anew(tls: TlsConfig) -> None:
    switch = SwitchConfig(FAR, tls=tls)
    assert transport.prepare(switch) == (b"ca.pem", b"r1.pem", b"r1.key")
    tls.certificate.write_text("renewed")
    assert transport.prepare(switch) == (b"ca.pem", b"renewed", b"r1.key")


@pytest.mark.parametrize("name", ["ca.pem", "r1.pem", "r1.key"])
def test_a_file_that_is_missing_is_named(tls: TlsConfig, name: str) -> None:
    path = tls.ca.with_name(name)
    path.unlink()
    with pytest.raises(P4RuntimeError, match=f"tls: {path}: No such file"):
        transport.prepare(SwitchConfig(FAR, tls=tls))


def test_a_key_that_everybody_can_read_is_refused(tls: TlsConfig) -> None:
    tls.key.chmod(0o644)
    with pytest.raises(P4RuntimeError, match=r"can be read by every user \(mode 0644\); set"):
        transport.prepare(SwitchConfig(FAR, tls=tls))


def test_a_socket_of_another_user_is_not_the_switch(tmp_path: Path) -> None:
    path = tmp_path / "p4rt.sock"
    switch = SwitchConfig(UnixAddress(path))
    assert transport.prepare(switch) is None  # the socket is missing, which the client reports
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert transport.prepare(switch) is None
        os.chown(path, 12345, -1)
        with pytest.raises(P4RuntimeError, match="belongs to user 12345, not to the switch"):
            transport.prepare(switch)


def test_tcp_without_tls_needs_nothing() -> None:
    assert transport.prepare(SwitchConfig(HostPort("127.0.0.1", 9559))) is None
