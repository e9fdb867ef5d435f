# SPDX-License-Identifier: Apache-2.0
"""Generates ordered lists of rules, writes them as YAML, and searches them linearly (RFC 4301,
4.4.1).

`search` is the specification of a lookup, written as a loop. If a packet does not contain a
selector, the selector is UNKNOWN: for example the ports of a later fragment whose first fragment is
missing. The search then returns every verdict that the whole datagram could get.
"""

import ipaddress
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any, NamedTuple

from . import plan
from .plan import packed
from .wire import ESP, GRE, ICMP, ICMPV6, SCTP, TCP, UDP

NAMES = {
    TCP: "tcp",
    UDP: "udp",
    SCTP: "sctp",
    ICMP: "icmp",
    ICMPV6: "icmpv6",
    GRE: "gre",
    ESP: "esp",
}
PORTS = (53, 500, 4500, 7000, 7001, 7002, 7003, 65535)
ICMP_TYPES = {ICMP: (0, 3, 5, 8, 11, 12, 13), ICMPV6: (1, 2, 3, 4, 128, 129, 133, 135, 136)}
ND_TYPES = range(133, 138)
OTHER_PROTOCOLS = (GRE, ESP, 253, 89)
SENTINEL = "sentinel"


class _Unknown:
    """Type of UNKNOWN, the value of a selector that the packet does not contain."""


class _Opaque:
    """Type of OPAQUE, the value in a rule that matches only packets without this selector."""


UNKNOWN, OPAQUE = _Unknown(), _Opaque()


class Seen(NamedTuple):
    """Holds the selectors of a packet, for a search. None: the packet has no such selector."""

    source: bytes
    destination: bytes
    protocol: int | _Unknown | None
    source_port: int | _Unknown | None = None
    destination_port: int | _Unknown | None = None
    icmp: int | _Unknown | None = None

    def reversed(self) -> "Seen":
        """Returns the selectors of an answer to this packet: source and destination are
        exchanged.
        """
        return Seen(
            self.destination,
            self.source,
            self.protocol,
            self.destination_port,
            self.source_port,
            self.icmp,
        )


class Verdict(NamedTuple):
    """Holds the verdict of a rule. `bundle` is 0 unless the action is protect. `final` is true for
    the default verdict, when no rule matched.
    """

    action: str
    bundle: int = 0
    final: bool = False


FINAL = Verdict("discard", 0, True)
BYPASS, DISCARD = Verdict("bypass"), Verdict("discard")
Ranges = tuple[tuple[int, int], ...]
Numbers = Ranges | _Opaque | None


@dataclass(frozen=True)
class Rule:
    """Holds one rule of a list.

    A selector that is None matches anything. Addresses are ranges, all of one family. `icmp` holds
    ranges of type << 8 | code.
    """

    name: str
    verdict: Verdict
    source: tuple[tuple[bytes, bytes], ...] | None = None
    destination: tuple[tuple[bytes, bytes], ...] | None = None
    protocols: tuple[int, ...] | _Opaque | None = None
    source_ports: Numbers = None
    destination_ports: Numbers = None
    icmp: Numbers = None

    @property
    def is_sentinels(self) -> bool:
        """Whether the rule exists only for sentinels."""
        return self.name.startswith(SENTINEL)

    def matches(self, seen: Seen) -> bool | None:
        """Returns whether the rule matches. None if the answer depends on an UNKNOWN selector."""
        found = (
            _in_addresses(seen.source, self.source),
            _in_addresses(seen.destination, self.destination),
            _in_protocols(seen.protocol, self.protocols),
            _in_numbers(seen.source_port, self.source_ports),
            _in_numbers(seen.destination_port, self.destination_ports),
            _in_numbers(seen.icmp, self.icmp),
        )
        if False in found:
            return False
        return None if None in found else True

    def as_text(self) -> dict[str, Any]:
        """Returns the rule in the YAML form that an operator writes."""
        text: dict[str, Any] = {"name": self.name, "action": self.verdict.action}
        if self.verdict.bundle:
            text["bundle"] = plan.BUNDLES[self.verdict.bundle].name
        for key, addresses in (("source", self.source), ("destination", self.destination)):
            if addresses is not None:
                text[key] = [_range_text(low, high) for low, high in addresses]
        ports = ("source_ports", self.source_ports), ("destination_ports", self.destination_ports)
        for key, asked in (("protocol", self.protocols), *ports, ("icmp", self.icmp)):
            if isinstance(asked, _Opaque):
                text[key] = "opaque"
        if isinstance(self.protocols, tuple):
            text["protocol"] = [NAMES.get(one, one) for one in self.protocols]
        for key, numbers in ports:
            if isinstance(numbers, tuple):
                text[key] = [low if low == high else f"{low}-{high}" for low, high in numbers]
        if isinstance(self.icmp, tuple):
            text["icmp"] = [
                f"{low >> 8}/{low & 0xFF}" if low == high else low >> 8 for low, high in self.icmp
            ]
        return text


