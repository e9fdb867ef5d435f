# SPDX-License-Identifier: Apache-2.0
"""Tests the steering programs in the real kernel: the verdict for frames, and the gates.

`run` passes a frame to a loaded program (BPF_PROG_TEST_RUN) on the interface `lo`. This call cannot
make a frame whose tag the kernel has removed; topo/e2e/takeover has tagged frames.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from struct import Struct

import pytest

from kernel_namespace import DEADLINE, ip, ip_shows, network_namespace, set_sysctl
from sluice.model import Prefix, parse_address, parse_mac
from sluice.sources import bpf, host_survey
from sluice.sources.bpf import Map, MapType
from sluice.sources.steering import Steering, detach, port_entry
from sluice.wire import steering_programs
from sluice.wire.steering_programs import TO_KERNEL, TO_SWITCH

KERNEL, DROP, REDIRECT = 0xFFFFFFFF, 2, 7
PROG_TEST_RUN = 10
# program, result, sizes in and out, data in and out, repetitions, duration, context sizes in and
# out, context in and out, flags, CPU, batch size
TEST_RUN = Struct("=4IQQ4IQQ3I4x")
MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
LO, PORT = 1, 77


def run(program: int, frame: bytes) -> int:
    """Returns the program's result for a frame."""
    data = ctypes.create_string_buffer(frame, len(frame))
    address = ctypes.addressof(data)
    attributes = TEST_RUN.pack(program, 0, len(frame), 0, address, 0, *[0] * 4, 0, 0, 0, 0, 0)
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    number = bpf.NUMBERS[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, PROG_TEST_RUN, buffer, len(attributes)) < 0:
        raise OSError(ctypes.get_errno(), "BPF_PROG_TEST_RUN")
    return int.from_bytes(buffer.raw[4:8], sys.byteorder)


def frame(destination: str, mac: str = MAC) -> bytes:
    wanted = parse_address(destination)
    if len(wanted) == 4:
        kind, head = 0x0800, bytes.fromhex("45000014000000004011ffff") + bytes(4) + wanted
    else:
        kind, head = 0x86DD, bytes.fromhex("6000000000001140") + bytes(16) + wanted
    return parse_mac(mac) + parse_mac(OTHER) + kind.to_bytes(2, "big") + head + bytes(40)


@pytest.fixture
def steering() -> Iterator[Steering]:
    with network_namespace(), closing(Steering()) as made:
        made.set_ports(dict([port_entry(LO, 0, parse_mac(MAC), PORT, ipv4=True, ipv6=True)]))
        made.switch_on(True)
        yield made


def verdict(steering: Steering, sent: bytes) -> int:
    return run(steering._entry, sent)


@pytest.mark.parametrize("address", ["192.0.2.1", "2001:db8::1"])
def test_transit_goes_to_the_switch(steering: Steering, address: str) -> None:
    assert verdict(steering, frame(address)) == REDIRECT
    assert verdict(steering, frame(address, OTHER)) == KERNEL


def test_nothing_goes_to_the_switch_while_steering_is_off(steering: Steering) -> None:
    steering.switch_on(False)
    assert verdict(steering, frame("192.0.2.1")) == KERNEL
    steering.switch_on(True)
    assert verdict(steering, frame("192.0.2.1")) == REDIRECT


@pytest.mark.parametrize(
    ("prefix", "inside", "outside"),
    [
        ("192.0.2.0/24", "192.0.2.9", "192.0.3.9"),
        ("192.0.2.1/32", "192.0.2.1", "192.0.2.2"),
        ("0.0.0.0/0", "198.51.100.1", "2001:db8::1"),
        ("2001:db8:1::/48", "2001:db8:1:2::3", "2001:db8:2::3"),
        ("2001:db8::1/128", "2001:db8::1", "2001:db8::2"),
    ],
)
def test_prefixes_of_the_kernel(steering: Steering, prefix: str, inside: str, outside: str) -> None:
    steering.set_prefix(Prefix.parse(prefix), TO_KERNEL)
    assert verdict(steering, frame(inside)) == KERNEL
    assert verdict(steering, frame(outside)) == REDIRECT
    steering.set_prefix(Prefix.host(parse_address(inside)), TO_SWITCH)
    if Prefix.parse(prefix) != Prefix.host(parse_address(inside)):
        assert verdict(steering, frame(inside)) == REDIRECT
        steering.set_prefix(Prefix.host(parse_address(inside)), None)
        assert verdict(steering, frame(inside)) == KERNEL
        steering.set_prefix(Prefix.parse(prefix), None)
    assert verdict(steering, frame(inside)) == REDIRECT


