# SPDX-License-Identifier: Apache-2.0
"""Tests attacks by a local user without privileges, from inside a running router's namespace.

If root is permitted to do the same, the test also does it as root, and expects success. This shows
that the attack works and fails only for lack of privileges. docs/security.md describes the
boundaries.
"""

import errno
import json
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit import where
from sluice_testkit.controller import RequestRefused
from sluice_testkit.process import CommandFailed, run
from sluice_testkit.wait import wait_until

from .network import EVERYTHING, OneRouter, Rule

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
CAP_NET_ADMIN = f"{1 << 12:016x}"
CONNECT = """
import errno, socket, sys
family, place = sys.argv[1:]
where = place if family == "AF_UNIX" else (place.rpartition(":")[0], int(place.rpartition(":")[2]))
with socket.socket(getattr(socket, family)) as connection:
    print(connection.connect_ex(where))
"""
INJECT = """
import socket, sys
with socket.create_connection(("127.0.0.1", 2620), timeout=10) as connection:
    connection.sendall(bytes.fromhex(sys.argv[1]))
    try:
        while connection.recv(1):
            pass
    except (ConnectionError, TimeoutError):
        pass
"""
SQUAT = """
import socket, sys
sockets = []
for name in sys.argv[1:]:
    sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    sockets[-1].bind("\\0sluice/interface/" + name)
print("squatting", flush=True)
sys.stdin.read()
"""
ARBITRATE = """
import select, sys
from sluice._native import P4RuntimeClient
client = P4RuntimeClient(sys.argv[1], 1, (2**64 - 1, 2**64 - 1))
while select.select([client.fileno()], [], [], 20)[0]:
    for event in client.poll(8):
        print(event, flush=True)
        if event[0] in ("arbitration", "closed"):
            sys.exit(0)
"""
SEND_FROM_IKE_PORT = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sender.bind(("", 4500))
    try:
        print("sent", sender.sendto(bytes(1200), (sys.argv[1], 7000)))
    except PermissionError:
        print("refused")
"""
INJECTED = "10.66.0.0/24"


def attempt(network: OneRouter, program: str, *words: str, user: tuple[str, ...] = NOBODY) -> str:
    """Runs a Python program as `user` in the router's namespace. Returns its output."""
    argv = (*user, sys.executable, "-c", program, *words)
    return str(network.router.namespace.run(*argv).stdout)


@contextmanager
def reachable(path: Path) -> Iterator[None]:
    """Makes a file's directory accessible to all, so that only the permissions of the file protect
    it.
    """
    before = stat.S_IMODE(path.parent.stat().st_mode)
    path.parent.chmod(0o755)
    try:
        yield
    finally:
        path.parent.chmod(before)


def status(network: OneRouter) -> Any:
    return network.controller.ask(command="show", what="status")


def prefixes(network: OneRouter) -> set[str]:
    routes = network.controller.ask(command="show", what="routes")
    return {str(route["prefix"]) for route in routes}


# -- sockets


def test_p4runtime_and_the_local_api_are_for_their_owner(network: OneRouter) -> None:
    sockets = [network.controller.socket]
    kind, _, place = network.router.target.grpc.partition(":")
    if kind == "unix":  # BMv2 supports TCP only
        sockets.append(Path(place))
        assert int(attempt(network, CONNECT, "AF_INET", "127.0.0.1:9559")) == errno.ECONNREFUSED
    for path in sockets:
        with reachable(path):
            assert int(attempt(network, CONNECT, "AF_UNIX", str(path), user=())) == 0
            assert int(attempt(network, CONNECT, "AF_UNIX", str(path))) == errno.EACCES


def test_a_strangers_fpm_connection_neither_displaces_zebra_nor_injects(network: OneRouter) -> None:
    before = status(network)["fpm"]
    assert before["peer"].endswith("(user frr)")
    attempt(network, INJECT, fpm_frame().hex())
    after = status(network)["fpm"]
    assert after["refused"] == before["refused"] + 1
    assert after["peer"] == before["peer"]
    assert INJECTED not in prefixes(network)
    # Control experiment: root may send the same frame, and it takes effect.
    attempt(network, INJECT_AND_WAIT, fpm_frame().hex(), user=())
    wait_until(lambda: INJECTED in prefixes(network), 20, "root's route")
    wait_until(lambda: str(status(network)["fpm"]["peer"]).endswith("(user frr)"), 30, "zebra back")
    wait_until(lambda: INJECTED not in prefixes(network), 30, "the injected route to be deleted")


INJECT_AND_WAIT = """
import socket, sys
with socket.create_connection(("127.0.0.1", 2620), timeout=10) as connection:
    connection.sendall(bytes.fromhex(sys.argv[1]))
    connection.settimeout(1)
    try:
        connection.recv(1)
    except (ConnectionError, TimeoutError):
        pass
"""


def fpm_frame() -> bytes:
    """Returns an FPM message with a blackhole route, as zebra would send it."""
    destination = struct.pack("=HH4s", 8, 1, bytes((10, 66, 0, 0)))
    body = struct.pack("=BBBBBBBBI", 2, 24, 0, 0, 254, 186, 0, 6, 0) + destination
    message = struct.pack("=IHHII", 16 + len(body), 24, 0x501, 1, 0) + body
    return struct.pack("!BBH", 1, 1, 4 + len(message)) + message


