# SPDX-License-Identifier: Apache-2.0
"""Tests that other local users can neither take the names of the controller's TAPs nor open their
queues.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_namespace import ip, ip_shows, network_namespace
from sluice._native import TapSet
from sluice.sources import device, links
from sluice.sources.device import Devices
from sluice.sources.queues import IFF_DETACH_QUEUE, IFREQ, TUNSETQUEUE

NOBODY = 65534
TUNGETIFF = 0x800454D2
MAC = "02:00:00:00:01:01"


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    return tmp_path / "run" / "interfaces"


@pytest.fixture
def namespace() -> Iterator[None]:
    with network_namespace():
        yield


def as_nobody(act: Callable[[], object]) -> int:
    """Runs an action as an unprivileged user. Returns its errno, or 0 if the action succeeds."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresuid(NOBODY, NOBODY, NOBODY)
            act()
        except OSError as error:
            os._exit(error.errno or 255)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_one_controller_has_an_interface(claims: Path) -> None:
    ours, others = Devices(claims), Devices(claims)
    ours.claim("eth1")
    others.claim("eth2")
    with pytest.raises(OSError, match="another controller has this interface") as error:
        others.claim("eth1")
    assert error.value.errno == errno.EBUSY
    ours.release("eth1")
    others.claim("eth1")
    others.close()
    assert list(claims.iterdir()) == []


def test_names_are_those_of_a_network_namespace(claims: Path) -> None:
    ours, others = Devices(claims), Devices(claims)
    ours.claim("eth1")
    with network_namespace():
        others.claim("eth1")
    others.close()
    ours.close()


def test_a_controller_that_died_leaves_its_claim_to_the_next(claims: Path) -> None:
    def claim_and_die() -> None:
        Devices(claims).claim("eth1")
        os._exit(0)

    child = os.fork()
    if child == 0:
        claim_and_die()
    os.waitpid(child, 0)
    assert list(claims.iterdir())
    Devices(claims).claim("eth1")


def test_no_other_user_can_take_a_name(claims: Path) -> None:
    ours = Devices(claims)
    squatter = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    squatter.bind("\0sluice/interface/eth1")  # would block a claim that is an abstract socket
    ours.claim("eth1")
    squatter.close()
    assert stat.S_IMODE(claims.stat().st_mode) == 0o700
    (taken,) = claims.iterdir()
    assert stat.S_IMODE(taken.stat().st_mode) == 0o600
    os.chmod(claims.parent, 0o777)
    assert as_nobody(lambda: os.open(taken, os.O_RDONLY)) == errno.EACCES
    assert as_nobody(lambda: Devices(claims).claim("eth2")) == errno.EACCES
    ours.close()


def test_a_directory_of_another_user_is_refused_by_name(claims: Path) -> None:
    claims.mkdir(parents=True)
    os.chown(claims, NOBODY, -1)
    with pytest.raises(OSError, match=f"belongs to user {NOBODY}") as error:
        Devices(claims).claim("eth1")
    assert error.value.filename == str(claims)
    assert error.value.errno == errno.EPERM


def test_a_link_in_place_of_the_directory_is_not_followed(claims: Path, tmp_path: Path) -> None:
    """Another user may own the directory above, as with the directories of systemd units."""
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    claims.parent.mkdir(parents=True, exist_ok=True)
    claims.symlink_to(target)
    with pytest.raises(NotADirectoryError):
        Devices(claims).claim("eth1")
    assert list(target.iterdir()) == []
    assert stat.S_IMODE(target.stat().st_mode) == 0o755


def test_a_directory_that_is_open_is_closed(claims: Path) -> None:
    claims.mkdir(parents=True)
    claims.chmod(0o755)
    Devices(claims).claim("eth1")
    assert stat.S_IMODE(claims.stat().st_mode) == 0o700


