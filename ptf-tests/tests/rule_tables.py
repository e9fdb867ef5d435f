# SPDX-License-Identifier: Apache-2.0
"""Tests which entry of the rule tables gives a packet its verdict, and which packets are looked up
there: whole packets without a valid flow, under a list that has a rule set.

The verdicts themselves are tested in rule_verdicts.
"""

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_network

from scapy.layers.inet import ICMP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoRequest, IPv6ExtHdrFragment
from scapy.layers.sctp import SCTP
from scapy.packet import Packet, Raw

from sluice_ptf import raw
from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST4
from sluice_ptf.packets import DPORT, SPORT, ip4, ip6, tcp, too_deep, udp, udp_to
from sluice_ptf.policy import IN2, OUT2, Flow, Verdict, hit
from sluice_ptf.router import Router
from sluice_ptf.rule_sets import (
    BYPASS,
    DESTINATION,
    DISCARD,
    IN,
    OUT,
    SOURCE,
    V4,
    V6,
    each,
    misses,
    refuses,
)
from sluice_ptf.runtime import Count
from sluice_ptf.schema import Match
from sluice_ptf.standard import TO_B, A, B

PRIORITIES = (1, 2, 3, 1000, 1 << 16, 1 << 24)


def ip_to(dst: str, payload: Packet) -> Packet:
    """Returns a packet from the host on A, of the IP version of `dst`."""
    return ip6(dst, payload) if ":" in dst else ip4(dst, payload)


def fields(family: str) -> dict[str, Match]:
    """Returns all fields of an entry that matches exactly the packets of `udp_to`."""
    return {
        "is_local": 0,
        "src_addr": SOURCE[family],
        "dst_addr": DESTINATION[family],
        "protocol": raw.UDP,
        "src_port": SPORT,
        "dst_port": DPORT,
    }


# --- which entry decides ------------------------------------------------------


@ptf_test
def a_first_packet_finds_its_rule(router: Router) -> None:
    """A packet without a flow gets the verdict of the entry that matches it. No packet is punted.

    The rule's hit counter counts each packet once. No claim is counted.
    """
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            misses(router, of, udp_to(dst))
            entry = policy.rule(of, family, 10, BYPASS, **fields(family))
            for _ in range(2):
                router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            router.delete(entry)
            misses(router, of, udp_to(dst))
            policy.rule(of, family, 10, DISCARD)
            for _ in range(2):
                refuses(router, of, udp_to(dst), hit(of, 4))


@ptf_test
def the_highest_priority_wins(router: Router) -> None:
    """Of the entries that match, the one with the highest priority decides. The order in which they
    were written has no effect.
    """
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            exact = fields(family)
            entries = {}
            for rule in (3, 0, 5, 1, 4, 2):
                answer = Verdict("DISCARD" if rule % 2 else "BYPASS", rule)
                narrow = dict(list(exact.items())[: 1 + rule])
                entries[rule] = policy.rule(of, family, PRIORITIES[rule], answer, **narrow)
            for rule in reversed(range(len(PRIORITIES))):
                if rule % 2:
                    refuses(router, of, udp_to(dst), hit(of, rule))
                else:
                    router.forwards(A, udp_to(dst), TO_B, rules=hit(of, rule))
                router.delete(entries[rule])
            misses(router, of, udp_to(dst))


@ptf_test
def a_narrow_entry_of_low_priority_loses(router: Router) -> None:
    """An entry that matches on no field takes precedence over one that matches on all fields, if
    its priority is higher.
    """
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            policy.rule(of, family, 10, DISCARD, **fields(family))
            policy.rule(of, family, 11, BYPASS)
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))


@ptf_test
def the_same_match_with_two_priorities(router: Router) -> None:
    """Two entries that differ only in their priority are two entries. A MODIFY changes one of
    them.
    """
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            policy.rule(of, family, 10, DISCARD, **fields(family))
            high = policy.rule(of, family, 20, DISCARD, **fields(family))
            router.modify(policy.rule_entry(of, family, 20, BYPASS, **fields(family)))
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            router.delete(high)
            refuses(router, of, udp_to(dst), hit(of, 4))


