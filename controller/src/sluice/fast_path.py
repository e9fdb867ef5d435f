# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of the native fast path, which passes packets between host and switch.

BFD, BGP, ARP, ND, OSPF, IS-IS and pings to this router need no decision by Python code.
`sluice._native.FastPath` forwards these packets in its own threads, by the tables that this module
writes. It hands all other packets to Python, and never drops a packet by a rule. Invariant:
`sources.host.HostInterfaces` and `punts.PuntHandler` would forward each fast-path frame in the same
way (tests/test_fast_path.py compares them).

The fast path hands these packets to Python:

- ICMP errors, and packets whose headers could hide an ICMP error;
- fragments, and packets with options or extension headers;
- neighbour probes;
- packets whose source address belongs to several VRFs or to none.

While the fast path runs, each change of the tables is also stored for the stand-in: a process that
passes the host's packets if the controller dies (`sources.handover`).

Depends on the constants of punts and sources.shared_stack, and on `sluice._native`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sluice._native import FastPath as Native
from sluice.connection_config import BMV2, SwitchConfig
from sluice.model import PuntedPacket
from sluice.namespaces import OWN_NAMESPACE, namespace_of
from sluice.native_punts import NativePunts
from sluice.p4.packets import PACKET_IN, PACKET_OUT, PacketSchema
from sluice.punts import FOR_THE_HOST, IP_FOR_THE_HOST
from sluice.sources.handover import Handover, end_stand_ins
from sluice.sources.host import FrameFilter
from sluice.sources.neighbor_probe import DISCARD_PORT
from sluice.sources.shared_stack import (
    ANSWERED_IN_PLACE,
    FIRST_PORT_OF_BFD_SENDERS,
    OSPF,
    PIM,
    PORTS_OF_BFD,
    PORTS_OF_DAEMONS,
    VRRP,
)
from sluice.wire.packet import (
    ETHERTYPE_ARP,
    ETHERTYPE_LLDP,
    ICMP,
    ICMPV6,
    IKE_PORT,
    NAT_TRAVERSAL_PORT,
    TCP,
    UDP,
)

PROTOCOLS = frozenset({ICMP, TCP, UDP, ICMPV6, OSPF, PIM, VRRP})
ECHO = frozenset({(ICMP, 0), (ICMP, 8), (ICMPV6, 128), (ICMPV6, 129)})
NEIGHBOR_DISCOVERY = frozenset((ICMPV6, kind) for kind in range(133, 137))
LAST_PORT = 65535
DELIVERED_LIMIT = 2048
"""Limit of packets delivered to the host that `delivered_packets` has not returned yet. At most
half of them have the same punt reason. Beyond the limit, packets go to Python."""

PortRange = tuple[int, int]
TlsCredentials = tuple[bytes, bytes, bytes]


def ports_of_daemons() -> list[tuple[PortRange, PortRange]]:
    """Returns the pairs of UDP source and destination port ranges that routing daemons use.

    These are the ports that `shared_stack.is_of_its_vrf` accepts.
    """
    bfd = sorted(PORTS_OF_BFD)
    senders = [(FIRST_PORT_OF_BFD_SENDERS, LAST_PORT), *((port, port) for port in bfd)]
    starts, ends = [0, *(port + 1 for port in bfd)], [*(port - 1 for port in bfd), LAST_PORT]
    gaps = [(first, last) for first, last in zip(starts, ends, strict=True) if first <= last]
    return [(sender, (port, port)) for sender in senders for port in bfd] + [
        ((port, port), gap) for port in sorted(PORTS_OF_DAEMONS - PORTS_OF_BFD) for gap in gaps
    ]


