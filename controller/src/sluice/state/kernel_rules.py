# SPDX-License-Identifier: Apache-2.0
"""Translates the kernel's IPsec policies into the rules of an SPD.

`out` policies become the outbound list. `fwd` policies become the inbound rules for forwarded
packets, and `in` policies those for packets to this router. The kernel's default actions become the
last rules of the lists. Where "no rule matches" matters, such a rule does not count as a match
(`PolicyList.is_default`).

Order: the policy with the lowest priority value is first. For policies of one priority the kernel
uses the order of insertion. Once a policy was updated, neither its index nor a dump shows this
order. So this module puts the strictest policy first: discard, protect, bypass. Among equally
strict policies, the lowest index is first. If a bypass overlaps a stricter policy of its priority,
a problem names both policies.

A policy that cannot be mirrored fails closed: it becomes a rule that discards all packets that the
policy might match. A problem names the policy.

A protecting template becomes a bundle, named by its addresses and reqid. Policies with the same
template share the bundle. Two kinds of outbound templates are special:

- A template may name an SPI (strongSwan's templates do). Then the bundle uses the SA with this SPI
  (`kernel_sas`). All policies of the bundle must then name the same SPI.
- A transport template without addresses whose policy covers more than one host is a trap
  (Libreswan's `auto=ondemand`). Its bundle never has an SA. So its packets are dropped and cause
  acquires until the daemon replaces the policy.

Pure; depends on policy.model and xfrm_model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sluice.model import Address, Prefix, format_address
from sluice.policy.model import (
    ICMP_PROTOCOLS,
    MOBILITY,
    PORT_PROTOCOLS,
    Action,
    Direction,
    NumberRange,
    Rule,
    Scope,
    prefix_range,
)
from sluice.xfrm_model import (
    ANY_PORT,
    ESP,
    NO_MARK,
    Defaults,
    KernelMode,
    KernelPolicy,
    KernelSelector,
    PolicyAction,
    PolicyDirection,
    PolicyKey,
    PortMatch,
    Template,
)

LISTS = {
    PolicyDirection.OUT: Direction.OUTBOUND,
    PolicyDirection.IN: Direction.INBOUND,
    PolicyDirection.FWD: Direction.INBOUND,
}
SCOPES = {
    PolicyDirection.OUT: Scope.ANY,
    PolicyDirection.IN: Scope.OWN,
    PolicyDirection.FWD: Scope.TRANSIT,
}
MODES = {KernelMode.TUNNEL: "tunnel", KernelMode.TRANSPORT: "transport"}
ANY_OCTET = NumberRange(0, 0xFF)
BYPASS = 2
"""Strictness of a bypass. Among policies of one priority the least strict policy is the last."""
MOST_COMPARED = 100_000
"""Limit of pairs of policies of one priority that are compared for overlaps."""


class KernelBundle(NamedTuple):
    """Identifies the ESP protection that templates require between two addresses.

    `local` is this router's address. `trap` is empty for normal bundles. For a trap policy, whose
    packets only cause acquires, it is the trap's name, and both addresses are unspecified.
    """

    local: Address
    remote: Address
    reqid: int
    mode: KernelMode
    trap: str = ""

    @property
    def name(self) -> str:
        """A unique name, made of all fields."""
        if self.trap:
            return f"trap-{self.trap}"
        ends = f"{format_address(self.local)}-{format_address(self.remote)}"
        mode = "" if self.mode is KernelMode.TUNNEL else f"-{MODES[self.mode]}"
        return f"{ends}-reqid-{self.reqid}{mode}"


class MirroredRules(NamedTuple):
    """Holds the kernel's XFRM policies, translated to an SPD.

    The keys of the mappings after `rules` are bundle names. `policies` lists a bundle's outbound
    policies in order, and `inbound_policies` its inbound policies. `problems` has a sentence for
    each policy that could not be mirrored or whose order is ambiguous.
    """

    rules: Mapping[Direction, tuple[Rule, ...]]
    bundles: Mapping[str, KernelBundle]
    policies: Mapping[str, tuple[KernelPolicy, ...]]
    inbound_policies: Mapping[str, tuple[KernelPolicy, ...]]
    problems: tuple[str, ...]


class PolicyNotMirroredError(Exception):
    """Reports why a policy cannot be mirrored."""


def mirror_rules(policies: Iterable[KernelPolicy], defaults: Defaults) -> MirroredRules:
    """Translates all policies of a kernel."""
    rules: dict[Direction, list[Rule]] = {direction: [] for direction in Direction}
    bundles: dict[str, KernelBundle] = {}
    by_bundle: dict[Direction, dict[str, tuple[KernelPolicy, ...]]] = {
        direction: {} for direction in Direction
    }
    outbound = by_bundle[Direction.OUTBOUND]
    problems: list[str] = []
    policies = list(policies)
    problems += _ambiguous(policies)
    for policy in sorted(policies, key=_sort_key):
        try:
            rule, bundle = _rule(policy)
            if bundle is not None:
                _check_spi(policy, outbound.get(bundle.name, ()))
        except PolicyNotMirroredError as error:
            rule, bundle = _discard_rule(policy), None
            problems.append(
                f"policy {_label(policy)} is not mirrored, its packets are dropped: {error}"
            )
        rules[LISTS[policy.direction]].append(rule)
        if bundle is not None:
            bundles[bundle.name] = bundle
            named = by_bundle[LISTS[policy.direction]]
            named[bundle.name] = (*named.get(bundle.name, ()), policy)
    for direction, action in zip(
        (PolicyDirection.IN, PolicyDirection.FWD, PolicyDirection.OUT), defaults, strict=True
    ):
        rules[LISTS[direction]].append(_default(direction, action))
    listed = {direction: tuple(found) for direction, found in rules.items()}
    inbound = by_bundle[Direction.INBOUND]
    return MirroredRules(listed, bundles, outbound, inbound, tuple(problems))


def _sort_key(policy: KernelPolicy) -> tuple[int, int, PolicyKey]:
    """Returns the key by which policies are sorted into the order of the list."""
    return policy.priority, _strictness(policy), policy.key


def _strictness(policy: KernelPolicy) -> int:
    """Returns 0 for a discard, 1 for protection, `BYPASS` for a bypass."""
    if policy.action != PolicyAction.ALLOW:
        return 0
    return 1 if policy.templates else BYPASS


def _ambiguous(policies: Iterable[KernelPolicy]) -> list[str]:
    """Returns a problem text for each bypass that overlaps a stricter policy of the same
    priority."""
    alike: dict[tuple[PolicyDirection, int], list[KernelPolicy]] = defaultdict(list)
    for policy in policies:
        alike[policy.direction, policy.priority].append(policy)
    problems: list[str] = []
    for (_, priority), group in alike.items():
        bypassing = [one for one in group if _strictness(one) == BYPASS]
        strict = [one for one in group if _strictness(one) != BYPASS]
        if len(bypassing) * len(strict) > MOST_COMPARED:
            problems.append(
                f"{len(group)} policies have the priority {priority}, among them"
                f" {len(bypassing)} that allow packets: where they overlap, the stricter policies"
                " go first, which may not be the kernel's order; give the policies that allow"
                " packets another priority"
            )
            continue
        for policy in bypassing:
            other = next((one for one in strict if _overlap(policy.selector, one.selector)), None)
            if other is not None:
                problems.append(
                    f"policies {_label(policy)} and {_label(other)} overlap and have the same"
                    f" priority {priority}: the stricter {_label(other)} goes first, which may not"
                    " be the kernel's order; give them different priorities"
                )
    return problems


def _overlap(one: KernelSelector, other: KernelSelector) -> bool:
    """Returns whether a packet may match both selectors."""
    return (
        _prefixes_overlap(one.source, other.source)
        and _prefixes_overlap(one.destination, other.destination)
        and (one.protocol == other.protocol or 0 in (one.protocol, other.protocol))
        and _ports_overlap(one.source_port, other.source_port)
        and _ports_overlap(one.destination_port, other.destination_port)
    )


def _prefixes_overlap(one: Prefix, other: Prefix) -> bool:
    if len(one.address) != len(other.address):
        return False
    return one.covers(other.address) or other.covers(one.address)


def _ports_overlap(one: PortMatch, other: PortMatch) -> bool:
    return (one.value ^ other.value) & one.mask & other.mask == 0


def _rule(policy: KernelPolicy) -> tuple[Rule, KernelBundle | None]:
    """Returns a policy's rule and the bundle that it names. Raises PolicyNotMirroredError."""
    _refuse_unsupported(policy)
    rule = _selectors(policy, _ports(policy.selector))
    if policy.action == PolicyAction.BLOCK:
        return rule, None
    if not policy.templates:
        return rule._replace(action=Action.BYPASS), None
    bundle = _bundle(policy)
    return rule._replace(action=Action.PROTECT, bundle=bundle.name), bundle


