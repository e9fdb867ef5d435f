# SPDX-License-Identifier: Apache-2.0
"""Tests meters on punts, and direct and indirect counters."""

from p4.v1 import p4runtime_pb2

from sluice_ptf.case import ptf_test
from sluice_ptf.packets import ip4, udp, udp_to
from sluice_ptf.router import FromPort, Router, arriving
from sluice_ptf.runtime import Count
from sluice_ptf.standard import TO_B, TO_D, A, B, D

V4 = "10.2.0.9"
V6 = "2001:db8:2::9"
NO_ROUTE = "192.0.2.1"
BURST = 5


def frames(*packets: bytes) -> list[FromPort]:
    """Returns the frames as packets to send into the port of interface A."""
    return [FromPort(A.port, packet) for packet in packets]


@ptf_test
def punts_are_limited(router: Router) -> None:
    """With a meter, the switch punts a burst, and then at most one packet per second.

    It drops all other packets as PUNT_METERED.
    """
    router.punt_meter("NO_ROUTE", rate=1, burst=BURST)
    outcome = router.exchange(*frames(*[arriving(A, udp_to(NO_ROUTE))] * 30))
    passed = len(outcome.punts)
    assert BURST <= passed <= BURST + 5, passed
    assert outcome.punted == {"NO_ROUTE": passed}
    assert outcome.metered == {"NO_ROUTE": 30 - passed}
    assert outcome.drops == {"PUNT_METERED": 30 - passed}


@ptf_test
def a_punt_reason_starves_no_other(router: Router) -> None:
    """An exhausted meter of one punt reason affects neither other reasons nor forwarding."""
    router.punt_meter("NO_ROUTE", rate=1, burst=1)
    router.exchange(*frames(*[arriving(A, udp_to(NO_ROUTE))] * 10))
    for _ in range(10):
        router.punts(A, udp_to("10.1.0.1"), "LOCAL", stage="LOCAL_DELIVERY")
        router.forwards(A, udp_to(V4), TO_B)


@ptf_test
def without_a_meter_all_punts_pass(router: Router) -> None:
    """A meter whose configuration was removed limits nothing."""
    router.punt_meter("NO_ROUTE", rate=1, burst=1)
    router.unlimit("NO_ROUTE")
    outcome = router.exchange(*frames(*[arriving(A, udp_to(NO_ROUTE))] * 100))
    assert outcome.punted == {"NO_ROUTE": 100}
    assert not outcome.metered


@ptf_test
def punts_from_the_cpu_are_limited_too(router: Router) -> None:
    """The meters of punts also limit packets that this router itself sends."""
    router.punt_meter("NO_ROUTE", rate=1, burst=1)
    router.exchange(*frames(*[arriving(A, udp_to(NO_ROUTE))] * 5))
    frame = arriving(A, udp_to(NO_ROUTE))
    for _ in range(3):
        outcome = router.from_cpu(frame, kind="LOCAL_ORIGIN")
        assert outcome.metered == {"NO_ROUTE": 1} or outcome.punted == {"NO_ROUTE": 1}


@ptf_test
def a_meter_reads_back(router: Router) -> None:
    """A read of a meter returns the rates that were configured."""
    router.punt_meter("ARP", rate=1000, burst=200)
    entity = p4runtime_pb2.Entity()
    entity.meter_entry.CopyFrom(router.meter_entry("ARP"))
    (found,) = router.client.read([entity])
    config = found.meter_entry.config
    assert (config.cir, config.cburst, config.pir, config.pburst) == (1000, 200, 1000, 200)


@ptf_test
def an_interface_counts_what_comes_in(router: Router) -> None:
    """An interface counts packets and bytes of all received frames: forwarded, punted or
    dropped.
    """
    match = {"ingress_port": D.port, "vlan_id": D.vlan}
    entry = router.client.schema.entry("l3_interface", match)
    before = router.count(entry)
    sent = [
        arriving(D, packet)
        for packet in (udp_to(V4), udp_to(NO_ROUTE), udp_to(V4, src="127.0.0.1"), udp_to(V6))
    ]
    router.exchange(*(FromPort(D.port, frame) for frame in sent))
    assert router.count(entry) - before == Count(len(sent), sum(map(len, sent)))


@ptf_test
def a_next_hop_counts_what_it_is_chosen_for(router: Router) -> None:
    """A next hop counts every packet that is routed to it, also one that then cannot leave."""
    entries = [
        router.client.schema.entry("nexthop", {"nexthop_id": nexthop.id})
        for nexthop in (TO_B, TO_D)
    ]
    before = [router.count(entry) for entry in entries]
    sent = [arriving(A, packet) for packet in (udp_to(V4), udp_to(V6), udp_to(V4, ttl=1))]
    router.exchange(*frames(*sent))
    after = [router.count(entry) for entry in entries]
    moved = [new - old for old, new in zip(before, after, strict=True)]
    assert moved == [Count(3, sum(map(len, sent))), Count(0, 0)]


@ptf_test
def a_counter_stays_when_its_entry_changes(router: Router) -> None:
    """MODIFY of a next hop keeps its counts; a new entry starts at zero."""
    entry = router.client.schema.entry("nexthop", {"nexthop_id": TO_B.id})
    router.forwards(A, udp_to(V4), TO_B)
    counted = router.count(entry)
    assert counted.packets > 0
    router.modify(router.neighbor(TO_B))
    assert router.count(entry) == counted
    router.delete(router.neighbor(TO_B))
    router.nexthop(TO_B)
    assert router.count(entry) == Count(0, 0)


@ptf_test
def a_counter_can_be_set(router: Router) -> None:
    """A controller can set a direct counter; the switch counts on from the new value."""
    direct = p4runtime_pb2.DirectCounterEntry()
    direct.table_entry.CopyFrom(router.client.schema.entry("nexthop", {"nexthop_id": TO_B.id}))
    direct.data.packet_count, direct.data.byte_count = 1000, 5000
    router.modify(direct)
    frame = arriving(A, udp_to(V4))
    router.exchange(FromPort(A.port, frame))
    assert router.count(direct.table_entry) == Count(1001, 5000 + len(frame))


@ptf_test
def an_interface_counts_what_goes_out(router: Router) -> None:
    """Each layer-3 interface counts its transmitted packets, and no punted ones."""

    def counted() -> list[Count]:
        cells = router.client.counter_cells("egress_interface_counter", [A.id, B.id, D.id])
        return [cells[interface.id] for interface in (A, B, D)]

    before = counted()
    sent = [arriving(A, packet) for packet in (udp_to(V4), udp_to(V6), udp_to("10.4.0.9"))]
    router.exchange(*frames(*sent, arriving(A, udp_to(V4, ttl=1))))
    moved = [(new - old).packets for old, new in zip(before, counted(), strict=True)]
    assert moved == [0, 2, 1]


@ptf_test
def drop_counters_count_bytes(router: Router) -> None:
    """Drop counters count the bytes of whole frames."""
    index = router.client.schema.enums["drop_reason_t"]["NOT_FOR_ROUTER"]
    before = router.client.counter_cells("drop_counter", [index])[index]
    frame = b"\x02\xde\xad\0\0\1" + arriving(A, ip4(V4, udp(size=300)))[6:]
    router.drops(A, frame, "NOT_FOR_ROUTER")
    after = router.client.counter_cells("drop_counter", [index])[index]
    assert after - before == Count(1, len(frame))
