# SPDX-License-Identifier: Apache-2.0
"""Finds effects of an SPD that its author may not intend. `sluice spd check` shows them as
warnings.

The policy of an interface also applies to the router's own packets. Only the rules for ND and IKE
are generated, so the operator must write rules for the sessions of routing daemons. If FRR's
configuration is known, each configured session is tested; otherwise there are no warnings about
sessions. A discard rule that also matches the ICMP errors of path MTU discovery makes TCP
connections hang, so it causes a warning too.

Pure; depends on policy.model, frr, sluice.model and state.rule_search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sluice.frr import BgpPeer, Routing
from sluice.model import Address, InterfaceAddress, Prefix, format_address, parse_address
from sluice.policy.model import (
    ICMP,
    ICMPV6,
    OPAQUE,
    PORT_PROTOCOLS,
    TCP,
    Action,
    Direction,
    NumberRange,
    Rule,
    Selectors,
)
from sluice.state.rule_search import first_match

RuleLists = Mapping[Direction, Sequence[Rule]]

BGP, OSPF = 179, 89
AN_EPHEMERAL_PORT = 40000
ALL_OSPF_ROUTERS = {4: parse_address("224.0.0.5"), 16: parse_address("ff02::5")}
LINK_LOCAL, LINK_LOCAL_PEER = parse_address("fe80::1"), parse_address("fe80::2")
OSPF_NAMES = {4: "OSPF", 16: "OSPFv3"}
TOO_BIG_ERRORS = (
    (ICMP, 3 << 8 | 4, "ICMP fragmentation needed (3/4)"),
    (ICMPV6, 2 << 8, "ICMPv6 packet too big (2)"),
)
TIME_EXCEEDED = (
    (ICMP, 11 << 8, "ICMP time exceeded (11)"),
    (ICMPV6, 3 << 8, "ICMPv6 time exceeded (3)"),
)


class GuardedInterface(NamedTuple):
    """An interface that the SPD guards."""

    name: str
    addresses: tuple[InterfaceAddress, ...]


class RuleContext(NamedTuple):
    """Holds what the warnings depend on in addition to the rules.

    - `own`: this router's addresses in the VRFs that the SPD guards.
    - `routing`: None if FRR's configuration is unknown.
    - `elsewhere`: the networks on interfaces that this SPD does not guard.
    - `are_errors_checked`: the SPD has `icmp_errors: checked`.
    """

    guarded: tuple[GuardedInterface, ...] = ()
    own: tuple[Address, ...] = ()
    routing: Routing | None = None
    elsewhere: tuple[Prefix, ...] = ()
    are_errors_checked: bool = False


def warnings(rules: RuleLists, context: RuleContext, spd: str) -> list[str]:
    """Returns the warnings about an SPD's rules, each as a sentence."""
    found = [*_configured_bgp(rules, context), *_configured_ospf(rules, context)]
    found += _path_mtu(rules, are_errors_checked=context.are_errors_checked)
    found += _traceroute(rules)
    for direction, listed in rules.items():
        if not any(rule.action is not Action.DISCARD and not rule.generated for rule in listed):
            found.append(f"the {direction.value} list discards everything")
    return [f"{spd}: {warning}" for warning in found]


# -- tests of packets


def _obstacle(rules: RuleLists, packet: Selectors) -> str | None:
    """Returns why an outgoing packet or its answer is discarded, or None if both pass."""
    answer = packet._replace(
        source=packet.destination,
        destination=packet.source,
        source_port=packet.destination_port,
        destination_port=packet.source_port,
    )
    return _discarded(rules, Direction.OUTBOUND, packet) or _discarded(
        rules, Direction.INBOUND, answer
    )


def _discarded(rules: RuleLists, direction: Direction, packet: Selectors) -> str | None:
    listed = rules.get(direction, ())
    at = first_match(listed, packet)
    if at is None:
        return f"no {direction.value} rule lets its packets pass"
    if listed[at].action is Action.DISCARD:
        return f"the {direction.value} rule {listed[at].name!r} discards its packets"
    return None


def _tcp(source: Address, destination: Address, ports: tuple[int, int]) -> Selectors:
    return Selectors(source, destination, TCP, *ports, None, is_own=True)


def _ospf(source: Address, destination: Address) -> Selectors:
    return Selectors(source, destination, OSPF, None, None, None, is_own=True)


# -- sessions that FRR is configured for


