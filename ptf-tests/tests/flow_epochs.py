# SPDX-License-Identifier: Apache-2.0
"""Tests flows that are added, removed and overwritten, and epochs that make all flows of a list
stale.

The cases follow VPP's tests of its IPsec SPD flow cache. Each case checks both the rule counters
and the number of table entries.
"""

from dataclasses import replace

from p4.v1 import p4runtime_pb2

from sluice_ptf import standard
from sluice_ptf.case import bare_ptf_test, ptf_test, small_flow_tables
from sluice_ptf.network import HOST4, HOST6
from sluice_ptf.packets import udp_to
from sluice_ptf.policy import IN, IN2, OUT, OUT2, Flow, Policy, PolicyList, Verdict, hit
from sluice_ptf.router import Router
from sluice_ptf.runtime import WriteError, update
from sluice_ptf.standard import TO_B, TO_C, A, B, C, D

DESTINATIONS = ("10.2.0.9", "10.2.0.10", "2001:db8:2::9", "2001:db8:2::a")
BYPASS, DISCARD = Verdict("BYPASS", rule=2), Verdict("DISCARD", rule=4)

FULL = ("RESOURCE_EXHAUSTED", "UNKNOWN")  # BMv2 answers UNKNOWN


def flow_to(dst: str) -> Flow:
    """Returns the flow to which the packets of `udp_to(dst)` belong."""
    return Flow(HOST6 if ":" in dst else HOST4, dst)


def installed(router: Router, of: PolicyList) -> int:
    """Returns the number of flows in the tables of the list's direction, counting all lists and
    epochs.
    """
    ids = [router.client.schema.tables[f"{of.direction}.ipv{n}_flow"].preamble.id for n in (4, 6)]
    return sum(len(router.client.table_entries(table)) for table in ids)


def code(router: Router, kind: str, entry: p4runtime_pb2.TableEntry) -> str:
    """Sends a Write of one update and returns its canonical code."""
    try:
        router.client.write([update(kind, entry)])
    except WriteError as error:
        return error.errors[0][0]
    return "OK"


def misses(router: Router, of: PolicyList, dst: str) -> None:
    """Expects a punt that asks the CPU to search the current list."""
    asked = {"list_id": of.id, "generation": of.generation}
    if of.direction == "inbound":
        router.punts(A, udp_to(dst), "INBOUND_MISS", stage="INBOUND", **asked)
    else:
        way = {"egress_l3_if": B.id, "nexthop_id": TO_B.id}
        router.punts(A, udp_to(dst), "OUTBOUND_MISS", stage="OUTBOUND", **way, **asked)


def each(router: Router) -> list[tuple[Policy, PolicyList]]:
    """Returns an inbound list (for A), then an outbound list (for B), both ready."""
    policy = Policy(router)
    policy.ready(IN, OUT)
    return [(policy, IN), (policy, OUT)]


@ptf_test
def added(router: Router) -> None:
    """Adding a flow adds one table entry. The counters of the rule and of the entry count each
    packet.
    """
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        for number, dst in enumerate(DESTINATIONS, start=1):
            misses(router, of, dst)
            entry = policy.flow(of, flow_to(dst), BYPASS)
            for packets in (1, 2, 3):
                router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
                assert router.count(entry).packets == packets
            assert installed(router, of) == number
        policy.unbind(A if of is IN else B)


@ptf_test
def removed_and_added_again(router: Router) -> None:
    """Packets of a deleted flow miss.

    If the flow is added again, its own counter starts at zero, and the rule's counter goes on.
    """
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        for dst in DESTINATIONS:
            entry = policy.flow(of, flow_to(dst), BYPASS)
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            router.delete(entry)
            assert installed(router, of) == 0
            misses(router, of, dst)
            policy.flow(of, flow_to(dst), BYPASS)
            assert router.count(entry).packets == 0
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            assert router.count(entry).packets == 1
            router.delete(entry)
        policy.unbind(A if of is IN else B)


@ptf_test
def removing_one_leaves_the_others(router: Router) -> None:
    """After one flow is deleted, the other flows still hit."""
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        entries = [policy.flow(of, flow_to(dst), BYPASS) for dst in DESTINATIONS]
        router.delete(entries[0])
        assert installed(router, of) == len(entries) - 1
        misses(router, of, DESTINATIONS[0])
        for dst in DESTINATIONS[1:]:
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
        policy.unbind(A if of is IN else B)


