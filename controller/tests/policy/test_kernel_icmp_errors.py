# SPDX-License-Identifier: Apache-2.0
"""Tests ICMP errors in an SPD that mirrors the kernel (RFC 4301, section 6).

The kernel's defaults are rules at the end of each list, and match every ICMP error. If only a
default matches an error, the packet that the error quotes decides.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from packets import ethernet, ipv4, ipv6_chain
from policy.test_kernel_mirror import (
    BACK,
    BLOCK,
    CONFIG,
    FWD,
    SITES,
    FakeKernel,
    KernelWorld,
    protect,
)
from policy_world import BYPASS, INBOUND, OUTBOUND, PROTECT, PolicyWorld, RunScenario, tcp
from scenes import gateway, neighbor, route, slot
from sluice.entities import EntityKind
from sluice.host_errors import Carrier
from sluice.model import FpmSessionOpened, Prefix, parse_address
from sluice.p4.flows import FlowSlot
from sluice.policy.model import FlowKey
from sluice.state.bundle_numbers import FIRST
from sluice.xfrm_model import (
    Defaults,
    KernelPolicy,
    KernelSelector,
    PolicyAction,
    PolicyDirection,
    PolicyKey,
    PortMatch,
)
from test_punts import punt

SITE, PEER, ELSEWHERE, BETWEEN = "10.0.1.2", "10.9.0.1", "192.0.2.77", "198.51.100.1"
"""SITE and PEER are the ends of a protected flow. BETWEEN is the sender of errors."""
REFUSED = {
    OUTBOUND: "dropped: policy discards outbound",
    INBOUND: "dropped: policy discards inbound",
}
POLICIES = (protect(), protect(FWD, 2))
SITES_OVER_TCP = SITES._replace(protocol=6, destination_port=PortMatch(443, 0xFFFF))
BLOCK_UDP = BLOCK._replace(
    key=PolicyKey(8 << 3 | PolicyDirection.OUT), selector=SITES._replace(protocol=17)
)
SITES6 = KernelSelector(Prefix.parse("2001:db8::/48"), Prefix.parse("2001:db8:9::/48"), 0)


@pytest.fixture
def kernel() -> Any:
    kernel = FakeKernel()
    kernel.policies = {one.key: one for one in POLICIES}
    yield kernel
    kernel.close()


@pytest.fixture
def mirror(run_scenario: RunScenario, kernel: FakeKernel, tmp_path: Path) -> Any:
    world = type("World", (KernelWorld,), {"xfrm": {"corp": kernel}})

    def run(scenario: Any, config: str = CONFIG) -> None:
        async def started(world: KernelWorld) -> None:
            await world.began()
            await scenario(world)

        run_scenario(
            started, text=config.format(state=tmp_path, target="sluice-switch"), world=world
        )

    return run


def datagram(source: str, destination: str, protocol: int = 17, **header: Any) -> bytes:
    return ipv4(
        source, destination, bytes.fromhex("9c40303900100000") + bytes(8), protocol, **header
    )


def error(about: bytes, to: str, kind: int = 3, **header: Any) -> bytes:
    message = bytes([kind, 1]) + bytes(6) + about
    return ethernet(ipv4(BETWEEN, to, message, 1, **header))


def later_fragment(to: str, protocol: int = 1, offset: int = 64) -> bytes:
    return ethernet(ipv4(BETWEEN, to, bytes(16), protocol, fragment_offset=offset))


def fragment6(offset: int, more: bool, protocol: int, payload: bytes) -> bytes:
    header = b"\0\0" + (offset | more).to_bytes(2, "big") + b"abcd"
    source, to = "2001:db8:f::1", "2001:db8:9::1"
    return ethernet(ipv6_chain([(44, header)], protocol, payload, source, to))


async def refused(world: PolicyWorld, direction: Any) -> None:
    await world.counted(REFUSED[direction])
    assert (world.client.sent, world.switch.flows) == ([], {})


async def passed(world: PolicyWorld, verdict: int, bundle: int = 0) -> None:
    (sent,) = await world.sent()
    assert (sent["verdict"], sent["sa_bundle"]) == (verdict, bundle)
    assert world.switch.flows == {}, "an error that is judged by its quote is never cached"


@pytest.mark.parametrize("kind", [3, 11, 12])
def test_outbound_an_error_about_a_protected_flow_is_protected(mirror: Any, kind: int) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(PEER, SITE), PEER, kind))
        await passed(world, PROTECT, FIRST)

    mirror(scenario)


def test_outbound_an_error_about_a_flow_in_clear_gets_the_default(mirror: Any) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(PEER, ELSEWHERE), PEER))
        await passed(world, BYPASS)

    mirror(scenario)


def test_outbound_an_error_about_a_discarded_flow_is_dropped(
    mirror: Any, kernel: FakeKernel
) -> None:
    blocked = KernelSelector(Prefix.parse("192.0.2.0/24"), Prefix.parse("10.9.0.0/16"), 0)
    block = BLOCK._replace(key=PolicyKey(8 << 3 | PolicyDirection.OUT), selector=blocked)
    kernel.policies[block.key] = block

    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(PEER, ELSEWHERE), PEER))
        await refused(world, OUTBOUND)

    mirror(scenario)


@pytest.mark.parametrize("protects_tcp", [False, True])
def test_outbound_an_error_about_a_blocked_flow_is_dropped(
    mirror: Any, kernel: FakeKernel, protects_tcp: bool
) -> None:
    """Checks that errors about packets that a policy blocks are dropped, whether or not another
    policy protects traffic of the error's destination."""
    policies = [BLOCK_UDP, *([protect()._replace(selector=SITES_OVER_TCP)] * protects_tcp)]
    kernel.policies = {one.key: one for one in policies}

    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(PEER, SITE), PEER))
        await refused(world, OUTBOUND)

    mirror(scenario)