def _configured_bgp(rules: RuleLists, context: RuleContext) -> Iterator[str]:
    for peer in context.routing.speaking_peers() if context.routing else ():
        near = [*_on_link(peer, context)]
        for own, far in near:
            obstacle = _bgp_obstacle(rules, own, far, peer.port)
            if obstacle:
                yield _no_bgp(own, far, peer, obstacle)
        if (
            near
            or peer.address is None
            or any(_is_in(peer.address, net) for net in context.elsewhere)
        ):
            continue
        # A multihop peer may be reachable through any interface, so the session may use any source
        # address. There is no warning if one of them works.
        tried = [
            (own, _bgp_obstacle(rules, own, peer.address, peer.port))
            for own in _sources(peer, context)
        ]
        if tried and all(obstacle for _, obstacle in tried):
            own, obstacle = tried[0]
            yield _no_bgp(own, peer.address, peer, obstacle or "") + (
                ", if it uses an interface that this SPD guards"
            )


def _bgp_obstacle(rules: RuleLists, own: Address, far: Address, far_port: int) -> str | None:
    """Returns why the TCP connection of a BGP session cannot be opened.

    Returns None if at least one end can open it. `far_port` is the peer's listening port.
    """
    passive = _obstacle(rules, _tcp(own, far, (BGP, AN_EPHEMERAL_PORT)))
    active = _obstacle(rules, _tcp(own, far, (AN_EPHEMERAL_PORT, far_port)))
    return active if passive else None


def _no_bgp(own: Address, far: Address, peer: BgpPeer, obstacle: str) -> str:
    return (
        f"the BGP session {format_address(own)} - {format_address(far)} ({peer.where}) cannot come"
        f" up: {obstacle}; TCP port {peer.port} needs a bypass or protect rule in both lists"
    )


def _on_link(peer: BgpPeer, context: RuleContext) -> Iterator[tuple[Address, Address]]:
    """Yields (own address, peer address) for each guarded interface whose link the peer is on."""
    if peer.interface is not None:
        if any(one.name == peer.interface for one in context.guarded):
            yield LINK_LOCAL, LINK_LOCAL_PEER
        return
    far = peer.address
    if far is None:
        return
    if far[0] == 0xFE and len(far) == 16:
        yield LINK_LOCAL, far
        return
    for one in context.guarded:
        for address in one.addresses:
            if _is_in(far, address.prefix):
                yield address.address, far


def _sources(peer: BgpPeer, context: RuleContext) -> list[Address]:
    """Returns the possible source addresses of a session with a multihop peer."""
    far = peer.address or b""
    source = context.routing.bgp_sources.get(far) if context.routing else None
    if source is not None:
        return [source]
    guarded = (each.address for one in context.guarded for each in one.addresses)
    return [own for own in dict.fromkeys((*guarded, *context.own)) if len(own) == len(far)]


def _configured_ospf(rules: RuleLists, context: RuleContext) -> Iterator[str]:
    routing = context.routing or Routing()
    for one in context.guarded:
        for address in one.addresses:
            where = _ospf_on(routing, one.name, address)
            if where is not None and len(address.address) == 4:
                yield from _hello(rules, address, one.name, f" ({where})")
        where = routing.ospf6_interfaces.get(one.name)
        if where is not None and one.name not in routing.ospf6_passive:
            yield from _hello_ipv6(rules, one.name, f" ({where})")


def _ospf_on(routing: Routing, name: str, address: InterfaceAddress) -> str | None:
    if routing.is_ospf_passive(name):
        return None
    if name in routing.ospf_interfaces:
        return routing.ospf_interfaces[name]
    for where, network in routing.ospf_networks:
        if _is_in(address.address, network):
            return where
    return None


def _is_in(address: Address, prefix: Prefix) -> bool:
    same_family = len(address) == len(prefix.address)
    return same_family and Prefix.of(address, prefix.length) == prefix


def _hello(rules: RuleLists, address: InterfaceAddress, name: str, where: str) -> Iterator[str]:
    own = address.address
    # An address that a neighbour could have. If the link has only two addresses (RFC 3021), this is
    # the address that the router does not have.
    has_two = address.length == 8 * len(own) - 1
    peer = own[:-1] + bytes([own[-1] ^ 1 if has_two else own[-1] ^ 3 or 1])
    group = ALL_OSPF_ROUTERS[len(own)]
    obstacle = _discarded(rules, Direction.OUTBOUND, _ospf(own, group)) or _discarded(
        rules, Direction.INBOUND, _ospf(peer, group)
    )
    if obstacle:
        yield _no_ospf(OSPF_NAMES[len(own)], name, where, obstacle)


def _hello_ipv6(rules: RuleLists, name: str, where: str) -> Iterator[str]:
    yield from _hello(rules, InterfaceAddress(LINK_LOCAL, 64), name, where)


def _no_ospf(protocol: str, interface: str, where: str, obstacle: str) -> str:
    return (
        f"no {protocol} neighbour can come up on {interface}{where}: {obstacle}; `protocol: ospf`"
        " needs a bypass rule in both lists"
    )


