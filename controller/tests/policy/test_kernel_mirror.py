# SPDX-License-Identifier: Apache-2.0
"""Tests an SPD that mirrors the kernel's SPD.

The mirrored rules are in force from the start, and follow the changes in the kernel. While the
kernel's rules are unknown, the SPD drops packets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from packets import ethernet, ipv4
from policy_world import (
    BYPASS,
    COMMIT,
    INBOUND,
    OUTBOUND,
    PROTECT,
    PolicyWorld,
    RunScenario,
    tcp,
)
from sluice import associations, ike_order, kernel_mirror
from sluice.api.server import BadRequestError
from sluice.entities import BundleInVrf, EntityKind, InboundSpi
from sluice.kernel_mirror import BundleDefaults, KernelMirror, flow_of
from sluice.model import Prefix, parse_address
from sluice.policy.model import Selectors
from sluice.policy.start import PolicyError
from sluice.sa_model import HeldSa, LifetimeState
from sluice.state.bundle_numbers import FIRST
from sluice.state.sa_table import SaReport, SaState
from sluice.wire.packet import UDP
from sluice.xfrm_model import (
    Defaults,
    KernelAlgorithm,
    KernelLimits,
    KernelMode,
    KernelPolicy,
    KernelSelector,
    KernelState,
    PolicyAction,
    PolicyDirection,
    PolicyKey,
    PortMatch,
    SecretKey,
    StateKey,
    Template,
    Usage,
)
from test_associations import PlayedEngine
from test_punts import punt

OUT, FWD = PolicyDirection.OUT, PolicyDirection.FWD
HERE, THERE = parse_address("10.0.1.1"), parse_address("192.0.2.1")
SITES = KernelSelector(Prefix.parse("10.0.0.0/8"), Prefix.parse("10.9.0.0/16"), 0)
BACK = KernelSelector(SITES.destination, SITES.source, 0)
BUNDLE = "10.0.1.1-192.0.2.1-reqid-7"
CONFIG = """\
router: r1
state_dir: {state}
switch: {{target: {target}}}
interfaces:
  - {{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}}
  - {{name: eth2, port: 2, mac: "02:00:00:00:01:02", spd: none}}
spds:
  - {{name: corp, source: kernel}}