def test_an_error_to_where_all_is_bypassed_gets_the_default(mirror: Any) -> None:
    """Checks that the quote of an error is not read if no policy protects or blocks traffic of the
    error's destination.

    An error goes to the sender of the quoted packet. If no policy concerns traffic of this host, no
    policy can protect or block the quoted packet.
    """

    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(b"", ELSEWHERE))
        await passed(world, BYPASS)

    mirror(scenario)


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        (datagram(ELSEWHERE, SITE), "icmp_enclosed_source"),
        (datagram(PEER, SITE)[:19], "icmp_enclosed_truncated"),
        (datagram(PEER, SITE)[:27], "transport_truncated"),
    ],
)
def test_an_error_whose_quote_cannot_be_judged_is_dropped(
    mirror: Any, about: bytes, reason: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(about, PEER))
        await world.counted(f"dropped: {reason}")
        assert world.client.sent == []

    mirror(scenario)


@pytest.mark.parametrize("kind", [4, 5])
def test_a_redirect_to_a_protected_host_is_dropped(mirror: Any, kind: int) -> None:
    """Checks that source quenches and redirects are dropped if a policy protects traffic of their
    destination.

    They may quote protected packets: Linux sends redirects even to sources on other links.
    """

    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(PEER, SITE), PEER, kind))
        await refused(world, OUTBOUND)
        world.miss(error(datagram(ELSEWHERE, SITE), ELSEWHERE, kind))
        await passed(world, BYPASS)

    mirror(scenario)


def test_an_unassigned_error_of_ipv6_to_a_protected_host_is_dropped(
    mirror: Any, kernel: FakeKernel
) -> None:
    kernel.policies = {protect().key: protect()._replace(selector=SITES6)}

    async def scenario(world: PolicyWorld) -> None:
        quoted = ipv6_chain([], 17, bytes(16), "2001:db8:9::1", "2001:db8::2")
        message = bytes([100, 0]) + bytes(6) + quoted
        world.miss(ethernet(ipv6_chain([], 58, message, "2001:db8:f::1", "2001:db8:9::1")))
        await refused(world, OUTBOUND)

    mirror(scenario)


@pytest.mark.parametrize("offset", [0, 80])
def test_a_quoted_fragment_of_a_protected_flow_is_protected(mirror: Any, offset: int) -> None:
    async def scenario(world: PolicyWorld) -> None:
        quoted = datagram(PEER, SITE, fragment_offset=offset, more_fragments=True)
        world.miss(error(quoted, PEER))
        await passed(world, PROTECT, FIRST)

    mirror(scenario)