@pytest.mark.usefixtures("namespace")
def test_no_other_user_can_open_a_tap(claims: Path) -> None:
    # On Debian, every user may open /dev/net/tun (mode 0666).
    queue = os.open(device.CLONE_DEVICE, os.O_RDWR)
    flags = device.IFF_TAP | device.IFF_NO_PI | device.IFF_MULTI_QUEUE
    request = IFREQ.pack(b"eth1", flags)

    def attach() -> object:
        return fcntl.ioctl(queue, device.TUNSETIFF, request)

    taps = TapSet()
    with Devices(claims).reserved("eth1"):
        taps.add("eth1", 1500, MAC)
    assert as_nobody(attach) == errno.EPERM
    unguarded = TapSet()
    unguarded.add("eth2", 1500, MAC)
    request = IFREQ.pack(b"eth2", flags)
    assert as_nobody(attach) == 0  # without `reserved`, any user can attach
    os.close(queue)
    unguarded.close()
    taps.close()


@pytest.mark.usefixtures("namespace")
def test_a_device_loses_its_queueing_and_keeps_the_rest(claims: Path) -> None:
    taps = TapSet()
    taps.add("eth1", 1500, MAC)
    links.remove_queueing("eth1")  # before the device has sent a packet
    ip("link set eth1 up")
    assert " qdisc noqueue " in ip_shows("link show eth1")
    queue = "tc qdisc replace dev eth1 root tbf rate 8kbit burst 1600 limit 9000"
    subprocess.run(queue.split(), check=True)
    ip("addr add 10.0.0.1/24 dev eth1")
    for _ in range(2):
        links.remove_queueing("eth1")
    assert " qdisc noqueue " in ip_shows("link show eth1")
    assert "10.0.0.1/24" in ip_shows("addr show eth1")
    with pytest.raises(OSError, match="No such device"):
        links.remove_queueing("eth2")
    taps.close()


@pytest.mark.usefixtures("namespace")
def test_a_tap_outlives_its_reservation_only_if_somebody_opened_it(claims: Path) -> None:
    with Devices(claims).reserved("eth1"):
        assert socket.if_nametoindex("eth1")
    with pytest.raises(OSError, match=r"No such device|no interface"):
        socket.if_nametoindex("eth1")
    with pytest.raises(OSError, match="Invalid argument"), Devices(claims).reserved("lo"):
        pass


# --- queues of other users ------------------------------------------------------------------------


def open_queue(name: str) -> int:
    queue = os.open(device.CLONE_DEVICE, os.O_RDWR | os.O_NONBLOCK)
    flags = device.IFF_TAP | device.IFF_NO_PI | device.IFF_MULTI_QUEUE
    fcntl.ioctl(queue, device.TUNSETIFF, IFREQ.pack(name.encode(), flags))
    return queue


def leads_somewhere(queue: int) -> bool:
    try:
        os.read(queue, 2000)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


class Racer:
    """Simulates another user who, `wins` times, opens a queue after the TAP is created and before
    TUNSETOWNER."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wins: int) -> None:
        self.queues: list[int] = []
        ioctl = fcntl.ioctl

        def racing(file: int, request: int, argument: object) -> object:
            if request == device.TUNSETOWNER and len(self.queues) < wins:
                self.queues.append(open_queue("eth1"))
            return ioctl(file, request, argument)  # type: ignore[call-overload]

        monkeypatch.setattr(fcntl, "ioctl", racing)

    def close(self) -> None:
        for queue in self.queues:
            os.close(queue)


def test_who_opened_a_tap_before_it_had_an_owner_holds_nothing(
    namespace: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    racer = Racer(monkeypatch, wins=3)
    with Devices().reserved("eth1"):
        assert links.queues_of("eth1") == (1, 0)
        assert not any(map(leads_somewhere, racer.queues))
    racer.close()


def test_who_always_wins_keeps_the_controller_from_starting(
    namespace: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    racer = Racer(monkeypatch, wins=1000)
    with pytest.raises(OSError, match="give /dev/net/tun mode 0600"), Devices().reserved("eth1"):
        pass
    assert not any(map(leads_somewhere, racer.queues))
    racer.close()


def test_of_a_tap_that_is_there_nobody_may_have_an_attached_queue(
    namespace: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "CLOSING_SECONDS", 0.05)
    keepers = tap_keeper_queue()
    other = open_queue("eth1")
    with Devices().reserved("eth1"):
        assert links.queues_of("eth1") == (1, 0)
    assert not leads_somewhere(other)
    os.close(other)
    os.close(keepers)


def test_of_a_tap_that_is_there_a_stand_in_may_have_an_attached_queue(
    namespace: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Checks that a stand-in may keep its attached queue of an existing TAP, and other processes
    may not.

    A stand-in forwards packets until the new controller is primary. The controller recognizes a
    stand-in by its lock.
    """
    monkeypatch.setattr(device, "CLOSING_SECONDS", 0.05)
    keepers = tap_keeper_queue()
    stand_ins = open_queue("eth1")
    asked: list[Path] = []

    def holder(name: str, claims: Path) -> int:
        asked.append(claims)
        return 4711

    monkeypatch.setattr(device, "holder", holder)
    ifindex = socket.if_nametoindex("eth1")
    with Devices(tmp_path).reserved("eth1"):
        assert socket.if_nametoindex("eth1") == ifindex
    assert leads_somewhere(stand_ins)
    assert asked == [tmp_path]
    others = open_queue("eth1")  # a queue of another process, which is not a stand-in
    with Devices(tmp_path).reserved("eth1") as queue:
        assert links.queues_of("eth1") == (1, 0)
        flags = IFREQ.unpack(fcntl.ioctl(queue, TUNGETIFF, bytes(IFREQ.size)))
        assert flags[0].rstrip(b"\0") == b"eth1"
    for queue in (keepers, stand_ins, others):
        os.close(queue)


