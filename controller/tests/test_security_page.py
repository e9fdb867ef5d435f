# SPDX-License-Identifier: Apache-2.0
"""Tests docs/security.md: its commands create certificates for controller and switch.

With these certificates, controller and switch authenticate each other. Python's ssl module
(OpenSSL) plays the switch, and requires a client certificate as sluice-switch does. The
controller's end is the daemon's own code, from the configuration to the native client.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.config import Config, load_config
from sluice.p4runtime.session import P4RuntimeError
from sluice.service import connect

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
CONFIG = """\
router: r1
switch:
  address: "127.0.0.1:{port}"
  tls: {{ca: {ca}, certificate: {name}.pem, key: {name}.key, server_name: {server}}}
interfaces:
  - {{name: eth1, port: 1, mac: "02:00:00:00:01:01"}}
"""


def commands() -> str:
    """Returns the shell commands under the page's heading."""
    section = PAGE.read_text(encoding="utf-8").split("## Mutual TLS", 1)[1]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    # In `stranger`, another certificate authority has signed certificates with the same names.
    for where in (directory, directory / "stranger"):
        where.mkdir(exist_ok=True)
        subprocess.run(
            ["bash", "-eu", "-c", commands()], cwd=where, check=True, capture_output=True
        )
    return directory


@contextmanager
def switch(files: Path) -> Iterator[tuple[int, Future[str]]]:
    """Serves one TLS client, whose certificate the authority must have signed. Yields the port and
    a future.

    The future returns the subject of the client's certificate, or raises the error of its
    connection.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files / "ca.pem")
    context.load_cert_chain(files / "switch-1.pem", files / "switch-1.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    client: Future[str] = Future()

    def serve(listener: socket.socket) -> None:
        try:
            with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
                connection.recv(1)  # with TLS 1.3 the client's certificate comes after its hello
                subject = (connection.getpeercert() or {})["subject"]
                client.set_result(str(subject))
        except (ssl.SSLError, OSError) as error:
            client.set_exception(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1], client
        finally:
            with socket.socket() as last:  # makes `accept` return if no client came
                last.connect_ex(listener.getsockname())
            thread.join()


def configuration(files: Path, **words: object) -> Config:
    given = {"ca": "ca.pem", "name": "r1", "server": "switch-1", "port": 1} | words
    path = files / "r1.yaml"
    path.write_text(CONFIG.format(**given))
    return load_config(path)


def end(config: Config) -> tuple[int, str]:
    """Returns how a refused connection ends: its code and message."""
    client = connect(config, (0, 1))
    try:
        while select.select([client.fileno()], [], [], 10)[0]:
            for event in client.poll(8):
                if event[0] == "closed":
                    return event[1], event[2]
    finally:
        client.close()
    raise TimeoutError


def test_private_keys_are_private(files: Path) -> None:
    assert {path.stat().st_mode & 0o777 for path in files.glob("*.key")} == {0o600}


def test_controller_and_switch_know_each_other(files: Path) -> None:
    with switch(files) as (port, client):
        connection = connect(configuration(files, port=port), (0, 1))
        assert "'r1'" in client.result(timeout=10)
        connection.close()


def test_a_switch_of_another_name_is_refused(files: Path) -> None:
    with switch(files) as (port, client):
        code, message = end(configuration(files, port=port, server="switch-2"))
        assert code == 14, message
        assert isinstance(client.exception(timeout=10), OSError)


def test_a_switch_of_another_authority_is_refused(files: Path) -> None:
    with switch(files) as (port, client):
        code, message = end(configuration(files, port=port, ca="stranger/ca.pem"))
        assert code == 14, message
        assert isinstance(client.exception(timeout=10), OSError)


@pytest.mark.parametrize("name", ["stranger/r1", "switch-1"])
def test_a_client_that_is_no_controller_is_refused(files: Path, name: str) -> None:
    """Checks that the switch refuses clients whose certificate is not that of a controller.

    One certificate is signed by another authority. The other belongs to a switch and is not valid
    for clients.
    """
    with switch(files) as (port, client):
        connection = connect(configuration(files, port=port, name=name), (0, 1))
        error = client.exception(timeout=10)
        assert isinstance(error, ssl.SSLError), error
        connection.close()


def test_files_that_hold_no_keys_are_an_error_of_the_connection(files: Path) -> None:
    (files / "empty.pem").touch()
    (files / "empty.key").touch(mode=0o600)
    with pytest.raises(P4RuntimeError, match="INVALID_ARGUMENT: tls"):
        connect(configuration(files, name="empty"), (0, 1))
