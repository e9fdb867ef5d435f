# SPDX-License-Identifier: Apache-2.0
"""Tests the flow cache: its contents, hits and evictions.

The controller counts hits and searches for each rule. The entries are read from `sluice show`, and
from the switch through the interposer. Captures show which packets arrived. The tests use IPv4
only, because neighbour discovery would occupy entries of a cache that has only eight.
"""

from contextlib import ExitStack

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until

from .network import EVERYTHING, OneRouter, udp
from .walking import ArrivalRecorder, Flow, Stream

SMALL = 8
CACHES = {
    "east": {"size": SMALL, "idle_timeout": 12},
    "north": {"size": 1000, "idle_timeout": 1},
}
LISTS = pytest.mark.parametrize(("spd", "direction"), [("west", "inbound"), ("south", "outbound")])
BYPASS, DISCARD = 1, 2


@pytest.fixture(scope="module")
def started(module_lab: Lab) -> OneRouter:
    network = OneRouter(module_lab, CACHES, versions=(4,))
    network.start()
    return network


class Cache:
    """Reads the flow cache of one list of an SPD from the switch."""

    def __init__(self, network: OneRouter, spd: str, direction: str = "outbound") -> None:
        self._network = network
        self._spd = spd
        self._direction = direction
        self._list = network.list_of(spd, direction)["list_id"]

    def ports(self) -> list[int]:
        """Returns the destination ports of all entries, sorted."""
        return sorted(entry["dst_port"] for entry in self._entries())

    def current(self) -> dict[int, int]:
        """Returns the verdicts of the valid entries, by destination port."""
        epoch = self._network.list_of(self._spd, self._direction)["epoch"]
        entries = self._entries()
        return {one["dst_port"]: one["verdict"] for one in entries if one["epoch"] == epoch}

    def _entries(self) -> list[dict[str, int]]:
        table = f"{self._direction}.ipv4_flow"
        return self._network.interposer.entries(table, list_id=self._list)

    def wait_for(self, port: int, verdict: int = BYPASS) -> None:
        """Waits until a flow to this port has a valid entry with this verdict."""
        wait_until(lambda: self.current().get(port) == verdict, 10, f"port {port} cached")


# -- effects of changed rules on hits and entries, modelled on VPP's tests


@LISTS
def test_a_rule_added_removed_and_added_again(network: OneRouter, spd: str, direction: str) -> None:
    """After each change of the rule, ten packets cause one search and nine hits, and leave one
    entry.
    """
    cache = Cache(network, spd, direction)
    with Flow(network, sink="c") as flow, ArrivalRecorder(network, "c") as c:
        ours = udp("ours", "bypass", flow.port)

        def ten_packets(verdict: int) -> list[int]:
            first = flow.send()
            cache.wait_for(flow.port, verdict)
            return first + flow.send(9)

        network.commit(spd, **{direction: [ours]})
        added = ten_packets(BYPASS)
        assert c.wait_for(added) == added
        assert network.rule(spd, "ours", direction) == (9, 1)

        reason = f"{direction.upper()}_DISCARD"
        drops, final = network.drops(reason), network.list_of(spd, direction)["final_discard"]
        network.commit(spd, **{direction: [udp("another", "bypass", network.fresh_port())]})
        ten_packets(DISCARD)
        wait_until(lambda: network.drops(reason) == drops + 9, 10, "nine discarded in the switch")
        later = network.list_of(spd, direction)["final_discard"]
        assert later["hits"] - final["hits"] == 9
        assert later["searched"] - final["searched"] == 1
        assert c.numbers() == added

        network.commit(spd, **{direction: [ours]})
        again = ten_packets(BYPASS)
        assert c.wait_for(again) == added + again
        assert network.rule(spd, "ours", direction) == (9, 1), "the numbers of a rule start anew"
        assert cache.ports().count(flow.port) == 1


@LISTS
def test_stale_flows_are_refilled_in_place(network: OneRouter, spd: str, direction: str) -> None:
    """A new epoch makes all flows stale, without a write to the flow table. Later, each flow's next
    packet causes a MODIFY of its entry and no INSERT.
    """
    cache = Cache(network, spd, direction)
    with ExitStack() as stack:
        flows = [stack.enter_context(Flow(network, sink="c")) for _ in range(5)]
        ports = sorted(flow.port for flow in flows)
        c = stack.enter_context(ArrivalRecorder(network, "c"))
        sent = [number for flow in flows for number in flow.send()]
        for flow in flows:
            cache.wait_for(flow.port)
        before = network.interposer.written()
        entries = cache.ports()
        network.sluice("flow-cache", "clear", spd)
        assert cache.current() == {}
        assert cache.ports() == entries
        assert network.list_of(spd, direction)["stale_flows"] == len(entries)
        sent += [number for flow in flows for number in flow.send()]
        for flow in flows:
            cache.wait_for(flow.port)
        sent += [number for flow in flows for number in flow.send()]
        assert c.wait_for(sent) == sent
        assert sorted(cache.current()) == ports
        written = network.interposer.written()
        table = f"{direction}.ipv4_flow"
        for kind, times in (("INSERT", 0), ("MODIFY", len(flows))):
            update = f"{kind} {table}"
            assert written.get(update, 0) - before.get(update, 0) == times, update


