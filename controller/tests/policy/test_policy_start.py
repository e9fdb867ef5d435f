# SPDX-License-Identifier: Apache-2.0
"""Tests how a starting controller writes the policy to the switch, also if writes fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch
from policy_world import (
    CODEC,
    COMMIT,
    CONFIG,
    INBOUND,
    OUTBOUND,
    PolicyWorld,
    RunScenario,
    filled,
    tcp,
)
from scenes import address, link
from sluice.entities import (
    NO_POLICY,
    OF_BUNDLE,
    Attachment,
    BundleInVrf,
    Decrypt,
    Egress,
    Encrypt,
    EnginePort,
    EntityKind,
    EspSource,
    InboundSpi,
    L3Interface,
    ListBinding,
    ListState,
    PortRole,
    ReassemblyEngine,
)
from sluice.model import parse_address
from sluice.p4runtime.messages import UpdateType
from sluice.policy.spdstore import SpdStore, SpdStoreError
from sluice.policy.start import PolicyError

BRANCH = BundleInVrf(0, 7)


def test_lists_first_then_the_interfaces_that_they_guard(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        inbound, outbound = world.state("corp", INBOUND), world.state("corp", OUTBOUND)
        assert world.switch.of(EntityKind.INBOUND_LIST)[inbound.list_id] == ListState(1, 1)
        bound = world.switch.of(EntityKind.OUTBOUND_BINDING)
        assert bound[1] == ListBinding(outbound.list_id)
        assert bound[2] == NO_POLICY
        assert world.switch.of(EntityKind.INBOUND_BINDING)[1] == ListBinding(inbound.list_id)
        assert world.switch.of(EntityKind.BUNDLE_BINDING) == {BRANCH: ListBinding(inbound.list_id)}
        assert world.switch.of(EntityKind.ENGINE) == {1: EnginePort(9)}
        assert world.switch.of(EntityKind.OUTBOUND_SA) == {BRANCH: Encrypt(1, 100, 1400, 73)}
        source = EspSource(0, 7, parse_address("10.0.1.1"))
        assert world.switch.of(EntityKind.ESP_SOURCE) == {source: OF_BUNDLE}
        assert world.switch.of(EntityKind.REASSEMBLY_ENGINE) == {0: ReassemblyEngine(1)}
        assert world.switch.of(EntityKind.INBOUND_SA) == {InboundSpi(0, 4096): Decrypt(7, 1, 200)}
        engine = world.switch.of(EntityKind.L3_INTERFACE)[Attachment(9, 0)]
        assert engine == L3Interface(4, 0, PortRole.ENGINE)
        lists = {state.list_id for state in world.policy.table.lists.values()}
        assert len(lists) == 4

    run_scenario(scenario)


def test_generated_rules_stand_first_and_follow_the_addresses(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        shown = await world.ask("show", what="spd", spd="corp")
        names = [rule["name"] for rule in shown[1]["rules"]]
        assert names[0] == "generated:nd"
        assert names[-3:] == ["secret", "web", "dns"]
        generation = world.state("corp", OUTBOUND).version.generation
        world.kernel.put(address(1, "2001:db8::1/64"))
        await world.until(lambda: world.state("corp", OUTBOUND).version.generation > generation)
        shown = await world.ask("show", what="spd", spd="corp")
        assert "generated:ike-ipv6" in [rule["name"] for rule in shown[1]["rules"]]

    run_scenario(scenario)


def test_a_restart_that_agrees_disturbs_no_flow(run_scenario: RunScenario) -> None:
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(lambda: switch.flows)

    async def second(world: PolicyWorld) -> None:
        before = switch.live()
        assert before
        switch.flow_log.clear()
        switch.log.clear()
        await world.began()
        assert switch.live() == before
        assert switch.flow_log == []
        assert all(kind <= EntityKind.HASH_SEED for _, kind, _ in switch.log)
        assert [flow["rule"] for flow in await world.ask("show", what="flows")] == ["web"]

    run_scenario(first, switch)
    run_scenario(second, switch)


def test_without_its_record_a_restart_retires_everything(
    run_scenario: RunScenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(lambda: switch.flows)

    async def second(world: PolicyWorld) -> None:
        await world.began()
        assert switch.live() == {}
        await world.until(lambda: not switch.flows)

    run_scenario(first, switch)
    assert "is missing: earlier" not in caplog.text
    (tmp_path / "spd.json").unlink()
    run_scenario(second, switch)
    assert f"{tmp_path / 'spd.json'} is missing" in caplog.text


def test_a_damaged_record_ends_the_start(run_scenario: RunScenario, tmp_path: Path) -> None:
    async def never(_: PolicyWorld) -> None:
        raise AssertionError

    (tmp_path / "spd.json").write_text("{}")
    with pytest.raises(SpdStoreError):
        run_scenario(never)


def test_a_switch_that_lost_everything_gets_lists_before_bindings(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(lambda: world.switch.flows)
        for lost in (world.switch.entities, world.switch.raw, world.switch._uses):
            lost.clear()
        world.switch.flows.clear()
        world.switch.raw_flows.clear()
        world.client.hang_up()
        await world.until(lambda: len(world.clients) == 2)
        await world.until(lambda: len(world.switch.of(EntityKind.OUTBOUND_BINDING)) == 3)
        await world.synced()
        world.miss(tcp(80))
        await world.until(world.switch.live)

    run_scenario(scenario)


def test_interfaces_that_change_places_are_never_without_their_policy(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """Checks that an interface never has the policy of another one while their numbers are
    exchanged.

    Bindings name an interface by its number. Here the number is the position in the file, and the
    configuration after the restart has the reverse order.
    """
    switch = FakeSwitch(CODEC)
    lines = CONFIG.splitlines(keepends=True)
    at = lines.index("interfaces:\n") + 1
    turned = "".join([*lines[:at], *reversed(lines[at : at + 3]), *lines[at + 3 :]])
    guards = {1: "corp", 3: "edge"}
    lists: dict[int, str] = {}
    leaks: list[str] = []

    def look(operation: UpdateType, kind: EntityKind, key: object) -> int:
        for l3_if, egress in switch.of(EntityKind.EGRESS_INTERFACE).items():
            assert isinstance(egress, Egress)
            check(EntityKind.OUTBOUND_BINDING, egress.port, l3_if)
        for attachment, interface in switch.of(EntityKind.L3_INTERFACE).items():
            assert isinstance(attachment, Attachment)
            assert isinstance(interface, L3Interface)
            check(EntityKind.INBOUND_BINDING, attachment.port, interface.l3_if)
        return 0

    def check(kind: EntityKind, port: int, l3_if: object) -> None:
        bound = next((value for key, value in switch.of(kind).items() if key == l3_if), None)
        if isinstance(bound, ListBinding) and lists.get(bound.list_id) != guards.get(port):
            leaks.append(f"port {port} has {bound}")

    def names(world: PolicyWorld) -> None:
        lists.update({i: state.spd for i, state in world.policy.table.lists.items()})

    async def first(world: PolicyWorld) -> None:
        await world.began()
        world.kernel.put(address(1, "10.0.1.1/24"))
        await world.until(lambda: switch.of(EntityKind.NEXTHOP))
        names(world)

    async def second(world: PolicyWorld) -> None:
        switch.refuse = look
        world.kernel.put(address(1, "10.0.1.1/24"))
        await world.began()
        assert switch.of(EntityKind.OUTBOUND_BINDING)[2] == NO_POLICY
        assert switch.of(EntityKind.L3_INTERFACE)[Attachment(1, 0)] == L3Interface(3, 0)
        assert len(switch.of(EntityKind.OUTBOUND_BINDING)) == 3

    run_scenario(first, switch)
    run_scenario(second, switch, text=filled(turned, tmp_path))
    assert leaks == []


def test_another_spd_never_gets_the_list_that_an_interface_is_bound_to(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    switch = FakeSwitch(CODEC)
    renamed = CONFIG.replace("edge", "rim").replace("spd: corp}}", "spd: rim}}", 1)
    renamed = renamed.replace("spd: none}}", "spd: corp}}", 1)

    async def first(world: PolicyWorld) -> None:
        await world.began()
        old.update(world.policy.table.lists)

    async def second(world: PolicyWorld) -> None:
        await world.began()
        for list_id, state in world.policy.table.lists.items():
            assert list_id not in old or old[list_id].spd == state.spd

    old: dict[int, Any] = {}
    run_scenario(first, switch)
    run_scenario(second, switch, text=filled(renamed, tmp_path))


@pytest.mark.parametrize("known", [True, False], ids=["recorded", "record lost"])
def test_a_number_that_another_bundle_takes_over_never_means_both(
    run_scenario: RunScenario, tmp_path: Path, known: bool
) -> None:
    """Checks that a bundle number never stands for two bundles when another bundle gets it.

    Flows hold the verdict "protect by bundle 7". While packets can still match such a flow of the
    old bundle 7, the new bundle 7 must have no SA. Packets look only in the lists that interfaces
    are bound to. (Without a record, the lists get new numbers, and the old ones are unbound.)
    """
    switch = FakeSwitch(CODEC)
    branch = CONFIG[CONFIG.index("  - name: branch") : CONFIG.index("spds:")]
    lab = branch.replace("branch", "lab").replace("sa: 100", "sa: 101")
    lab = lab.replace("4096", "4097").replace("sa: 200", "sa: 201")
    turned = CONFIG.replace(branch, branch.replace("id: 7", "id: 8") + lab)
    leaks: list[str] = []

    def look(operation: UpdateType, kind: EntityKind, key: object) -> int:
        bound = switch.of(EntityKind.OUTBOUND_BINDING).values()
        old = [
            flow
            for slot, flow in switch.live().items()
            if flow.bundle == 7 and ListBinding(slot.list_id) in bound
        ]
        if old and switch.of(EntityKind.OUTBOUND_SA).get(BRANCH) == Encrypt(1, 101, 1400, 73):
            leaks.append(f"{operation} {kind} {key}: an old flow goes to the new peer")
        carries = switch.of(EntityKind.INBOUND_SA).get(InboundSpi(0, 4096))
        if carries == Decrypt(7, 1, 200) and not old:
            leaks.append(f"{operation} {kind} {key}: the old peer comes in as the new bundle")
        return 0

    async def first(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(443, "10.9.0.1"))
        await world.until(switch.live)
        assert [flow.bundle for flow in switch.live().values()] == [7]

    async def second(world: PolicyWorld) -> None:
        switch.refuse = look
        await world.began()
        await world.until(lambda: len(switch.of(EntityKind.OUTBOUND_SA)) == 2)
        assert switch.of(EntityKind.OUTBOUND_SA)[BRANCH] == Encrypt(1, 101, 1400, 73)
        await world.until(lambda: InboundSpi(0, 4097) in switch.of(EntityKind.INBOUND_SA))
        assert switch.of(EntityKind.INBOUND_SA)[InboundSpi(0, 4096)] == Decrypt(8, 1, 200)
        assert switch.live() == {}

    run_scenario(first, switch)
    if not known:
        (tmp_path / "spd.json").unlink()
    run_scenario(second, switch, text=filled(turned, tmp_path))
    assert leaks == []


def test_a_cache_that_is_configured_off_serves_no_flow_of_an_earlier_life(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(switch.live)

    async def second(world: PolicyWorld) -> None:
        await world.began()
        assert switch.live() == {}

    run_scenario(first, switch)
    off = CONFIG.replace("flow_cache: {{", "flow_cache: {{enabled: false, ", 1)
    run_scenario(second, switch, text=filled(off, tmp_path))


def test_committed_rules_without_their_bundle_end_the_start(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def commit(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(COMMIT.replace("discard, proto", "protect, bundle: branch, proto"))

    async def never(_: PolicyWorld) -> None:
        raise AssertionError

    run_scenario(commit)
    written = (tmp_path / "r1.yaml").read_text()
    renamed = written.replace("name: branch", "name: other").replace(
        "bundle: branch", "bundle: other"
    )
    with pytest.raises(
        PolicyError, match="the committed outbound rule 'web' names the bundle 'branch'"
    ):
        run_scenario(never, text=renamed)
    SpdStore(tmp_path).forget_committed()

    async def configured(world: PolicyWorld) -> None:
        await world.began()
        assert len(world.state("corp", OUTBOUND).rules) > 3

    run_scenario(configured, text=renamed)


def test_caches_that_do_not_fit_the_pipeline_end_the_start(run_scenario: RunScenario) -> None:
    async def never(_: PolicyWorld) -> None:
        raise AssertionError

    with pytest.raises(PolicyError, match=r"1000000 \(corp\) \+ 65536 \(edge\) = 1065536 flows"):
        run_scenario(never, size=1_000_000)


def test_links_alone_start_it_too(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.kernel.put(link(1))
        await asyncio.wait_for(world.ready.wait(), 5)
        assert world.policy.started

    run_scenario(scenario)