class FastPath:
    """Maintains the fast path's tables.

    - `remembers`: the fast path records the IP packets that it delivers to the host, for
      `delivered_packets`. The host may answer a packet with an ICMP error, and this error must
      leave by the bundle that carried the packet, or in clear (`host_errors`).
    - `withholds_ike`: the fast path hands IKE packets to Python. An IKE packet must not leave
      before the kernel's preceding changes of SAs are in force (`ike_order`).
    - `handover` receives the tables for a stand-in process, which serves the TAPs `names`.
    """

    def __init__(
        self,
        packets: PacketSchema,
        *,
        remembers: bool,
        withholds_ike: bool = False,
        handover: Handover | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self._packets = packets
        self.rules: dict[str, Any] = {
            "reason_field": PACKET_IN.index("reason"),
            "interface_field": PACKET_IN.index("ingress_l3_if"),
            "for_the_host": {
                number: reason in IP_FOR_THE_HOST
                for number, reason in packets.reasons.items()
                if reason in FOR_THE_HOST
            },
            "link_protocols": {ETHERTYPE_ARP, ETHERTYPE_LLDP},
            "protocols": PROTOCOLS,
            "icmp": ECHO | NEIGHBOR_DISCOVERY,
            "withheld_ports": {DISCARD_PORT, NAT_TRAVERSAL_PORT}
            | ({IKE_PORT} if withholds_ike else set()),
            "vrf_ports": ports_of_daemons(),
            "answered_in_place": ANSWERED_IN_PLACE,
            "answered_ports": PORTS_OF_DAEMONS,
            "told_limit": DELIVERED_LIMIT,
        }
        self.native = Native(**self.rules, remember=remembers)
        self.punts = NativePunts(packets)
        """Queue of the packets that the fast path hands to Python."""
        self._handover = handover
        self._names = names
        self._interfaces: tuple[list[Any], dict[int, Any]] | None = None
        self._switch: object = None
        self._has_roles = True
        self._primary: tuple[int, int] | None = None

    def publish(self, passing: FrameFilter) -> None:
        """Replaces the tables that describe the host's TAPs and source addresses."""
        taps, sources = self._interfaces = (
            [
                (
                    tap.ifindex,
                    tap.l3_if,
                    tap.vrf,
                    list(tap.macs),
                    self._packets.to_port(tap.l3_if),
                    self._packets.local_origin(tap.l3_if, tap.vrf),
                )
                for tap in passing.taps
            ],
            {vrf: list(addresses) for vrf, addresses in passing.sources.items()},
        )
        self.native.set_interfaces(taps, sources)
        self._hand_over()

    # --- the stand-in ----------------------------------------------------------------------------

    def connects(self, switch: SwitchConfig, keys: TlsCredentials | None) -> None:
        """Sets the switch address and keys that a stand-in will use."""
        server_name = None if switch.tls is None else switch.tls.server_name
        self._switch = (str(switch.address), switch.device_id, keys, server_name)
        self._has_roles = switch.target != BMV2

    def end_stand_ins(self) -> None:
        """Ends a stand-in that runs in place of an earlier controller. Raises OSError."""
        end_stand_ins(self._names)

    def set_passing(self, primary: tuple[int, int] | None) -> None:
        """Stores the tables for a stand-in. Withdraws them if no stand-in may start.

        `primary` is the election id under which the controller is primary. Precondition if it is
        given: all interface numbers mean the same in the switch and in the tables. It is None if
        the controller is not primary, or if a number means something else in the switch.
        """
        self._primary = primary
        self._hand_over()

    def _hand_over(self) -> None:
        if self._handover is None:
            return
        if self._primary is None or self._interfaces is None:
            self._handover.withdraw()
            return
        packets = self._packets
        taps, sources = self._interfaces
        # The stand-in runs in OWN_NAMESPACE and cannot serve TAPs of other namespaces. These may
        # have the same ifindex as a TAP of OWN_NAMESPACE, so they are left out.
        at_home = [tap for tap in taps if namespace_of(tap[0]) == OWN_NAMESPACE]
        reason, kind = PACKET_IN.index("reason"), PACKET_OUT.index("kind")
        # A stand-in need not record delivered packets, because it never sends ICMP errors of the
        # host.
        self._handover.publish(
            {
                "switch": self._switch,
                "has_roles": self._has_roles,
                "primary": self._primary,
                "rules": {**self.rules, "remember": False},
                "interfaces": (at_home, sources),
                "packet_in": packets.packet_in,
                "packet_out": packets.packet_out,
                "packets_in": (packets.packet_in[reason][0], list(self.rules["for_the_host"])),
                "packets_out": (packets.packet_out[kind][0], list(packets.kinds_of_the_host)),
            }
        )

    def fileno(self) -> int:
        """Returns a descriptor that is readable while `delivered_packets` has packets to return."""
        return self.native.fileno()

    def delivered_packets(self) -> list[PuntedPacket]:
        """Returns IP packets that the fast path has delivered to the host since the last call."""
        return [
            PuntedPacket(frame, *metadata) for frame, metadata in self.native.told(DELIVERED_LIMIT)
        ]

    def handled(self) -> dict[int, int]:
        """Returns the number of packets delivered to the host, by punt reason."""
        return self.native.by_reason()

    def counters(self) -> dict[str, dict[str, int]]:
        """Returns the fast path's own counters, and the counts to add to the counters of other
        modules."""
        passed = self.native.stats()
        sent, dropped = passed["from_host"], passed["from_host_dropped"]
        return {
            "fast_path": passed,
            "controller": {
                "packets out": sent,
                "packets out dropped: queue full or no switch": dropped,
            },
            "host": {
                "from_host": sent + dropped,
                "to_host": passed["to_host"],
                "to_host_refused": passed["to_host_refused"],
            },
        }