def _in_addresses(address: bytes, ranges: tuple[tuple[bytes, bytes], ...] | None) -> bool:
    if ranges is None:
        return True
    return any(len(low) == len(address) and low <= address <= high for low, high in ranges)


def _in_protocols(
    protocol: int | _Unknown | None, protocols: tuple[int, ...] | _Opaque | None
) -> bool | None:
    if protocols is None:
        return True
    if isinstance(protocols, _Opaque):
        return protocol is None or isinstance(protocol, _Unknown)
    return None if isinstance(protocol, _Unknown) else protocol in protocols


def _in_numbers(number: int | _Unknown | None, numbers: Numbers) -> bool | None:
    """Returns whether a number is in the ranges. None if the number is UNKNOWN.

    If the ranges are OPAQUE, only a missing or UNKNOWN number matches.
    """
    if numbers is None:
        return True
    if isinstance(numbers, _Opaque):
        return number is None or isinstance(number, _Unknown)
    if isinstance(number, _Unknown):
        return None
    return number is not None and any(low <= number <= high for low, high in numbers)


def _range_text(low: bytes, high: bytes) -> str:
    first, last = ipaddress.ip_address(low), ipaddress.ip_address(high)
    return str(first) if low == high else f"{first}-{last}"


def search(rules: tuple[Rule, ...], seen: Seen, own: Seen | None = None) -> frozenset[Verdict]:
    """Returns the verdict of the first matching rule, or FINAL if no rule matches.

    If the match depends on UNKNOWN selectors, returns all possible verdicts. For a later fragment,
    `seen` holds the selectors of its first fragment, and `own` those of the later fragment itself.
    The first rule that matches `seen` or `own` applies.
    """
    found: set[Verdict] = set()
    for rule in rules:
        matches = rule.matches(seen)
        if own is not None and rule.matches(own):
            matches = True
        if matches is not False:
            found.add(rule.verdict)
        if matches:
            return frozenset(found)
    return frozenset(found | {FINAL})


@dataclass(frozen=True)
class Spd:
    """Holds two ordered lists. With `errors_checked`, the quoted packet decides about an inbound
    ICMP error that no rule matches.
    """

    name: str
    inbound: tuple[Rule, ...] = ()
    outbound: tuple[Rule, ...] = ()
    errors_checked: bool = False

    def as_text(self) -> dict[str, Any]:
        """Returns the SPD in the YAML form that an operator writes."""
        return {
            "spd": self.name,
            "inbound": [rule.as_text() for rule in self.inbound],
            "outbound": [rule.as_text() for rule in self.outbound],
        }


@dataclass(frozen=True)
class Policy:
    """Holds all SPDs, by name."""

    spds: dict[str, Spd] = field(default_factory=dict)

    def of_link(self, link: plan.Link) -> Spd | None:
        """Returns the SPD that guards a link, or None if the link has none."""
        return None if link.spd is None else self.spds[link.spd]