# -- a full flow cache


def test_a_full_cache_evicts_stale_flows_first(network: OneRouter) -> None:
    cache = Cache(network, "east")
    with ExitStack() as stack:
        flows = [stack.enter_context(Flow(network)) for _ in range(2 * SMALL)]
        b = stack.enter_context(ArrivalRecorder(network))
        sent: list[int] = []

        def use(which: Flow) -> None:
            numbers = which.send()
            sent.extend(numbers)
            cache.wait_for(which.port)
            assert len(cache.ports()) <= SMALL

        for flow in flows[:SMALL]:
            use(flow)
        ports = [flow.port for flow in flows]
        assert cache.ports() == ports[:SMALL]
        network.sluice("flow-cache", "clear", "east")
        use(flows[0])  # the oldest entry is used again, so the second is evicted first
        use(flows[SMALL])
        assert cache.ports() == [ports[0], *ports[2 : SMALL + 1]]
        for flow in flows[SMALL + 1 : 2 * SMALL - 1]:
            use(flow)
        assert sorted(cache.current()) == [ports[0], *ports[SMALL : 2 * SMALL - 1]]
        use(flows[-1])  # no stale entry is left
        assert sorted(cache.current()) == ports[SMALL:]
        assert b.wait_for(sent) == sent


def test_a_full_cache_evicts_the_coldest_flow(network: OneRouter) -> None:
    """A full cache evicts the flow that has been idle longest, not the flow that was cached
    first.
    """
    cache = Cache(network, "east")
    with ExitStack() as stack:
        flows = [stack.enter_context(Flow(network)) for _ in range(SMALL + 1)]
        b = stack.enter_context(ArrivalRecorder(network))
        oldest, *others, newest = flows
        rules = [udp("oldest", "bypass", oldest.port), EVERYTHING]
        network.commit("east", outbound=rules)
        oldest.send()
        cache.wait_for(oldest.port)
        with Stream(oldest, rate=50) as stream:
            sent = []
            for flow in others:
                sent += flow.send()
                cache.wait_for(flow.port)
            stream.wait_for_more(200)  # four seconds, in which the controller reads the counters
            sent += newest.send()
            cache.wait_for(newest.port)
            stream.wait_for_more(10)
        assert oldest.port in cache.current()
        assert others[0].port not in cache.current()
        assert network.rule("east", "oldest").searched == 1
        b.wait_for([*stream.sent, *sent])


def test_a_full_cache_never_lets_clear_text_out(network: OneRouter) -> None:
    """If there are twice as many flows as entries, packets of discarded flows never pass, in three
    rounds over all flows.
    """
    cache = Cache(network, "east")
    with ExitStack() as stack:
        flows = [stack.enter_context(Flow(network)) for _ in range(2 * SMALL)]
        b = stack.enter_context(ArrivalRecorder(network))
        passing, discarded = flows[::2], flows[1::2]
        network.commit(
            "east",
            outbound=[
                udp("no", "discard", *(flow.port for flow in discarded)),
                udp("yes", "bypass", *(flow.port for flow in passing)),
            ],
        )
        sent: list[int] = []
        for _ in range(3):
            for flow in flows:
                numbers = flow.send()
                sent += numbers if flow in passing else []
            assert b.wait_for(sent) == sent
            assert len(cache.ports()) <= SMALL
        wait_until(
            lambda: sum(network.rule("east", "no")) == 3 * SMALL,
            10,
            "all other packets to be dropped",
        )
        assert sum(network.rule("east", "yes")) == 3 * SMALL
        assert b.numbers() == sent
        wait_until(lambda: len(cache.current()) == SMALL, 10, "a full cache without stale entries")