@pytest.mark.parametrize(
    ("ipv4", "ipv6"), [(True, False), (False, True), (False, False), (True, True)]
)
def test_families(steering: Steering, ipv4: bool, ipv6: bool) -> None:
    steering.set_ports(dict([port_entry(LO, 0, parse_mac(MAC), PORT, ipv4=ipv4, ipv6=ipv6)]))
    assert verdict(steering, frame("192.0.2.1")) == (REDIRECT if ipv4 else KERNEL)
    assert verdict(steering, frame("2001:db8::1")) == (REDIRECT if ipv6 else KERNEL)


@pytest.mark.parametrize("kind", ["0806", "88cc", "8847", "0000"])
def test_other_protocols_stay_with_the_kernel(steering: Steering, kind: str) -> None:
    plain = frame("192.0.2.1")
    assert verdict(steering, plain[:12] + bytes.fromhex(kind) + plain[14:]) == KERNEL


def test_port_that_is_gone(steering: Steering) -> None:
    steering.set_ports({})
    assert verdict(steering, frame("192.0.2.1")) == KERNEL


@pytest.mark.parametrize("gate", ["switch_gate", "controller_gate"])
def test_closed_gate_gives_everything_to_the_kernel(steering: Steering, gate: str) -> None:
    """The kernel empties a program array when the array's last descriptor is closed."""
    held = os.dup(getattr(steering, gate).descriptor)
    getattr(steering, gate).close()
    assert verdict(steering, frame("192.0.2.1")) == REDIRECT
    os.close(held)
    wait_for(lambda: verdict(steering, frame("192.0.2.1")) == KERNEL)


def test_gate_closes_with_the_process_that_holds_it(steering: Steering) -> None:
    gate = steering.switch_gate
    with subprocess.Popen(["sleep", "100"], pass_fds=(gate.descriptor,)) as holder:
        gate.close()
        assert verdict(steering, frame("192.0.2.1")) == REDIRECT
        holder.kill()
    wait_for(lambda: verdict(steering, frame("192.0.2.1")) == KERNEL)


def wait_for(condition: object) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.001)


def test_other_programs() -> None:
    ipv4 = frame("192.0.2.1")
    for code, result in (
        (steering_programs.silent(), DROP),
        (steering_programs.to_wire(LO), REDIRECT),
        (steering_programs.without_probes(), KERNEL),
    ):
        program = bpf.load("test", code)
        assert run(program, ipv4) == result
        os.close(program)


def test_programs_are_attached_and_detached() -> None:
    with network_namespace():
        ip("link add v1 type veth peer name v2")
        for name in ("v1", "v2"):
            set_sysctl(f"ipv6/conf/{name}/disable_ipv6", "1")
            ip(f"link set {name} up")
        with closing(Steering()) as steering:
            card, port = socket.if_nametoindex("v1"), socket.if_nametoindex("v2")
            steering.attach(card, port)
            uses_tcx = bpf.attached(card, bpf.AttachType.INGRESS) == 1
            assert (card in host_survey.survey().filtered) == uses_tcx
            assert card not in host_survey.survey([card]).filtered
            assert not leaves("v2")  # a frame that the host sends to the switch
        assert leaves("v2")
        assert not detach(card)


def leaves(interface: str) -> bool:
    """Returns whether a frame that the host sends on an interface leaves it."""

    def packets() -> int:
        shown = json.loads(ip_shows(f"-s -j link show dev {interface}"))
        return int(shown[0]["stats64"]["tx"]["packets"])

    before = packets()
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sending,
        suppress(OSError),  # ENOBUFS: a program has dropped the frame
    ):
        sending.sendto(frame("192.0.2.1"), (interface, 0))
    return packets() > before


def test_map_of_unknown_size_is_refused_with_a_reason() -> None:
    with pytest.raises(OSError, match="BPF map broken"):
        Map(MapType.ARRAY, "broken", 3, 4, 1)


def test_refused_program_names_the_verifiers_reason() -> None:
    with pytest.raises(OSError, match=r"BPF program broken: .*R0"):
        bpf.load("broken", bytes([0x95]) + bytes(7))