def test_names_of_interfaces_cannot_be_squatted(network: OneRouter) -> None:
    namespace, controller = network.router.namespace, network.controller
    with pytest.raises(CommandFailed, match="Permission denied"):
        attempt(network, "open('/run/sluice/interfaces/x', 'w')")
    argv = (*NOBODY, sys.executable, "-c", SQUAT, "eth1", "eth2", "eth3", "eth4")
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb"), os.fdopen(reading, "rb") as stdin:
        squatter = network.supervisor.start("squatter", namespace.argv(argv), stdin=stdin)
        squatter.wait_for_log("squatting")
        controller.stop()
        controller.start()
        network.wait_taken_over()
        squatter.stop()


def test_only_root_sends_past_the_spd_from_a_port_of_ike(network: OneRouter) -> None:
    """Only root can send from port 4500, although the port is not privileged.

    Otherwise a user could bypass policy, since a generated rule bypasses packets from that port.
    """
    network.commit("west", outbound=[])
    try:
        a, before = network.address("a"), network.rule("west", "generated:ike-ipv4")
        assert attempt(network, SEND_FROM_IKE_PORT, a) == "refused\n"
        assert attempt(network, SEND_FROM_IKE_PORT, a, user=()) == "sent 1200\n"

        def passed() -> int:
            return sum(network.rule("west", "generated:ike-ipv4").since(before))

        wait_until(lambda: passed() >= 1, 10, "root's packet")
        assert passed() == 1
        counters = network.controller.ask(command="show", what="counters")["controller"]
        assert counters["ike_ports"] == {"dropped: ike_port_of_another_user": 1}
    finally:
        network.commit("west")


# -- requests


def test_a_request_that_is_nested_deeply_is_refused(network: OneRouter) -> None:
    """A deeply nested request is refused. Regression: 60,000 brackets crashed the YAML loader's C
    code.
    """
    pid = network.controller.pid
    for text in ("[" * 60_000, "{a: " * 60_000, "spd: west\noutbound:\n" + "- " * 60_000):
        with pytest.raises(RequestRefused, match="nested more than 32 deep"):
            network.controller.ask(command="spd check", files=[{"name": "deep", "text": text}])
    assert network.controller.pid == pid
    network.controller.wait_synced()


def test_a_file_of_60000_rules_is_committed_and_a_larger_request_is_told_its_size(
    network: OneRouter, tmp_path: Path
) -> None:
    """A commit of 60,000 rules succeeds. A larger request is refused with an error that states its
    size. Regression: the connection was closed instead (broken pipe).
    """
    file = tmp_path / "west.yaml"
    argv = [str(where.sluice()), "spd", "commit", str(file)]
    argv += ["--socket", str(network.controller.socket)]
    file.write_text(json.dumps(many_rules(60_000)))
    try:
        run(argv, timeout=300)
        assert len(network.list_of("west")["rules"]) >= 60_000
    finally:
        network.commit("west")
    file.write_text(json.dumps(many_rules(60_000, "x" * 500)))
    done = run(argv, check=False)
    assert done.returncode == 1
    assert "more than 33554432 bytes" in done.stderr


def many_rules(number: int, padding: str = "") -> dict[str, Any]:
    rules: list[Rule] = [
        {
            "name": f"rule-{padding}{n}",
            "action": "discard",
            "source": f"10.200.{n >> 8}.{n & 255}",
            "protocol": "tcp",
            "destination_ports": [443],
        }
        for n in range(number - 1)
    ]
    return {"spd": "west", "inbound": [EVERYTHING], "outbound": [*rules, EVERYTHING]}


# -- what only root may do


def test_the_controller_and_its_keeper_have_one_capability(network: OneRouter) -> None:
    pid = network.controller.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    keepers = [
        one for one in children if b"tap_keeper" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]
    assert len(keepers) == 1
    threads = [*Path(f"/proc/{pid}/task").iterdir(), *Path(f"/proc/{keepers[0]}/task").iterdir()]
    assert len(threads) > 3  # threads of the event loop, the native module and tap_keeper
    for thread in threads:
        lines = (line.split(":", 1) for line in (thread / "status").read_text().splitlines())
        found = {key: value.strip() for key, value in lines}
        for name in ("CapPrm", "CapEff", "CapBnd"):
            assert found[name] == CAP_NET_ADMIN, (thread, name)
        for name in ("CapInh", "CapAmb"):
            assert int(found[name], 16) == 0, (thread, name)
        assert found["NoNewPrivs"] == "1"


def test_what_is_on_disk_is_for_the_owner(network: OneRouter) -> None:
    directory = Path(network.controller.config["state_dir"])
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    modes = {path: path.stat().st_mode for path in directory.rglob("*")}
    assert any(stat.S_ISDIR(mode) for mode in modes.values())  # the history of commits
    for path, mode in modes.items():
        assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path
    assert stat.S_IMODE(network.controller.socket.stat().st_mode) == 0o660


# -- election ids; last, because this restarts the switch


def test_the_largest_election_id_is_stood_by(network: OneRouter) -> None:
    """If another controller has the largest possible election id, this controller becomes a
    standby. Regression: it raised ValueErrors endlessly.
    """
    said = attempt(network, ARBITRATE, network.router.target.grpc, user=())
    assert "('arbitration', True" in said, said

    def stands_by() -> bool:
        switch = status(network)["switch"]
        return switch["connected"] or "restart the switch" in str(switch["last_error"])

    wait_until(stands_by, 20, "the controller to stand by, or to be primary again")
    network.router.target.stop()
    network.router.target.start()
    network.controller.wait_synced()
    process = network.controller.process
    assert process is not None
    assert "Traceback" not in process.log()
