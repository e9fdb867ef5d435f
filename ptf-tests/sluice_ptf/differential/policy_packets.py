# SPDX-License-Identifier: Apache-2.0
"""Generates random packets to which the policy applies. These kinds exist:

policy_flows       cleartext packets of the tables' flows
policy_rules       packets at the edges of what rules match: in clear, decrypted, or sent by this
                   router
policy_esp         ESP to this router or in transit; some in UDP, some fragmented
policy_shims       frames with a shim, from an engine or forged
policy_reinjected  packet-outs that claim a verdict: current, stale, or of another list
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from sluice_ptf import raw
from sluice_ptf.differential.case import RULE_IDS, TableEntry, TableState
from sluice_ptf.differential.policies import (
    BUNDLES,
    FLOW_TABLES,
    GENERATIONS,
    INBOUND_LISTS,
    LIST_TABLES,
    OUTBOUND_LISTS,
    SPIS,
    lists_of,
)
from sluice_ptf.differential.rule_sets import RULE_TABLES
from sluice_ptf.differential.states import PORTS
from sluice_ptf.frames import ETHERTYPE_IPV4, ETHERTYPE_IPV6, mac_bytes, tagged
from sluice_ptf.network import HOST_MAC
from sluice_ptf.probe import FromCpu, FromPort, Send
from sluice_ptf.schema import Match, Value
from sluice_ptf.shim import DECRYPTED, ENCRYPTED, ESP, Shim, esp

TTLS = (0, 1, 2, *(64,) * 8, 255)
SIZES = (0, 8, 16, 16, 16, 64, 540, 1380, 1500)
CLAIMED = ("BYPASS", "BYPASS", "DISCARD", "PROTECT", "PROTECT", "NONE", 9)
Door = tuple[int, int, str, bool]  # port, VLAN, MAC address, whether an engine is behind it
MADE_UP = TableEntry(
    "",
    {
        "src_addr": "10.0.0.7",
        "dst_addr": "10.1.0.7",
        "protocol": 17,
        "src_port": 500,
        "dst_port": 500,
        "fragment": "WHOLE",
        "bundle": 0,
    },
    "",
)


class PolicyPackets:
    """Generates packets for tables with policy."""

    def __init__(self, draw: Random, state: TableState):
        self._draw = draw
        self._flows = [one for table in FLOW_TABLES for one in state.of(table)] or [MADE_UP]
        self._rules = _looked_up(state)
        self._guards = _guards(state)
        self._lists_of_set: dict[Match, set[int]] = {}
        for one in state.of("inbound.list_state"):
            if one.params["epoch"]:
                same = self._lists_of_set.setdefault(one.params["rule_set"], set())
                same.add(int(str(one.match["list_id"])))
        self._generations = lists_of(state)
        macs = {one.match["l3_if"]: str(one.match["dst_mac"]) for one in state.of("router_mac")}
        doors: list[Door] = [
            (
                int(str(one.match["ingress_port"])),
                int(str(one.match["vlan_id"])),
                macs.get(one.params["l3_if"], "02:de:ad:00:00:01"),
                one.params["role"] == "ENGINE",
            )
            for one in state.of("l3_interface")
        ]
        self._engines = [door for door in doors if door[3]] or [(4, 0, "02:de:ad:00:00:01", True)]
        self._l3_ifs = [int(str(one.params["l3_if"])) for one in state.of("l3_interface")] or [1]
        self._nexthops = [int(str(one.match["nexthop_id"])) for one in state.of("nexthop")] or [1]
        self._doors = [door for door in doors if not door[3]] or self._engines
        self._ours = [
            str(one.match["dst_addr"]).partition("/")[0]
            for table in ("local_ipv4", "local_ipv6")
            for one in state.of(table)
            if str(one.match["dst_addr"]).endswith(("/32", "/128"))
        ] or ["10.0.0.1"]
        self.kinds: dict[str, Callable[[], Send]] = {
            "policy_flows": self._of_a_flow,
            "policy_rules": self._of_a_rule,
            "policy_esp": self._esp,
            "policy_shims": self._shim,
            "policy_reinjected": self._reinjected,
        }

    # --- kinds of packets -----------------------------------------------------

    def _of_a_flow(self) -> Send:
        port, vlan, mac, _ = self._draw.choice(self._doors)
        return FromPort(port, tagged(self._frame(self._packet_of_flow(self._a_flow()), mac), vlan))

    def _of_a_rule(self) -> Send:
        rule = self._draw.choice(self._rules) if self._rules else MADE_UP
        doors = self._doors_to(rule)
        port, vlan, mac, _ = self._draw.choice(doors or self._doors)
        flow = self._at_the_edge(rule)
        packet, kind = self._packet_of_flow(flow, fragmented=0.05), self._draw.random()
        if doors and kind < 0.7:
            return FromPort(port, tagged(self._frame(packet, mac), vlan))
        if kind < 0.85:
            egress = self._draw.choice((0, *self._l3_ifs))
            header: dict[str, Value] = {"kind": "LOCAL_ORIGIN", "egress_l3_if": egress}
            return FromCpu(self._frame(packet, mac), header)
        port, vlan, mac, _ = self._draw.choice(self._engines)
        bundle = self._draw.choice(BUNDLES)
        shim = Shim(DECRYPTED, bundle=bundle, ingress_l3_if=self._an_interface())
        return FromPort(port, tagged(shim.on(self._frame(packet, mac)), vlan))

    def _doors_to(self, rule: TableEntry) -> list[Door]:
        """Returns the interfaces whose packets are looked up in the rule's set: those of an inbound
        list with this set and an epoch, or for an outbound rule, those without an inbound list.
        """
        lists = {0}
        if rule.table.startswith("inbound"):
            lists = self._lists_of_set.get(rule.match["rule_set"], set())
        return [door for door in self._doors if self._guards.get(door[:2]) in lists]

    def _at_the_edge(self, rule: TableEntry) -> TableEntry:
        """Returns a whole flow of the rule's family, whose values are at the edges of what the rule
        matches.
        """
        family = rule.table.removesuffix("_rule").partition(".")[2]
        flow = self._draw.choice(
            [one for one in self._flows if one.table.endswith(f"{family}_flow")] or [MADE_UP]
        )
        key = dict(flow.match)
        if "protocol" in rule.match:
            key["protocol"] = rule.match["protocol"]
        for name in ("src_port", "dst_port"):
            if name in rule.match:
                key[name] = self._near(rule.match[name])
        for name in ("src_addr", "dst_addr"):
            prefix = rule.match.get(name)
            if isinstance(prefix, str) and self._draw.random() < 0.9:
                key[name] = self._near_prefix(prefix)
        return replace(flow, match={**key, "fragment": "WHOLE"})

    def _near(self, ports: Match) -> int:
        low, high = ports if isinstance(ports, tuple) else (ports, ports)
        port = self._draw.choice(_edges(int(str(low)), int(str(high))))
        return min(max(port, 0), 0xFFFF)

    def _near_prefix(self, prefix: str) -> str:
        network: Any = ipaddress.ip_network(prefix)
        number = self._draw.choice(_edges(int(network[0]), int(network[-1])))
        number = min(max(number, 0), (1 << network.max_prefixlen) - 1)
        return str(network[0].__class__(number))

    def _esp(self) -> Send:
        port, vlan, mac, _ = self._draw.choice(self._doors)
        dst = self._draw.choice(self._ours)
        if self._draw.random() < 0.2:
            dst = str(self._a_flow().match["dst_addr"])
        offset, more = self._draw.choice(((0, False),) * 6 + ((0, True), (6, True), (6, False)))
        packet = self._esp_packet(dst, offset, more)
        return FromPort(port, tagged(self._frame(packet, mac), vlan))

    def _esp_packet(self, dst: str, offset: int, more: bool) -> bytes:
        """Returns ESP, or ESP in UDP. The frame may be longer than the length in its IP header."""
        spi = self._draw.choice((*SPIS, *SPIS, 0, 0xBAD))
        payload, protocol = esp(spi, self._draw.choice((0, 40, 40, 1000))), ESP
        if self._draw.random() < 0.25:
            ports = self._draw.choice(((4500, 4500), (31000, 4500), (4500, 31000)))
            payload = struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload
            protocol = raw.UDP
        kept = self._draw.choice((len(payload),) * 9 + (8, 12, 16))
        packet = self._packet(self._host(dst), dst, protocol, payload[:kept], offset, more)
        return packet + payload[kept:]

    def _shim(self) -> Send:
        """Returns a frame with a shim, mostly a valid one from an engine's port."""
        port, vlan, mac, _ = self._draw.choice(self._engines)
        if self._draw.random() < 0.15:
            port, vlan, mac, _ = self._draw.choice(self._doors)
        flow = self._a_flow()
        carrier = int(str(flow.match["bundle"]))
        shim = Shim(
            kind=self._draw.choice((2, 2, 4, 4, 4, 4, 0, 1, 3, 5, 255)),
            engine=self._draw.choice((1, 2, 0, 255)),
            bundle=self._draw.choice((carrier, carrier, carrier, *BUNDLES, 0, 9)),
            sa=self._draw.getrandbits(32),
            ingress_l3_if=self._an_interface(),
            vrf=self._draw.choice((0, 0, 0, 1, 300)),
        )
        packet = self._packet_of_flow(flow)
        if shim.kind == ENCRYPTED and self._draw.random() < 0.8:
            dst = str(flow.match["dst_addr"])
            packet = self._esp_packet(dst, *self._draw.choice(((0, False),) * 9 + ((0, True),)))
        frame = self._frame(packet, mac)
        if self._draw.random() < 0.05:
            frame = frame[:12] + b"\x08\x06" + frame[14:]
        frame = shim.on(frame) if self._draw.random() < 0.95 else frame
        if self._draw.random() < 0.05:
            frame = frame[: self._draw.randint(15, len(frame))]
        return FromPort(port, tagged(frame, vlan))

    def _reinjected(self) -> Send:
        _port, vlan, mac, _ = self._draw.choice(self._doors)
        flow = self._a_flow()
        carrier = int(str(flow.match["bundle"]))
        stage = self._draw.choice(
            ("INBOUND", "INBOUND", "OUTBOUND", "OUTBOUND", "ROUTING", "REWRITE")
        )
        lists = INBOUND_LISTS if stage == "INBOUND" else OUTBOUND_LISTS
        list_id = self._draw.choice((0, *lists, *lists))
        inbound_list_id = self._draw.choice((0, *INBOUND_LISTS, *INBOUND_LISTS))
        metadata: dict[str, Value] = {
            "kind": self._draw.choice(("REINJECT",) * 9 + ("LOCAL_ORIGIN",)),
            "stage": stage,
            "origin": self._draw.choice((0, 0, 0, 1, 1, 2, 2, 3, 7)),
            "verdict": self._draw.choice(CLAIMED),
            "egress_l3_if": self._draw.choice((0, self._draw.choice(self._l3_ifs), 99)),
            "ingress_port": self._draw.choice(PORTS),
            "ingress_l3_if": self._an_interface(),
            "vrf": self._draw.choice((0, 0, 0, 1, 300)),
            "nexthop_id": self._draw.choice((0, *[self._draw.choice(self._nexthops)] * 4, 999)),
            "bundle": self._draw.choice((0, 0, 0, carrier, carrier, 9)),
            "sa_bundle": self._draw.choice((0, carrier, carrier, *BUNDLES)),
            "rule": self._draw.choice(RULE_IDS),
            "list_id": list_id,
            "generation": self._generation(list_id),
            "inbound_list_id": inbound_list_id,
            "inbound_generation": self._generation(inbound_list_id),
        }
        return FromCpu(tagged(self._frame(self._packet_of_flow(flow), mac), vlan), metadata)

    # --- parts of packets -----------------------------------------------------

    def _a_flow(self) -> TableEntry:
        return self._draw.choice(self._flows)

    def _an_interface(self) -> int:
        return self._draw.choice((*[self._draw.choice(self._l3_ifs)] * 9, 99))

    def _generation(self, list_id: int) -> int:
        current = self._generations.get(list_id, 0)
        return self._draw.choice((current, current, current, *GENERATIONS))

    @staticmethod
    def _host(dst: str) -> str:
        return "2001:db8::7" if ":" in dst else "10.0.0.7"

    def _packet_of_flow(self, flow: TableEntry, fragmented: float = 0.2) -> bytes:
        """Returns a packet of the flow, or one that differs from the flow in a field.

        `fragmented` is the share of fragments among the packets of a whole flow.
        """
        key = flow.match
        protocol = int(str(key["protocol"]))
        src_port, dst_port = int(str(key["src_port"])), int(str(key["dst_port"]))
        if self._draw.random() < 0.1:
            dst_port ^= self._draw.choice((1, 0x100, 0x8000))
        ports = struct.pack("!HH", src_port, dst_port)
        if protocol in (1, 58):
            ports = struct.pack("!HH", dst_port, 0)
        if protocol == raw.MOBILITY:
            ports = bytes([59, 0, dst_port & 0xFF, 0])
        size = self._draw.choice(SIZES)
        if protocol == raw.UDP:
            ports += struct.pack("!HH", 8 + size, 0)
        offset, more = 0, False
        if self._draw.random() < fragmented:
            offset, more = self._draw.choice(((0, True), (1, False), (9, False)))
        if key["fragment"] == "FIRST":
            offset, more = 0, True
        elif key["fragment"] == "LATER":
            offset, more = self._draw.choice(((1, True), (9, True), (9, False), (8191, False)))
        payload = ports + bytes(size)
        return self._packet(
            str(key["src_addr"]), str(key["dst_addr"]), protocol, payload, offset, more
        )

    def _packet(
        self, src: str, dst: str, protocol: int, payload: bytes, offset: int, more: bool
    ) -> bytes:
        ttl = self._draw.choice(TTLS)
        if ":" not in dst:
            count = self._draw.choice((0,) * 9 + (8, 12))
            fragment = offset | (raw.MORE_FRAGMENTS if more else 0)
            return raw.ipv4(
                dst,
                payload,
                src=src,
                options=b"\1" * count,
                protocol=protocol,
                ttl=ttl,
                fragment=fragment,
            )
        if offset or more:
            payload, protocol = raw.fragment_header(protocol, offset, more) + payload, 44
        for _ in range(self._draw.choice((0,) * 9 + (1, 7))):
            payload, protocol = raw.extension(protocol) + payload, 60
        return raw.ipv6(dst, payload, src=src, next_header=protocol, hop_limit=ttl)

    def _frame(self, packet: bytes, mac: str) -> bytes:
        if self._draw.random() < 0.03:
            mac = "ff:ff:ff:ff:ff:ff"
        kind = ETHERTYPE_IPV6 if packet[0] >> 4 == 6 else ETHERTYPE_IPV4
        return mac_bytes(mac) + mac_bytes(HOST_MAC) + kind + packet


def _looked_up(state: TableState) -> list[TableEntry]:
    """Returns the entries of the rule sets of lists that have an epoch."""
    named = {
        (table.split(".")[0], one.params["rule_set"])
        for table in LIST_TABLES
        for one in state.of(table)
        if one.params["epoch"]
    }
    return [
        one
        for table in RULE_TABLES
        for one in state.of(table)
        if (table.split(".")[0], one.match["rule_set"]) in named
    ]


def _guards(state: TableState) -> dict[tuple[int, int], int]:
    """Returns the inbound list of each port and VLAN. 0: no list."""
    lists = {
        int(str(one.match["l3_if"])): int(str(one.params.get("list_id", 0)))
        for one in state.of("inbound_binding")
    }
    return {
        (int(str(one.match["ingress_port"])), int(str(one.match["vlan_id"]))): lists[l3_if]
        for one in state.of("l3_interface")
        if (l3_if := int(str(one.params["l3_if"]))) in lists
    }


def _edges(low: int, high: int) -> tuple[int, ...]:
    """Returns both ends of a range of numbers, and seldom a number beside it."""
    return (low - 1, *(low,) * 5, *(high,) * 5, high + 1)