def _refuse_unsupported(policy: KernelPolicy) -> None:
    problems = {
        "it selects packets by mark": policy.mark != NO_MARK,
        "it is for an XFRM interface (if_id)": policy.if_id != 0,
        "it is for one interface only": policy.selector.ifindex != 0,
        "it is for one user only": policy.selector.user != 0,
        "its type is sub": policy.key.is_sub,
        f"its action {policy.action} is unknown": policy.action not in tuple(PolicyAction),
        "it has more than one template": len(policy.templates) > 1,
    }
    for problem, is_so in problems.items():
        if is_so:
            raise PolicyNotMirroredError(problem)


def _bundle(policy: KernelPolicy) -> KernelBundle:
    """Returns the bundle of a policy's only template. Raises PolicyNotMirroredError."""
    (template,) = policy.templates
    if template.protocol != ESP:
        raise PolicyNotMirroredError(
            f"its template requires IP protocol {template.protocol}, not ESP"
        )
    if template.is_optional:
        raise PolicyNotMirroredError("its template is optional (level use)")
    if template.spi and policy.direction is not PolicyDirection.OUT:
        raise PolicyNotMirroredError("its template names an SPI; give it a reqid instead")
    if template.mode not in MODES:
        raise PolicyNotMirroredError(
            f"its template's mode {template.mode} is neither tunnel nor transport"
        )
    if _is_trap(policy, template):
        ends = template.source, template.destination
        return KernelBundle(*ends, template.reqid, KernelMode.TRANSPORT, trap=_label(policy))
    source, destination = _endpoints(template, policy.selector)
    if policy.direction is PolicyDirection.OUT:
        return KernelBundle(source, destination, template.reqid, KernelMode(template.mode))
    return KernelBundle(destination, source, template.reqid, KernelMode(template.mode))


