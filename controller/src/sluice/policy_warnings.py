# SPDX-License-Identifier: Apache-2.0
"""What an SPD does that its author may not mean: what `sluice spd check` warns of.

A router that guards its interfaces guards them against itself too. Sessions of its routing daemons
need rules like anybody's traffic (DESIGN: only ND and IKE have theirs generated), and a discard
rule that also meets the errors of path MTU discovery makes black holes. Where FRR's configuration
is known, its sessions are tried one by one; where it is not, whether any could come up.

Pure; depends on policy_model, frr, model and state.rule_search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sluice.frr import BgpPeer, Routing
from sluice.model import Address, InterfaceAddress, Prefix, format_address, parse_address
from sluice.policy_model import (
    ICMP,
    ICMPV6,
    OPAQUE,
    TCP,
    Action,
    AddressRange,
    Direction,
    Numbers,
    Rule,
    Selectors,
)
from sluice.state.rule_search import first_match

Rules = Mapping[Direction, Sequence[Rule]]

BGP, OSPF = 179, 89
FIRST_EPHEMERAL_PORT = 1024
AN_EPHEMERAL_PORT = 40000
ALL_OSPF_ROUTERS = {4: parse_address("224.0.0.5"), 16: parse_address("ff02::5")}
LINK_LOCAL, LINK_LOCAL_PEER = parse_address("fe80::1"), parse_address("fe80::2")
OSPF_NAMES = {4: "OSPF", 16: "OSPFv3"}
TOO_BIG_ERRORS = (
    (ICMP, 3 << 8 | 4, "ICMP fragmentation needed (3/4)"),
    (ICMPV6, 2 << 8, "ICMPv6 packet too big (2)"),
)


class Guarded(NamedTuple):
    """An interface that the SPD guards."""

    name: str
    addresses: tuple[InterfaceAddress, ...]


class Surroundings(NamedTuple):
    """What is known beside the rules. `own` are this router's addresses in the guarded VRFs;
    `routing` is None where nothing is known of FRR; `elsewhere` are the networks on interfaces that
    this SPD does not guard."""

    guarded: tuple[Guarded, ...] = ()
    own: tuple[Address, ...] = ()
    routing: Routing | None = None
    elsewhere: tuple[Prefix, ...] = ()


def warnings(rules: Rules, around: Surroundings, spd: str) -> list[str]:
    """Sentences, none where there is nothing to say."""
    if around.routing is None:
        found = [*_any_bgp(rules, around.own), *_any_ospf(rules, around)]
    else:
        found = [*_configured_bgp(rules, around), *_configured_ospf(rules, around)]
    found += _path_mtu(rules)
    for direction, listed in rules.items():
        if not any(rule.action is not Action.DISCARD and not rule.generated for rule in listed):
            found.append(f"the {direction.value} list discards everything")
    return [f"{spd}: {warning}" for warning in found]


# -- packets tried


def _obstacle(rules: Rules, packet: Selectors) -> str | None:
    """Who discards a packet that leaves, or its answer; None where both pass."""
    answer = packet._replace(
        source=packet.destination,
        destination=packet.source,
        source_port=packet.destination_port,
        destination_port=packet.source_port,
    )
    return _discarded(rules, Direction.OUTBOUND, packet) or _discarded(
        rules, Direction.INBOUND, answer
    )


def _discarded(rules: Rules, direction: Direction, packet: Selectors) -> str | None:
    listed = rules.get(direction, ())
    at = first_match(listed, packet)
    if at is None:
        return f"no {direction.value} rule lets it pass"
    if listed[at].action is Action.DISCARD:
        return f"the {direction.value} rule {listed[at].name!r} discards it"
    return None


def _tcp(source: Address, destination: Address, ports: tuple[int, int]) -> Selectors:
    return Selectors(source, destination, TCP, *ports, None, is_own=True)


def _ospf(source: Address, destination: Address) -> Selectors:
    return Selectors(source, destination, OSPF, None, None, None, is_own=True)


# -- sessions that FRR is configured for


def _configured_bgp(rules: Rules, around: Surroundings) -> Iterator[str]:
    for peer in around.routing.peers if around.routing else ():
        near = [*_on_link(peer, around)]
        for own, far in near:
            obstacle = _bgp_obstacle(rules, own, far)
            if obstacle:
                yield _no_bgp(own, far, peer, obstacle)
        if (
            near
            or peer.address is None
            or any(_is_in(peer.address, net) for net in around.elsewhere)
        ):
            continue
        # Several hops away, by whichever interface: one address that gets through will do.
        tried = [(own, _bgp_obstacle(rules, own, peer.address)) for own in _sources(peer, around)]
        if tried and all(obstacle for _, obstacle in tried):
            own, obstacle = tried[0]
            yield _no_bgp(own, peer.address, peer, obstacle or "") + (
                ", if it goes by an interface that this SPD guards"
            )


def _bgp_obstacle(rules: Rules, own: Address, far: Address) -> str | None:
    """Why neither end can open the session; None if one can."""
    passive = _obstacle(rules, _tcp(own, far, (BGP, AN_EPHEMERAL_PORT)))
    active = _obstacle(rules, _tcp(own, far, (AN_EPHEMERAL_PORT, BGP)))
    return active if passive else None


def _no_bgp(own: Address, far: Address, peer: BgpPeer, obstacle: str) -> str:
    return (
        f"the BGP session {format_address(own)} - {format_address(far)} ({peer.where}) cannot come"
        f" up: {obstacle}; TCP port {BGP} needs a bypass or protect rule in both lists"
    )


def _on_link(peer: BgpPeer, around: Surroundings) -> Iterator[tuple[Address, Address]]:
    """Our address and theirs, if the peer is on the link of a guarded interface."""
    if peer.interface is not None:
        if any(one.name == peer.interface for one in around.guarded):
            yield LINK_LOCAL, LINK_LOCAL_PEER
        return
    far = peer.address
    if far is None:
        return
    if far[0] == 0xFE and len(far) == 16:
        yield LINK_LOCAL, far
        return
    for one in around.guarded:
        for address in one.addresses:
            if _is_in(far, address.prefix):
                yield address.address, far


def _sources(peer: BgpPeer, around: Surroundings) -> list[Address]:
    """The addresses that a session with a peer several hops away may come from."""
    far = peer.address or b""
    source = around.routing.bgp_sources.get(far) if around.routing else None
    if source is not None:
        return [source]
    guarded = (each.address for one in around.guarded for each in one.addresses)
    return [own for own in dict.fromkeys((*guarded, *around.own)) if len(own) == len(far)]


def _configured_ospf(rules: Rules, around: Surroundings) -> Iterator[str]:
    routing = around.routing or Routing()
    for one in around.guarded:
        for address in one.addresses:
            where = _ospf_on(routing, one.name, address)
            if where is not None and len(address.address) == 4:
                yield from _hello(rules, address, one.name, f" ({where})")
        where = routing.ospf6_interfaces.get(one.name)
        if where is not None:
            yield from _hello_ipv6(rules, one.name, f" ({where})")


def _ospf_on(routing: Routing, name: str, address: InterfaceAddress) -> str | None:
    if name in routing.ospf_interfaces:
        return routing.ospf_interfaces[name]
    for where, network in routing.ospf_networks:
        if _is_in(address.address, network):
            return where
    return None


def _is_in(address: Address, prefix: Prefix) -> bool:
    same_family = len(address) == len(prefix.address)
    return same_family and Prefix.of(address, prefix.length) == prefix


def _hello(rules: Rules, address: InterfaceAddress, name: str, where: str) -> Iterator[str]:
    own = address.address
    peer = own[:-1] + bytes([own[-1] ^ 3 or 1])  # somebody else on the link
    group = ALL_OSPF_ROUTERS[len(own)]
    obstacle = _discarded(rules, Direction.OUTBOUND, _ospf(own, group)) or _discarded(
        rules, Direction.INBOUND, _ospf(peer, group)
    )
    if obstacle:
        yield _no_ospf(OSPF_NAMES[len(own)], name, where, obstacle)


def _hello_ipv6(rules: Rules, name: str, where: str) -> Iterator[str]:
    yield from _hello(rules, InterfaceAddress(LINK_LOCAL, 64), name, where)


def _no_ospf(protocol: str, interface: str, where: str, obstacle: str) -> str:
    return (
        f"no {protocol} neighbour can come up by {interface}{where}: {obstacle}; `protocol: ospf`"
        " needs a bypass rule in both lists"
    )


# -- sessions that FRR might be configured for


def _any_ospf(rules: Rules, around: Surroundings) -> Iterator[str]:
    for one in around.guarded or (Guarded("any interface", ()),):
        addresses = [each for each in one.addresses if len(each.address) == 4]
        for address in addresses[:1]:
            yield from _hello(rules, address, one.name, "")
        if len(addresses) < len(one.addresses):
            yield from _hello_ipv6(rules, one.name, "")
    if not around.guarded and not any(
        rule.action is not Action.DISCARD and (rule.protocol is None or OSPF in rule.protocol)
        for listed in rules.values()
        for rule in listed
    ):
        yield _no_ospf("OSPF", "any interface", "", "no rule lets its hello pass")


class _Shape(NamedTuple):
    """Packets of a TCP session seen from this router; a port that is None is an ephemeral one,
    an address that is None any."""

    own: AddressRange | None
    own_port: int | None
    peer_port: int | None


def _any_bgp(rules: Rules, own: Iterable[Address]) -> Iterator[str]:
    ranges: list[AddressRange | None] = [AddressRange(one, one) for one in sorted(set(own))]
    for one in ranges or [None]:
        shapes = _Shape(one, BGP, None), _Shape(one, None, BGP)
        if not any(_passes_both(rules, shape) for shape in shapes):
            whose = f" of {one}" if one else ""
            yield (
                f"no BGP session{whose} can come up: TCP port {BGP} needs a bypass or protect rule"
                " in both lists"
            )


def _passes_both(rules: Rules, shape: _Shape) -> bool:
    return all(_passes(rules.get(direction, ()), direction, shape) for direction in Direction)


def _passes(rules: Iterable[Rule], direction: Direction, shape: _Shape) -> bool:
    """Whether some such packet is bypassed or protected: searched in order."""
    for rule in rules:
        ends = (rule.source, rule.source_port), (rule.destination, rule.destination_port)
        own, peer = ends if direction is Direction.OUTBOUND else reversed(ends)
        touches = (
            (rule.protocol is None or TCP in rule.protocol)
            and _holds(own[0], shape.own)
            and _accepts(own[1], shape.own_port)
            and _accepts(peer[1], shape.peer_port)
            and _of_one_family(peer[0], shape.own)
            and not isinstance(rule.icmp, tuple)
        )
        if touches and rule.action is not Action.DISCARD:
            return True
        if touches and peer[0] is None and own[1] is None and peer[1] is None:
            return False  # discarded whoever the peer is
    return False


def _holds(ranges: tuple[AddressRange, ...] | None, own: AddressRange | None) -> bool:
    return (
        ranges is None
        or own is None
        or any(len(low) == len(own.low) and low <= own.low <= high for low, high in ranges)
    )


def _of_one_family(ranges: tuple[AddressRange, ...] | None, own: AddressRange | None) -> bool:
    return ranges is None or own is None or any(len(low) == len(own.low) for low, _ in ranges)


def _accepts(numbers: Numbers, port: int | None) -> bool:
    if numbers is None:
        return True
    if numbers is OPAQUE:
        return False
    if port is None:
        return any(high >= FIRST_EPHEMERAL_PORT for _, high in numbers)
    return any(low <= port <= high for low, high in numbers)


# -- path MTU discovery


def _path_mtu(rules: Rules) -> Iterator[str]:
    """An error that no rule matches goes by the packet that it is about (RFC 4301, section 6); one
    that a discard rule matches is lost."""
    for direction, listed in rules.items():
        for protocol, icmp, name in TOO_BIG_ERRORS:
            rule = _discarding(listed, protocol, icmp)
            if rule is not None:
                yield (
                    f"the {direction.value} rule {rule.name!r} discards every {name}, so that path"
                    " MTU discovery fails: put a rule for it before, or leave what no rule matches"
                    " to the end of the list"
                )


def _discarding(rules: Iterable[Rule], protocol: int, icmp: int) -> Rule | None:
    """The rule that discards all of these, whatever their addresses."""
    size = 4 if protocol == ICMP else 16
    for rule in rules:
        touches = (
            (rule.protocol is None or protocol in rule.protocol)
            and _accepts(rule.icmp, icmp)
            and rule.source_port is None
            and rule.destination_port is None
            and all(
                ranges is None or any(len(low) == size for low, _ in ranges)
                for ranges in (rule.source, rule.destination)
            )
        )
        # Any router on the way may send one: a rule for some sources only settles nothing.
        if not touches or rule.generated or rule.source is not None:
            continue
        if rule.action is not Action.DISCARD:
            return None
        if rule.destination is None:
            return rule
    return None