# -- path MTU discovery


def _path_mtu(rules: RuleLists, *, are_errors_checked: bool) -> Iterator[str]:
    """Warns about lists that discard all ICMP errors of path MTU discovery.

    A rule may discard these errors, or no rule may match them. An error about a bypassed packet
    needs a bypass rule for the error itself. For inbound errors, `icmp_errors: checked` also
    suffices. An error about a protected packet needs no rule, because it is sent through the
    packet's bundle (RFC 4301, section 6).
    """
    for direction, listed in rules.items():
        for protocol, icmp, name in TOO_BIG_ERRORS:
            rule = _discarding(listed, protocol, icmp)
            if rule is not None:
                yield (
                    f"the {direction.value} rule {rule.name!r} discards every {name}, so that path"
                    " MTU discovery fails: put a rule for this error before that rule"
                )
            elif any(_bypasses_large(one, protocol) for one in listed) and not any(
                _lets_pass(one, protocol, icmp) for one in listed
            ):
                is_inbound = direction is Direction.INBOUND
                if is_inbound and are_errors_checked:
                    continue
                other = ", or `icmp_errors: checked` for the SPD" if is_inbound else ""
                yield (
                    f"no {direction.value} rule lets {name} pass, so that path MTU discovery fails"
                    f" for bypassed packets: write a bypass rule for this error{other}"
                )


def _traceroute(rules: RuleLists) -> Iterator[str]:
    """Warns if this router's answers to traceroute are discarded.

    The answers leave by the interface on which the probe arrived. Gives no warning for a list that
    discards everything, because `warnings` already reports such a list.
    """
    outbound = rules.get(Direction.OUTBOUND, ())
    lost = [
        name
        for protocol, icmp, name in TIME_EXCEEDED
        if any(_bypasses_large(one, protocol) for one in rules.get(Direction.INBOUND, ()))
        and not any(_lets_pass(one, protocol, icmp) for one in outbound)
    ]
    if lost and any(one.action is not Action.DISCARD and not one.generated for one in outbound):
        yield (
            f"no outbound rule lets this router's {' or '.join(lost)} pass, so that a traceroute"
            " through an interface that this SPD guards shows `*` for this router: write a bypass"
            " rule for this error"
        )


def _bypasses_large(rule: Rule, icmp_protocol: int) -> bool:
    """Returns whether a rule bypasses packets that may exceed the path MTU.

    Ignores rules that match only BGP, because BGP packets usually stay on one link.
    """
    if rule.generated or rule.action is not Action.BYPASS or not _has_family(rule, icmp_protocol):
        return False
    ports = (rule.source_port, rule.destination_port)
    if any(isinstance(one, tuple) and {*one} == {NumberRange(BGP, BGP)} for one in ports):
        return False
    return rule.protocol is None or (
        rule.protocol is not OPAQUE and not PORT_PROTOCOLS.isdisjoint(rule.protocol)
    )


def _has_family(rule: Rule, icmp_protocol: int) -> bool:
    size = 4 if icmp_protocol == ICMP else 16
    return all(
        ranges is None or any(len(low) == size for low, _ in ranges)
        for ranges in (rule.source, rule.destination)
    )


def _lets_pass(rule: Rule, protocol: int, icmp: int) -> bool:
    """Returns whether a rule passes some ICMP errors of this type about bypassed packets."""
    everywhere = rule.source is None and rule.destination is None
    passes = rule.action is Action.BYPASS or (rule.action is Action.PROTECT and everywhere)
    return passes and _touches(rule, protocol, icmp)


def _touches(rule: Rule, protocol: int, icmp: int) -> bool:
    """Returns whether a rule was written by the operator and matches some ICMP errors of this
    type."""
    accepts = rule.icmp is None or (
        rule.icmp is not OPAQUE and any(low <= icmp <= high for low, high in rule.icmp)
    )
    of_protocol = rule.protocol is None or (
        rule.protocol is not OPAQUE and protocol in rule.protocol
    )
    ports = (rule.source_port, rule.destination_port)
    return (
        accepts
        and of_protocol
        and not any(isinstance(one, tuple) for one in ports)
        and not rule.generated
        and _has_family(rule, protocol)
    )


def _discarding(rules: Iterable[Rule], protocol: int, icmp: int) -> Rule | None:
    """Returns the rule that discards all ICMP errors of this type, or None if some may pass."""
    for rule in rules:
        # Any router on a path may send such an error. A rule for certain source addresses affects
        # only some of the errors, so it is skipped.
        if not _touches(rule, protocol, icmp) or rule.source is not None:
            continue
        if rule.action is not Action.DISCARD:
            return None
        if rule.destination is None:
            return rule
    return None