def _generated(direction: str) -> tuple[Rule, ...]:
    """Returns the generated rules for the router's own neighbour discovery and IKE.

    For packets from or to the router itself, they precede the rules of every list.
    """
    own = tuple((one, one) for one in sorted(plan.OWN))
    six = tuple(pair for pair in own if len(pair[0]) == 16)
    four = tuple(pair for pair in own if len(pair[0]) == 4)
    link_local = (packed("fe80::"), packed("febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"))
    nd_types = ((ND_TYPES[0] << 8, ND_TYPES[-1] << 8 | 0xFF),)
    nd = Rule("nd", BYPASS, protocols=(ICMPV6,), icmp=nd_types)
    ike = ((500, 500), (4500, 4500))
    ike4, ike6 = (Rule(f"ike{n}", BYPASS, protocols=(UDP,)) for n in (4, 6))
    if direction == "inbound":
        groups = (
            (packed("ff02::1"), packed("ff02::2")),
            (packed("ff02::1:ff00:0"), packed("ff02::1:ffff:ffff")),
        )
        return (
            _with(nd, destination=(*six, link_local, *groups)),
            _with(ike4, destination=four, destination_ports=ike),
            _with(ike6, destination=six, destination_ports=ike),
        )
    return (
        _with(nd, source=(*six, link_local, (bytes(16), bytes(16)))),
        _with(ike4, source=four, source_ports=ike),
        _with(ike6, source=six, source_ports=ike),
    )


def _with(rule: Rule, **changes: Any) -> Rule:
    return Rule(**(rule.__dict__ | changes))


GENERATED = {direction: _generated(direction) for direction in ("inbound", "outbound")}


# -- random rules


def random_policy(random: Random) -> Policy:
    """Returns random SPDs for all guarded links."""
    return Policy({name: random_spd(random, name) for name in plan.SPDS})


def random_spd(random: Random, name: str) -> Spd:
    """Returns an SPD with two random lists. Each has the rules for sentinels, then up to twelve
    random rules.
    """
    return Spd(
        name,
        (*_sentinels(name, inbound=True), *_random_list(random, name, inbound=True)),
        (*_sentinels(name, inbound=False), *_random_list(random, name, inbound=False)),
        errors_checked=name in plan.ERRORS_CHECKED,
    )


def edited(random: Random, policy: Policy) -> Policy:
    """Returns the policy after one or two edits: a rule is added, removed or moved, or gets another
    verdict.
    """
    spds = dict(policy.spds)
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(plan.SPDS)
        spd = spds[name]
        if random.random() < 0.5:
            spds[name] = replace(spd, inbound=_edit(random, name, True, spd.inbound))
        else:
            spds[name] = replace(spd, outbound=_edit(random, name, False, spd.outbound))
    return Policy(spds)


