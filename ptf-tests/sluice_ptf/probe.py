# SPDX-License-Identifier: Apache-2.0
"""Sends packets and collects all resulting packets, without a sleep.

After the packets under test, the probe sends sentinels on the same paths: one to each port and one
to the CPU. A switch keeps the order of packets on one path. So once the sentinels have arrived, no
further packet can come, and no time-out is needed to find this out. Sentinels use a VLAN, a VRF and
a range of ids that no test uses.

Packets are sent in windows, because BMv2's egress queues hold 64 packets and drop the rest.

Depends on runtime, wire and schema.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from p4.v1 import p4runtime_pb2
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from sluice_ptf.runtime import PacketIn, RuntimeClient, update
from sluice_ptf.schema import Value
from sluice_ptf.wire import Ports

CPU = 510
WINDOW = 32
DEADLINE_SECONDS = 10.0
IMPATIENT_SECONDS = 1.0  # deadline for sentinels after a sentinel was lost, until one arrives again

SENTINEL_VLAN = 4094
SENTINEL_VRF = 0xFFFF
SENTINEL_ID = 4000  # + port: id of the sentinels' interface and next hop
SENTINEL_MAC = "02:5e:00:00:00:01"
SENTINEL_REASON = "LOCAL"
_MAGIC = b"sentinel"
_TOKEN = struct.Struct("!8sIH")  # magic, number of the probe's flush, destination
_TOKEN_AT = 14 + 20 + 8


class SentinelLost(AssertionError):
    """A sentinel did not arrive: the switch is dead, stuck or reorders frames."""


@dataclass(frozen=True)
class FromPort:
    """Holds a frame to send into a port of the switch."""

    port: int
    frame: bytes


@dataclass(frozen=True)
class FromCpu:
    """Holds a packet-out to send."""

    frame: bytes
    metadata: Mapping[str, Value]


Send = FromPort | FromCpu


@dataclass
class ProbeOutcome:
    """Holds all results of the packets that were sent. Counters hold the increments, by reason."""

    out: list[tuple[int, bytes]] = field(default_factory=list)
    punts: list[PacketIn] = field(default_factory=list)
    drops: dict[str, int] = field(default_factory=dict)
    punted: dict[str, int] = field(default_factory=dict)
    metered: dict[str, int] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)  # watched rules: "inbound hit 7"

    def at(self, port: int) -> list[bytes]:
        """Returns the frames that left by one port, in order."""
        return [frame for number, frame in self.out if number == port]


class Probe:
    """Sends packets and collects their results. Owns the table entries of the sentinels."""

    def __init__(self, client: RuntimeClient, ports: Ports):
        self._client = client
        self._ports = ports
        self._flushes = 0
        self._patience = DEADLINE_SECONDS
        self._templates = _templates(ports.numbers)
        self.rules: Sequence[int] = ()  # ids of the rules whose counters are read
        self.install()

    def install(self) -> None:
        """Writes the sentinels' entries. Must be called again after a pipeline is loaded."""
        self._client.write(update("INSERT", entry) for entry in self._entries())

    def _entries(self) -> Iterable[p4runtime_pb2.TableEntry]:
        entry = self._client.schema.entry
        for port in self._ports.numbers:
            own = SENTINEL_ID + port
            yield entry(
                "l3_interface",
                {"ingress_port": port, "vlan_id": SENTINEL_VLAN},
                "set_l3_interface",
                l3_if=own,
                vrf=SENTINEL_VRF,
                role="ROUTER",
            )
            yield entry("router_mac", {"l3_if": own, "dst_mac": SENTINEL_MAC}, "admit_unicast")
            yield entry(
                "egress_interface",
                {"l3_if": own},
                "set_egress",
                port=port,
                vlan_id=SENTINEL_VLAN,
                src_mac=SENTINEL_MAC,
                mtu=1500,
            )
            yield entry("inbound_binding", {"l3_if": own}, "no_inbound_policy")
            yield entry("outbound_binding", {"l3_if": own}, "no_outbound_policy")
            yield entry(
                "nexthop", {"nexthop_id": own}, "set_neighbor", l3_if=own, dst_mac=SENTINEL_MAC
            )
            route: dict[str, Value] = {"vrf": SENTINEL_VRF, "dst_addr": f"{_address(port)}/32"}
            yield entry("ipv4_fib", route, "set_nexthop", nexthop_id=own)
        punt: dict[str, Value] = {"vrf": SENTINEL_VRF, "dst_addr": f"{_address(CPU)}/32"}
        yield entry("ipv4_fib", punt, "punt_route", reason=SENTINEL_REASON)

    def exchange(self, sends: Sequence[Send]) -> ProbeOutcome:
        """Sends packets. Returns all results, with the increments of the counters."""
        before, flushes = self._counters(), self._flushes
        counted = self._rule_counters()
        outcome = self.collect(sends)
        for name, cells in self._counters().items():
            if name == "punt_counter":
                cells[SENTINEL_REASON] -= self._flushes - flushes
            moved = {key: cells[key] - before[name][key] for key in cells}
            setattr(outcome, _COUNTERS[name][0], {key: n for key, n in moved.items() if n})
        now = self._rule_counters()
        outcome.rules = {key: now[key] - counted[key] for key in now if now[key] != counted[key]}
        return outcome

    def collect(self, sends: Sequence[Send], skip: Set[int] = frozenset()) -> ProbeOutcome:
        """Sends packets and returns the results without counters.

        Sends no sentinels to ports in `skip`.
        """
        outcome = ProbeOutcome()
        for start in range(0, len(sends), WINDOW):
            window = sends[start : start + WINDOW]
            for send in window:
                if isinstance(send, FromPort):
                    self._ports.send(send.port, send.frame)
                else:
                    self._client.packet_out(send.frame, send.metadata)
            sources = {send.port if isinstance(send, FromPort) else CPU for send in window}
            for source in sorted(sources):
                self._flush(source, outcome, skip)
        return outcome

    def _flush(self, source: int, outcome: ProbeOutcome, skip: Set[int]) -> None:
        """Sends sentinels on the paths from `source` and collects packets until all have
        arrived.
        """
        self._flushes += 1
        missing = {*self._ports.numbers, CPU} - skip
        for target in sorted(missing):
            frame = self._templates[source, target] + self._token(target)
            if source == CPU:
                self._client.packet_out(frame, {"kind": "LOCAL_ORIGIN", "vrf": SENTINEL_VRF})
            else:
                self._ports.send(source, frame)
        deadline = time.monotonic() + self._patience
        while missing:
            self._take_frames(outcome, missing, 0.0 if missing == {CPU} else 0.05)
            self._take_punts(outcome, missing)
            if missing and time.monotonic() > deadline:
                waited, self._patience = self._patience, IMPATIENT_SECONDS
                raise SentinelLost(
                    f"sent into {source}: no sentinel at {sorted(missing)} "
                    f"in {waited:g} s; came out so far: {outcome}"
                )
        self._patience = DEADLINE_SECONDS

    def _take_frames(self, outcome: ProbeOutcome, missing: set[int], timeout: float) -> None:
        for port, frame in self._ports.receive(timeout):
            if frame[_TOKEN_AT + 4 :].startswith(_MAGIC):
                if frame.endswith(self._token(port)):
                    missing.discard(port)
            else:
                outcome.out.append((port, frame))

    def _take_punts(self, outcome: ProbeOutcome, missing: set[int]) -> None:
        wait = missing == {CPU}
        while True:
            punt = self._client.next_packet_in(0.05 if wait else 0.0)
            if punt is None:
                return
            if punt.metadata["vrf"] != SENTINEL_VRF:
                outcome.punts.append(punt)
            elif punt.frame.endswith(self._token(CPU)):
                missing.discard(CPU)
                return

    def _token(self, target: int) -> bytes:
        return _TOKEN.pack(_MAGIC, self._flushes, target)

    def _counters(self) -> dict[str, dict[str, int]]:
        read = {}
        for counter, (_attribute, enum) in _COUNTERS.items():
            names = {value: name for name, value in self._client.schema.enums[enum].items()}
            cells = self._client.counter_cells(counter, sorted(names))
            read[counter] = {names[index]: count.packets for index, count in cells.items()}
        return read

    def _rule_counters(self) -> dict[str, int]:
        read: dict[str, int] = {}
        for direction in ("inbound", "outbound") if self.rules else ():
            for what in ("hit", "claim"):
                counter = f"{direction}.rule_{what}_counter"
                cells = self._client.counter_cells(counter, self.rules)
                read |= {f"{direction} {what} {rule}": n.packets for rule, n in cells.items()}
        return read


_COUNTERS = {
    "drop_counter": ("drops", "drop_reason_t"),
    "punt_counter": ("punted", "punt_reason_t"),
    "punt_drop_counter": ("metered", "punt_reason_t"),
}


def _address(target: int) -> str:
    return f"10.254.{target >> 8}.{target & 0xFF}"


def _templates(ports: Sequence[int]) -> dict[tuple[int, int], bytes]:
    """Returns the frames of the sentinels without their token, by (ingress port, egress port)."""
    made = {}
    for source in (*ports, CPU):
        for target in (*ports, CPU):
            ether = Ether(dst=SENTINEL_MAC, src="02:5e:00:00:00:02")
            tag = ether if source == CPU else ether / Dot1Q(vlan=SENTINEL_VLAN)
            udp = UDP(sport=9, dport=9, chksum=0) / Raw(bytes(_TOKEN.size))
            packet = tag / IP(src="10.254.255.1", dst=_address(target)) / udp
            made[source, target] = bytes(packet)[: -_TOKEN.size]
    return made
