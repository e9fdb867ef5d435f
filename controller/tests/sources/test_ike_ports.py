# SPDX-License-Identifier: Apache-2.0
"""Tests with the real kernel, in its own network namespace, which users may send from the IKE
ports.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from keepers import start_keeper
from kernel_namespace import Tap, ip, network_namespace
from sluice.sources import ike_ports
from sluice.sources.ike_ports import IkePorts

USER, ROOT = 12345, 0
PEERS = {socket.AF_INET: "10.0.0.2", socket.AF_INET6: "2001:db8::2"}
FAMILIES = pytest.mark.parametrize("family", PEERS)
MARK = b"sent by the test "
pytestmark = pytest.mark.skipif(shutil.which("ip") is None, reason="needs Linux namespaces")


@pytest.fixture
def tap() -> Iterator[Tap]:
    with network_namespace():
        tap = Tap("eth1")
        ip(f"link set {tap.name} up")
        ip(f"addr add 10.0.0.1/24 dev {tap.name}")
        ip(f"addr add 2001:db8::1/64 dev {tap.name} nodad")
        for peer in PEERS.values():
            ip(f"neigh replace {peer} dev {tap.name} lladdr 02:00:00:00:00:02 nud permanent")
        yield tap
        tap.close()


@contextmanager
def guarded(*users: str) -> Iterator[IkePorts]:
    ports = IkePorts(users)
    try:
        yield ports
    finally:
        ports.close()


def send(
    family: socket.AddressFamily,
    uid: int,
    port: int,
    size: int = 100,
    to: Mapping[socket.AddressFamily, str] = PEERS,
) -> None:
    """Sends a datagram from a port in a process of user `uid`, then closes the socket. Other
    sockets may use the same port.
    """
    child = os.fork()
    if child == 0:
        os.setresuid(uid, uid, uid)
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sender.bind(("", port))
            with suppress(PermissionError):  # the sender gets an error for a dropped packet
                sender.sendto(MARK + bytes(size), (to[family], 7000))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def sent(tap: Tap, family: socket.AddressFamily) -> int:
    """Returns the number of marked packets sent since the last call.

    Later fragments have no mark.
    """
    send(family, ROOT, 7001)  # sent after all earlier packets
    frames = [tap.read(lambda frame: MARK in frame)]
    while b"\x1b\x59\x1b\x58" not in frames[-1]:  # ports 7001 and 7000
        frames.append(tap.read(lambda frame: MARK in frame))
    return len(frames) - 1


@FAMILIES
def test_only_root_sends_from_the_ports_of_ike(tap: Tap, family: socket.AddressFamily) -> None:
    send(family, USER, 4500)
    assert sent(tap, family) == 1  # by default every user may send
    with guarded("root") as ports:
        send(family, USER, 4500)
        send(family, USER, 4500, size=4000)
        assert sent(tap, family) == 0
        assert ports.counters == {"dropped: ike_port_of_another_user": 2}
        send(family, USER, 4499)
        send(family, ROOT, 4500)
        send(family, ROOT, 500)
        send(family, ROOT, 4500, size=4000)
        assert sent(tap, family) == 4
    send(family, USER, 4500)
    assert sent(tap, family) == 1


@FAMILIES
def test_a_port_that_two_users_hold_tells_them_apart(
    tap: Tap, family: socket.AddressFamily
) -> None:
    with guarded("root"), socket.socket(family, socket.SOCK_DGRAM) as daemon:
        daemon.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        daemon.bind(("", 4500))
        send(family, USER, 4500)
        assert sent(tap, family) == 0
        daemon.sendto(MARK, (PEERS[family], 7000))
        assert sent(tap, family) == 1


def test_port_500_is_kept_where_no_port_is_privileged(tap: Tap) -> None:
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")
    with guarded("root"):
        send(socket.AF_INET, USER, 500)
        assert sent(tap, socket.AF_INET) == 0


def test_users_are_named(tap: Tap) -> None:
    with guarded(str(USER)):
        send(socket.AF_INET, USER, 4500)
        assert sent(tap, socket.AF_INET) == 1
        send(socket.AF_INET, ROOT, 4500)
        assert sent(tap, socket.AF_INET) == 0


def test_a_user_that_is_none_is_an_error(tap: Tap) -> None:
    with pytest.raises(OSError, match="there is no user 'nobody-of-this-name'"):
        IkePorts(["root", "nobody-of-this-name"])


def test_a_firewall_that_is_loaded_anew_does_not_take_the_rule_away(tap: Tap) -> None:
    with guarded("root"):
        firewall = ike_ports.Netfilter()
        firewall.run("flush ruleset; add table inet firewall")
        firewall.close()
        send(socket.AF_INET, USER, 4500)
        assert sent(tap, socket.AF_INET) == 0


def test_a_device_above_the_interface_is_no_way_around(tap: Tap) -> None:
    """Checks that the rule applies to packets of a macvlan device on the interface.

    VRRP's virtual router is such a device, with addresses of this router.
    """
    ip(f"link add above link {tap.name} type macvlan mode bridge")
    ip("link set above up")
    ip("addr add 10.3.0.1/24 dev above")
    ip("neigh replace 10.3.0.2 dev above lladdr 02:00:00:00:00:02 nud permanent")
    above = {socket.AF_INET: "10.3.0.2"}
    send(socket.AF_INET, USER, 4500, to=above)
    assert sent(tap, socket.AF_INET) == 1
    with guarded("root"):
        send(socket.AF_INET, USER, 4500, to=above)
        assert sent(tap, socket.AF_INET) == 0


def test_what_waits_for_a_neighbour_meets_the_rule_when_it_leaves(tap: Tap) -> None:
    """Checks that the rule also drops packets that wait for a neighbour when the rule is created.

    Such packets have already passed the hooks of the host's stack.
    """
    away = {socket.AF_INET: "10.0.0.7"}
    send(socket.AF_INET, USER, 4500, to=away)
    with guarded("root") as ports, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("", 4500))
        daemon.sendto(MARK, ("10.0.0.7", 7000))
        ports.guard("eth1")
        ip("neigh replace 10.0.0.7 dev eth1 lladdr 02:00:00:00:00:07 nud permanent")
        assert sent(tap, socket.AF_INET) == 1
        assert ports.counters == {"dropped: ike_port_of_another_user": 1}


def test_what_a_queueing_discipline_holds_back_never_leaves(tap: Tap) -> None:
    """Checks that packets in a queueing discipline are dropped when the rule is created.

    Such packets have already passed the device's egress hook, where the rule acts.
    """
    queue = f"tc qdisc replace dev {tap.name} root tbf rate 8kbit burst 2000 limit 100000"
    subprocess.run(queue.split(), check=True)
    for _ in range(3):
        send(socket.AF_INET, USER, 4500, size=1400)
    assert " backlog " in held_back(tap)
    with guarded("root") as ports:
        ports.guard(tap.name)
        assert held_back(tap) == ""
        assert sent(tap, socket.AF_INET) == 1  # sent before the rule was installed


def test_the_rule_is_there_as_long_as_the_keeper_of_the_taps(tap: Tap) -> None:
    """Checks that after its controller is killed, the rule stays for as long as the keeper of the
    TAPs runs.

    The keeper keeps the host interfaces while the controller restarts, so they need the rule.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        IkePorts(["root"])
        with os.fdopen(writing, "w") as says:
            says.write(str(start_keeper({}, grace=20).pid))
        signal.pause()
    os.close(writing)
    with os.fdopen(reading) as said:
        keeper = int(said.read())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    send(socket.AF_INET, USER, 4500)
    assert sent(tap, socket.AF_INET) == 0
    os.kill(keeper, signal.SIGTERM)
    wait_until_gone(keeper)
    send(socket.AF_INET, USER, 4500)
    assert sent(tap, socket.AF_INET) == 1


