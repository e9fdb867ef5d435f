# SPDX-License-Identifier: Apache-2.0
"""Writes the pipeline's tables, and checks what the switch does with packets.

At the end of a test, a `Router` deletes all entries that it has written, in reverse order. So every
test starts with empty tables, and deletion is tested as often as insertion. Each assertion covers
all effects of a packet: frames at all ports, all punts, and all drop and punt counters.

Depends on probe and runtime. standard.py configures the router that most tests start from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from p4.v1 import p4runtime_pb2
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet

from sluice_ptf.frames import hop_decremented, readdressed, tagged, untagged
from sluice_ptf.network import HOST_MAC, Interface, Member, Nexthop
from sluice_ptf.probe import CPU, FromCpu, FromPort, Probe, ProbeOutcome, Send
from sluice_ptf.runtime import Count, PacketIn, RuntimeClient, update
from sluice_ptf.schema import Match, Value, bytestring

Frame: TypeAlias = Packet | bytes
Rules: TypeAlias = Mapping[str, int]  # see ProbeOutcome.rules
NO_RULES: Rules = {}


class Router:
    """Gives one test access to the switch."""

    def __init__(self, client: RuntimeClient, probe: Probe):
        self.client = client
        self.probe = probe
        self._undo: list[p4runtime_pb2.Update] = []
        self._defaults: set[str] = set()
        self._limited: set[str] = set()

    # --- state ----------------------------------------------------------------

    def entry(
        self, table: str, match: Mapping[str, Match], action: str, **params: Value
    ) -> p4runtime_pb2.TableEntry:
        """Builds a table entry that calls an action, without writing it."""
        return self.client.schema.entry(table, match, action, **params)

    def insert(self, *entities: Any) -> None:
        """Inserts entities with one Write. `undo` deletes them at the end of the test."""
        self.client.write(update("INSERT", entity) for entity in entities)
        self._undo += [update("DELETE", entity) for entity in entities]

    def modify(self, *entities: Any) -> None:
        """Modifies entities that were inserted before."""
        self.client.write(update("MODIFY", entity) for entity in entities)

    def delete(self, *entities: Any) -> None:
        """Deletes inserted entities, in reverse order."""
        gone = [update("DELETE", entity) for entity in reversed(entities)]
        self.client.write(gone)
        identities = [_identity(one) for one in gone]
        self._undo = [one for one in self._undo if _identity(one) not in identities]

    def default(self, table: str, action: str, **params: Value) -> None:
        """Sets the default action of a table, until the end of the test."""
        entry = self.entry(table, {}, action, **params)
        entry.is_default_action = True
        self.modify(entry)
        self._defaults.add(table)

    def undo_default(self, table: str) -> None:
        """Restores the default action of a table by a MODIFY without an action."""
        entry = self.client.schema.entry(table, {})
        entry.is_default_action = True
        self.modify(entry)
        self._defaults.discard(table)

    def forget(self) -> None:
        """Empties the list of entities to delete. For a switch that has lost all entries."""
        self._undo, self._defaults, self._limited = [], set(), set()

    def undo(self) -> None:
        """Deletes all inserted entities that the test has not deleted. Restores default actions and
        meters.
        """
        for table in sorted(self._defaults):
            self.undo_default(table)
        for reason in sorted(self._limited):
            self.unlimit(reason)
        self.probe.rules = ()
        undo, self._undo = self._undo, []
        self.client.write(reversed(undo))

    def interface(self, interface: Interface, role: str = "ROUTER") -> None:
        """Adds an interface that receives packets to its MAC address, and that can send."""
        self.insert(
            self.entry(
                "l3_interface",
                {"ingress_port": interface.port, "vlan_id": interface.vlan},
                "set_l3_interface",
                l3_if=interface.id,
                vrf=interface.vrf,
                role=role,
            ),
            self.entry(
                "router_mac", {"l3_if": interface.id, "dst_mac": interface.mac}, "admit_unicast"
            ),
            self.egress(interface),
            *self.unbound(interface),
        )

    def unbound(self, interface: Interface) -> tuple[p4runtime_pb2.TableEntry, ...]:
        """Returns the entries that bind an interface to no SPD."""
        key: dict[str, Match] = {"l3_if": interface.id}
        return (
            self.entry("inbound_binding", key, "no_inbound_policy"),
            self.entry("outbound_binding", key, "no_outbound_policy"),
        )

    def egress(self, interface: Interface) -> p4runtime_pb2.TableEntry:
        """Returns the entry by which packets leave through an interface."""
        return self.entry(
            "egress_interface",
            {"l3_if": interface.id},
            "set_egress",
            port=interface.port,
            vlan_id=interface.vlan,
            src_mac=interface.mac,
            mtu=interface.mtu,
        )

    def neighbor(self, nexthop: Nexthop) -> p4runtime_pb2.TableEntry:
        """Returns the entry of a next hop whose neighbour is resolved."""
        return self.entry(
            "nexthop",
            {"nexthop_id": nexthop.id},
            "set_neighbor",
            l3_if=nexthop.interface.id,
            dst_mac=nexthop.mac,
        )

    def nexthop(self, *nexthops: Nexthop) -> None:
        """Adds next hops whose neighbours are resolved."""
        self.insert(*(self.neighbor(nexthop) for nexthop in nexthops))

    def route_entry(
        self, prefix: str, action: str = "set_nexthop", vrf: int = 0, **params: Value
    ) -> p4runtime_pb2.TableEntry:
        """Returns the entry of an IPv4 or IPv6 route."""
        match: dict[str, Match] = {"vrf": vrf, "dst_addr": prefix}
        return self.entry("ipv6_fib" if ":" in prefix else "ipv4_fib", match, action, **params)

    def route(
        self, prefix: str, action: str = "set_nexthop", vrf: int = 0, **params: Value
    ) -> p4runtime_pb2.TableEntry:
        """Adds a route and returns its entry."""
        made = self.route_entry(prefix, action, vrf, **params)
        self.insert(made)
        return made

    def local_entry(self, prefix: str, vrf: int = 0) -> p4runtime_pb2.TableEntry:
        """Returns the entry of a local address or prefix."""
        match: dict[str, Match] = {"vrf": vrf, "dst_addr": prefix}
        return self.entry("local_ipv6" if ":" in prefix else "local_ipv4", match, "deliver_local")

    def local(self, *prefixes: str, vrf: int = 0) -> None:
        """Adds local addresses of this router."""
        self.insert(*(self.local_entry(prefix, vrf) for prefix in prefixes))

    def own_source(self, *addresses: str, vrf: int = 0) -> None:
        """Adds addresses of this router that received packets must not have as their source."""
        for address in addresses:
            table = "own_source_ipv6" if ":" in address else "own_source_ipv4"
            key: dict[str, Match] = {"vrf": vrf, "src_addr": address}
            self.insert(self.entry(table, key, "own_source"))

    def group(self, group_id: int, members: Sequence[Member]) -> None:
        """Adds a next-hop group: its members, the action profile group, and the entry of its id."""
        self.insert(*(self.member(member) for member in members))
        self.insert(self.group_of(group_id, members))
        self.insert(self.group_entry(group_id))

    def delete_group(self, group_id: int, members: Sequence[Member]) -> None:
        """Deletes a group that `group` has added."""
        self.delete(self.group_entry(group_id))
        self.delete(self.group_of(group_id, members))
        self.delete(*(self.member(member) for member in members))

    def group_entry(self, group_id: int) -> p4runtime_pb2.TableEntry:
        """Returns the entry that maps a group's id to the group."""
        entry = self.client.schema.entry("nexthop_group", {"group_id": group_id})
        entry.action.action_profile_group_id = group_id
        return entry

    def member(self, member: Member) -> p4runtime_pb2.ActionProfileMember:
        """Returns the action profile member of a next hop."""
        schema = self.client.schema
        return p4runtime_pb2.ActionProfileMember(
            action_profile_id=schema.profiles["nexthop_selector"].preamble.id,
            member_id=member.nexthop.id,
            action=schema.action_call("set_group_nexthop", {"nexthop_id": member.nexthop.id}),
        )

    def group_of(
        self, group_id: int, members: Sequence[Member]
    ) -> p4runtime_pb2.ActionProfileGroup:
        """Returns an action profile group."""
        schema = self.client.schema
        group = p4runtime_pb2.ActionProfileGroup(
            action_profile_id=schema.profiles["nexthop_selector"].preamble.id,
            group_id=group_id,
            max_size=64,
        )
        for member in members:
            one = group.members.add(member_id=member.nexthop.id, weight=member.weight)
            if member.watch_port is not None:
                one.watch_port = bytestring(member.watch_port, 32)
        return group

    def meter_entry(self, reason: str) -> p4runtime_pb2.MeterEntry:
        """Returns a punt reason's meter without a configuration, which limits nothing."""
        schema = self.client.schema
        entry = p4runtime_pb2.MeterEntry(meter_id=schema.meters["punt_meter"].preamble.id)
        entry.index.index = schema.number("reason", reason)
        return entry

    def punt_meter(self, reason: str, rate: int, burst: int) -> None:
        """Limits the punts of a reason to `rate` packets per second, with a burst of `burst`
        packets.
        """
        entry = self.meter_entry(reason)
        entry.config.cir = entry.config.pir = rate
        entry.config.cburst = entry.config.pburst = burst
        self.modify(entry)
        self._limited.add(reason)

    def unlimit(self, reason: str) -> None:
        """Removes the limit for punts of a reason."""
        self.modify(self.meter_entry(reason))
        self._limited.discard(reason)

    def count(self, entry: p4runtime_pb2.TableEntry) -> Count:
        """Reads an entry's direct counter."""
        return self.client.direct_count(entry)

    # --- packets --------------------------------------------------------------

    def exchange(self, *sends: Send) -> ProbeOutcome:
        """Sends packets and returns all results."""
        return self.probe.exchange(sends)

    def forwards(
        self,
        source: Interface,
        packet: Frame,
        via: Nexthop,
        sent: bytes | None = None,
        rules: Rules = NO_RULES,
    ) -> None:
        """Sends a packet. Expects that it is routed to the next hop, and that nothing else
        happens.
        """
        frame = arriving(source, packet)
        expected = routed(frame, via) if sent is None else sent
        outcome = self.exchange(FromPort(source.port, frame))
        same(outcome, ProbeOutcome(out=[(via.interface.port, expected)], rules=dict(rules)), frame)

    def drops(self, source: Interface, packet: Frame, reason: str, rules: Rules = NO_RULES) -> None:
        """Sends a packet. Expects that it is dropped for this reason, and that nothing else
        happens.
        """
        frame = arriving(source, packet)
        outcome = self.exchange(FromPort(source.port, frame))
        same(outcome, ProbeOutcome(drops={reason: 1}, rules=dict(rules)), frame)

    def punts(
        self,
        source: Interface,
        packet: Frame,
        reason: str,
        stage: str,
        rules: Any = NO_RULES,  # of type Rules; mypy would otherwise compare it with **metadata
        **metadata: Value,
    ) -> None:
        """Sends a packet. Expects it at the CPU, unchanged, and that nothing else happens."""
        frame = arriving(source, packet)
        came: dict[str, Value] = {
            "ingress_port": source.port,
            "ingress_l3_if": source.id,
            "vrf": source.vrf,
            "reason": reason,
            "stage": stage,
        }
        expected = self.packet_in(frame, **(came | metadata))
        wanted = ProbeOutcome(punts=[expected], punted={reason: 1}, rules=dict(rules))
        same(self.exchange(FromPort(source.port, frame)), wanted, frame)

    def packet_in(self, frame: bytes, **metadata: Value) -> PacketIn:
        """Returns an expected packet-in. Metadata fields that are not given are 0."""
        schema = self.client.schema
        values = {field.name: 0 for field in schema.packet_fields("packet_in")}
        unknown = metadata.keys() - values.keys()
        assert not unknown, f"packet_in has no {unknown}"
        for name, value in metadata.items():
            values[name] = schema.number(name, value)
        return PacketIn(frame, values)

    def from_cpu(self, packet: Frame, **metadata: Value) -> ProbeOutcome:
        """Sends a packet-out and returns all results."""
        return self.exchange(FromCpu(bytes(packet), metadata))

    def packet_out(self, packet: Frame, expected: ProbeOutcome, **metadata: Value) -> None:
        """Sends a packet-out and expects exactly this result."""
        same(self.from_cpu(packet, **metadata), expected, bytes(packet))


