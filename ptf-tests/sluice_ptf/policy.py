# SPDX-License-Identifier: Apache-2.0
"""Writes SPDs to the pipeline's tables: lists, flows, rules, bundles and the engine.

Each list has a different epoch and generation. They are larger than 16 bits, so that the tests
detect fields that are confused or truncated. Once a `Policy` exists, every assertion of its router
also compares the rule counters.

    a list of port 2:    policy.ready(OUT); policy.bind(B, OUT)
    a flow of the list:  policy.flow(OUT, Flow(HOST4, V4), Verdict("BYPASS", rule=3))
    expected counts:     router.forwards(A, udp_to(V4), TO_B, rules=hit(OUT, 3))

Depends on router, shim and network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from p4.v1 import p4runtime_pb2

from sluice_ptf.frames import hop_decremented, untagged
from sluice_ptf.network import Interface
from sluice_ptf.packets import DPORT, SPORT
from sluice_ptf.probe import FromPort, ProbeOutcome
from sluice_ptf.raw import UDP
from sluice_ptf.router import NO_RULES, Frame, Router, Rules, arriving, same
from sluice_ptf.runtime import PacketIn
from sluice_ptf.schema import Match, Value
from sluice_ptf.shim import DECRYPTED, ENCRYPT, ENCRYPTED, Shim

LAST_RULE = (1 << 20) - 1  # the largest rule id that has counters
RULES = (0, 1, 2, 3, 4, 5, 6, 7, 65535, 65536, LAST_RULE)  # rule ids that the tests use
ENGINE = Interface(id=6, port=4, mac="02:00:00:00:01:06")
ENGINE_ID = 1


@dataclass(frozen=True)
class PolicyList:
    """Describes one ordered list of an SPD, with its epoch, generation and rule set (0: none)."""

    direction: Literal["inbound", "outbound"]
    id: int
    epoch: int
    generation: int
    rule_set: int = 0

    def changed(self) -> PolicyList:
        """Returns the list with a new epoch and generation, as after a commit that makes its cached
        flows stale.
        """
        return replace(self, epoch=self.epoch + 1, generation=self.generation + 1)

    def edited(self) -> PolicyList:
        """Returns the list with a new generation, as after a commit that keeps its cached flows.
        Verdicts from before the commit, in packet-outs, are stale.
        """
        return replace(self, generation=self.generation + 1)


IN = PolicyList("inbound", 11, epoch=0x10003, generation=0x20005)
OUT = PolicyList("outbound", 12, epoch=0x10004, generation=0x20006)
IN2 = PolicyList("inbound", 21, epoch=0x10007, generation=0x20008)
OUT2 = PolicyList("outbound", 22, epoch=0x10009, generation=0x2000A)


@dataclass(frozen=True)
class Flow:
    """Holds the key of a flow in a flow table, except for the list."""

    src_addr: str
    dst_addr: str
    protocol: int = UDP
    src_port: int = SPORT
    dst_port: int = DPORT
    fragment: str = "WHOLE"
    is_local: int = 0
    bundle: int = 0


@dataclass(frozen=True)
class Verdict:
    """Holds a verdict: that of the first matching rule, and this rule's id."""

    verdict: str
    rule: int
    sa_bundle: int = 0


@dataclass(frozen=True)
class Sa:
    """Describes an outbound SA of a bundle in one VRF."""

    bundle: int
    vrf: int = 0
    sa: int = 0x30000 + 77
    engine: int = ENGINE_ID
    path_mtu: int = 1500
    overhead: int = 0


def hit(policy_list: PolicyList, rule: int) -> dict[str, int]:
    """Returns the expected rule counters after one packet that got the rule's verdict from the flow
    cache or from the rule tables.
    """
    return {f"{policy_list.direction} hit {rule}": 1}


def claim(policy_list: PolicyList, rule: int) -> dict[str, int]:
    """Returns the expected rule counters after one packet-out that claimed the rule's verdict."""
    return {f"{policy_list.direction} claim {rule}": 1}