def test_a_quoted_fragment_that_may_be_protected_keeps_its_error_here(
    mirror: Any, kernel: FakeKernel
) -> None:
    only_tcp = protect()._replace(selector=SITES_OVER_TCP)
    kernel.policies = {only_tcp.key: only_tcp}

    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(PEER, SITE, 6, fragment_offset=80), PEER))
        await refused(world, OUTBOUND)

    mirror(scenario)


def test_quoted_esp_between_protected_sites_is_protected(mirror: Any) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(PEER, SITE, 50), PEER))
        await passed(world, PROTECT, FIRST)

    mirror(scenario)


def test_inbound_an_error_about_esp_of_this_router_gets_the_default(mirror: Any) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram("10.0.1.1", "192.0.2.1", 50), "10.0.1.1"), INBOUND, is_local=1)
        await passed(world, BYPASS)

    mirror(scenario)


def test_inbound_an_error_in_clear_about_a_protected_flow_is_refused(mirror: Any) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(SITE, PEER), SITE), INBOUND)
        await refused(world, INBOUND)
        await world.counted("ICMP errors in clear refused")

    mirror(scenario)


def test_inbound_an_error_in_clear_about_a_flow_in_clear_gets_the_default(mirror: Any) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(SITE, ELSEWHERE), SITE), INBOUND)
        await passed(world, BYPASS)

    mirror(scenario)


@pytest.mark.parametrize(
    ("bundle", "about", "passes"), [(FIRST, PEER, True), (FIRST + 1, PEER, False)]
)
def test_inbound_an_error_that_a_bundle_carried_must_be_about_its_flows(
    mirror: Any, bundle: int, about: str, passes: bool
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(SITE, about), SITE), INBOUND, bundle=bundle, origin=2)
        if passes:
            await passed(world, PROTECT, FIRST)
        else:
            await refused(world, INBOUND)

    mirror(scenario)


def test_where_the_default_discards_the_quote_decides_as_in_any_spd(
    mirror: Any, kernel: FakeKernel
) -> None:
    kernel.defaults = Defaults(*(PolicyAction.BLOCK,) * 3)

    async def scenario(world: PolicyWorld) -> None:
        world.miss(error(datagram(PEER, ELSEWHERE), PEER))
        await refused(world, OUTBOUND)
        world.miss(error(datagram(PEER, SITE), PEER))
        await passed(world, PROTECT, FIRST)

    mirror(scenario)


# -- errors in fragments


@pytest.mark.parametrize("direction", [OUTBOUND, INBOUND])
@pytest.mark.parametrize("is_first_in_front", [True, False])
@pytest.mark.parametrize("blocks", [False, True])
def test_an_error_in_fragments_to_a_protected_or_blocked_host_is_dropped(
    mirror: Any, kernel: FakeKernel, direction: Any, is_first_in_front: bool, blocks: bool
) -> None:
    """Checks that all fragments of an error are dropped if a policy protects or blocks traffic of
    its destination.

    Later fragments contain no quote, so the default must not let them pass.
    """
    if blocks:
        forward = BLOCK_UDP._replace(
            key=PolicyKey(9 << 3 | FWD), direction=FWD, selector=BACK._replace(protocol=17)
        )
        kernel.policies = {one.key: one for one in (BLOCK_UDP, forward)}
    to, other = (PEER, SITE) if direction is OUTBOUND else (SITE, PEER)
    first = error(datagram(to, other) + bytes(20), to, more_fragments=True)
    frames = [first, later_fragment(to)]

    async def scenario(world: PolicyWorld) -> None:
        for frame in frames if is_first_in_front else frames[::-1]:
            world.miss(frame, direction)
        await world.counted(REFUSED[direction], 2)
        assert (world.client.sent, world.switch.flows) == ([], {})

    mirror(scenario)


