# SPDX-License-Identifier: Apache-2.0
"""Tests the translation of the kernel's policies to SPD rules.

The rules must be in the kernel's order. A policy that cannot be mirrored becomes a rule that
discards.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import Address, Prefix, parse_address
from sluice.policy.model import (
    ICMP,
    MOBILITY,
    TCP,
    UDP,
    Action,
    Direction,
    NumberRange,
    Rule,
    Selectors,
    prefix_range,
)
from sluice.state.kernel_rules import (
    KernelBundle,
    MirroredRules,
    mirror_rules,
    named_spi,
    selector_matches,
)
from sluice.state.rule_search import first_match
from sluice.xfrm_model import (
    ANY_PORT,
    Defaults,
    KernelMode,
    KernelPolicy,
    KernelSelector,
    Mark,
    PolicyAction,
    PolicyDirection,
    PolicyKey,
    PortMatch,
    Template,
)

OUT, IN, FWD = PolicyDirection.OUT, PolicyDirection.IN, PolicyDirection.FWD
HERE, THERE = parse_address("10.0.1.1"), parse_address("10.0.2.1")
SITES = KernelSelector(Prefix.parse("10.1.0.0/16"), Prefix.parse("10.2.0.0/16"), 0)
BACK = KernelSelector(SITES.destination, SITES.source, 0)
TUNNEL = Template(HERE, THERE, 50, 0, 7, KernelMode.TUNNEL, False)
RETURNING = TUNNEL._replace(source=THERE, destination=HERE)
BUNDLE = KernelBundle(HERE, THERE, 7, KernelMode.TUNNEL)


def policy(
    direction: PolicyDirection = OUT,
    number: int = 1,
    selector: KernelSelector = SITES,
    *templates: Template,
    priority: int = 100,
    action: int = PolicyAction.ALLOW,
) -> KernelPolicy:
    key = PolicyKey(number << 3 | direction)
    return KernelPolicy(key, direction, priority, action, selector, templates)


def mirrored(*policies: KernelPolicy, defaults: Defaults | None = None) -> MirroredRules:
    return mirror_rules(policies, defaults or Defaults())


def packet(source: str, destination: str, *, is_own: bool = False) -> Selectors:
    ends = parse_address(source), parse_address(destination)
    return Selectors(*ends, TCP, 1000, 80, None, is_own)


def meets(found: MirroredRules, direction: Direction, seen: Selectors) -> Rule:
    rules = found.rules[direction]
    at = first_match(rules, seen)
    assert at is not None
    return rules[at]


# --- translation of each kind of policy -----------------------------------------------------------


def test_a_tunnel_as_an_ike_daemon_installs_it() -> None:
    found = mirrored(
        policy(OUT, 1, SITES, TUNNEL),
        policy(FWD, 2, BACK, RETURNING),
        policy(IN, 3, BACK, RETURNING),
    )
    assert found.problems == ()
    assert found.bundles == {"10.0.1.1-10.0.2.1-reqid-7": BUNDLE}
    assert [one.name for one in found.rules[Direction.OUTBOUND]] == [
        "kernel-out-9",
        "kernel-default-out",
    ]
    out = found.rules[Direction.OUTBOUND][0]
    assert (out.action, out.bundle) == (Action.PROTECT, BUNDLE.name)
    assert out.source == (prefix_range(SITES.source),)
    back = packet("10.2.0.1", "10.1.0.1")
    for is_own, name in ((False, "kernel-fwd-18"), (True, "kernel-in-24")):
        rule = meets(found, Direction.INBOUND, back._replace(is_own=is_own))
        assert (rule.name, rule.action, rule.bundle) == (name, Action.PROTECT, BUNDLE.name)
    (asking,) = found.policies[BUNDLE.name]
    assert asking.direction is OUT


def test_without_templates_a_policy_lets_pass_or_blocks() -> None:
    found = mirrored(
        policy(), policy(number=2, selector=BACK, action=PolicyAction.BLOCK, priority=200)
    )
    pass_, block, default = found.rules[Direction.OUTBOUND]
    assert (pass_.action, block.action) == (Action.BYPASS, Action.DISCARD)
    assert default == Rule("kernel-default-out", Action.BYPASS, is_default=True)


def test_in_and_fwd_policies_are_of_their_own_packets_only() -> None:
    anything = KernelSelector(Prefix(bytes(4), 0), Prefix(bytes(4), 0), 0)
    found = mirrored(
        policy(IN, 1, anything, action=PolicyAction.BLOCK, priority=1),
        policy(FWD, 2, anything, priority=2),
    )
    seen = packet("10.2.0.1", "10.1.0.1")
    assert meets(found, Direction.INBOUND, seen).name == "kernel-fwd-18"
    assert meets(found, Direction.INBOUND, seen._replace(is_own=True)).name == "kernel-in-8"


def test_policies_of_one_family_leave_the_other_alone() -> None:
    anything = KernelSelector(Prefix(bytes(4), 0), Prefix(bytes(4), 0), 0)
    found = mirrored(policy(OUT, 1, anything, action=PolicyAction.BLOCK))
    assert meets(found, Direction.OUTBOUND, packet("10.1.0.1", "10.2.0.1")).name == "kernel-out-9"
    ipv6 = packet("2001:db8::1", "2001:db8::2")
    assert meets(found, Direction.OUTBOUND, ipv6).name == "kernel-default-out"


def test_the_defaults_of_the_kernel_stand_behind_its_policies() -> None:
    found = mirrored(defaults=Defaults(forward=PolicyAction.BLOCK))
    seen = packet("10.2.0.1", "10.1.0.1")
    assert meets(found, Direction.INBOUND, seen).action is Action.DISCARD
    assert meets(found, Direction.INBOUND, seen._replace(is_own=True)).action is Action.BYPASS
    assert meets(found, Direction.OUTBOUND, seen).action is Action.BYPASS


def test_transport_mode_may_take_its_addresses_from_the_selector() -> None:
    hosts = KernelSelector(Prefix.host(HERE), Prefix.host(THERE), UDP)
    open_ends = Template(bytes(4), bytes(4), 50, 0, 9, KernelMode.TRANSPORT, False)
    found = mirrored(policy(OUT, 1, hosts, open_ends))
    assert list(found.bundles) == ["10.0.1.1-10.0.2.1-reqid-9-transport"]
    assert found.problems == ()


def test_an_open_template_for_several_hosts_is_a_trap_of_its_policy() -> None:
    """Checks a policy for several hosts whose template has no addresses: it becomes a rule that
    protects by a bundle of its own, without SAs.

    Libreswan installs such a policy as a trap until it has SAs: a packet that matches it causes an
    acquire. No SA fits such a policy. So each policy needs its own bundle, to cause its own
    acquires.
    """
    open_ends = Template(bytes(4), bytes(4), 50, 0, 0, KernelMode.TRANSPORT, False)
    traps = [policy(OUT, number, SITES, open_ends) for number in (1, 2)]
    found = mirrored(*traps)
    assert list(found.bundles) == ["trap-out-9", "trap-out-17"]
    assert found.policies["trap-out-17"] == (traps[1],)
    assert [rule.action for rule in found.rules[Direction.OUTBOUND]][:2] == [Action.PROTECT] * 2
    assert found.problems == ()
    (problem,) = mirrored(policy(FWD, 1, BACK, open_ends)).problems
    assert "address unspecified" in problem


@pytest.mark.parametrize(
    ("match", "low", "high"),
    [
        (PortMatch(80, 0xFFFF), 80, 80),
        (PortMatch(8192, 0xE000), 8192, 16383),
        (PortMatch(8195, 0xFFFC), 8192, 8195),
    ],
)
def test_ports_under_a_mask_are_a_range(match: PortMatch, low: int, high: int) -> None:
    selector = SITES._replace(protocol=TCP, destination_port=match)
    (rule, _) = mirrored(policy(OUT, 1, selector)).rules[Direction.OUTBOUND]
    assert rule.destination_port == (NumberRange(low, high),)
    assert rule.source_port is None


@pytest.mark.parametrize(
    ("kind", "code", "low", "high"),
    [
        (PortMatch(8, 0xFFFF), PortMatch(0, 0), 8 << 8, 8 << 8 | 255),
        (PortMatch(3, 0xFFFF), PortMatch(4, 0xFFFF), 3 << 8 | 4, 3 << 8 | 4),
    ],
)
def test_of_icmp_the_ports_are_type_and_code(
    kind: PortMatch, code: PortMatch, low: int, high: int
) -> None:
    selector = SITES._replace(protocol=ICMP, source_port=kind, destination_port=code)
    (rule, _) = mirrored(policy(OUT, 1, selector)).rules[Direction.OUTBOUND]
    assert rule.icmp == (NumberRange(low, high),)


@pytest.mark.parametrize(
    ("kind", "other", "expected"),
    [
        (PortMatch(5, 0xFFFF), PortMatch(0, 0), (NumberRange(5, 5),)),
        (PortMatch(5, 0xFFFF), PortMatch(0, 0xFFFF), (NumberRange(5, 5),)),
        (PortMatch(4, 0xFFFE), PortMatch(0, 0), (NumberRange(4, 5),)),
        (PortMatch(0, 0), PortMatch(0, 0xFFFF), None),
        (PortMatch(0, 0), PortMatch(0, 0), None),
    ],
)
def test_of_a_mobility_header_the_source_port_is_the_type(
    kind: PortMatch, other: PortMatch, expected: tuple[NumberRange, ...] | None
) -> None:
    selector = SITES._replace(protocol=MOBILITY, source_port=kind, destination_port=other)
    found = mirrored(policy(OUT, 1, selector))
    (rule, _) = found.rules[Direction.OUTBOUND]
    assert found.problems == ()
    assert rule.mobility_type == expected
    assert (rule.source_port, rule.destination_port, rule.icmp) == (None, None, None)


# --- order ---------------------------------------------------------------------------------------


def test_the_lowest_priority_is_first_and_among_equals_the_lowest_index() -> None:
    found = mirrored(
        policy(number=5, priority=10),
        policy(number=3, priority=20),
        policy(number=4, priority=10),
        policy(number=9, priority=1),
    )
    names = [one.name for one in found.rules[Direction.OUTBOUND]]
    numbers = [number << 3 | OUT for number in (9, 4, 5, 3)]
    assert names == [*(f"kernel-out-{number}" for number in numbers), "kernel-default-out"]


def test_among_equals_the_strictest_is_first_and_an_overlap_is_named() -> None:
    """Checks that among policies with the same priority the strictest becomes the first rule, and
    that overlaps are reported.

    The kernel's order of such policies is not known: an update moves a policy behind the others,
    but the policy keeps its index.
    """
    bypass = policy(OUT, 1, SITES, priority=20)
    protect = policy(OUT, 2, SITES, TUNNEL, priority=20)
    block = policy(OUT, 3, SITES, action=PolicyAction.BLOCK, priority=20)
    found = mirrored(bypass, protect, block)
    names = [one.name for one in found.rules[Direction.OUTBOUND]]
    assert names[:3] == [f"kernel-out-{number << 3 | OUT}" for number in (3, 2, 1)]
    (problem,) = found.problems
    assert "kernel-out" not in problem
    assert f"out-{1 << 3 | OUT} and out-{2 << 3 | OUT} overlap" in problem
    assert "priority 20" in problem


@pytest.mark.parametrize(
    "other",
    [
        policy(OUT, 2, BACK, TUNNEL, priority=20),
        policy(OUT, 2, SITES, TUNNEL, priority=21),
        policy(FWD, 2, SITES, TUNNEL, priority=20),
    ],
    ids=["other addresses", "other priority", "other direction"],
)
def test_policies_whose_order_does_not_matter_are_no_problem(other: KernelPolicy) -> None:
    assert not mirrored(policy(OUT, 1, SITES, priority=20), other).problems


def test_many_policies_of_one_priority_are_not_compared_one_by_one() -> None:
    strict = [policy(OUT, n, SITES, TUNNEL, priority=20) for n in range(1, 400)]
    allowing = [policy(OUT, n, SITES, priority=20) for n in range(400, 800)]
    (problem,) = mirrored(*strict, *allowing).problems
    assert "400 that allow" in problem


prefixes = st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "0.0.0.0/0"])
hosts = st.sampled_from(["10.1.2.3", "10.1.9.9", "10.9.9.9", "192.0.2.1"])
selectors = st.builds(
    lambda source, destination, protocol: KernelSelector(
        Prefix.parse(source), Prefix.parse(destination), protocol
    ),
    prefixes,
    prefixes,
    st.sampled_from([0, TCP, UDP]),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(PolicyDirection), selectors, st.integers(0, 3), st.booleans()),
        max_size=8,
    ),
    hosts,
    hosts,
    st.booleans(),
)
def test_the_rules_decide_as_the_kernels_search_does(
    made: list[tuple[PolicyDirection, KernelSelector, int, bool]],
    source: str,
    destination: str,
    is_own: bool,
) -> None:
    """Checks the mirrored rules against the kernel's lookup.

    Among the matching policies of a direction, those with the lowest priority value decide, and
    among these the strictest. If policies with this value differ in action, a problem must report
    it.
    """
    policies = [
        policy(direction, number, selector, priority=priority, action=int(blocks))
        for number, (direction, selector, priority, blocks) in enumerate(made, 1)
    ]
    found = mirror_rules(policies, Defaults())
    seen = packet(source, destination, is_own=is_own)
    flow = KernelSelector(Prefix.host(seen.source), Prefix.host(seen.destination), TCP)
    for direction, kernel in (
        (Direction.OUTBOUND, OUT),
        (Direction.INBOUND, IN if is_own else FWD),
    ):
        fitting = [
            one
            for one in policies
            if one.direction is kernel and selector_matches(one.selector, flow)
        ]
        least = min((one.priority for one in fitting), default=0)
        actions = {one.action for one in fitting if one.priority == least}
        expected = Action.DISCARD if PolicyAction.BLOCK in actions else Action.BYPASS
        assert meets(found, direction, seen).action is expected
        assert len(actions) < 2 or found.problems


# --- policies that cannot be mirrored -------------------------------------------------------------

PROTECTING = policy(OUT, 1, SITES, TUNNEL)


def with_template(**changes: int | bool | Address) -> KernelPolicy:
    return PROTECTING._replace(templates=(TUNNEL._replace(**changes),))  # type: ignore[arg-type]


def with_mobility(source: PortMatch = ANY_PORT, destination: PortMatch = ANY_PORT) -> KernelPolicy:
    selector = SITES._replace(protocol=MOBILITY, source_port=source, destination_port=destination)
    return PROTECTING._replace(selector=selector)


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (PROTECTING._replace(mark=Mark(1, 1)), "mark"),
        (PROTECTING._replace(if_id=3), "if_id"),
        (PROTECTING._replace(selector=SITES._replace(ifindex=3)), "one interface"),
        (PROTECTING._replace(selector=SITES._replace(user=3)), "one user"),
        (PROTECTING._replace(key=PolicyKey(9, True)), "type is sub"),
        (PROTECTING._replace(action=7), "action 7"),
        (PROTECTING._replace(templates=(TUNNEL, TUNNEL)), "more than one template"),
        (with_template(protocol=51), "protocol 51"),
        (with_template(is_optional=True), "optional"),
        (with_template(mode=4), "mode 4"),
        (with_template(destination=bytes(4)), "address unspecified"),
        (PROTECTING._replace(selector=SITES._replace(source_port=PortMatch(1, 1))), "ports of IP"),
        (
            PROTECTING._replace(
                selector=SITES._replace(protocol=TCP, source_port=PortMatch(1, 0xFF00 | 1))
            ),
            "not a range",
        ),
        (
            PROTECTING._replace(
                selector=SITES._replace(protocol=ICMP, destination_port=PortMatch(1, 0xFFFF))
            ),
            "several ICMP types",
        ),
        (with_mobility(destination=PortMatch(5, 0xFFFF)), "of the Mobility Header, which has"),
        (with_mobility(PortMatch(256, 0xFFFF)), "mobility types are above 255"),
        (with_mobility(PortMatch(5, 0xFF01)), "not a range"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_mirrored_is_dropped_and_named(refused: KernelPolicy, why: str) -> None:
    found = mirrored(refused)
    (problem,) = found.problems
    assert why in problem
    assert "out-9" in problem
    rule = found.rules[Direction.OUTBOUND][0]
    assert (rule.action, rule.bundle) == (Action.DISCARD, None)
    assert rule.source == (prefix_range(SITES.source),)
    assert (rule.source_port, rule.destination_port, rule.icmp) == (None, None, None)
    assert found.bundles == {}


def test_an_outbound_policy_may_name_the_spi_of_its_bundle() -> None:
    """Checks that an outbound policy may name the SPI of its bundle.

    strongSwan writes such a policy beside its trap policy, which names no SPI.
    """
    trap = policy(OUT, 2, SITES, TUNNEL, priority=200)
    named = with_template(spi=0x1000)
    found = mirrored(named, trap)
    assert found.problems == ()
    assert list(found.bundles) == [BUNDLE.name]
    assert named_spi(found.policies[BUNDLE.name]) == 0x1000
    assert named_spi((trap,)) == 0


def test_policies_that_name_different_spis_of_one_bundle_are_not_mixed() -> None:
    other = policy(OUT, 2, BACK, TUNNEL._replace(spi=0x1001), priority=200)
    found = mirrored(with_template(spi=0x1000), other)
    first, second, _ = found.rules[Direction.OUTBOUND]
    assert (first.action, second.action) == (Action.PROTECT, Action.DISCARD)
    (problem,) = found.problems
    assert "0x1001" in problem
    assert "0x1000" in problem
    assert found.policies[BUNDLE.name] == (with_template(spi=0x1000),)


@pytest.mark.parametrize("direction", [IN, FWD])
def test_an_inbound_policy_that_names_an_spi_is_dropped_and_named(
    direction: PolicyDirection,
) -> None:
    found = mirrored(policy(direction, 1, BACK, RETURNING._replace(spi=7)))
    (problem,) = found.problems
    assert "SPI" in problem
    assert found.rules[Direction.INBOUND][0].action is Action.DISCARD