def test_a_cache_full_of_writes_under_way_takes_no_more(network: OneRouter) -> None:
    """If there are three times as many flows as entries, all packets pass while the switch
    acknowledges no insert. The cache never exceeds its size.
    """
    cache = Cache(network, "east")
    with ExitStack() as stack:
        flows = [stack.enter_context(Flow(network)) for _ in range(3 * SMALL)]
        b = stack.enter_context(ArrivalRecorder(network))
        never = stack.enter_context(Flow(network))
        network.commit("east", outbound=[udp("no", "discard", never.port), EVERYTHING])
        with network.interposer.hold("write", tables="outbound.ipv4_flow") as writes:
            sent = [number for flow in flows for number in flow.send()]
            with network.refusing():
                never.send()
            assert b.wait_for(sent) == sent
            assert len(writes.held()) == 1, "one write of flows at a time"
        wait_until(lambda: len(cache.ports()) == SMALL, 10, "the cache full")
        sent += [number for flow in flows for number in flow.send()]
        assert b.wait_for(sent) == sent
        assert len(cache.ports()) == SMALL


# -- switching the cache off and on


def test_with_the_cache_off_every_packet_is_searched_once_and_passes_once(
    network: OneRouter,
) -> None:
    """With the cache off, no packet is lost, doubled or looped, and no old entry is used.

    The controller searches the inbound and the outbound list for every packet.
    """
    with Flow(network, sink="c") as flow, ArrivalRecorder(network, "c") as c:
        network.commit("west", inbound=[udp("in", "bypass", flow.port)])
        network.commit("south", outbound=[udp("out", "bypass", flow.port)])
        caches = Cache(network, "west", "inbound"), Cache(network, "south")

        def first_packet() -> list[int]:
            first = flow.send()
            for cache in caches:
                cache.wait_for(flow.port)
            return first

        sent = first_packet()
        try:
            for spd in ("west", "south"):
                network.sluice("flow-cache", "off", spd)
            with Stream(flow, rate=100) as stream:
                stream.wait_for_more(100)
            sent += stream.sent
            assert c.wait_for(sent) == sent
            assert network.rule("west", "in", "inbound") == (0, len(sent))
            assert network.rule("south", "out") == (0, len(sent))
            assert [cache.current() for cache in caches] == [{}, {}]
        finally:
            for spd in ("west", "south"):
                network.sluice("flow-cache", "on", spd)
        searched = len(sent) + 1
        sent += first_packet() + flow.send(4)
        assert c.wait_for(sent) == sent
        assert network.rule("west", "in", "inbound") == (4, searched)
        assert network.rule("south", "out") == (4, searched)


def test_a_running_flow_with_the_cache_switched_off_and_on(network: OneRouter) -> None:
    """While a flow is sending, no packet is lost or doubled when the cache is switched off
    and on.
    """
    with Flow(network, sink="c") as flow, ArrivalRecorder(network, "c") as c:
        with Stream(flow, rate=100) as stream:
            for word in ("off", "on", "off", "on"):
                stream.wait_for_more(10)
                network.sluice("flow-cache", word, "south")
            stream.wait_for_more(10)
        came = c.wait_for(stream.sent)
        assert sorted(came) == stream.sent


def test_off_outlives_the_controller(network: OneRouter) -> None:
    """A cache that was switched off is still off after the controller has crashed: the new
    controller searches the rules for every packet.
    """
    with Flow(network, sink="c") as flow, ArrivalRecorder(network, "c") as c:
        network.commit("south", outbound=[udp("out", "bypass", flow.port)])
        cache = Cache(network, "south")
        network.sluice("flow-cache", "off", "south")
        try:
            network.controller.kill()
            network.controller.start()
            network.controller.wait_synced()
            sent = flow.send(5)
            assert c.wait_for(sent) == sent
            assert network.rule("south", "out") == (0, 5)
            assert cache.current() == {}
        finally:
            network.sluice("flow-cache", "on", "south")


# -- idle flows


def test_idle_flows_leave_and_busy_ones_stay(network: OneRouter) -> None:
    """Idle flows are deleted, and busy flows stay. The controller distinguishes them by the
    switch's counters.
    """
    cache = Cache(network, "north")
    with (
        Flow(network, sink="d") as idle,
        Flow(network, sink="d") as busy,
        ArrivalRecorder(network, "d") as d,
    ):
        rules = [udp("busy", "bypass", busy.port), EVERYTHING]
        network.commit("north", outbound=rules)
        idle.send()
        with Stream(busy, rate=50) as stream:
            cache.wait_for(idle.port)
            cache.wait_for(busy.port)
            searched = network.rule("north", "busy").searched
            wait_until(lambda: cache.ports() == [busy.port], 10, "only the busy flow left")
            stream.wait_for_more(100)
            assert cache.ports() == [busy.port]
        assert network.rule("north", "busy").searched == searched
        wait_until(lambda: cache.ports() == [], 10, "an empty cache")
        assert network.flows("north") == []
        last = idle.send()
        assert d.wait_for(last)[-1:] == last
