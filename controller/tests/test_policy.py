# SPDX-License-Identifier: Apache-2.0
"""SPDs in a running controller: start, first packets, commits, caches, failures. All closed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch, load_codec
from packets import ethernet, ipv4, ipv6_chain
from scenes import address, gateway, link, route, slot
from sluice.api.requests import Requests
from sluice.api.server import BadRequestError
from sluice.config import load_config
from sluice.entities import (
    NO_POLICY,
    Attachment,
    Binding,
    Decrypt,
    Egress,
    Encrypt,
    EnginePort,
    Kind,
    L3Interface,
    ListState,
    Role,
    Spi,
)
from sluice.p4.packets import PACKET_OUT
from sluice.p4runtime.messages import Operation
from sluice.policy_model import Action, Direction
from sluice.policy_start import PolicyError
from sluice.spdstore import SpdStore, SpdStoreError
from test_controller import World, metadata
from test_punts import punt

CODEC = load_codec()
INBOUND, OUTBOUND = Direction.INBOUND, Direction.OUTBOUND
STAGE_INBOUND, STAGE_OUTBOUND = 2, 5
BYPASS, DISCARD, PROTECT = 1, 2, 3

CONFIG = """\
router: r1
state_dir: {state}
switch: {{target: {target}}}
interfaces:
  - {{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}}
  - {{name: eth2, port: 2, mac: "02:00:00:00:01:02", spd: none}}
  - {{name: eth3, port: 3, mac: "02:00:00:00:01:03", spd: edge}}
engines: [{{id: 1, port: 9}}]
bundles:
  - name: branch
    id: 7
    spd: corp
    outbound: {{engine: 1, sa: 100, path_mtu: 1400, overhead: 73}}
    inbound: [{{spi: 4096, engine: 1, sa: 200}}]
spds:
  - name: corp
    flow_cache: {{size: {size}, idle_timeout: {idle}}}
    inbound: [{{name: all-in, action: bypass}}]
    outbound:
      - {{name: secret, action: protect, bundle: branch, destination: 10.9.0.0/16}}
      - {{name: web, action: bypass, protocol: tcp, destination_ports: [80]}}
      - {{name: dns, action: bypass, protocol: udp, source_ports: [53]}}
  - name: edge
    inbound: []
    outbound: []
"""
COMMIT = """\
spd: corp
inbound: [{name: all-in, action: bypass}]
outbound: [{name: web, action: discard, protocol: tcp, destination_ports: [80]}]
"""

Story = Callable[["PolicyWorld"], Awaitable[None]]


class PolicyWorld(World):
    """A router with two SPDs; what it sends is seen by name."""

    @property
    def policy(self) -> Any:
        return self.controller.policy

    def state(self, spd: str, direction: Direction) -> Any:
        return self.policy.table.list_of(spd, direction)

    async def began(self) -> None:
        self.links()
        await asyncio.wait_for(self.ready.wait(), 5)

    def miss(self, frame: bytes, direction: Direction = OUTBOUND, /, **known: int) -> None:
        """The pipeline asks the list of SPD corp."""
        state = self.state("corp", direction)
        stage = STAGE_INBOUND if direction is INBOUND else STAGE_OUTBOUND
        reason = "INBOUND_MISS" if direction is INBOUND else "OUTBOUND_MISS"
        fields = {"stage": stage, "list_id": state.list_id, "generation": state.counts.generation}
        packet = punt(frame, reason, **(fields | known))
        self.client.punt((packet.frame, tuple(packet[1:])))

    async def sent(self, number: int = 1) -> list[dict[str, int]]:
        await self.until(lambda: len(self.client.sent) >= number)
        return [metadata(values) for _, values in self.client.sent]

    async def ask(self, command: str, **more: Any) -> Any:
        return await Requests(self.controller).answer({"command": command} | more)

    async def commit(self, *texts: str) -> Any:
        files = [{"name": f"{n}.yaml", "text": text} for n, text in enumerate(texts)]
        return await self.ask("spd commit", files=files)

    async def counted(self, name: str, number: int = 1) -> None:
        counters = self.controller.first_packets.counters
        await self.until(lambda: counters[name] == number)


Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(story: Story, switch: FakeSwitch | None = None, **settings: Any) -> None:
        values = {"target": "sluice-switch", "size": 100, "idle": 60, "state": tmp_path}
        path = tmp_path / "r1.yaml"
        text = settings.pop("text", None) or CONFIG.format(**(values | settings))
        path.write_text(text)
        config = load_config(path)

        async def scene() -> None:
            world = PolicyWorld(config, switch or FakeSwitch(CODEC))
            task = asyncio.create_task(world.controller.run())
            try:
                await asyncio.wait_for(story(world), 20)
            finally:
                if task.done():
                    task.result()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert world.switch.violations == []

        asyncio.run(scene())

    return run


def filled(text: str, state: Path) -> str:
    """A configuration made from CONFIG's."""
    return text.format(target="sluice-switch", size=100, idle=60, state=state)