def reinjection(
    punt: PacketIn, answer: Verdict | None = None, **changes: Value
) -> dict[str, Value]:
    """Returns the packet-out header that re-injects a punted packet: the fields of the punt, and
    the CPU's verdict.
    """
    header: dict[str, Value] = {
        name: value
        for name, value in punt.metadata.items()
        if name not in ("reason", "drop_reason", "is_local")
    }
    if answer is not None:
        header |= {"verdict": answer.verdict, "rule": answer.rule}
        header["sa_bundle"] = answer.sa_bundle
    return header | {"kind": "REINJECT"} | changes


class Policy:
    """Writes the SPDs of one test."""

    def __init__(self, router: Router):
        self.router = router
        router.probe.rules = RULES

    # --- lists and flows ------------------------------------------------------

    def state(self, of: PolicyList) -> p4runtime_pb2.TableEntry:
        """Returns the entry that gives a list its epoch and generation."""
        return self.router.entry(
            f"{of.direction}.list_state",
            {"list_id": of.id},
            f"{of.direction}.set_list",
            epoch=of.epoch,
            generation=of.generation,
            rule_set=of.rule_set,
        )

    def ready(self, *lists: PolicyList) -> None:
        """Writes each list's epoch. Without an epoch, a list drops all packets."""
        self.router.insert(*(self.state(one) for one in lists))

    def commit(self, *lists: PolicyList) -> None:
        """Changes the epoch and generation of lists."""
        self.router.modify(*(self.state(one) for one in lists))

    def bind(self, interface: Interface, *lists: PolicyList) -> None:
        """Binds lists to an interface. Each replaces the earlier binding of its direction."""
        for one in lists:
            self.router.modify(
                self.router.entry(
                    f"{one.direction}_binding",
                    {"l3_if": interface.id},
                    f"check_{one.direction}",
                    list_id=one.id,
                )
            )

    def guard(self, interface: Interface, *lists: PolicyList) -> None:
        """Writes the lists' epochs, then binds the lists to an interface."""
        self.ready(*lists)
        self.bind(interface, *lists)

    def unbind(self, interface: Interface) -> None:
        """Binds the interface to no list, in both directions."""
        self.router.modify(*self.router.unbound(interface))

    def flow_entry(
        self, of: PolicyList, flow: Flow, answer: Verdict, epoch: int | None = None
    ) -> p4runtime_pb2.TableEntry:
        """Returns the entry of a flow. `epoch` defaults to the list's epoch."""
        family = "ipv6" if ":" in flow.dst_addr else "ipv4"
        key: dict[str, Match] = {"list_id": of.id, **vars(flow)}
        return self.router.entry(
            f"{of.direction}.{family}_flow",
            key,
            f"{of.direction}.set_{family}_flow",
            epoch=of.epoch if epoch is None else epoch,
            rule=answer.rule,
            verdict=answer.verdict,
            sa_bundle=answer.sa_bundle,
        )

    def flow(
        self, of: PolicyList, flow: Flow, answer: Verdict, epoch: int | None = None
    ) -> p4runtime_pb2.TableEntry:
        """Installs a flow and returns its entry."""
        entry = self.flow_entry(of, flow, answer, epoch)
        self.router.insert(entry)
        return entry

    # --- rules ----------------------------------------------------------------

    def rule_entry(
        self, of: PolicyList, family: str, priority: int, answer: Verdict | None, **match: Match
    ) -> p4runtime_pb2.TableEntry:
        """Returns an entry of the list's rule set in the rule table of `family`, ipv4 or ipv6.

        Without an answer, the entry leaves its packets to the CPU. Fields that are not given match
        any value.
        """
        key: dict[str, Match] = {"rule_set": of.rule_set, **match}
        table, way = f"{of.direction}.{family}_rule", of.direction
        if answer is None:
            entry = self.router.entry(table, key, f"{way}.leave_to_cpu")
        else:
            entry = self.router.entry(table, key, f"{way}.set_rule", **vars(answer))
        entry.priority = priority
        return entry

    def rule(
        self, of: PolicyList, family: str, priority: int, answer: Verdict | None, **match: Match
    ) -> p4runtime_pb2.TableEntry:
        """Adds an entry to the list's rule set and returns the entry."""
        entry = self.rule_entry(of, family, priority, answer, **match)
        self.router.insert(entry)
        return entry

    # --- bundles and engines --------------------------------------------------

    def engine(self, number: int = ENGINE_ID, interface: Interface = ENGINE) -> None:
        """Configures an engine, and the interface for packets from it."""
        self.router.insert(
            self.router.entry(
                "l3_interface",
                {"ingress_port": interface.port, "vlan_id": 0},
                "set_l3_interface",
                l3_if=interface.id,
                vrf=0,
                role="ENGINE",
            ),
            self.router.entry("engine", {"engine": number}, "set_engine", port=interface.port),
        )

    def sa_entry(self, sa: Sa) -> p4runtime_pb2.TableEntry:
        """Returns the entry that assigns an outbound SA to a bundle."""
        params: dict[str, Value] = dict(vars(sa))
        key = {name: params.pop(name) for name in ("vrf", "bundle")}
        return self.router.entry("outbound_sa", key, "encrypt", **params)

    def protects(self, sa: Sa) -> None:
        """Assigns an outbound SA to a bundle."""
        self.router.insert(self.sa_entry(sa))

    def spi(self, spi: int, bundle: int, sa: int, engine: int = ENGINE_ID, vrf: int = 0) -> None:
        """Adds an inbound SA of this router."""
        key: dict[str, Match] = {"vrf": vrf, "spi": spi}
        self.router.insert(
            self.router.entry("inbound_sa", key, "decrypt", bundle=bundle, engine=engine, sa=sa)
        )

    def reassembles(self, engine: int = ENGINE_ID, vrf: int = 0) -> None:
        """Makes the pipeline send ESP fragments of a VRF to this engine."""
        self.router.insert(
            self.router.entry("reassembly_engine", {"vrf": vrf}, "reassemble", engine=engine)
        )

    def sends_from(self, bundle: int, *addresses: str, vrf: int = 0) -> None:
        """Adds the source addresses that a bundle's ESP packets may have."""
        for address in addresses:
            family = "ipv6" if ":" in address else "ipv4"
            key: dict[str, Match] = {"vrf": vrf, "bundle": bundle, "src_addr": address}
            self.router.insert(self.router.entry(f"esp_source_{family}", key, "from_bundle"))

    def carries(self, bundle: int, guarded_by: PolicyList, vrf: int = 0) -> None:
        """Sets the inbound list for packets that a bundle has decrypted."""
        self.router.insert(
            self.router.entry(
                "bundle_binding",
                {"vrf": vrf, "bundle": bundle},
                "check_inbound",
                list_id=guarded_by.id,
            )
        )

    # --- expected results -----------------------------------------------------

    def encrypts(self, source: Interface, packet: Frame, sa: Sa, rules: Rules = NO_RULES) -> None:
        """Sends a packet. Expects it at the engine's port, with its hop count decremented, and
        nothing else.
        """
        frame = arriving(source, packet)
        shim = Shim(ENCRYPT, sa.engine, sa.bundle, sa.sa, ingress_l3_if=source.id, vrf=sa.vrf)
        expected = shim.on(hop_decremented(untagged(frame)))
        outcome = self.router.exchange(FromPort(source.port, frame))
        same(outcome, ProbeOutcome(out=[(ENGINE.port, expected)], rules=dict(rules)), frame)

    def from_engine(self, shim: Shim, packet: Frame, expected: ProbeOutcome) -> None:
        """Sends a packet from the engine and expects exactly this result."""
        frame = shim.on(arriving(ENGINE, packet))
        same(self.router.exchange(FromPort(ENGINE.port, frame)), expected, frame)


def decrypted(bundle: int, came_by: Interface, vrf: int = 0) -> Shim:
    """Returns the shim of a packet that was decrypted with an SA of the bundle."""
    return Shim(DECRYPTED, bundle=bundle, sa=0x99, ingress_l3_if=came_by.id, vrf=vrf)


def encrypted(came_by: Interface, bundle: int = 0, vrf: int = 0) -> Shim:
    """Returns the shim of an ESP packet that the engine has encrypted."""
    return Shim(ENCRYPTED, bundle=bundle, sa=0x99, ingress_l3_if=came_by.id, vrf=vrf)
