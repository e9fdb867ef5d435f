# SPDX-License-Identifier: Apache-2.0
"""Steers frames of the interfaces that `sluice up` has taken over to the switch, and frames of the
switch to the wire.

`wire.steering_programs` has the code of the programs. `Steering` loads them, attaches them, and
changes their tables. At first no program is attached, and steering is off.

The programs are attached to the hooks of tcx (since Linux 6.6), and the kernel detaches them when
this process ends. On older kernels they are filters of a `clsact` qdisc. There, the kernel stops
sending on the card for a moment when the qdisc is added or removed (`dev_deactivate` in
qdisc_graft), and a few frames are lost. The filters stay if this process is killed. They then pass
every frame to the kernel. The next `Steering` for the interface removes them.

Depends on sources.bpf and sources.links.
"""

from __future__ import annotations

import contextlib
import errno
import os

from sluice.model import Mac, Prefix
from sluice.sources import bpf
from sluice.sources.bpf import Map, MapType
from sluice.sources.host_survey import has_our_filter
from sluice.sources.links import ask
from sluice.wire import steering_programs as programs
from sluice.wire import tc
from sluice.wire.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL

MOST_INTERFACES = 4096
GATE_DESCRIPTOR = 900
"""Lowest number of the descriptors of program arrays: above the descriptors that a process opens
itself, and below the usual limit of 1,024."""
MOST_PREFIXES = 1 << 21
ON, OFF = programs.SETTING.pack(programs.SWITCH_ON), programs.SETTING.pack(0)
_FIRST = programs.SETTING.pack(0)


class Steering:
    """Holds the programs and their tables."""

    def __init__(self) -> None:
        """Loads the programs. Raises OSError."""
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as opened:
            self.controller_gate = self._map(opened, MapType.PROGRAM_ARRAY, "controller", 4, 4, 1)
            self.switch_gate = self._map(opened, MapType.PROGRAM_ARRAY, "switch", 4, 4, 1)
            for gate in (self.controller_gate, self.switch_gate):
                gate.move_to(GATE_DESCRIPTOR)
            self._settings = self._map(opened, MapType.ARRAY, "settings", 4, 4, 1)
            key, value = programs.PORT_KEY.size, programs.PORT_VALUE.size
            self._ports = self._map(opened, MapType.HASH, "ports", key, value, MOST_INTERFACES)
            self._prefixes = {
                size: self._map(
                    opened, MapType.LPM_TRIE, f"prefixes{size}", 4 + size, 4, MOST_PREFIXES
                )
                for size in (4, 16)
            }
            maps = programs.SteeringMaps(
                self._settings.descriptor,
                self._ports.descriptor,
                self._prefixes[4].descriptor,
                self._prefixes[16].descriptor,
            )
            steering = self._load(opened, "steering", programs.steering(maps))
            self.switch_gate.set_program(0, steering)
            code = programs.gate(self.switch_gate.descriptor)
            self.controller_gate.set_program(0, self._load(opened, "switch_gate", code))
            code = programs.gate(self.controller_gate.descriptor)
            self._entry = self._load(opened, "controller_gate", code)
            self._silent = self._load(opened, "silent", programs.silent())
            self._without_probes = self._load(opened, "no_probes", programs.without_probes())
            self._stack = opened.pop_all()
        self.is_on = False
        """Whether the switch gets frames."""
        self._links: list[int] = []
        self._port_entries: dict[bytes, bytes] = {}
        self._attached: list[int] = []

    @staticmethod
    def _map(stack: contextlib.ExitStack, kind: MapType, name: str, *sizes: int) -> Map:
        made = Map(kind, name, *sizes)
        stack.callback(made.close)
        return made

    @staticmethod
    def _load(stack: contextlib.ExitStack, name: str, code: bytes) -> int:
        descriptor = bpf.load(name, code)
        stack.callback(os.close, descriptor)
        return descriptor

    def attach(self, card: int, port: int) -> None:
        """Attaches the programs to a network card and to the host's end of its port, both given by
        index. Raises OSError."""
        detach(card)
        self._attached.append(card)
        self._hook(card, tc.Hook.INGRESS, self._entry)
        self._hook(card, tc.Hook.EGRESS, self._without_probes)
        to_wire = bpf.load("to_wire", programs.to_wire(card))
        try:
            self._hook(port, tc.Hook.INGRESS, to_wire)
            self._hook(port, tc.Hook.EGRESS, self._silent)
        finally:
            os.close(to_wire)  # the hook now holds the program

    def _hook(self, ifindex: int, hook: tc.Hook, program: int) -> None:
        try:
            self._links.append(bpf.attach(program, ifindex, bpf.AttachType[hook.name]))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._add_filter(ifindex, hook, program)

    @staticmethod
    def _add_filter(ifindex: int, hook: tc.Hook, program: int) -> None:
        """Attaches a program on a kernel without tcx."""
        where = f"interface {ifindex}, {hook.name.lower()} filter"
        with contextlib.suppress(FileExistsError):
            ask(
                tc.RTM_NEWQDISC,
                NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
                tc.clsact(ifindex),
                where,
            )
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
        ask(tc.RTM_NEWTFILTER, flags, tc.bpf_filter(ifindex, hook, program), where)

    def set_ports(self, entries: dict[bytes, bytes]) -> None:
        """Sets the table of ports (`port_key`, `port_value`)."""
        for key, value in entries.items():
            if self._port_entries.get(key) != value:
                self._ports.set(key, value)
        for key in self._port_entries.keys() - entries.keys():
            self._ports.delete(key)
        self._port_entries = dict(entries)

    def set_prefix(self, prefix: Prefix, verdict: int | None) -> None:
        """Sets the verdict of a prefix, or removes it (None)."""
        table, key = self._prefixes[len(prefix.address)], programs.prefix_key(prefix)
        if verdict is None:
            table.delete(key)
        else:
            table.set(key, programs.VERDICT.pack(verdict))

    def switch_on(self, on: bool) -> None:
        """Turns steering on or off: frames go to the switch or to the kernel. Takes effect with the
        next frame."""
        self._settings.set(_FIRST, ON if on else OFF)
        self.is_on = on

    def close(self) -> None:
        """Turns steering off, detaches the programs and closes the maps."""
        self.switch_on(False)
        for link in self._links:
            os.close(link)
        for card in self._attached:
            detach(card)
        self._links, self._attached = [], []
        self._stack.close()


def port_entry(
    card: int, vlan: int, mac: Mac, port: int, *, ipv4: bool, ipv6: bool
) -> tuple[bytes, bytes]:
    """Returns key and value of an entry in the table of ports."""
    return programs.port_key(card, vlan, mac), programs.port_value(port, ipv4=ipv4, ipv6=ipv6)


def detach(card: int) -> bool:
    """Removes the filters of `sluice up` from a network card, with their qdisc. Returns whether
    there were any. Raises OSError."""
    if not has_our_filter(card):
        return False
    try:
        ask(tc.RTM_DELQDISC, NLM_F_ACK, tc.clsact(card), f"interface {card}")
    except OSError as error:
        if error.errno not in (errno.ENODEV, errno.ENOENT, errno.EINVAL):
            raise
    return True