def arriving(source: Interface, packet: Frame) -> bytes:
    """Returns the frame that carries a packet to the router's interface. If `packet` is a whole
    frame, returns it unchanged.
    """
    if isinstance(packet, bytes):
        return packet
    if isinstance(packet, Ether):
        return bytes(packet)
    ether = Ether(src=HOST_MAC, dst=source.mac)
    return bytes((ether / Dot1Q(vlan=source.vlan) if source.vlan else ether) / packet)


def routed(frame: bytes, via: Nexthop) -> bytes:
    """Returns the frame that is expected after routing to a next hop."""
    return leaving(hop_decremented(untagged(frame)), via)


def leaving(frame: bytes, via: Nexthop) -> bytes:
    """Returns the frame untagged and readdressed to a next hop, with its hop count unchanged."""
    interface = via.interface
    return tagged(readdressed(frame, interface.mac, via.mac), interface.vlan)


def _identity(change: p4runtime_pb2.Update) -> bytes:
    """Returns the identity of an entity: all fields that a MODIFY cannot change."""
    entity = p4runtime_pb2.Entity()
    entity.CopyFrom(change.entity)
    kind = entity.WhichOneof("entity")
    for field in {
        "table_entry": ["action"],
        "action_profile_member": ["action"],
        "action_profile_group": ["members", "max_size"],
    }.get(kind, []):
        getattr(entity, kind).ClearField(field)
    return bytes(entity.SerializeToString(deterministic=True))


def same(outcome: ProbeOutcome, expected: ProbeOutcome, frame: bytes) -> None:
    """Checks that the outcome of a frame equals the expected one, including all counters."""
    if outcome == expected:
        return
    lines = [f"sent      {frame.hex()}"]
    for label, one in (("expected", expected), ("outcome ", outcome)):
        lines += [f"{label}  port {port}: {out.hex()}" for port, out in one.out]
        lines += [f"{label}  punt {dict(punt.metadata)}: {punt.frame.hex()}" for punt in one.punts]
        lines.append(f"{label}  drops {one.drops}, punted {one.punted}, metered away {one.metered}")
        lines.append(f"{label}  rules {one.rules}")
    raise AssertionError("\n".join(lines))


__all__ = [
    "CPU",
    "HOST_MAC",
    "FromCpu",
    "FromPort",
    "Interface",
    "Member",
    "Nexthop",
    "ProbeOutcome",
    "Router",
    "arriving",
    "leaving",
    "routed",
    "same",
]
