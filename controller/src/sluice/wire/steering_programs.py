# SPDX-License-Identifier: Apache-2.0
"""Assembles the eBPF programs that steer frames between a network card, the kernel and the switch.

The ingress hook (tc, `clsact`) of an interface that was taken over runs three programs. The first
and the second call the next one through a program array:

1. `gate` is attached to the hook. It calls slot 0 of the first array. If the slot is empty, the
   kernel gets the frame.
2. A second `gate` is in this slot. It calls slot 0 of the second array.
3. `steering` is in that slot. It decides for each frame whether the switch or the kernel gets it.

Only the controller has the first array open, and only the switch has the second one. The kernel
empties an array when the last process that has it open is gone (`bpf_fd_array_map_clear`). So when
one of these processes dies for any reason, the kernel gets all frames from that moment on. No
process has to react.

`steering` gives a frame to the switch only if all of these conditions hold; otherwise the kernel
gets it:

- Steering is on (`SWITCH_ON` in the settings).
- The frame is IPv4 or IPv6, untagged or with one 802.1Q tag. Its interface, VLAN and destination
  MAC address are in the table of ports.
- The interface forwards this family.
- The longest matching prefix of the destination has the verdict `TO_SWITCH`, or there is no
  matching prefix.

So ARP, neighbour discovery, multicast, packets for this host and everything unusual stay with the
kernel. `to_wire` and `silent` are the programs on the host's end of the switch's port.

Pure. Depends on wire.bpf. The offsets are those of struct __sk_buff (linux/bpf.h).
"""

from __future__ import annotations

import sys
from struct import Struct
from typing import NamedTuple

from sluice.model import Mac, Prefix
from sluice.wire import bpf
from sluice.wire.bpf import R0, R1, R2, R3, R4, R6, R7, R8, R10, Program

TC_ACT_UNSPEC, TC_ACT_SHOT = -1, 2
LOOKUP, TAIL_CALL, REDIRECT, LOAD_BYTES, REDIRECT_PEER = 1, 12, 23, 26, 155
MARK, PROTOCOL, VLAN_PRESENT, VLAN_TCI, VLAN_PROTOCOL, IFINDEX = 8, 16, 20, 24, 28, 40
VLAN_ID = 0x0FFF

SWITCH_ON = 1
"""Value of the setting with which frames go to the switch."""
TO_KERNEL, TO_SWITCH = 1, 2
FORWARDS_IPV4, FORWARDS_IPV6 = 1, 2
PROBE_MARK = 0x51_0009
"""Mark of neighbour probes (`sources.neighbor_probe`), which must not leave the host."""

# ifindex, VLAN (0: untagged), MAC address
PORT_KEY = Struct("=IH6s")
# ifindex of the port on the host's side, FORWARDS_* of IPv4, of IPv6
PORT_VALUE = Struct("=III")
SETTING = Struct("=I")
VERDICT = Struct("=I")
PREFIX_LENGTH = Struct("=I")

# Positions of buffers below the frame pointer.
_KEY, _SETTING_KEY, _PORT_KEY = -24, -4, -40


class SteeringMaps(NamedTuple):
    """Holds the descriptors of the maps that `steering` reads."""

    settings: int
    ports: int
    ipv4: int
    ipv6: int


def port_key(ifindex: int, vlan: int, mac: Mac) -> bytes:
    """Encodes a key of the table of ports."""
    return PORT_KEY.pack(ifindex, vlan, mac)


def port_value(ifindex: int, *, ipv4: bool, ipv6: bool) -> bytes:
    """Encodes a port: the index of its end on the host's side, and the families it forwards."""
    return PORT_VALUE.pack(ifindex, FORWARDS_IPV4 * ipv4, FORWARDS_IPV6 * ipv6)


def prefix_key(prefix: Prefix) -> bytes:
    """Encodes a key of a table of prefixes."""
    return PREFIX_LENGTH.pack(prefix.length) + prefix.address


def _network_order(value: int) -> int:
    """Returns the value that a program on this machine reads from a two-octet field in network
    order."""
    return int.from_bytes(value.to_bytes(2, "big"), sys.byteorder)


def gate(array: int) -> bytes:
    """Returns the program that calls slot 0 of a program array, or gives the frame to the
    kernel."""
    made = Program()
    made.load_map(R2, array)
    made.set(R3, 0)
    made.call(TAIL_CALL)
    made.leave(TC_ACT_UNSPEC)
    return made.code()