@ptf_test
def left_to_the_cpu(router: Router) -> None:
    """A packet that an entry leaves to the CPU is punted as a miss, even if an entry of lower
    priority has a verdict.
    """
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            policy.rule(of, family, 10, BYPASS)
            leave = policy.rule(of, family, 20, None, dst_port=DPORT)
            misses(router, of, udp_to(dst))
            other = ip_to(dst, udp(dport=DPORT + 1))
            router.forwards(A, other, TO_B, rules=hit(of, 2))
            policy.rule(of, family, 30, DISCARD, src_port=SPORT)
            refuses(router, of, udp_to(dst), hit(of, 4))
            router.delete(leave)
            refuses(router, of, udp_to(dst), hit(of, 4))


# --- what an entry matches ----------------------------------------------------


@ptf_test
def every_field_tells(router: Router) -> None:
    """An entry whose value differs from the packet's in one field does not match."""
    other: Mapping[str, dict[str, Match]] = {
        "ipv4": {"src_addr": "10.1.0.98", "dst_addr": "10.2.0.8"},
        "ipv6": {"src_addr": "2001:db8:1::98", "dst_addr": "2001:db8:2::8"},
    }
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            exact = fields(family)
            differing: list[tuple[str, Match]] = [
                ("is_local", 1),
                *other[family].items(),
                ("protocol", raw.UDP ^ 1),
                ("protocol", raw.UDP | 0x80),
                ("src_port", SPORT ^ 1),
                ("src_port", SPORT ^ 0x8000),
                ("dst_port", DPORT ^ 1),
                ("dst_port", DPORT ^ 0x8000),
            ]
            for priority, (name, value) in enumerate(differing, start=1):
                policy.rule(of, family, priority, DISCARD, **exact | {name: value})
                policy.rule(of, family, priority + 100, DISCARD, **{name: value})
            misses(router, of, udp_to(dst))
            for priority, name in enumerate(exact, start=1000):
                rest = {key: value for key, value in exact.items() if key != name}
                entry = policy.rule(of, family, priority, BYPASS, **rest)
                router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
                router.delete(entry)


@ptf_test
def prefixes_of_many_lengths(router: Router) -> None:
    """A prefix matches the first and the last address that it covers, and not their neighbours."""
    router.route("0.0.0.0/0", nexthop_id=TO_B.id)
    router.route("::/0", nexthop_id=TO_B.id)
    v4 = ("160.0.0.0/3", "198.18.0.0/15", "198.18.16.0/20", "198.18.0.8/31", "198.18.0.9/32")
    v6 = ("2000::/3", "2a00:40::/31", "2a00::/64", "2a00:0:0:0:8000::/65", "2a00::9/128")
    for policy, of in each(router):
        for family, prefixes in (("ipv4", v4), ("ipv6", v6)):
            for prefix in prefixes:
                network = ip_network(prefix)
                inside = network[0], network[-1]
                outside = network[0] - 1, network[-1] + 1
                for field in ("src_addr", "dst_addr"):
                    entry = policy.rule(of, family, 10, DISCARD, **{field: prefix})
                    for address in (*inside, *outside):
                        packet = udp_to(str(address))
                        if field == "src_addr":
                            packet = udp_to(DESTINATION[family], src=str(address))
                        if address in network:
                            refuses(router, of, packet, hit(of, 4))
                        else:
                            misses(router, of, packet)
                    router.delete(entry)


@ptf_test
def a_range_has_two_ends(router: Router) -> None:
    """A range of ports matches both of its ends, and no port outside."""
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            for low, high in ((1000, 2000), (1, 1), (255, 256), (0, 1023), (1024, 65535)):
                for field in ("src_port", "dst_port"):
                    entry = policy.rule(of, family, 10, DISCARD, **{field: (low, high)})
                    for port in {low - 1, low, high, high + 1} & set(range(1 << 16)):
                        ports = (7000, port) if field == "src_port" else (port, 7000)
                        packet = ip_to(dst, udp(dport=ports[0], sport=ports[1]))
                        if low <= port <= high:
                            refuses(router, of, packet, hit(of, 4))
                        else:
                            misses(router, of, packet)
                    router.delete(entry)