def test_an_error_in_fragments_of_ipv6_to_a_protected_host_is_dropped(
    mirror: Any, kernel: FakeKernel
) -> None:
    """Checks fragments of errors in IPv6, where the protocol of a later fragment is not trusted."""
    kernel.policies = {protect().key: protect()._replace(selector=SITES6)}
    quoted = ipv6_chain([], 17, bytes(16), "2001:db8:9::1", "2001:db8::2")

    async def scenario(world: PolicyWorld) -> None:
        first = bytes([1, 4]) + bytes(6) + quoted
        world.miss(fragment6(0, True, 58, first))
        world.miss(fragment6(64, False, 17, bytes(16)))
        await world.counted(REFUSED[OUTBOUND], 2)
        assert (world.client.sent, world.switch.flows) == ([], {})

    mirror(scenario)


@pytest.mark.parametrize("type_and_code", [bytes([1, 4]), bytes([2, 0]), bytes([3, 0])])
def test_an_error_of_ipv6_is_judged_by_its_quote(
    mirror: Any, kernel: FakeKernel, type_and_code: bytes
) -> None:
    kernel.policies = {protect().key: protect()._replace(selector=SITES6)}

    async def scenario(world: PolicyWorld) -> None:
        quoted = ipv6_chain([], 17, bytes(16), "2001:db8:9::1", "2001:db8::2")
        message = type_and_code + bytes(6) + quoted
        chain = [(60, bytes(8))] * 7  # more headers than the pipeline parses
        for headers in ([], chain):
            packet = ipv6_chain(headers, 58, message, "2001:db8:f::1", "2001:db8:9::1")
            world.miss(ethernet(packet))
        sent = await world.sent(2)
        assert [one["verdict"] for one in sent] == [PROTECT, PROTECT]
        assert world.switch.flows == {}

    mirror(scenario)