def steering(maps: SteeringMaps) -> bytes:
    """Returns the program that decides whether the switch or the kernel gets a frame."""
    made = Program()
    made.copy(R6, R1)
    _check_setting(made, maps.settings)
    _find_port(made, maps.ports)
    made.load(bpf.LOAD_WORD, R8, R6, PROTOCOL)
    made.jump_if(R8, _network_order(0x0800), "ipv4")
    made.jump_if(R8, _network_order(0x86DD), "ipv6")
    made.jump("kernel")
    for name, position, destination, length, table in (
        ("ipv4", 4, 30, 4, maps.ipv4),
        ("ipv6", 8, 38, 16, maps.ipv6),
    ):
        made.label(name)
        made.load(bpf.LOAD_WORD, R8, R7, position)
        made.jump_if(R8, 0, "kernel")
        _check_prefix(made, destination, length, table)
        made.jump("switch")
    made.label("switch")
    made.load(bpf.LOAD_WORD, R1, R7, 0)
    made.set(R2, 0)
    made.call(REDIRECT_PEER)
    made.leave()
    made.label("kernel")
    made.leave(TC_ACT_UNSPEC)
    return made.code()


def _check_setting(made: Program, settings: int) -> None:
    made.store_value(R10, _SETTING_KEY, 0)
    _look_up(made, settings, _SETTING_KEY)
    made.load(bpf.LOAD_WORD, R1, R0, 0)
    made.jump_unless(R1, SWITCH_ON, "kernel")


def _look_up(made: Program, table: int, key: int) -> None:
    """Looks up the key that is stored below the frame pointer. R0 then points to the value. If
    there is no entry, the kernel gets the frame."""
    made.load_map(R1, table)
    made.copy(R2, R10)
    made.add(R2, key)
    made.call(LOOKUP)
    made.jump_if(R0, 0, "kernel")


def _find_port(made: Program, ports: int) -> None:
    """Finds the port by interface, VLAN and MAC address. R7 then points to it."""
    made.load(bpf.LOAD_WORD, R1, R6, IFINDEX)
    made.store(bpf.STORE_WORD, R10, _PORT_KEY, R1)
    made.set(R8, 0)
    made.load(bpf.LOAD_WORD, R1, R6, VLAN_PRESENT)
    made.jump_if(R1, 0, "untagged")
    made.load(bpf.LOAD_WORD, R1, R6, VLAN_PROTOCOL)
    made.jump_unless(R1, _network_order(0x8100), "kernel")
    made.load(bpf.LOAD_WORD, R8, R6, VLAN_TCI)
    made.mask(R8, VLAN_ID)
    made.jump_if(R8, 0, "kernel")  # a priority tag
    made.label("untagged")
    made.store(bpf.STORE_HALF, R10, _PORT_KEY + 4, R8)
    _load_bytes(made, 0, _PORT_KEY + 6, 6)
    _look_up(made, ports, _PORT_KEY)
    made.copy(R7, R0)


def _check_prefix(made: Program, destination: int, length: int, table: int) -> None:
    """Gives the frame to the kernel if the longest matching prefix has no verdict TO_SWITCH."""
    made.store_value(R10, _KEY, length * 8)
    _load_bytes(made, destination, _KEY + 4, length)
    made.load_map(R1, table)
    made.copy(R2, R10)
    made.add(R2, _KEY)
    made.call(LOOKUP)
    made.jump_if(R0, 0, "switch")
    made.load(bpf.LOAD_WORD, R1, R0, 0)
    made.jump_unless(R1, TO_SWITCH, "kernel")


def _load_bytes(made: Program, offset: int, to: int, length: int) -> None:
    """Copies octets of the frame below the frame pointer. A frame that is too short goes to the
    kernel."""
    made.copy(R1, R6)
    made.set(R2, offset)
    made.copy(R3, R10)
    made.add(R3, to)
    made.set(R4, length)
    made.call(LOAD_BYTES)
    made.jump_unless(R0, 0, "kernel")


def to_wire(ifindex: int) -> bytes:
    """Returns the program that sends each frame of the switch to the wire of a network card."""
    made = Program()
    made.set(R1, ifindex)
    made.set(R2, 0)
    made.call(REDIRECT)
    made.leave()
    return made.code()


def silent() -> bytes:
    """Returns the program that drops each frame that the host itself sends to the switch."""
    made = Program()
    made.leave(TC_ACT_SHOT)
    return made.code()


def without_probes() -> bytes:
    """Returns the program that drops the neighbour probes among the frames that the host sends."""
    made = Program()
    made.load(bpf.LOAD_WORD, R1, R1, MARK)
    made.jump_if(R1, PROBE_MARK, "probe")
    made.leave(TC_ACT_UNSPEC)
    made.label("probe")
    made.leave(TC_ACT_SHOT)
    return made.code()