@ptf_test
def both_ranges_must_match(router: Router) -> None:
    """An entry with ranges at both ends matches only if both ports are in their range."""
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            entry = policy.rule(of, family, 9, DISCARD, src_port=(10, 20), dst_port=(30, 40))
            for sport, dport in ((10, 30), (20, 40), (15, 35)):
                refuses(router, of, ip_to(dst, udp(dport, sport)), hit(of, 4))
            for sport, dport in ((9, 30), (10, 29), (21, 40), (20, 41), (30, 10), (35, 15)):
                misses(router, of, ip_to(dst, udp(dport, sport)))
            for other in (SCTP(sport=10, dport=40) / Raw(bytes(20)), tcp(dport=40, sport=10)):
                refuses(router, of, ip_to(dst, other), hit(of, 4))
            router.delete(entry)


@ptf_test
def icmp_types_are_destination_ports(router: Router) -> None:
    """An ICMP packet has the type in the high byte of its destination port, and the code in the low
    byte.
    """
    for policy, of in each(router):
        for family, dst, protocol in (("ipv4", V4, 1), ("ipv6", V6, 58)):
            kinds = {
                "unreachable": (3 if protocol == 1 else 1) << 8,
                "echo": (8 if protocol == 1 else 128) << 8,
            }
            unreachable = {
                code: ip4(V4, ICMP(type=3, code=code) / Raw(bytes(28)))
                if protocol == 1
                else ip6(V6, ICMPv6DestUnreach(code=code) / Raw(bytes(48)))
                for code in (0, 1, 4)
            }
            echo = ip4(V4, ICMP(type=8)) if protocol == 1 else ip6(V6, ICMPv6EchoRequest())
            low = kinds["unreachable"]
            of_type = policy.rule(
                of, family, 10, BYPASS, protocol=protocol, dst_port=(low, low | 0xFF)
            )
            for packet in unreachable.values():
                router.forwards(A, packet, TO_B, rules=hit(of, 2))
            misses(router, of, echo)
            policy.rule(of, family, 20, DISCARD, protocol=protocol, dst_port=low | 1)
            refuses(router, of, unreachable[1], hit(of, 4))
            router.forwards(A, unreachable[4], TO_B, rules=hit(of, 2))
            policy.rule(of, family, 30, DISCARD, protocol=protocol, dst_port=kinds["echo"])
            refuses(router, of, echo, hit(of, 4))
            misses(router, of, ip_to(dst, udp(dport=kinds["echo"])))
            router.delete(of_type)
            misses(router, of, unreachable[0])


@ptf_test
def protocols_without_ports(router: Router) -> None:
    """A packet of a protocol without ports has port 0 at both ends."""
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            packet = ip4(V4, Raw(bytes(24)), proto=47) if dst == V4 else None
            packet = packet or ip6(V6, Raw(bytes(24)), nh=47)
            policy.rule(of, family, 30, DISCARD, dst_port=(1, 65535))
            policy.rule(of, family, 20, DISCARD, src_port=(1, 65535))
            misses(router, of, packet)
            policy.rule(of, family, 10, BYPASS, protocol=47, src_port=0, dst_port=0)
            router.forwards(A, packet, TO_B, rules=hit(of, 2))


@ptf_test
def each_family_has_its_table(router: Router) -> None:
    """An entry that matches on nothing matches all packets of its own IP version, and no others."""
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            entry = policy.rule(of, family, 10, BYPASS)
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            misses(router, of, udp_to(V6 if dst == V4 else V4))
            router.delete(entry)


# --- rule sets ----------------------------------------------------------------


@ptf_test
def a_list_without_a_rule_set(router: Router) -> None:
    """Packets under a list with rule set 0 miss, even if the tables have entries of set 0."""
    for policy, of in each(router):
        none = replace(of, rule_set=0)
        policy.commit(none)
        for family, dst in DESTINATION.items():
            policy.rule(none, family, 10, DISCARD)
            misses(router, of, udp_to(dst))


