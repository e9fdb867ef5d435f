# SPDX-License-Identifier: Apache-2.0
"""Describes the metadata of packet-ins and packet-outs, in P4Info's order.

`PacketSchema` reads the layouts and enums once. Its methods return the metadata for packet-outs, of
which there are three kinds (`packet_out_kind_t`). Fields that a kind does not use are 0.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sluice._native import FirstPacket
from sluice.model import PuntedPacket
from sluice.p4.schema import Schema
from sluice.p4runtime.client import Metadata

PACKET_IN = PuntedPacket._fields[1:]
PACKET_OUT = (
    "kind",
    "stage",
    "origin",
    "verdict",
    "egress_port",
    "ingress_port",
    "ingress_l3_if",
    "vrf",
    "egress_l3_if",
    "nexthop_id",
    "bundle",
    "sa_bundle",
    "rule",
    "list_id",
    "generation",
    "inbound_list_id",
    "inbound_generation",
)


class PuntReason(Enum):
    """Reasons for which the pipeline punts a packet. The values are names of punt_reason_t."""

    ARP = "ARP"
    LINK_PROTOCOL = "LINK_PROTOCOL"
    NEIGHBOR_DISCOVERY = "NEIGHBOR_DISCOVERY"
    ROUTING_PROTOCOL = "ROUTING_PROTOCOL"
    IKE = "IKE"
    LOCAL = "LOCAL"
    TTL_EXCEEDED = "TTL_EXCEEDED"
    MTU_EXCEEDED = "MTU_EXCEEDED"
    NEIGHBOR_UNRESOLVED = "NEIGHBOR_UNRESOLVED"
    NO_ROUTE = "NO_ROUTE"
    UNREACHABLE = "UNREACHABLE"
    PROHIBITED = "PROHIBITED"
    IP_OPTIONS = "IP_OPTIONS"
    EXTENSION_HEADERS = "EXTENSION_HEADERS"
    INBOUND_MISS = "INBOUND_MISS"
    OUTBOUND_MISS = "OUTBOUND_MISS"
    FRAGMENT = "FRAGMENT"
    AUDIT = "AUDIT"
    ACQUIRE = "ACQUIRE"


class PolicyAnswer(NamedTuple):
    """Holds a list's verdict on a packet, and the generation of the list that gave the verdict.

    The pipeline accepts the verdict only while the list has this generation.
    """

    list_id: int
    generation: int
    verdict: int
    sa_bundle: int
    rule: int


class AnsweredPunt(NamedTuple):
    """Holds a plain first packet to re-inject, and its verdict. The session adds the metadata."""

    punt: FirstPacket
    answer: PolicyAnswer


class PacketSchema:
    """Holds the metadata layouts and enum values of packet-ins and packet-outs.

    Raises SchemaError.
    """

    def __init__(self, schema: Schema) -> None:
        self.packet_in = schema.metadata("packet_in", PACKET_IN)
        self.packet_out = schema.metadata("packet_out", PACKET_OUT)
        self.reasons = {
            schema.member("punt_reason_t", reason.value): reason for reason in PuntReason
        }
        self.drop_reasons = {number: name for name, number in schema.enum("drop_reason_t").items()}
        kinds = ("TO_PORT", "LOCAL_ORIGIN", "REINJECT")
        self._to_port, self._local_origin, self._reinject = (
            schema.member("packet_out_kind_t", kind) for kind in kinds
        )
        self.kinds_of_the_host = (self._to_port, self._local_origin)
        self.stage_inbound = schema.member("stage_t", "INBOUND")
        self.stage_outbound = schema.member("stage_t", "OUTBOUND")
        self.origin_local = schema.member("origin_t", "LOCAL")
        self.origin_encrypted = schema.member("origin_t", "ENCRYPTED")
        self._routing = schema.member("stage_t", "ROUTING")
        self._rewrite = schema.member("stage_t", "REWRITE")
        self.own_origins = frozenset((self.origin_local, self.origin_encrypted))
        self.verdict_protect = schema.member("verdict_t", "PROTECT")
        schema.check()

    def to_port(self, egress_l3_if: int) -> Metadata:
        """Returns metadata that send a non-IP frame unchanged out of an interface."""
        return _metadata(kind=self._to_port, egress_l3_if=egress_l3_if)

    def local_origin(self, egress_l3_if: int, vrf: int, bundle: int = 0) -> Metadata:
        """Returns metadata for an IP packet that this router sends.

        The packet leaves by the given interface with its MAC addresses unchanged. If the interface
        is 0, the pipeline routes the packet. If the packet is an ICMP error about a packet that a
        bundle carried, `bundle` is the number of this bundle.
        """
        return _metadata(
            kind=self._local_origin,
            origin=self.origin_local,
            vrf=vrf,
            egress_l3_if=egress_l3_if,
            bundle=bundle,
        )

    def to_bytes(self, metadata: Metadata) -> bytes:
        """Encodes metadata as the packet-out header in frames to the CPU port, without padding."""
        value, bits = 0, 0
        for (_, width), field in zip(self.packet_out, metadata, strict=True):
            value, bits = value << width | field, bits + width
        return value.to_bytes(bits // 8, "big")

    def reinject_at_routing(self, packet: PuntedPacket) -> Metadata:
        """Returns metadata that re-inject a punted packet at the routing stage."""
        return self._again(packet, self._routing, 0)

    def reinject_at_rewrite(self, packet: PuntedPacket, nexthop_id: int) -> Metadata:
        """Returns metadata that re-inject a punted packet at the rewrite stage, towards this next
        hop."""
        return self._again(packet, self._rewrite, nexthop_id)

    def reinject_with(self, packet: PuntedPacket, answer: PolicyAnswer) -> Metadata:
        """Returns metadata that re-inject a punted packet, with a list's verdict, at the stage
        that punted it."""
        return self._again(packet, packet.stage, packet.nexthop_id, answer)

    def reinjection(self) -> list[tuple[str, int]]:
        """Describes for native code how to make the metadata that `reinject_with` returns.

        Each value is a constant, a value of the punted packet at some position, or a value of the
        `PolicyAnswer` at some position.
        """
        constants = {"kind": self._reinject, "egress_port": 0}
        return [
            ("constant", constants[name])
            if name in constants
            else ("answer", PolicyAnswer._fields.index(name))
            if name in PolicyAnswer._fields
            else ("punted", PACKET_IN.index(name))
            for name in PACKET_OUT
        ]

    def _again(
        self,
        packet: PuntedPacket,
        stage: int,
        nexthop_id: int,
        answer: PolicyAnswer | None = None,
    ) -> Metadata:
        """Returns the metadata for a re-injection: the metadata of the punted packet, with a
        verdict.

        The pipeline looks up the route again if necessary. If the packet has an egress interface
        but no next hop, this router's host chose the interface, and the pipeline keeps it.

        `reinjection` describes the same metadata for native code.

        For speed, the tuple is written out in the order of PACKET_OUT. To build it by field names
        would take as long as searching the rules for a flow's first packet.
        """
        verdict = answer or packet
        return (
            self._reinject,
            stage,
            packet.origin,
            verdict.verdict,
            0,  # egress_port
            packet.ingress_port,
            packet.ingress_l3_if,
            packet.vrf,
            packet.egress_l3_if,
            nexthop_id,
            packet.bundle,
            verdict.sa_bundle,
            verdict.rule,
            verdict.list_id,
            verdict.generation,
            packet.inbound_list_id,
            packet.inbound_generation,
        )


def _metadata(**values: int) -> Metadata:
    return tuple([values.get(name, 0) for name in PACKET_OUT])