"""


class FakeKernel:
    """Simulates the kernel's IPsec databases (SPD and SAD). The test sets their contents."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.synced = True
        self.is_refused = False
        self.policies: dict[PolicyKey, KernelPolicy] = {}
        self.states: dict[StateKey, KernelState] = {}
        self.defaults = Defaults()
        self.acquired: list[tuple[KernelPolicy, KernelSelector]] = []
        self.told: list[tuple[object, ...]] = []
        self._readable, self._writable = os.pipe2(os.O_NONBLOCK)
        self._changed = False

    def has(self, *policies: KernelPolicy) -> None:
        """Replaces all policies by these and notifies the mirror."""
        self.policies = {one.key: one for one in policies}
        self._changed = True
        os.write(self._writable, b"!")

    def fileno(self) -> int:
        return self._readable

    def poll(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(self._readable, 64)
        changed, self._changed = self._changed, False
        return changed

    def refuses(self) -> None:
        """Makes further reads fail and notifies the mirror."""
        self.synced, self.is_refused = False, True
        self._changed = True
        os.write(self._writable, b"!")

    def read_again(self) -> None:
        self.synced, self.is_refused = True, False

    def acquire(self, policy: KernelPolicy, flow: KernelSelector) -> None:
        self.acquired.append((policy, flow))

    def report_usage(self, state: KernelState, usage: Usage) -> None:
        self.told.append((state.key.spi, usage.bytes, usage.packets, usage.used > 0))

    def expire(self, state: KernelState, *, hard: bool) -> None:
        self.told.append((state.key.spi, "hard" if hard else "soft"))

    def close(self) -> None:
        os.close(self._readable)
        os.close(self._writable)


def protect(direction: PolicyDirection = OUT, number: int = 1, reqid: int = 7) -> KernelPolicy:
    ends = (HERE, THERE) if direction is OUT else (THERE, HERE)
    selector = SITES if direction is OUT else BACK
    template = Template(*ends, 50, 0, reqid, KernelMode.TUNNEL, False)
    key = PolicyKey(number << 3 | direction)
    return KernelPolicy(key, direction, 10, PolicyAction.ALLOW, selector, (template,))


BLOCK = protect()._replace(action=PolicyAction.BLOCK, templates=())


class KernelWorld(PolicyWorld):
    """Runs a router whose SPD mirrors the SPD of a `FakeKernel`."""

    @property
    def kernel_policies(self) -> FakeKernel:
        return self.xfrm["corp"]  # type: ignore[return-value]

    def names(self, direction: Any = OUTBOUND) -> list[str]:
        state = self.state("corp", direction)
        return [rule.name for rule in state.rules if not rule.generated]

    async def follows(self, *names: str) -> None:
        await self.until(lambda: self.names() == [*names, "kernel-default-out"])

    async def problems(self) -> list[str]:
        status = await self.ask("show", what="status")
        return [one for one in status["problems"] if one.startswith("SPD corp")]

    async def has_problems(self, count: int) -> list[str]:
        """Waits until the status has this many problems, and returns them."""
        while len(problems := await self.problems()) != count:
            await asyncio.sleep(0.01)
        return problems


@pytest.fixture
def kernel() -> Any:
    kernel = FakeKernel()
    yield kernel
    kernel.close()


@pytest.fixture
def mirror(run_scenario: RunScenario, kernel: FakeKernel) -> Any:
    world = type("World", (KernelWorld,), {"xfrm": {"corp": kernel}})

    def filled(scenario: Any, tmp_path: Any, config: str = CONFIG) -> None:
        text = config.format(state=tmp_path, target="sluice-switch")
        run_scenario(scenario, text=text, world=world)

    return filled


def test_what_the_kernel_says_at_start_is_in_force_when_the_interfaces_open(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    kernel.policies = {one.key: one for one in (protect(), protect(FWD, 2))}

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        assert world.names() == ["kernel-out-9", "kernel-default-out"]
        expected = ["kernel-fwd-18", "kernel-default-in", "kernel-default-fwd"]
        assert world.names(INBOUND) == expected
        world.miss(tcp(443, "10.9.0.1"))
        (sent,) = await world.sent()
        assert (sent["verdict"], sent["sa_bundle"]) == (PROTECT, FIRST)
        bound = world.switch.of(EntityKind.BUNDLE_BINDING)
        assert list(bound) == [BundleInVrf(0, FIRST)]

    mirror(scenario, tmp_path)


def test_the_spd_follows_the_kernel(mirror: Any, kernel: FakeKernel, tmp_path: Any) -> None:
    async def scenario(world: KernelWorld) -> None:
        await world.began()
        await world.follows()
        world.miss(tcp(443, "10.9.0.1"))
        (sent,) = await world.sent()
        assert sent["verdict"] == BYPASS
        await world.until(world.switch.live)
        kernel.has(protect())
        await world.follows("kernel-out-9")
        assert not world.switch.live(), "a flow that passed in clear outlived its rule"
        await world.until(lambda: world.switch.of(EntityKind.BUNDLE_BINDING))
        kernel.has(BLOCK)
        await world.until(lambda: not world.switch.of(EntityKind.BUNDLE_BINDING))
        assert world.state("corp", OUTBOUND).rules[-2].name == "kernel-out-9"
        kernel.has()
        await world.follows()

    mirror(scenario, tmp_path)


def test_commands_on_it_are_refused(mirror: Any, tmp_path: Any) -> None:
    async def scenario(world: KernelWorld) -> None:
        await world.began()
        with pytest.raises((PolicyError, BadRequestError), match="the kernel's IPsec policies"):
            await world.commit(COMMIT.replace("bundle: branch, ", ""))
        with pytest.raises(BadRequestError, match="no file has them"):
            await world.ask("spd commit", configured=["corp"])
        assert (await world.ask("spd export", spd="corp"))["spd"] == "corp"

    mirror(scenario, tmp_path)


def test_what_cannot_be_mirrored_drops_and_is_a_problem(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    kernel.policies = {PolicyKey(9): protect()._replace(if_id=3)}

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        world.miss(tcp(443, "10.9.0.1"))
        await world.counted("dropped: policy discards outbound")
        (problem,) = await world.problems()
        assert "out-9" in problem
        assert "if_id" in problem
        kernel.has()
        await world.follows()
        await world.has_problems(0)

    mirror(scenario, tmp_path)


def test_a_policy_that_cannot_be_mirrored_is_named_once_its_packets_drop(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    async def scenario(world: KernelWorld) -> None:
        await world.began()
        await world.follows()
        begun, may_commit = asyncio.Event(), asyncio.Event()
        commit = world.policy.mirror

        async def held(*arguments: Any) -> None:
            begun.set()
            await may_commit.wait()
            await commit(*arguments)

        world.policy.mirror = held
        kernel.has(protect()._replace(if_id=3))
        await begun.wait()
        assert await world.problems() == [], "named before its packets drop"
        may_commit.set()
        (problem,) = await world.has_problems(1)
        assert "if_id" in problem
        world.miss(tcp(443, "10.9.0.1"))
        await world.counted("dropped: policy discards outbound")

    mirror(scenario, tmp_path)


def test_policies_that_the_pipeline_has_no_room_for_close_the_spd(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    async def scenario(world: KernelWorld) -> None:
        await world.began()
        await world.follows()
        world.policy.table._ids.maximum = 20
        kernel.has(*(protect(OUT, number) for number in range(1, 30)))
        await world.until(lambda: world.names() == [])
        (problem,) = await world.problems()
        assert "is closed" in problem
        kernel.has(protect())
        await world.until(lambda: world.names() == ["kernel-out-9", "kernel-default-out"])
        await world.has_problems(0)

    mirror(scenario, tmp_path)


def test_a_packet_without_an_sa_is_an_acquire_and_few_are(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    kernel.policies = {PolicyKey(9): protect()}

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        drops = world.controller.packets.drop_reasons
        (no_sa,) = [number for number, name in drops.items() if name == "NO_SA"]
        assert any(
            key == "NO_SA" for kind, key in world.switch.entities if kind is EntityKind.COPIED_DROP
        )
        for _ in range(5):
            packet = punt(
                tcp(443, "10.9.0.1"), "ACQUIRE", drop_reason=no_sa, sa_bundle=FIRST, verdict=PROTECT
            )
            world.client.punt((packet.frame, tuple(packet[1:])))
        counters = world.controller.mirrors
        await world.until(lambda: counters.counters["acquires held back"] == 4)
        ((policy, flow),) = kernel.acquired
        assert policy == protect()
        assert flow == KernelSelector(
            Prefix.parse("10.0.3.7/32"),
            Prefix.parse("10.9.0.1/32"),
            6,
            PortMatch(40000, 0xFFFF),
            PortMatch(443, 0xFFFF),
        )

    mirror(scenario, tmp_path)


HOST = parse_address("2001:db8::1")


@pytest.mark.parametrize(
    ("packet", "source", "destination"),
    [
        (Selectors(HOST, HOST, 6, 40000, 443, None), 40000, 443),
        (Selectors(HOST, HOST, 1, None, None, 0x304), 3, 4),
        (Selectors(HOST, HOST, 135, None, None, None, mobility_type=5), 5, 0),
        (Selectors(HOST, HOST, 135, None, None, None, mobility_type=0), 0, 0),
    ],
)
def test_an_acquire_has_numbers_where_the_kernel_has_them(
    packet: Selectors, source: int, destination: int
) -> None:
    flow = flow_of(packet)
    assert flow.protocol == packet.protocol
    assert flow.source_port == PortMatch(source, 0xFFFF)
    assert flow.destination_port == PortMatch(destination, 0xFFFF)


def test_a_dead_host_of_a_trap_delays_no_other(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    """Checks that an acquire for one host does not delay an acquire for another.

    Each pair of hosts needs an SA of its own, and so an acquire of its own.
    """
    anyone = (
        protect()
        .templates[0]
        ._replace(source=bytes(4), destination=bytes(4), mode=KernelMode.TRANSPORT)
    )
    kernel.policies = {PolicyKey(9): protect()._replace(templates=(anyone,))}

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        drops = world.controller.packets.drop_reasons
        (no_sa,) = [number for number, name in drops.items() if name == "NO_SA"]
        for host in ("10.9.0.1", "10.9.0.1", "10.9.0.2", "10.9.0.1", "10.9.0.2"):
            packet = punt(
                tcp(443, host), "ACQUIRE", drop_reason=no_sa, sa_bundle=FIRST, verdict=PROTECT
            )
            world.client.punt((packet.frame, tuple(packet[1:])))
        counters = world.controller.mirrors
        await world.until(lambda: counters.counters["acquires held back"] == 3)
        found = [str(flow.destination) for _, flow in kernel.acquired]
        assert found == ["10.9.0.1/32", "10.9.0.2/32"]

    mirror(scenario, tmp_path)


def test_while_the_kernel_is_read_again_what_was_in_force_stays(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    kernel.policies = {PolicyKey(9): protect()}

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        kernel.synced = False
        kernel.has()
        await asyncio.sleep(0.1)
        assert world.names() == ["kernel-out-9", "kernel-default-out"]
        kernel.synced = True
        kernel.has(protect())
        await asyncio.sleep(0.1)
        assert world.names() == ["kernel-out-9", "kernel-default-out"]

    mirror(scenario, tmp_path)


def test_a_kernel_that_refuses_to_be_read_closes_the_spd_until_it_answers(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    async def scenario(world: KernelWorld) -> None:
        await world.began()
        await world.follows()
        world.miss(tcp(443, "10.9.0.1"))
        await world.until(world.switch.live)
        kernel.refuses()
        await world.until(lambda: world.names() == [])
        assert not world.switch.live(), "a flow that passed in clear outlived the rules"
        (problem,) = await world.problems()
        assert "refuses to show them" in problem
        await world.follows()
        await world.has_problems(0)

    mirror(scenario, tmp_path)


OUTBOUND_STATE = KernelState(
    StateKey(THERE, 0x1000, 50),
    HERE,
    7,
    KernelMode.TUNNEL,
    0,
    KernelSelector(Prefix(bytes(4), 0), Prefix(bytes(4), 0), 0),
    KernelLimits(),
    KernelLimits(),
    Usage(added=100),
    0,
    aead=KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(bytes(20)), 128),
)


def test_states_are_sas_of_the_bundles_that_policies_ask_for(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    kernel.policies = {PolicyKey(9): protect()}
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        (sa,) = await world.ask("show", what="sas")
        assert (sa["bundle"], sa["direction"], sa["spi"]) == (BUNDLE, "outbound", 0x1000)
        assert (sa["origin"], sa["state"]) == ("kernel", "waiting")
        with pytest.raises(BadRequestError, match="the kernel's"):
            await world.ask("sa del", name=sa["name"])
        kernel.states = {}
        kernel.has(protect())
        await world.until(lambda: not world.controller.associations.table.wanted)

    mirror(scenario, tmp_path)


def test_an_sa_that_the_kernel_itself_used_is_to_be_rekeyed(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    """Checks that an SA with which the kernel has sent packets is not mirrored, because nonces
    would repeat.

    Also checks that the controller asks the IKE daemon once to rekey the SA.
    """
    kernel.policies = {PolicyKey(9): protect()}
    used = OUTBOUND_STATE._replace(sequence=3)
    kernel.states = {used.key: used}

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        assert kernel.told == [(0x1000, "soft")]
        assert await world.ask("show", what="sas") == []
        kernel.has(protect(), protect(FWD, 2))
        await world.until(lambda: "kernel-fwd-18" in world.names(INBOUND))
        assert kernel.told == [(0x1000, "soft")]

    mirror(scenario, tmp_path)


def naming(spi: int) -> KernelPolicy:
    """Returns the policy in strongSwan's form: the template names the SPI."""
    (template,) = protect().templates
    return protect()._replace(templates=(template._replace(spi=spi),))


def test_a_rekey_changes_the_sa_that_serves_and_no_rule(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    kernel.policies = {PolicyKey(9): naming(0x1000)}
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}
    aead = KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(bytes(range(20))), 128)
    next_state = OUTBOUND_STATE._replace(key=StateKey(THERE, 0x1001, 50), aead=aead)

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        world.miss(tcp(443, "10.9.0.1"))
        (sent,) = await world.sent()
        assert sent["verdict"] == PROTECT
        await world.until(world.switch.live)
        kernel.states = {one.key: one for one in (OUTBOUND_STATE, next_state)}
        kernel.has(naming(0x1001))

        def serving() -> list[int]:
            wanted = world.controller.associations.table.wanted
            return [one.settings.spi for one in wanted if not one.is_retiring]

        await world.until(lambda: serving() == [0x1001])
        assert world.switch.live(), "flows are searched again although no rule has changed"
        assert world.controller.mirrors.counters["policies brought into force"] == 0

    mirror(scenario, tmp_path)


def test_bundles_have_the_path_mtu_of_the_spd(
    mirror: Any, kernel: FakeKernel, tmp_path: Any
) -> None:
    kernel.policies = {PolicyKey(9): protect()}
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}

    async def scenario(world: KernelWorld) -> None:
        await world.began()
        (sa,) = await world.ask("show", what="sas")
        assert sa["path_mtu"]["bytes"] == 1430

    mirror(scenario, tmp_path, CONFIG.replace("source: kernel", "source: kernel, path_mtu: 1430"))


def test_what_engines_count_and_see_end_is_told_to_the_kernel_once(kernel: FakeKernel) -> None:
    kernel.policies = {PolicyKey(9): protect()}
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}
    one = KernelMirror(
        "corp", kernel, BundleDefaults(0, (1,), 1500), lambda vrf: {HERE}, lambda: 0.0
    )
    known = SimpleNamespace(numbers=SimpleNamespace(by_name={BUNDLE: 40000}))
    one.mirror_states(known)  # type: ignore[arg-type]
    (mirrored,) = one.states
    sa = mirrored.association

    def held(packets: int, age: LifetimeState) -> list[SaReport]:
        seen = HeldSa(sa.settings, 1, age, packets, packets, packets * 100)
        return [SaReport(sa, SaState.IN_USE, 1, seen)]

    for packets, age in (
        *((0, LifetimeState.FRESH), (3, LifetimeState.FRESH), (3, LifetimeState.FRESH)),
        *((9, LifetimeState.SOFT), (9, LifetimeState.SOFT), (9, LifetimeState.HARD)),
    ):
        one.report(held(packets, age))
    assert kernel.told == [
        (0x1000, 300, 3, True),
        (0x1000, 900, 9, True),
        (0x1000, "soft"),
        (0x1000, "hard"),
    ]


# --- order of IKE packets and the SAs that they announce ------------------------------------------

INBOUND_STATE = OUTBOUND_STATE._replace(key=StateKey(HERE, 0x2000, 50), source=THERE)
PORTS = (500).to_bytes(2, "big") * 2
ANSWER = ethernet(ipv4("10.0.1.1", "192.0.2.1", PORTS + bytes(32), UDP))
ENGINE = "engines: [{{id: 1, port: 9, admin: /run/engine.sock}}]\n"


class SlowEngine(PlayedEngine):
    """Simulates an engine that adds SAs only when the test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self._may_answer = asyncio.Event()
        self.let_go()

    def hold(self) -> None:
        self._may_answer.clear()

    def let_go(self) -> None:
        self._may_answer.set()

    async def add(self, *arguments: Any, **more: Any) -> None:
        self.asked += 1
        await self._may_answer.wait()
        await super().add(*arguments, **more)


class EngineWorld(KernelWorld):
    """Runs a router with an engine."""

    def __init__(self, *arguments: Any) -> None:
        self.engine = SlowEngine()
        self.engines = {1: self.engine}
        super().__init__(*arguments)

    def answers(self, frame: bytes = ANSWER) -> None:
        """Sends a packet from the IKE daemon to its peer."""
        self.host.put((1, frame))


@pytest.fixture
def with_engine(mirror: Any, run_scenario: RunScenario, kernel: FakeKernel, tmp_path: Any) -> Any:
    world = type("World", (EngineWorld,), {"xfrm": {"corp": kernel}})
    kernel.policies = {one.key: one for one in (protect(), protect(FWD, 2))}

    def filled(scenario: Any) -> None:
        text = (CONFIG + ENGINE).format(state=tmp_path, target="sluice-switch")
        run_scenario(scenario, text=text, world=world)

    return filled


def test_an_ike_packet_leaves_after_the_sa_that_the_daemon_made_before_it(
    with_engine: Any, kernel: FakeKernel
) -> None:
    async def scenario(world: EngineWorld) -> None:
        await world.began()
        kernel.states = {INBOUND_STATE.key: INBOUND_STATE}
        kernel.has(*kernel.policies.values())
        world.engine.hold()
        world.answers()
        await world.until(lambda: world.engine.asked)
        await asyncio.sleep(0.05)
        assert world.client.sent == []
        world.engine.let_go()
        await world.sent()
        assert [one.settings.spi for one in world.engine.held.values()] == [0x2000]
        assert list(world.switch.of(EntityKind.INBOUND_SA)) == [InboundSpi(0, 0x2000)]

    with_engine(scenario)


def test_ike_packets_leave_at_once_and_in_order_when_no_sa_is_new(
    with_engine: Any, kernel: FakeKernel
) -> None:
    frames = [ANSWER + bytes([number]) for number in range(5)]

    async def scenario(world: EngineWorld) -> None:
        await world.began()
        for frame in frames:
            world.answers(frame)
        await world.sent(5)
        assert [frame for frame, _ in world.client.sent] == frames

    with_engine(scenario)


def test_an_engine_that_does_not_answer_does_not_stop_ike(
    with_engine: Any, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ike_order, "PATIENCE", 0.2)

    async def scenario(world: EngineWorld) -> None:
        await world.began()
        kernel.states = {INBOUND_STATE.key: INBOUND_STATE}
        kernel.has(*kernel.policies.values())
        world.engine.hold()
        world.answers()
        await world.sent()
        counters = world.controller.ike_order.counters
        assert counters["IKE packets sent before their SAs were in force"] == 1
        world.engine.let_go()

    with_engine(scenario)


def test_more_ike_packets_than_may_wait_are_dropped_and_counted(
    with_engine: Any, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ike_order, "LIMIT", 2)

    async def scenario(world: EngineWorld) -> None:
        await world.began()
        kernel.states = {INBOUND_STATE.key: INBOUND_STATE}
        kernel.has(*kernel.policies.values())
        world.engine.hold()
        for _ in range(3):
            world.answers()
        counters = world.controller.ike_order.counters
        await world.until(lambda: counters["dropped: too many IKE packets wait"] == 1)
        world.engine.let_go()
        await world.sent(2)

    with_engine(scenario)


def next_outbound(spi: int) -> KernelState:
    """Returns an outbound state with an SPI and key of its own."""
    aead = KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(spi.to_bytes(4, "big") * 5), 128)
    return OUTBOUND_STATE._replace(key=StateKey(THERE, spi, 50), aead=aead)


def test_an_outbound_sa_that_goes_as_the_next_one_comes_serves_until_an_engine_has_that(
    with_engine: Any, kernel: FakeKernel
) -> None:
    """Checks that the old SA stays in use during a rekey until an engine holds the new one.

    The steps are those of strongSwan as initiator: it adds the new SA, writes the policy, then
    deletes the old SA.
    """
    kernel.policies = {one.key: one for one in (naming(0x1000), protect(FWD, 2))}
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}
    seen: set[object] = set()

    async def scenario(world: EngineWorld) -> None:
        def serving() -> object:
            return next(iter(world.switch.of(EntityKind.OUTBOUND_SA).values()), None)

        await world.began()
        await world.until(serving)
        first = serving()
        world.switch.watch = lambda: seen.add(serving())
        world.engine.hold()
        kernel.states = {StateKey(THERE, 0x1001, 50): next_outbound(0x1001)}
        kernel.has(naming(0x1001), protect(FWD, 2))
        await world.until(lambda: world.engine.asked == 2)
        await asyncio.sleep(0.05)
        assert serving() == first
        world.engine.let_go()
        await world.until(lambda: serving() != first)
        assert None not in seen

    with_engine(scenario)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_outbound_sa_takes_over_once_its_peer_may_be_taken_to_have_it(
    with_engine: Any, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """Checks when a new outbound SA is used: as soon as the old SA is deleted, or after a time.

    As responder, Libreswan adds the new SA before the peer may have it. So the new SA must not be
    used at once.
    """
    monkeypatch.setattr(kernel_mirror, "TAKEOVER", 1000.0 if is_deleted else 1.0)
    kernel.policies = {one.key: one for one in (protect(OUT, 1), protect(FWD, 2))}
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}
    newer = next_outbound(0x1001)

    async def scenario(world: EngineWorld) -> None:
        def serving() -> object:
            return next(iter(world.switch.of(EntityKind.OUTBOUND_SA).values()), None)

        await world.began()
        await world.until(serving)
        first = serving()
        kernel.states = {one.key: one for one in (OUTBOUND_STATE, newer)}
        kernel.has(*kernel.policies.values())
        while sorted([one["state"] for one in await world.ask("show", what="sas")]) != [
            "in use",
            "standby",
        ]:
            await asyncio.sleep(0.01)
        assert serving() == first
        if is_deleted:
            kernel.states = {newer.key: newer}
            kernel.has(*kernel.policies.values())
        await world.until(lambda: serving() != first)
        assert serving() is not None

    with_engine(scenario)


def test_an_outbound_sa_whose_successor_does_not_come_ends(
    with_engine: Any, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(associations, "OVERLAP", 0.1)
    kernel.policies = {one.key: one for one in (naming(0x1000), protect(FWD, 2))}
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}

    async def scenario(world: EngineWorld) -> None:
        await world.began()
        await world.until(lambda: world.switch.of(EntityKind.OUTBOUND_SA))
        world.engine.hold()
        kernel.states = {StateKey(THERE, 0x1001, 50): next_outbound(0x1001)}
        kernel.has(naming(0x1001), protect(FWD, 2))
        await world.until(lambda: not world.switch.of(EntityKind.OUTBOUND_SA))
        world.engine.let_go()

    with_engine(scenario)


def test_an_outbound_sa_that_serves_for_its_successor_ends_with_its_policy(
    with_engine: Any, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(associations, "OVERLAP", 1000.0)
    kernel.policies = {one.key: one for one in (naming(0x1000), protect(FWD, 2))}
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}

    async def scenario(world: EngineWorld) -> None:
        await world.began()
        await world.until(lambda: world.switch.of(EntityKind.OUTBOUND_SA))
        world.engine.hold()
        kernel.states = {StateKey(THERE, 0x1001, 50): next_outbound(0x1001)}
        kernel.has(naming(0x1001), protect(FWD, 2))
        await world.until(lambda: world.engine.asked == 2)
        kernel.has()
        await world.until(lambda: not world.switch.of(EntityKind.OUTBOUND_SA))
        world.engine.let_go()
        await world.follows()

    with_engine(scenario)


def test_an_outbound_sa_that_is_deleted_without_a_successor_ends_at_once(
    with_engine: Any, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(associations, "OVERLAP", 1000.0)
    kernel.states = {OUTBOUND_STATE.key: OUTBOUND_STATE}

    async def scenario(world: EngineWorld) -> None:
        await world.began()
        await world.until(lambda: world.switch.of(EntityKind.OUTBOUND_SA))
        kernel.states = {}
        kernel.has(*kernel.policies.values())
        await world.until(lambda: not world.switch.of(EntityKind.OUTBOUND_SA))

    with_engine(scenario)