def tcp(port: int, destination: str = "10.0.1.77") -> bytes:
    payload = (40000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(16)
    return ethernet(ipv4("10.0.3.7", destination, payload, 6))


# -- start


def test_lists_first_then_the_interfaces_that_they_guard(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        inbound, outbound = world.state("corp", INBOUND), world.state("corp", OUTBOUND)
        assert world.switch.of(Kind.INBOUND_LIST)[inbound.list_id] == ListState(1, 1)
        bound = world.switch.of(Kind.OUTBOUND_BINDING)
        assert bound[1] == Binding(outbound.list_id)
        assert bound[2] == NO_POLICY
        assert world.switch.of(Kind.INBOUND_BINDING)[1] == Binding(inbound.list_id)
        assert world.switch.of(Kind.BUNDLE_BINDING) == {7: Binding(inbound.list_id)}
        assert world.switch.of(Kind.ENGINE) == {1: EnginePort(9)}
        assert world.switch.of(Kind.OUTBOUND_SA) == {7: Encrypt(1, 100, 1400, 73)}
        assert world.switch.of(Kind.INBOUND_SA) == {Spi(0, 4096): Decrypt(7, 1, 200)}
        engine = world.switch.of(Kind.L3_INTERFACE)[Attachment(9, 0)]
        assert engine == L3Interface(4, 0, Role.ENGINE)
        lists = {state.list_id for state in world.policy.table.lists.values()}
        assert len(lists) == 4

    play(story)


def test_generated_rules_stand_first_and_follow_the_addresses(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        shown = await world.ask("show", what="spd", spd="corp")
        names = [rule["name"] for rule in shown[1]["rules"]]
        assert names[0] == "generated:nd"
        assert names[-3:] == ["secret", "web", "dns"]
        generation = world.state("corp", OUTBOUND).counts.generation
        world.kernel.put(address(1, "2001:db8::1/64"))
        await world.until(lambda: world.state("corp", OUTBOUND).counts.generation > generation)
        shown = await world.ask("show", what="spd", spd="corp")
        assert "generated:ike-ipv6" in [rule["name"] for rule in shown[1]["rules"]]

    play(story)


def test_a_restart_that_agrees_disturbs_no_flow(play: Play) -> None:
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
        assert all(kind <= Kind.HASH_SEED for _, kind, _ in switch.log)
        assert [flow["rule"] for flow in await world.ask("show", what="flows")] == ["web"]

    play(first, switch)
    play(second, switch)


def test_without_its_record_a_restart_retires_everything(play: Play, tmp_path: Path) -> None:
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(lambda: switch.flows)

    async def second(world: PolicyWorld) -> None:
        await world.began()
        assert switch.live() == {}
        await world.until(lambda: not switch.flows)

    play(first, switch)
    (tmp_path / "spd.json").unlink()
    play(second, switch)


def test_a_damaged_record_ends_the_start(play: Play, tmp_path: Path) -> None:
    async def never(_: PolicyWorld) -> None:
        raise AssertionError

    (tmp_path / "spd.json").write_text("{}")
    with pytest.raises(SpdStoreError):
        play(never)


def test_a_switch_that_lost_everything_gets_lists_before_bindings(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(lambda: world.switch.flows)
        for lost in (world.switch.entities, world.switch.raw, world.switch._uses):
            lost.clear()
        world.switch.flows.clear()
        world.switch.raw_flows.clear()
        world.client.hang_up()
        await world.until(lambda: len(world.clients) == 2)
        await world.until(lambda: len(world.switch.of(Kind.OUTBOUND_BINDING)) == 3)
        await world.synced()
        world.miss(tcp(80))
        await world.until(world.switch.live)

    play(story)


# -- first packets


def test_interfaces_that_change_places_are_never_without_their_policy(
    play: Play, tmp_path: Path
) -> None:
    """Bindings are by number, and the numbers are the places in the file."""
    switch = FakeSwitch(CODEC)
    lines = CONFIG.splitlines(keepends=True)
    at = lines.index("interfaces:\n") + 1
    turned = "".join([*lines[:at], *reversed(lines[at : at + 3]), *lines[at + 3 :]])
    guards = {1: "corp", 3: "edge"}
    lists: dict[int, str] = {}
    leaks: list[str] = []

    def look(operation: Operation, kind: Kind, key: object) -> int:
        for l3_if, egress in switch.of(Kind.EGRESS_INTERFACE).items():
            assert isinstance(egress, Egress)
            check(Kind.OUTBOUND_BINDING, egress.port, l3_if)
        for attachment, interface in switch.of(Kind.L3_INTERFACE).items():
            assert isinstance(attachment, Attachment)
            assert isinstance(interface, L3Interface)
            check(Kind.INBOUND_BINDING, attachment.port, interface.l3_if)
        return 0

    def check(kind: Kind, port: int, l3_if: object) -> None:
        bound = next((value for key, value in switch.of(kind).items() if key == l3_if), None)
        if isinstance(bound, Binding) and lists.get(bound.list_id) != guards.get(port):
            leaks.append(f"port {port} has {bound}")

    def names(world: PolicyWorld) -> None:
        lists.update({i: state.spd for i, state in world.policy.table.lists.items()})

    async def first(world: PolicyWorld) -> None:
        await world.began()
        world.kernel.put(address(1, "10.0.1.1/24"))
        await world.until(lambda: switch.of(Kind.NEXTHOP))
        names(world)

    async def second(world: PolicyWorld) -> None:
        switch.refuse = look
        world.kernel.put(address(1, "10.0.1.1/24"))
        await world.began()
        assert switch.of(Kind.OUTBOUND_BINDING)[2] == NO_POLICY
        assert switch.of(Kind.L3_INTERFACE)[Attachment(1, 0)] == L3Interface(3, 0)
        assert len(switch.of(Kind.OUTBOUND_BINDING)) == 3

    play(first, switch)
    play(second, switch, text=filled(turned, tmp_path))
    assert leaks == []


def test_another_spd_never_gets_the_list_that_an_interface_is_bound_to(
    play: Play, tmp_path: Path
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
    play(first, switch)
    play(second, switch, text=filled(renamed, tmp_path))


@pytest.mark.parametrize("known", [True, False], ids=["recorded", "record lost"])
def test_a_number_that_another_bundle_takes_over_never_means_both(
    play: Play, tmp_path: Path, known: bool
) -> None:
    """Flows say "protect by 7": while one does that meant the old bundle 7, 7 has no SA."""
    switch = FakeSwitch(CODEC)
    branch = CONFIG[CONFIG.index("  - name: branch") : CONFIG.index("spds:")]
    lab = branch.replace("branch", "lab").replace("sa: 100", "sa: 101")
    lab = lab.replace("4096", "4097").replace("sa: 200", "sa: 201")
    turned = CONFIG.replace(branch, branch.replace("id: 7", "id: 8") + lab)
    leaks: list[str] = []

    def look(operation: Operation, kind: Kind, key: object) -> int:
        old = [flow for flow in switch.live().values() if flow.bundle == 7]
        if old and switch.of(Kind.OUTBOUND_SA).get(7) == Encrypt(1, 101, 1400, 73):
            leaks.append(f"{operation} {kind} {key}: an old flow goes to the new peer")
        carries = switch.of(Kind.INBOUND_SA).get(Spi(0, 4096))
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
        await world.until(lambda: len(switch.of(Kind.OUTBOUND_SA)) == 2)
        assert switch.of(Kind.OUTBOUND_SA)[7] == Encrypt(1, 101, 1400, 73)
        await world.until(lambda: Spi(0, 4097) in switch.of(Kind.INBOUND_SA))
        assert switch.of(Kind.INBOUND_SA)[Spi(0, 4096)] == Decrypt(8, 1, 200)
        assert switch.live() == {}

    play(first, switch)
    if not known:
        (tmp_path / "spd.json").unlink()
    play(second, switch, text=filled(turned, tmp_path))
    assert leaks == []


def test_a_cache_that_is_configured_off_serves_no_flow_of_an_earlier_life(
    play: Play, tmp_path: Path
) -> None:
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(switch.live)

    async def second(world: PolicyWorld) -> None:
        await world.began()
        assert switch.live() == {}

    play(first, switch)
    off = CONFIG.replace("flow_cache: {{", "flow_cache: {{enabled: false, ", 1)
    play(second, switch, text=filled(off, tmp_path))


def test_a_first_packet_is_searched_installed_and_sent_on(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        known = {"inbound_list_id": 4, "inbound_generation": 6, "vrf": 0, "nexthop_id": 12}
        world.miss(tcp(80), egress_l3_if=1, **known)
        (sent,) = await world.sent()
        state = world.state("corp", OUTBOUND)
        assert (
            sent
            | {
                "kind": 3,
                "stage": STAGE_OUTBOUND,
                "verdict": BYPASS,
                "list_id": state.list_id,
                "generation": state.counts.generation,
                "inbound_list_id": 4,
                "inbound_generation": 6,
                "ingress_l3_if": 3,
            }
            == sent
        )
        assert sent["rule"] in state.rule_ids
        await world.until(world.switch.live)
        ((flow, verdict),) = world.switch.live().items()
        assert (flow.direction, flow.key.destination_port) == (OUTBOUND, 80)
        assert (verdict.action, verdict.rule_id) == (Action.BYPASS, sent["rule"])

    play(story)


def test_protect_names_the_bundle(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(443, "10.9.0.1"))
        (sent,) = await world.sent()
        assert (sent["verdict"], sent["sa_bundle"]) == (PROTECT, 7)

    play(story)


def test_what_is_discarded_is_installed_and_ends_here(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(443))
        await world.counted("dropped: policy discards outbound")
        await world.until(world.switch.live)
        ((_, verdict),) = world.switch.live().items()
        final = world.state("corp", OUTBOUND).final_id
        assert (verdict.action, verdict.rule_id) == (Action.DISCARD, final)
        (flow,) = await world.ask("show", what="flows")
        assert flow["rule"] == "(final)"
        (_, shown) = await world.ask("show", what="spd", spd="corp")
        assert shown["final_discard"]["searched"] == 1
        assert world.client.sent == []

    play(story)


def test_inbound_the_key_says_local_and_carrier(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80), INBOUND, is_local=1, bundle=7, origin=2)
        (sent,) = await world.sent()
        assert (sent["stage"], sent["bundle"], sent["verdict"]) == (STAGE_INBOUND, 7, BYPASS)
        await world.until(world.switch.live)
        ((flow, _),) = world.switch.live().items()
        assert (flow.direction, flow.key.is_local, flow.key.bundle) == (INBOUND, True, 7)

    play(story)


def test_what_the_host_sent_keeps_its_interface(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80), origin=1, egress_l3_if=1, ingress_l3_if=0)
        (sent,) = await world.sent()
        assert (sent["origin"], sent["egress_l3_if"], sent["nexthop_id"]) == (1, 1, 0)

    play(story)


def test_a_deep_chain_is_searched_and_never_cached(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        chain = [(60, bytes(8))] * 7
        frame = ethernet(ipv6_chain(chain, 6, (40000).to_bytes(2, "big") + b"\0\x50" + bytes(16)))
        state = world.state("corp", OUTBOUND)
        known = {"stage": STAGE_OUTBOUND, "list_id": state.list_id}
        packet = punt(frame, "EXTENSION_HEADERS", **known)
        world.client.punt((packet.frame, tuple(packet[1:])))
        (sent,) = await world.sent()
        assert sent["verdict"] == BYPASS
        assert world.switch.flows == {}

    play(story)


LOOSE, STRICT = (bytes([kind, 7, 4, 10, 0, 1, 9]) for kind in (131, 137))
BAD_OPTIONS = [
    pytest.param(LOOSE + bytes(1), "source_route", id="loose"),
    pytest.param(STRICT + bytes(1), "source_route", id="strict"),
    pytest.param(bytes([1] * 11) + LOOSE + bytes(2), "source_route", id="behind 11 options"),
    pytest.param(bytes([1] * 11) + b"\x44\x28" + bytes(3), "ipv4_option_length", id="too long"),
]


@pytest.mark.parametrize("direction", [INBOUND, OUTBOUND])
@pytest.mark.parametrize(("options", "name"), BAD_OPTIONS)
def test_source_routes_are_refused_whatever_the_rules_say(
    play: Play, options: bytes, name: str, direction: Direction
) -> None:
    """Re-injected behind the list, nobody would look at the options again (RFC 1812, 5.3.13.4)."""

    async def story(world: PolicyWorld) -> None:
        await world.began()
        payload = (40000).to_bytes(2, "big") + b"\0\x50" + bytes(16)
        frame = ethernet(ipv4("10.0.3.7", "10.0.1.77", payload, 6, options=options))
        state = world.state("corp", direction)
        stage = STAGE_INBOUND if direction is INBOUND else STAGE_OUTBOUND
        known = {"stage": stage, "list_id": state.list_id, "is_local": 1}
        punted = punt(frame, "EXTENSION_HEADERS", **known)
        world.client.punt((punted.frame, tuple(punted[1:])))
        await world.counted(f"dropped: {name}")
        assert world.client.sent == []
        assert world.switch.flows == {}

    play(story)


def test_an_icmp_error_is_treated_as_the_flow_it_answers(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        about = ipv4("10.0.1.77", "10.0.3.7", b"\x12\x34" + b"\0\x35" + bytes(4), 17)
        error = ethernet(ipv4("10.0.9.9", "10.0.1.77", b"\x03\x01" + bytes(6) + about, 1))
        world.miss(error)
        (sent,) = await world.sent()
        assert sent["verdict"] == BYPASS  # the rule `dns`, turned round
        stranger = ethernet(ipv4("10.0.9.9", "10.0.1.78", b"\x03\x01" + bytes(6) + about, 1))
        world.miss(stranger)
        await world.counted("dropped: icmp_enclosed_source")
        assert world.switch.flows == {}

    play(story)


@pytest.mark.parametrize("frame", [b"", bytes(14), tcp(80)[:40]])
def test_what_cannot_be_parsed_ends_here(play: Play, frame: bytes) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(frame)
        counters = world.controller.first_packets.counters
        await world.until(lambda: any(name.startswith("dropped: ") for name in counters))
        assert world.client.sent == []
        assert world.switch.flows == {}

    play(story)


def test_a_list_that_is_not_known_drops(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80), list_id=999)
        await world.counted("dropped: of a list that is not known")
        assert world.client.sent == []

    play(story)


def test_packets_of_one_flow_make_one_write_and_each_goes_on(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        for _ in range(5):
            world.miss(tcp(80))
        await world.sent(5)
        await world.until(world.switch.live)
        assert len(world.switch.flow_log) == 1

    play(story)


def test_a_write_of_a_flow_without_an_answer_ends_the_session(play: Play) -> None:
    """Nobody knows what the switch took: it is read back."""

    async def story(world: PolicyWorld) -> None:
        await world.began()
        client = world.client

        def lose(token: int, request: bytes) -> None:
            client._emit(("write_done", token, 14, "deadline", []))

        client.write = lose  # type: ignore[method-assign]
        world.miss(tcp(80))
        await world.sent()
        await world.until(lambda: len(world.clients) == 2)
        await world.until(lambda: world.policy.flows.caches)
        world.miss(tcp(80))
        await world.until(world.switch.live)

    play(story)


def test_a_full_cache_evicts_and_a_full_table_does_not_stop_packets(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        for port in range(6):
            world.miss(tcp(80, f"10.0.1.{port}"))
            await world.until(lambda port=port: len(world.switch.flow_log) > port)  # type: ignore[misc]
        await world.sent(6)
        await world.until(lambda: len(world.switch.flow_log) == 8)
        assert len(world.switch.flows) == 4
        world.switch.flow_capacity = 0
        world.miss(tcp(80, "10.0.2.1"))
        await world.sent(7)

    play(story, size=4)


def test_idle_flows_go_and_busy_ones_stay(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80, "10.0.1.1"))
        world.miss(tcp(80, "10.0.1.2"))
        await world.until(lambda: len(world.switch.flows) == 2)
        busy, idle = sorted(world.switch.flows, key=lambda slot: slot.key.destination)
        while idle in world.switch.flows:
            world.switch.flow_packets[busy] += 1
            await asyncio.sleep(0.05)
        assert busy in world.switch.flows

    play(story, idle=1)


def test_a_full_cache_keeps_the_flow_that_is_busy(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        for number in range(1, 5):
            world.miss(tcp(80, f"10.0.1.{number}"))
            await world.until(lambda number=number: len(world.switch.flows) == number)  # type: ignore[misc]
        busy = min(world.switch.flows, key=lambda slot: slot.key.destination)
        cache = world.policy.flows.caches[busy.list_id].cache
        assert cache.flows()[0][0] == busy.key  # the oldest: the first to go
        while cache.flows()[0][0] == busy.key:
            world.switch.flow_packets[busy] += 1
            await asyncio.sleep(0.05)
        world.miss(tcp(80, "10.0.1.5"))
        await world.until(lambda: len(world.switch.flow_log) == 6)
        assert busy in world.switch.flows
        assert world.policy.flows.counters["flows evicted"] == 1

    play(story, size=4, idle=4)


# -- commits


def test_a_commit_retires_flows_and_answers_that_travel(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        before = world.state("corp", OUTBOUND).counts
        answer = await world.commit(COMMIT)
        assert [one["direction"] for one in answer["changed"]] == ["outbound"]
        counts = world.state("corp", OUTBOUND).counts
        assert counts == (before.epoch + 1, before.generation + 1)
        assert world.switch.of(Kind.OUTBOUND_LIST)[world.state("corp", OUTBOUND).list_id] == counts
        assert world.switch.live() == {}
        world.miss(tcp(80), generation=before.generation)
        await world.counted("dropped: policy discards outbound")
        await world.until(world.switch.live)
        assert [operation for operation, _ in world.switch.flow_log][-1] is Operation.MODIFY

    play(story)


def test_it_is_on_disk_before_the_switch_hears_of_it(play: Play, tmp_path: Path) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        on_disk: list[str] = []

        def look(operation: Operation, kind: Kind, key: object) -> int:
            if kind in (Kind.INBOUND_LIST, Kind.OUTBOUND_LIST):
                on_disk.append((tmp_path / "spd.json").read_text())
            return 0

        world.switch.refuse = look
        digest = world.state("corp", OUTBOUND).digest
        await world.commit(COMMIT)
        assert len(on_disk) == 1
        assert digest not in on_disk[0]
        assert world.state("corp", OUTBOUND).digest in on_disk[0]

    play(story)


def test_what_cannot_be_put_on_disk_is_not_done(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        before = dict(world.switch.of(Kind.OUTBOUND_LIST))

        def full(*_: object) -> None:
            raise SpdStoreError("no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("sluice.spdstore.SpdStore.save", full)
            with pytest.raises(BadRequestError, match="no space left"):
                await world.commit(COMMIT)
        assert world.switch.of(Kind.OUTBOUND_LIST) == before
        await world.commit(COMMIT)

    play(story)


@pytest.mark.parametrize("target", ["sluice-switch", "bmv2"])
def test_a_refused_commit_leaves_the_old_policy(play: Play, target: str) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        refusals = iter([13])
        world.switch.refuse = lambda _, kind, __: (
            next(refusals, 0) if kind is Kind.OUTBOUND_LIST else 0
        )
        both = COMMIT.replace("name: all-in, action: bypass", "name: all-in, action: discard")
        with pytest.raises(BadRequestError, match="the switch did not take it"):
            await world.commit(both)
        for direction, kind in ((INBOUND, Kind.INBOUND_LIST), (OUTBOUND, Kind.OUTBOUND_LIST)):
            state = world.state("corp", direction)
            if target == "bmv2":
                assert world.switch.of(kind)[state.list_id] == state.counts
        world.miss(tcp(80))
        (sent,) = await world.sent()
        assert sent["verdict"] == BYPASS
        await world.commit(both)
        state = world.state("corp", INBOUND)
        assert world.switch.of(Kind.INBOUND_LIST)[state.list_id] == state.counts

    play(story, target=target)


def test_a_restart_goes_on_with_what_was_committed(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    switch = FakeSwitch(CODEC)

    async def commit(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(COMMIT)
        world.miss(tcp(80))
        await world.until(switch.live)

    async def restart(world: PolicyWorld) -> None:
        before = switch.live()
        await world.began()
        assert switch.live() == before
        exported = await world.ask("spd export", spd="corp")
        assert [rule["name"] for rule in exported["outbound"]] == ["web"]
        (changes,) = await world.ask("spd diff", configured=["corp"])
        told = [(one["change"], one["name"]) for one in changes["lists"]["outbound"]]
        assert told == [("added", "secret"), ("changed", "web"), ("added", "dns")]
        await world.ask("spd commit", configured=["corp"])
        (changes,) = await world.ask("spd diff", configured=["corp"])
        assert changes["lists"] == {"inbound": [], "outbound": []}

    play(commit, switch)
    assert "says otherwise" not in caplog.text
    play(restart, switch)
    assert "the configuration says otherwise (outbound)" in caplog.text


def test_an_spd_that_was_taken_out_starts_anew(play: Play, tmp_path: Path) -> None:
    async def commit(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(COMMIT)

    async def without(world: PolicyWorld) -> None:
        await world.began()

    async def again(world: PolicyWorld) -> None:
        await world.began()
        names = [rule["name"] for rule in (await world.ask("spd export", spd="corp"))["outbound"]]
        assert names == ["secret", "web", "dns"]

    play(commit)
    text = (tmp_path / "r1.yaml").read_text()
    edge_alone = text[: text.index("engines:")] + "spds:\n" + text[text.index("  - name: edge") :]
    play(without, text=edge_alone.replace("spd: corp", "spd: none"))
    play(again)


def test_configured_rules_are_those_in_the_file_now(play: Play, tmp_path: Path) -> None:
    text = CONFIG.format(target="sluice-switch", size=100, idle=60, state=tmp_path)
    head, _, tail = text.partition("    inbound: [{name: all-in")
    text = head + "    file: corp.yaml\n" + tail[tail.index("  - name: edge") :]
    file = tmp_path / "corp.yaml"
    file.write_text(COMMIT)

    async def story(world: PolicyWorld) -> None:
        await world.began()
        file.write_text(COMMIT.replace("name: web", "name: http"))
        (changes,) = await world.ask("spd diff", configured=["corp"])
        told = [(one["change"], one["name"]) for one in changes["lists"]["outbound"]]
        assert told == [("removed", "web"), ("added", "http")]
        for text, problem in (
            (COMMIT.replace("spd: corp", "spd: edge"), "is the SPD 'edge', not 'corp'"),
            ("spd: corp\nno: rules\n", r"corp.yaml:2: no: unknown key"),
        ):
            file.write_text(text)
            with pytest.raises(BadRequestError, match=problem):
                await world.ask("spd commit", configured=["corp"])
        with pytest.raises(BadRequestError, match="no files beside it"):
            await world.ask("spd commit", configured=["corp"], files=[{"name": "", "text": ""}])
        with pytest.raises(BadRequestError, match="there is no SPD 'x'"):
            await world.ask("spd diff", configured=["x"])

    play(story, text=text)


def test_a_commit_that_failed_is_not_made_by_a_restart(play: Play) -> None:
    async def refused(world: PolicyWorld) -> None:
        await world.began()
        world.switch.refuse = lambda _, kind, __: 13 if kind is Kind.OUTBOUND_LIST else 0
        with pytest.raises(BadRequestError, match="the switch did not take it"):
            await world.commit(COMMIT)

    async def later(world: PolicyWorld) -> None:
        await world.began()
        names = [rule["name"] for rule in (await world.ask("spd export", spd="corp"))["outbound"]]
        assert names == ["secret", "web", "dns"]

    play(refused)
    play(later)


def test_committed_rules_without_their_bundle_end_the_start(play: Play, tmp_path: Path) -> None:
    async def commit(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(COMMIT.replace("discard, proto", "protect, bundle: branch, proto"))

    async def never(_: PolicyWorld) -> None:
        raise AssertionError

    play(commit)
    written = (tmp_path / "r1.yaml").read_text()
    renamed = written.replace("name: branch", "name: other").replace(
        "bundle: branch", "bundle: other"
    )
    with pytest.raises(
        PolicyError, match="rule 'web' that was committed names the bundle 'branch'"
    ):
        play(never, text=renamed)
    SpdStore(tmp_path).forget_committed()

    async def configured(world: PolicyWorld) -> None:
        await world.began()
        assert len(world.state("corp", OUTBOUND).rules) > 3

    play(configured, text=renamed)


def test_caches_that_do_not_fit_the_pipeline_end_the_start(play: Play) -> None:
    async def never(_: PolicyWorld) -> None:
        raise AssertionError

    with pytest.raises(PolicyError, match=r"1000000 \(corp\) \+ 65536 \(edge\) = 1065536 flows"):
        play(never, size=1_000_000)


def test_across_spds_only_where_it_is_atomic(play: Play, tmp_path: Path) -> None:
    edge = "spd: edge\ninbound: [{name: a, action: bypass}]\noutbound: []\n"

    async def one_by_one(world: PolicyWorld) -> None:
        await world.began()
        with pytest.raises(BadRequestError, match="corp, edge: this target changes one SPD"):
            await world.commit(COMMIT, edge)
        await world.commit(COMMIT)
        await world.commit(edge)

    async def together(world: PolicyWorld) -> None:
        await world.began()
        requests = len(world.client.requests)
        answer = await world.commit(COMMIT, edge)
        assert {one["spd"] for one in answer["changed"]} == {"corp", "edge"}
        written = [r for r in world.client.requests[requests:] if r.atomicity == 2]
        assert [len(request.updates) for request in written] == [2]

    play(one_by_one, target="bmv2")
    (tmp_path / "spd.json").unlink()
    play(together)


def test_numbers_of_new_rules_count_from_zero(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.switch.counters_reset.clear()
        await world.commit(COMMIT)
        fresh = world.state("corp", OUTBOUND).rule_ids[-1]
        assert set(world.switch.counters_reset) == {fresh}

    play(story)


def test_a_commit_does_not_wait_for_routes(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.routes.put(
            *(route(f"20.{n >> 8}.{n & 255}.0/24", gateway("10.0.1.9", 1)) for n in range(5000))
        )
        desired = world.controller.reconciler.desired[Kind.ROUTE]
        await world.until(lambda: slot("20.0.0.0/24") in desired)
        await world.commit(COMMIT)
        assert len(world.switch.of(Kind.ROUTE)) < 5000

    play(story)


def test_bad_rules_are_told_with_every_problem(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        bad = "spd: corp\noutbound: [{name: a, action: protect, bundle: nobody}, {name: b}]\n"
        for command in ("spd check", "spd diff", "spd commit"):
            with pytest.raises(BadRequestError) as error:
                await world.ask(command, files=[{"name": "corp.yaml", "text": bad}])
            assert "no bundle 'nobody'" in str(error.value)
            assert "rule 2 'b'" in str(error.value)
        with pytest.raises(BadRequestError, match="there is no SPD 'other'"):
            await world.commit("spd: other\n")

    play(story)


def test_check_warns_and_diff_tells(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        files = [{"name": "corp.yaml", "text": COMMIT}]
        (checked,) = await world.ask("spd check", files=files)
        assert any("BGP" in warning for warning in checked["warnings"])
        frr = [{"name": "frr.conf", "text": "hostname r1\n"}]
        (checked,) = await world.ask("spd check", files=files, frr=frr)
        assert checked["warnings"] == ["corp: the outbound list discards everything"]
        (changes,) = await world.ask("spd diff", files=files)
        told = [(one["change"], one["name"]) for one in changes["lists"]["outbound"]]
        assert told == [("removed", "secret"), ("removed", "dns"), ("changed", "web")]
        assert changes["lists"]["inbound"] == []

    play(story)


# -- the flow cache by hand


def test_off_searches_every_packet_and_nothing_loops(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        shown = await world.ask("flow-cache off", spd="corp")
        assert {one["cache"] for one in shown} == {False}
        assert world.switch.live() == {}
        writes = len(world.switch.flow_log)
        for _ in range(3):
            world.miss(tcp(80))
        answers = await world.sent(4)
        assert {one["verdict"] for one in answers} == {BYPASS}
        assert len(world.switch.flow_log) == writes
        await world.ask("flow-cache on")
        world.miss(tcp(80))
        await world.until(world.switch.live)

    play(story)


def test_off_survives_a_restart_and_so_does_on(play: Play) -> None:
    switch = FakeSwitch(CODEC)

    async def off(world: PolicyWorld) -> None:
        await world.began()
        await world.ask("flow-cache off", spd="corp")

    async def still_off(world: PolicyWorld) -> None:
        await world.began()
        shown = await world.ask("show", what="flow-cache")
        assert {(one["spd"], one["cache"]) for one in shown} == {("corp", False), ("edge", True)}
        world.miss(tcp(80))
        await world.sent()
        assert switch.live() == {}
        await world.ask("flow-cache on", spd="corp")

    async def on_again(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(switch.live)

    play(off, switch)
    play(still_off, switch)
    play(on_again, switch)


def test_off_that_the_switch_refused_is_off_neither_now_nor_later(play: Play) -> None:
    async def refused(world: PolicyWorld) -> None:
        await world.began()
        world.switch.refuse = lambda _, kind, __: 13 if kind is Kind.OUTBOUND_LIST else 0
        with pytest.raises(BadRequestError, match="the switch did not take it"):
            await world.ask("flow-cache off", spd="corp")

    async def later(world: PolicyWorld) -> None:
        await world.began()
        assert {one["cache"] for one in await world.ask("show", what="flow-cache")} == {True}

    play(refused)
    play(later)


def test_clear_retires_every_flow(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        before = world.state("corp", OUTBOUND).counts
        (_, outbound) = await world.ask("flow-cache clear", spd="corp")
        # The rules are the same, so what travels with their verdict must not be lost.
        assert world.state("corp", OUTBOUND).counts == (before.epoch + 1, before.generation)
        assert (outbound["flows"], outbound["stale_flows"]) == (1, 1)
        assert world.switch.live() == {}
        with pytest.raises(BadRequestError, match="there is no SPD"):
            await world.ask("flow-cache clear", spd="nobody")

    play(story)


@pytest.mark.parametrize("what", ["spd", "flows", "flow-cache"])
def test_what_is_not_started_says_so(play: Play, what: str) -> None:
    async def story(world: PolicyWorld) -> None:
        with pytest.raises(BadRequestError, match="corp, edge: not started"):
            await world.ask("show", what=what)
        assert await world.ask("show", what="metrics")
        await world.began()
        assert isinstance(await world.ask("show", what=what), list)

    play(story)


@pytest.mark.parametrize("what", ["spd", "flows", "flow-cache", "metrics", "counters"])
def test_policy_can_be_shown(play: Play, what: str) -> None:
    async def story(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        shown = await world.ask("show", what=what)
        if what == "metrics":
            assert 'rule="web"' in shown
        elif what == "flows":
            (flow,) = shown
            assert (flow["action"], flow["rule"], flow["stale"]) == ("bypass", "web", False)
        assert shown

    play(story)


def test_packet_out_metadata_are_complete() -> None:
    assert len(PACKET_OUT) == len(set(PACKET_OUT)) == 17


def test_links_alone_start_it_too(play: Play) -> None:
    async def story(world: PolicyWorld) -> None:
        world.kernel.put(link(1))
        await asyncio.wait_for(world.ready.wait(), 5)
        assert world.policy.started

    play(story)