@ptf_test
def the_rules_of_others_are_not_met(router: Router) -> None:
    """Entries of other rule sets do not match, nor entries of the same set in the other
    direction.
    """
    for policy, of in each(router):
        against = OUT if of is IN else IN
        for family, dst in DESTINATION.items():
            for rule_set in (of.rule_set ^ 4, of.rule_set ^ 0x8000, of.rule_set & 0xFF):
                policy.rule(replace(of, rule_set=rule_set), family, 10, DISCARD)
            policy.rule(replace(against, rule_set=of.rule_set), family, 10, DISCARD)
            misses(router, of, udp_to(dst))
            policy.rule(of, family, 1, BYPASS)
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))


@ptf_test
def two_lists_with_one_rule_set(router: Router) -> None:
    """Two lists of a direction may name the same rule set. Then one of them gets another set."""
    for policy, of in each(router):
        interface, twin = (A, IN2) if of is IN else (B, OUT2)
        twin = replace(twin, rule_set=of.rule_set)
        policy.ready(twin)
        for family, dst in DESTINATION.items():
            policy.rule(of, family, 10, BYPASS)
            policy.rule(replace(of, rule_set=7), family, 10, DISCARD)
            for bound in (twin, of):
                policy.bind(interface, bound)
                router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            policy.commit(replace(twin, rule_set=7))
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            policy.bind(interface, twin)
            refuses(router, of, udp_to(dst), hit(of, 4))
            policy.commit(twin)


@ptf_test
def one_write_replaces_the_rule_set(router: Router) -> None:
    """One write to list_state replaces the rule set of a list: only entries of the new set apply
    from then on. Flows of the list stay valid if the epoch does not change.
    """
    for policy, of in each(router):
        new = replace(of.edited(), rule_set=of.rule_set + 1)
        for family, dst in DESTINATION.items():
            policy.rule(of, family, 10, BYPASS)
            policy.rule(new, family, 10, DISCARD, dst_port=DPORT)
            other = ip_to(dst, udp(dport=DPORT + 1))
            kept = ip_to(dst, udp(dport=DPORT + 2))
            flow = Flow(SOURCE[family], dst, dst_port=DPORT + 2)
            policy.flow(of, flow, Verdict("BYPASS", rule=7))
            for packet in (udp_to(dst), other):
                router.forwards(A, packet, TO_B, rules=hit(of, 2))
            policy.commit(new)
            refuses(router, of, udp_to(dst), hit(of, 4))
            misses(router, new, other)
            router.forwards(A, kept, TO_B, rules=hit(of, 7))
            policy.commit(replace(new, rule_set=0))
            misses(router, new, udp_to(dst))
            policy.commit(of)


# --- flows and rules ----------------------------------------------------------


@ptf_test
def a_flow_goes_before_the_rules(router: Router) -> None:
    """A flow of the list's epoch decides, although a rule matches. A flow of another epoch does
    not.

    In the first case, the packet is counted for the flow's rule. In the second case, it is counted
    for the rule of the table entry.
    """
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            policy.rule(of, family, 10, BYPASS)
            entry = policy.flow(of, Flow(SOURCE[family], dst), DISCARD)
            refuses(router, of, udp_to(dst), hit(of, 4))
            now = of.changed()
            policy.commit(now)
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            assert router.count(entry).packets == 2
            router.modify(policy.flow_entry(now, Flow(SOURCE[family], dst), DISCARD))
            refuses(router, of, udp_to(dst), hit(of, 4))
            router.delete(entry)
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))
            policy.commit(of)


@ptf_test
def a_stale_flow_leaves_nothing_behind(router: Router) -> None:
    """A packet with a stale flow that no rule matches is punted without the flow's verdict."""
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            policy.flow(of, Flow(SOURCE[family], dst), BYPASS, epoch=of.epoch - 1)
            policy.rule(of, family, 10, DISCARD, dst_port=DPORT + 1)
            misses(router, of, udp_to(dst))
            policy.rule(of, family, 20, None)
            misses(router, of, udp_to(dst))