@ptf_test
def one_write_retires_all_flows(router: Router) -> None:
    """A new epoch makes all flows of its list miss, IPv4 and IPv6, but no flow of another list."""
    policy = Policy(router)
    policy.guard(A, IN)
    policy.guard(B, OUT)
    policy.ready(IN2)
    for dst in DESTINATIONS:
        policy.flow(IN, flow_to(dst), BYPASS)
        policy.flow(OUT, flow_to(dst), BYPASS)
        policy.flow(IN2, flow_to(dst), BYPASS)
        router.forwards(A, udp_to(dst), TO_B, rules=hit(IN, 2) | hit(OUT, 2))
    policy.commit(IN.changed())
    for dst in DESTINATIONS:
        misses(router, IN.changed(), dst)
    assert installed(router, IN) == 2 * len(DESTINATIONS)
    policy.bind(A, IN2)
    for dst in DESTINATIONS:
        router.forwards(A, udp_to(dst), TO_B, rules=hit(IN2, 2) | hit(OUT, 2))


@ptf_test
def one_write_retires_all_outbound_flows(router: Router) -> None:
    """A new epoch makes all flows of an outbound list miss.

    The rule of a stale flow is not counted.
    """
    policy = Policy(router)
    policy.guard(B, OUT)
    policy.guard(C, OUT2)
    for dst in (*DESTINATIONS, "10.3.0.9"):
        policy.flow(OUT2 if dst == "10.3.0.9" else OUT, flow_to(dst), BYPASS)
    policy.commit(OUT.changed())
    for dst in DESTINATIONS:
        misses(router, OUT.changed(), dst)
    router.forwards(A, udp_to("10.3.0.9"), TO_C, rules=hit(OUT2, 2))


@ptf_test
def stale_hits_count_in_the_entry_only(router: Router) -> None:
    """Rule counters count only hits of valid flows.

    Direct counters count hits of stale flows, too.
    """
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        entry = policy.flow(of, flow_to("10.2.0.9"), BYPASS)
        router.forwards(A, udp_to("10.2.0.9"), TO_B, rules=hit(of, 2))
        policy.commit(of.changed())
        misses(router, of.changed(), "10.2.0.9")
        assert router.count(entry).packets == 2
        policy.unbind(A if of is IN else B)


@ptf_test
def a_refill_is_a_modify(router: Router) -> None:
    """An INSERT over a stale entry with the same key fails. A MODIFY overwrites the stale entry."""
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        for dst in DESTINATIONS[::2]:
            policy.flow(of, flow_to(dst), BYPASS)
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
        now = of.changed()
        policy.commit(now)
        for number, dst in enumerate(DESTINATIONS[::2]):
            misses(router, now, dst)
            fresh = policy.flow_entry(now, flow_to(dst), DISCARD)
            assert code(router, "INSERT", fresh) == "ALREADY_EXISTS"
            misses(router, now, dst)
            router.modify(fresh)
            reason = "INBOUND_DISCARD" if of is IN else "OUTBOUND_DISCARD"
            router.drops(A, udp_to(dst), reason, rules=hit(of, 4))
            for other in DESTINATIONS[::2][number + 1 :]:
                misses(router, now, other)
        assert installed(router, of) == len(DESTINATIONS[::2])
        policy.unbind(A if of is IN else B)


@ptf_test
def an_epoch_is_not_an_order(router: Router) -> None:
    """A flow is valid only in exactly its list's epoch: not in a later one, and not in epoch 0."""
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        for epoch in (0, 1, of.epoch - 1, of.epoch + 1, of.epoch ^ 1 << 31, 0xFFFFFFFF):
            entry = policy.flow(of, flow_to("10.2.0.9"), BYPASS, epoch=epoch)
            misses(router, of, "10.2.0.9")
            router.delete(entry)
        policy.unbind(A if of is IN else B)