def _edit(random: Random, spd: str, inbound: bool, before: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Makes one edit after the rules for sentinels. An added rule gets an unused name."""
    rules = list(before)
    first = sum(rule.is_sentinels for rule in rules)
    kind = random.choice(("add", "remove", "move", "turn")) if len(rules) > first else "add"
    if kind == "add":
        taken = {rule.name for rule in rules}
        name = next(f"edit{n}" for n in count() if f"edit{n}" not in taken)
        rules.insert(random.randint(first, len(rules)), _random_rule(random, name, spd, inbound))
        return tuple(rules)
    rule = rules.pop(random.randrange(first, len(rules)))
    if kind == "move":
        rules.insert(random.randint(first, len(rules)), rule)
    elif kind == "turn":
        turned = replace(rule, verdict=_random_verdict(random, spd))
        rules.insert(random.randint(first, len(rules)), turned)
    return tuple(rules)


def _sentinels(spd: str, inbound: bool) -> tuple[Rule, ...]:
    """Returns the rules that let sentinels pass. Each bundle has a host whose sentinels it must
    carry. All other sentinels pass in clear.
    """
    home, rules = plan.BY_SPD[spd], []
    for bundle in plan.BUNDLES.values():
        if bundle.spd == spd:
            end = _host(home, bundle.number)
            rule = Rule(f"{SENTINEL}{bundle.number}", Verdict("protect", bundle.number))
            rule = replace(rule, protocols=(plan.SENTINEL_PROTOCOL,))
            rules.append(_with(rule, **{"source" if inbound else "destination": (end,)}))
    numbers = range(len(plan.BUNDLES) + 1)
    ends = tuple(_host(link, number) for link in plan.LINKS.values() for number in numbers)
    clear = Rule(SENTINEL, BYPASS, source=ends, protocols=(plan.SENTINEL_PROTOCOL,))
    return (*rules, clear)


def _host(link: plan.Link, bundle: int) -> tuple[bytes, bytes]:
    address = packed(link.host(4, plan.SENTINEL_HOST + bundle))
    return address, address


def _random_list(random: Random, spd: str, inbound: bool) -> tuple[Rule, ...]:
    rules = [_random_rule(random, f"rule{n}", spd, inbound) for n in range(random.randint(1, 11))]
    if random.random() < 0.6:  # a final rule for all packets, which later fragments may match
        version = random.choice((4, 6, None))
        addresses = None if version is None else _everything(version)
        rules.append(Rule("rest", _random_verdict(random, spd), source=addresses))
    return tuple(rules)


def _everything(version: int) -> tuple[tuple[bytes, bytes], ...]:
    size = 4 if version == 4 else 16
    return ((bytes(size), b"\xff" * size),)


def _random_verdict(random: Random, spd: str) -> Verdict:
    action = random.choices(("bypass", "discard", "protect"), (5, 3, 4))[0]
    if action != "protect":
        return Verdict(action)
    bundles = [one.number for one in plan.BUNDLES.values() if one.spd == spd]
    weights = [1 if plan.BUNDLES[one].local is None else 5 for one in bundles]
    return Verdict("protect", random.choices(bundles, weights)[0])


def _random_rule(random: Random, name: str, spd: str, inbound: bool) -> Rule:
    version = random.choice((4, 4, 6, 6, None))
    here = [plan.BY_SPD[spd]]
    there = [link for link in plan.LINKS.values() if link not in here]
    ends = (here, there) if inbound else (there, here)
    source, destination = (
        None if version is None or random.random() < 0.35 else _addresses(random, version, links)
        for links in ends
    )
    kind = random.choices(("any", "ports", "icmp", "other", "opaque"), (3, 6, 2, 2, 1))[0]
    rule = Rule(name, _random_verdict(random, spd), source, destination)
    if kind == "ports":
        count = 1 if random.random() < 0.8 else 2
        rule = _with(rule, protocols=tuple(random.sample((UDP, UDP, TCP, SCTP), count)))
        if random.random() < 0.8:
            rule = _with(rule, destination_ports=_ports(random))
        if random.random() < 0.3:
            rule = _with(rule, source_ports=_ports(random))
    elif kind == "icmp":
        protocol = random.choice((ICMP, ICMPV6))
        rule = _with(rule, protocols=(protocol,))
        if random.random() < 0.75:
            rule = _with(rule, icmp=_types(random, protocol))
    elif kind == "other":
        rule = _with(rule, protocols=(random.choice(OTHER_PROTOCOLS),))
    elif kind == "opaque":
        rule = _opaque(random, rule)
    return rule


def _opaque(random: Random, rule: Rule) -> Rule:
    """Changes a rule so that it matches only packets without ports, without ICMP type, or without
    protocol.
    """
    kind = random.choice(("destination_ports", "source_ports", "icmp", "protocols"))
    if kind != "protocols" and random.random() < 0.7:
        protocol = ICMP if kind == "icmp" else random.choice((UDP, TCP))
        rule = _with(rule, protocols=(protocol,))
    return _with(rule, **{kind: OPAQUE})


def _ports(random: Random) -> Ranges:
    found = []
    for _ in range(random.choice((1, 1, 2))):
        low = random.choice(PORTS)
        found.append(
            (low, low if random.random() < 0.7 else min(low + random.randint(1, 3), 65535))
        )
    return tuple(found)


def _types(random: Random, protocol: int) -> Ranges:
    found = []
    for _ in range(random.choice((1, 1, 2))):
        kind = random.choice(ICMP_TYPES[protocol])
        code = random.choice((0, 1, 4))
        whole = kind << 8, kind << 8 | 0xFF
        found.append(whole if random.random() < 0.6 else (kind << 8 | code, kind << 8 | code))
    return tuple(found)


def _addresses(
    random: Random, version: int, links: list[plan.Link]
) -> tuple[tuple[bytes, bytes], ...]:
    link = random.choice(links)
    if random.random() < 0.15:  # sometimes also packets to the router itself
        own = packed(link.own(version))
        return ((own, own),)
    if random.random() < 0.5:
        network = ipaddress.ip_network(link.site(version))
        return ((network[0].packed, network[-1].packed),)
    low = random.choice(plan.HOSTS)
    high = random.randint(low, plan.HOSTS[-1]) if random.random() < 0.5 else low
    return ((packed(link.host(version, low)), packed(link.host(version, high))),)