@ptf_test
def a_list_without_an_epoch(router: Router) -> None:
    """A list without an epoch drops packets, even if a rule of its rule set bypasses them."""
    for policy, of in each(router):
        for family, dst in DESTINATION.items():
            policy.rule(of, family, 10, BYPASS)
            policy.commit(replace(of, epoch=0))
            router.drops(A, udp_to(dst), "LIST_NOT_READY")
            policy.commit(of)
            router.forwards(A, udp_to(dst), TO_B, rules=hit(of, 2))


@ptf_test
def rules_count_bytes(router: Router) -> None:
    """A rule counts the packets and bytes of the verdicts that its entries gave."""
    for policy, of in each(router):
        policy.rule(of, "ipv4", 10, BYPASS, dst_port=(0, DPORT))
        policy.rule(of, "ipv4", 9, BYPASS, dst_port=(DPORT + 1, 65535))
        counter = f"{of.direction}.rule_hit_counter"
        before = router.client.counter_cells(counter, [2])[2]
        length = 0
        for dport in (DPORT, DPORT + 1):
            packet = ip4(V4, udp(dport=dport))
            router.forwards(A, packet, TO_B, rules=hit(of, 2))
            length += 14 + len(packet)
        counted = router.client.counter_cells(counter, [2])[2] - before
        assert counted == Count(2, length)


# --- packets that are not looked up -------------------------------------------


@ptf_test
def fragments_are_left_to_the_cpu(router: Router) -> None:
    """A first or later fragment does not get a rule's verdict, since it must get that of its whole
    datagram. An IPv6 packet in a single fragment is whole.
    """
    for policy, of in each(router):
        for family in DESTINATION:
            policy.rule(of, family, 10, BYPASS)
        for offset, more in ((0, True), (9, True), (9, False)):
            misses(router, of, ip4(V4, udp(), frag=offset, flags="MF" if more else ""), "FRAGMENT")
            header = IPv6ExtHdrFragment(offset=offset, m=int(more))
            misses(router, of, ip6(V6, header / udp()), "FRAGMENT")
        atomic = ip6(V6, IPv6ExtHdrFragment() / udp())
        router.forwards(A, atomic, TO_B, rules=hit(of, 2))
        flow = Flow(HOST4, V4, fragment="FIRST")
        policy.flow(of, flow, Verdict("BYPASS", rule=3))
        router.forwards(A, ip4(V4, udp(), flags="MF"), TO_B, rules=hit(of, 3))


@ptf_test
def headers_that_are_not_walked(router: Router) -> None:
    """A packet with too many headers is punted for a search, even if a rule matches on no field.

    Options and extension headers that are walked do not matter.
    """
    for policy, of in each(router):
        for family in DESTINATION:
            policy.rule(of, family, 10, BYPASS)
        misses(router, of, too_deep(V6), "EXTENSION_HEADERS")
        if of is IN:
            misses(router, of, too_deep(V4), "EXTENSION_HEADERS")
        else:
            router.punts(A, too_deep(V4), "IP_OPTIONS", stage="ROUTING")
        options = ip4(V4, udp(), options=b"\x94\x04\0\0")
        router.forwards(A, options, TO_B, rules=hit(of, 2))
        chain = raw.extension(raw.UDP) + raw.datagram()
        router.forwards(A, ip6(V6, Raw(chain), nh=60), TO_B, rules=hit(of, 2))


@ptf_test
def segments_left(router: Router) -> None:
    """A packet whose routing header has segments left is dropped, although a rule matches."""
    for policy, of in each(router):
        policy.rule(of, "ipv6", 10, BYPASS)
        for left in (0, 1):
            header = bytes([raw.UDP, 2, 4, left]) + bytes(4 + 16)
            packet = ip6(V6, Raw(header + raw.datagram()), nh=43)
            if left:
                router.drops(A, packet, "SEGMENTS_LEFT")
            else:
                router.forwards(A, packet, TO_B, rules=hit(of, 2))