@ptf_test
def epochs_up_to_the_last(router: Router) -> None:
    """All 32 bits of the epoch are compared."""
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        last = replace(of, epoch=0xFFFFFFFF, generation=0xFFFFFFFF)
        policy.commit(last)
        entry = policy.flow(last, flow_to("10.2.0.9"), BYPASS)
        router.forwards(A, udp_to("10.2.0.9"), TO_B, rules=hit(of, 2))
        misses(router, last, "10.2.0.10")
        router.delete(entry)
        policy.unbind(A if of is IN else B)


@ptf_test
def a_generation_alone_retires_no_flow(router: Router) -> None:
    """A new generation without a new epoch leaves flows valid. Punts of misses carry the new
    generation.
    """
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        policy.flow(of, flow_to("10.2.0.9"), BYPASS)
        policy.commit(of.edited())
        router.forwards(A, udp_to("10.2.0.9"), TO_B, rules=hit(of, 2))
        misses(router, of.edited(), "10.2.0.10")
        policy.unbind(A if of is IN else B)


@ptf_test
def a_list_that_loses_its_epoch(router: Router) -> None:
    """A list without an epoch drops every packet, though its flows stay installed."""
    for policy, of in each(router):
        policy.bind(A if of is IN else B, of)
        policy.flow(of, flow_to("10.2.0.9"), BYPASS)
        router.delete(policy.state(of))
        router.drops(A, udp_to("10.2.0.9"), "LIST_NOT_READY")
        policy.ready(of)
        router.forwards(A, udp_to("10.2.0.9"), TO_B, rules=hit(of, 2))
        policy.commit(replace(of, epoch=0))
        router.drops(A, udp_to("10.2.0.9"), "LIST_NOT_READY")
        policy.unbind(A if of is IN else B)


@ptf_test
def a_change_of_routes_retires_nothing(router: Router) -> None:
    """Packets of a cached flow follow a changed route, because a flow holds no next hop.

    If the new egress interface has another SPD list, the packets miss in that list.
    """
    policy = Policy(router)
    policy.guard(B, OUT)
    policy.bind(C, OUT)
    policy.guard(D, OUT2)
    policy.flow(OUT, flow_to("10.2.0.9"), BYPASS)
    router.forwards(A, udp_to("10.2.0.9"), TO_B, rules=hit(OUT, 2))
    router.modify(router.route_entry("10.2.0.0/16", nexthop_id=TO_C.id))
    router.forwards(A, udp_to("10.2.0.9"), TO_C, rules=hit(OUT, 2))
    router.modify(router.route_entry("10.2.0.0/16", nexthop_id=14))
    asked = {"list_id": OUT2.id, "generation": OUT2.generation}
    way = {"egress_l3_if": D.id, "nexthop_id": 14}
    router.punts(A, udp_to("10.2.0.9"), "OUTBOUND_MISS", stage="OUTBOUND", **way, **asked)


@bare_ptf_test
def a_full_table(router: Router) -> None:
    """An INSERT into a full table fails.

    The INSERT evicts no flow. It succeeds after another flow is deleted.
    """
    with small_flow_tables(router, size=4):
        standard.set_up(router)
        for policy, of in each(router):
            policy.bind(A if of is IN else B, of)
            for net in ("10.2.0.{}", "2001:db8:2::{}"):
                dsts = [net.format(host) for host in range(11, 16)]
                entries = [policy.flow(of, flow_to(dst), BYPASS) for dst in dsts[:4]]
                fifth = policy.flow_entry(of, flow_to(dsts[4]), DISCARD)
                held = installed(router, of)
                assert code(router, "INSERT", fifth) in FULL
                assert installed(router, of) == held
                for dst in dsts[:4]:
                    router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
                misses(router, of, dsts[4])
                now = of.changed()
                policy.commit(now)
                router.modify(policy.flow_entry(now, flow_to(dsts[0]), BYPASS))
                router.forwards(A, udp_to(dsts[0]), TO_B, rules=hit(of, 2))
                assert code(router, "INSERT", fifth) in FULL
                router.delete(entries[1])
                entries[1] = policy.flow(now, flow_to(dsts[4]), BYPASS)
                router.forwards(A, udp_to(dsts[4]), TO_B, rules=hit(of, 2))
                assert installed(router, of) == held
                router.delete(*entries)
                policy.commit(of)
            policy.unbind(A if of is IN else B)