def _is_trap(policy: KernelPolicy, template: Template) -> bool:
    """Returns whether a policy is a trap: a transport policy for many hosts, each pair of which
    would need an SA of its own."""
    selector = policy.selector
    return (
        policy.direction is PolicyDirection.OUT
        and template.mode == KernelMode.TRANSPORT
        and not any(template.source)
        and not any(template.destination)
        and not (_is_host(selector.source) and _is_host(selector.destination))
    )


def _is_host(prefix: Prefix) -> bool:
    return prefix.length == len(prefix.address) * 8


def named_spi(policies: Iterable[KernelPolicy]) -> int:
    """Returns the SPI that a bundle's outbound policies name, or 0 if they name none."""
    spis = (template.spi for policy in policies for template in policy.templates)
    return next(filter(None, spis), 0)


def _check_spi(policy: KernelPolicy, others: Iterable[KernelPolicy]) -> None:
    """Raises PolicyNotMirroredError if a policy names another SPI than the bundle's other
    policies."""
    spi, named = named_spi((policy,)), named_spi(others)
    if spi and named and spi != named:
        raise PolicyNotMirroredError(
            f"its template names the SPI {spi:#x}, but another policy of the same reqid names"
            f" {named:#x}; give each policy its own reqid"
        )


def _endpoints(template: Template, selector: KernelSelector) -> tuple[Address, Address]:
    """Returns source and destination address of a template's ESP packets.

    In transport mode, a host address of the selector replaces an unspecified address of the
    template. Raises PolicyNotMirroredError if an address remains unspecified.
    """
    ends = []
    for end, prefix in (
        (template.source, selector.source),
        (template.destination, selector.destination),
    ):
        if any(end):
            ends.append(end)
        elif template.mode == KernelMode.TRANSPORT and _is_host(prefix):
            ends.append(prefix.address)
        else:
            raise PolicyNotMirroredError("its template leaves an address unspecified")
    return ends[0], ends[1]


def _discard_rule(policy: KernelPolicy) -> Rule:
    """Returns a rule that discards all packets that a policy might match."""
    try:
        ports = _ports(policy.selector)
    except PolicyNotMirroredError:
        ports = _Ports()
    return _selectors(policy, ports)