def held_back(tap: Tap) -> str:
    """Returns the output of `tc` if the device's queueing discipline holds packets, else ""."""
    shown = subprocess.run(
        ["tc", "-s", "qdisc", "show", "dev", tap.name], check=True, capture_output=True, text=True
    ).stdout
    return "" if "noqueue" in shown or "backlog 0b" in shown else shown


def wait_until_gone(pid: int) -> None:
    """Waits until an orphaned process has ended and init has reaped it."""
    descriptor = os.pidfd_open(pid)
    try:
        assert select.select([descriptor], [], [], 10)[0]
    finally:
        os.close(descriptor)


def test_loopback_is_not_touched(tap: Tap) -> None:
    with guarded("root"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 7000))
        server.settimeout(10)
        send(socket.AF_INET, USER, 4500, to={socket.AF_INET: "127.0.0.1"})
        assert server.recv(200).startswith(MARK)


def test_without_nftables_the_kernel_itself_must_keep_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ike_ports, "LIBRARY", "libnftables.of.no.host")
    start = tmp_path / "ip_unprivileged_port_start"
    start.write_text("4501\n")
    assert IkePorts(["root"], unprivileged_from=start).counters == {}
    with pytest.raises(OSError, match=r"cannot be reserved.*no\.host.*install libnftables1"):
        IkePorts(["root", str(USER)], unprivileged_from=start)
    with pytest.raises(OSError, match="cannot be reserved"):
        IkePorts([str(USER)], unprivileged_from=start)
    start.write_text("4500\n")
    with pytest.raises(OSError, match=r"set net\.ipv4\.ip_unprivileged_port_start=4501"):
        IkePorts(["root"], unprivileged_from=start)


def test_a_kernel_without_the_hook_at_a_devices_exit_needs_the_port_kept_otherwise(
    tap: Tap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ike_ports, "GUARD", ike_ports.GUARD.replace("egress", "no-such-hook"))
    start = tmp_path / "ip_unprivileged_port_start"
    start.write_text("4501\n")
    IkePorts(["root"], unprivileged_from=start).guard("eth1")
    start.write_text("1024\n")
    with pytest.raises(OSError, match="cannot be reserved"):
        IkePorts(["root"], unprivileged_from=start)


def test_what_the_kernel_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    netfilter = ike_ports.Netfilter()
    with pytest.raises(OSError, match=r"nftables: .*No such file or directory"):
        netfilter.run("delete table inet sluice-of-no-host")
    netfilter.close()