@pytest.mark.parametrize(
    ("to", "protocol", "is_cached"), [(ELSEWHERE, 1, True), (PEER, 17, True), (PEER, 1, False)]
)
def test_a_later_fragment_is_cached_if_it_cannot_be_of_such_an_error(
    mirror: Any, to: str, protocol: int, is_cached: bool
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.miss(later_fragment(to, protocol))
        if is_cached:
            await world.sent()
            await world.until(world.switch.live)
        else:
            await world.counted("fragments that waited for their first")
            assert (world.client.sent, world.switch.flows) == ([], {})

    mirror(scenario)


def test_the_first_fragment_of_an_error_is_never_cached(mirror: Any) -> None:
    """Checks that no flow is cached for the first fragment of an error.

    A policy that is added later may protect the quoted packet, although it does not match the
    error.
    """

    async def scenario(world: PolicyWorld) -> None:
        about = datagram(ELSEWHERE, SITE) + bytes(20)
        world.miss(ethernet(ipv4(BETWEEN, ELSEWHERE, bytes(8) + about, 1, more_fragments=True)))
        await world.until(lambda: len(world.switch.live()) == 1)
        world.miss(error(about, ELSEWHERE, more_fragments=True))
        await world.sent(2)
        await asyncio.sleep(0.05)
        assert len(world.switch.live()) == 1, "only the fragment of an echo reply"

    mirror(scenario)


def test_a_cached_error_is_not_believed(mirror: Any) -> None:
    """Checks that the auditor has no verdict for a cached flow of ICMP errors, and so deletes such
    a flow.

    The verdict depends on the quote, which is not in the flow's key.
    """

    async def scenario(world: PolicyWorld) -> None:
        source, destination = parse_address(BETWEEN), parse_address(PEER)
        list_id = world.state("corp", OUTBOUND).list_id
        for icmp, verdict in ((3 << 8, None), (8 << 8, BYPASS)):
            slot = FlowSlot(OUTBOUND, list_id, FlowKey(source, destination, 1, 0, icmp))
            found = world.policy.verdict_of(slot)
            assert (found and found.action) == verdict

    mirror(scenario)


def test_a_fragmented_ping_to_a_protected_host_gets_the_default(mirror: Any) -> None:
    async def scenario(world: PolicyWorld) -> None:
        echo = bytes([8, 0]) + bytes(62)
        world.miss(ethernet(ipv4(BETWEEN, PEER, echo, 1, more_fragments=True)))
        world.miss(later_fragment(PEER))
        assert [one["verdict"] for one in await world.sent(2)] == [BYPASS, BYPASS]

    mirror(scenario)


@pytest.mark.parametrize("policy", [protect(), BLOCK_UDP])
def test_a_new_policy_deletes_cached_fragments_of_errors_that_it_may_restrict(
    mirror: Any, kernel: FakeKernel, policy: KernelPolicy
) -> None:
    """Checks that a new policy deletes cached fragments to a host whose traffic it protects or
    blocks.

    The fragments may belong to an error. The policy does not match the error itself, whose source
    is not in the site.
    """
    kernel.policies = {}

    async def scenario(world: KernelWorld) -> None:
        world.miss(later_fragment(PEER))
        for port in range(20):  # enough flows that the list keeps its epoch
            world.miss(tcp(port, ELSEWHERE))
        await world.until(lambda: len(world.switch.live()) == 21)
        kernel.has(policy)
        await world.until(lambda: f"kernel-out-{policy.key.number}" in world.names())
        assert len(world.switch.live()) == 20

    mirror(scenario)


# -- explain


FIRST_OF_PING = ethernet(ipv4(BETWEEN, PEER, bytes([8, 0]) + bytes(62), 1, more_fragments=True))


@pytest.mark.parametrize(
    ("frame", "verdict", "note"),
    [
        (error(datagram(PEER, SITE), PEER), "protect", "the packet that the ICMP error quotes"),
        (error(datagram(PEER, ELSEWHERE), PEER), "bypass", "the packet that the ICMP error quotes"),
        (error(b"", PEER), "discard", "the controller drops the packet: icmp_enclosed_truncated"),
        (error(b"", PEER, 5), "discard", "refused: icmp_error_of_a_link"),
        (
            error(datagram(PEER, SITE), PEER, more_fragments=True),
            "discard",
            "icmp_error_fragmented",
        ),
        (FIRST_OF_PING, "bypass", ""),
        (later_fragment(PEER), None, "its first fragment decides"),
    ],
    ids=["protected", "bypassed", "bad quote", "redirect", "in fragments", "ping", "later"],
)
def test_explain_agrees_with_the_router(
    mirror: Any, frame: bytes, verdict: str | None, note: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.routes.put(FpmSessionOpened("zebra"), route("10.9.0.0/16", gateway("10.0.1.9", 1)))
        world.kernel.put(neighbor(1, "10.0.1.9", 4))
        await world.until(lambda: slot("10.9.0.0/16") in world.switch.of(EntityKind.ROUTE))
        await world.synced()
        before = dict(world.controller.first_packets.counters)
        answer = await world.ask("explain", frame=frame.hex(), **{"in": "eth2"})
        assert world.controller.first_packets.counters == before
        (found,) = answer["outbound"]
        assert (found["verdict"] and found["verdict"]["action"]) == verdict
        assert note in (found["note"] or "")
        world.miss(frame)
        if verdict in ("bypass", "protect"):
            (sent,) = await world.sent()
            assert sent["verdict"] == {"bypass": BYPASS, "protect": PROTECT}[verdict]
        else:
            counters = world.controller.first_packets.counters
            await world.until(lambda: counters != before)
            assert world.client.sent == []

    mirror(scenario)


# -- errors of this router's host stack


def test_an_error_of_the_host_leaves_by_the_bundle_that_carried_its_packet(mirror: Any) -> None:
    """Checks that an error of the host leaves by the bundle through which the quoted packet came.

    The lists cannot decide this, because the interface by which the error leaves may have another
    SPD, or none.
    """

    async def scenario(world: PolicyWorld) -> None:
        about = datagram(PEER, "10.0.1.1")
        packet = punt(ethernet(about), "LOCAL", bundle=FIRST)
        world.controller.host_errors.delivered(packet)
        frame = ethernet(ipv4("10.0.1.1", PEER, bytes([3, 3]) + bytes(6) + about, 1))
        assert world.controller.host_errors.carrier_for(frame) == Carrier(0, FIRST)

    mirror(scenario)