@pytest.mark.parametrize(
    ("user", "before", "is_set"),
    [("", None, True), ("user 65534", NOBODY, True), ("user 0", 0, False)],
)
def test_the_owner_is_set_where_it_is_another(
    namespace: None, monkeypatch: pytest.MonkeyPatch, user: str, before: int | None, is_set: bool
) -> None:
    """Checks that the owner of a TAP is set only if the TAP has another owner or none.

    After a restart the owner is already right. To set the owner again would cost time, because the
    kernel walks its whole IPv6 FIB on each call.
    """
    requests: list[int] = []
    ioctl = fcntl.ioctl

    def recording(file: int, request: int, argument: object) -> object:
        requests.append(request)
        return ioctl(file, request, argument)  # type: ignore[call-overload]

    ip(f"tuntap add eth1 mode tap multi_queue {user}")
    assert links.owner_of("eth1") == before
    monkeypatch.setattr(fcntl, "ioctl", recording)
    with Devices().reserved("eth1"):
        assert links.owner_of("eth1") == os.geteuid() == 0
    assert (device.TUNSETOWNER in requests) == is_set


def tap_keeper_queue() -> int:
    first = open_queue("eth1")
    fcntl.ioctl(first, TUNSETQUEUE, IFREQ.pack(b"", IFF_DETACH_QUEUE))
    return first


def test_a_tap_that_keepers_hold_stays(namespace: None) -> None:
    """Checks that the controller uses an existing TAP that two keepers hold, and does not create it
    anew.

    If controllers restart in quick succession, each leaves a keeper.
    """
    keepers = tap_keeper_queue()
    other_keepers = tap_keeper_queue()
    ifindex = socket.if_nametoindex("eth1")
    with Devices().reserved("eth1"):
        assert socket.if_nametoindex("eth1") == ifindex
        assert links.queues_of("eth1") == (1, 2)
    os.close(keepers)
    os.close(other_keepers)


def test_another_kind_of_device_is_never_removed(namespace: None) -> None:
    """Checks that the controller never removes a device that is not a TAP.

    For example, a configuration may by mistake give the TAP the name of the port's own device.
    """
    ip("link add eth1 type veth peer name far")
    ifindex = socket.if_nametoindex("eth1")
    with pytest.raises(OSError), Devices().reserved("eth1"):
        pass
    assert socket.if_nametoindex("eth1") == ifindex


def test_what_is_no_tap_is_said(namespace: None) -> None:
    with pytest.raises(OSError, match="No such device"):
        links.queues_of("eth1")
    with pytest.raises(OSError, match="is not a TAP with several queues"):
        links.queues_of("lo")
    with pytest.raises(OSError, match="No such device"):
        links.remove("eth1")