def _selectors(policy: KernelPolicy, ports: _Ports) -> Rule:
    """Returns a discard rule with a policy's selectors.

    The rule applies to one address family only, even if the policy's prefix is `0.0.0.0/0`.
    """
    selector = policy.selector
    return Rule(
        f"kernel-{_label(policy)}",
        Action.DISCARD,
        source=(prefix_range(selector.source),),
        destination=(prefix_range(selector.destination),),
        protocol=(selector.protocol,) if selector.protocol else None,
        source_port=ports.source,
        destination_port=ports.destination,
        icmp=ports.icmp,
        mobility_type=ports.mobility_type,
        scope=SCOPES[policy.direction],
    )


class _Ports(NamedTuple):
    source: tuple[NumberRange, ...] | None = None
    destination: tuple[NumberRange, ...] | None = None
    icmp: tuple[NumberRange, ...] | None = None
    mobility_type: tuple[NumberRange, ...] | None = None


def _ports(selector: KernelSelector) -> _Ports:
    """Returns a selector's ports, ICMP types and codes, or mobility types. Raises
    PolicyNotMirroredError."""
    if selector.source_port == selector.destination_port == ANY_PORT:
        return _Ports()
    if selector.protocol in PORT_PROTOCOLS:
        source, destination = (
            None if port == ANY_PORT else (_range(port),)
            for port in (selector.source_port, selector.destination_port)
        )
        return _Ports(source, destination)
    if selector.protocol in ICMP_PROTOCOLS:
        return _Ports(icmp=(_icmp(selector),))
    if selector.protocol == MOBILITY:
        return _Ports(mobility_type=_mobility_types(selector))
    raise PolicyNotMirroredError(f"it selects ports of IP protocol {selector.protocol}")


def _range(port: PortMatch) -> NumberRange:
    """Returns the ports that match under a mask. Raises PolicyNotMirroredError if they do not form
    a range."""
    open_bits = ~port.mask & 0xFFFF
    if open_bits & open_bits + 1:
        raise PolicyNotMirroredError(f"the mask {port.mask:#06x} of its ports is not a range")
    low = port.value & port.mask
    return NumberRange(low, low | open_bits)


def _icmp(selector: KernelSelector) -> NumberRange:
    types, codes = (
        ANY_OCTET if port == ANY_PORT else _range(port)
        for port in (selector.source_port, selector.destination_port)
    )
    if types.high > 0xFF or codes.high > 0xFF:
        raise PolicyNotMirroredError("its ICMP types or codes are above 255")
    if types.low != types.high and codes != ANY_OCTET:
        raise PolicyNotMirroredError("it selects codes of several ICMP types")
    return NumberRange(types.low << 8 | codes.low, types.high << 8 | codes.high)


def _mobility_types(selector: KernelSelector) -> tuple[NumberRange, ...] | None:
    """Returns the mobility types of a selector, or None for all types.

    The kernel treats the mobility type as source port, and 0 as destination port.
    """
    if selector.destination_port.value & selector.destination_port.mask:
        raise PolicyNotMirroredError(
            "it selects a destination port of the Mobility Header, which has none"
        )
    if selector.source_port == ANY_PORT:
        return None
    types = _range(selector.source_port)
    if types.high > 0xFF:
        raise PolicyNotMirroredError("its mobility types are above 255")
    return (types,)


def _default(direction: PolicyDirection, action: PolicyAction) -> Rule:
    """Returns the rule for packets that no policy matches."""
    return Rule(
        f"kernel-default-{direction.name.lower()}",
        Action.BYPASS if action is PolicyAction.ALLOW else Action.DISCARD,
        scope=SCOPES[direction],
        is_default=True,
    )


def _label(policy: KernelPolicy) -> str:
    """Returns a policy's direction and index, as in `ip -s xfrm policy`."""
    kind = "-sub" if policy.key.is_sub else ""
    return f"{policy.direction.name.lower()}-{policy.key.number}{kind}"


def selector_matches(selector: KernelSelector, flow: KernelSelector) -> bool:
    """Returns whether a policy's selector matches a packet. `flow` matches only this packet."""
    return (
        selector.source.covers(flow.source.address)
        and selector.destination.covers(flow.destination.address)
        and selector.protocol in (0, flow.protocol)
        and _port_matches(selector.source_port, flow.source_port)
        and _port_matches(selector.destination_port, flow.destination_port)
    )


def _port_matches(wanted: PortMatch, port: PortMatch) -> bool:
    return (wanted.value ^ port.value) & wanted.mask == 0
