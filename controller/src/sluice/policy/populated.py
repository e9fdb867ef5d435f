# SPDX-License-Identifier: Apache-2.0
"""Populates selectors from packets (RFC 4301, 4.4.1.2): gives each set of values its own SAs.

A rule with `from_packet` names selectors. Each SA of its bundle then carries only packets with
equal values of these selectors. Such a set of values makes an **instance** of the bundle, with a
bundle number and SAs of its own. An SA names its instance by the values of the packets that it
carries (`traffic` in the configuration).

`with_instances` inserts instances into an ordered list: in front of each rule with `from_packet`,
one rule for each instance that fits the rule. The inserted rule matches the packets with the
instance's values and names the instance's bundle. So the ordered search, its index, the flow cache
and the rule tables need no knowledge of instances. The rule with `from_packet` then matches only
packets without an instance. It names a bundle that never has an SA, so the switch drops these
packets as NO_SA.

Names of instances' bundles have a space and a parenthesis, which no configured name has. Pure;
depends on policy.model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from sluice.model import Address, format_address, parse_address
from sluice.policy.model import (
    ICMP_PROTOCOLS,
    MOBILITY_PROTOCOLS,
    OPAQUE,
    PORT_PROTOCOLS,
    PROTOCOLS,
    AddressRange,
    Direction,
    NumberRange,
    Numbers,
    Opaque,
    Protocols,
    Rule,
    Selectors,
)

FIELDS = {
    "source": "source",
    "destination": "destination",
    "protocol": "protocol",
    "source_ports": "source_port",
    "destination_ports": "destination_port",
    "icmp": "icmp",
    "mobility_types": "mobility_type",
}
"""The selectors that can be populated, by the names that SPD files use. Maps each name to the field
of `Rule` and `Selectors`."""
NUMBERED = {
    "source_ports": PORT_PROTOCOLS,
    "destination_ports": PORT_PROTOCOLS,
    "icmp": ICMP_PROTOCOLS,
    "mobility_types": MOBILITY_PROTOCOLS,
}
"""The selectors that only some protocols have, with these protocols."""
LATER_FRAGMENTS_LACK = frozenset(NUMBERED)
"""The selectors that later fragments have in neither address family."""

_PROTOCOL_NAMES = {number: name for name, number in PROTOCOLS.items()}
_OPENING, _NO_SA = " (", " (no SA)"

NumberValue: TypeAlias = int | Opaque | None
"""A value; OPAQUE if the packets do not show this selector; None if it is not populated."""


class Populated(NamedTuple):
    """Holds a set of populated values. A selector that is None is not populated.

    `icmp` is type << 8 | code. The value OPAQUE means that the packets do not show this selector.
    """

    source: Address | None = None
    destination: Address | None = None
    protocol: NumberValue = None
    source_ports: NumberValue = None
    destination_ports: NumberValue = None
    icmp: NumberValue = None
    mobility_types: NumberValue = None

    @property
    def selectors(self) -> tuple[str, ...]:
        """The populated selectors, in the order of `FIELDS`."""
        return tuple(name for name in self._fields if getattr(self, name) is not None)

    def turned(self) -> Populated:
        """Returns the values of packets in the opposite direction: source and destination
        exchanged."""
        return self._replace(
            source=self.destination,
            destination=self.source,
            source_ports=self.destination_ports,
            destination_ports=self.source_ports,
        )

    def __str__(self) -> str:
        """Formats the values, like `udp 10.1.0.10:5000 > 10.2.0.9:7000`. Different values have
        different texts. A `*` stands for an address that is not populated."""
        words = [] if self.protocol is None else [_protocol_text(self.protocol)]
        words += [
            _end(self.source, self.source_ports),
            ">",
            _end(self.destination, self.destination_ports),
        ]
        if self.icmp is not None:
            words.append(f"icmp {icmp_value_text(self.icmp)}")
        if self.mobility_types is not None:
            words.append(f"mobility {_text(self.mobility_types)}")
        return " ".join(words)


def _end(address: Address | None, port: NumberValue) -> str:
    host = "*" if address is None else format_address(address)
    if port is None:
        return host
    return f"[{host}]:{_text(port)}" if ":" in host else f"{host}:{_text(port)}"


def _protocol_text(value: int | Opaque) -> str:
    return "opaque" if isinstance(value, Opaque) else _PROTOCOL_NAMES.get(value, str(value))


def icmp_value_text(value: int | Opaque) -> str:
    """Formats an ICMP type and code, like `8/0`."""
    return "opaque" if isinstance(value, Opaque) else f"{value >> 8}/{value & 0xFF}"


def _text(value: int | Opaque) -> str:
    return "opaque" if isinstance(value, Opaque) else str(value)


class Instance(NamedTuple):
    """Identifies an instance of a bundle. `values` are those of outbound packets."""

    bundle: str
    values: Populated

    @property
    def name(self) -> str:
        """The name of the instance's bundle."""
        return f"{self.bundle}{_OPENING}{self.values})"


Instances: TypeAlias = Mapping[str, Sequence[Instance]]
"""The instances of each bundle, by the bundle's name, in the order of `ordered`."""


def without_sa(bundle: str) -> str:
    """Returns the name of the bundle for packets of a rule with `from_packet` that belong to no
    instance. This bundle never has an SA."""
    return f"{bundle}{_NO_SA}"


def is_without_sa(name: str) -> bool:
    """Returns whether `name` is that of a bundle that never has an SA."""
    return name.endswith(_NO_SA)


def named_bundle(name: str) -> str:
    """Returns the name of the configured bundle, given the name of an instance's bundle or of a
    bundle without SA. Returns any other name unchanged."""
    return name.partition(_OPENING)[0]


def populate(from_packet: Iterable[str], packet: Selectors) -> Populated:
    """Returns the values of a packet for these selectors."""
    values: dict[str, Any] = {}
    for name in from_packet:
        value = getattr(packet, FIELDS[name])
        values[name] = OPAQUE if value is None else value
    return Populated(**values)


def ordered(instances: Iterable[Instance]) -> dict[str, tuple[Instance, ...]]:
    """Groups instances by bundle.

    Order: instances with an opaque value come last. A later fragment matches an instance with ports
    only through its datagram's first fragment, and such an instance must win. The order depends
    only on the instances, so that a restart makes the same lists.
    """
    found: dict[str, list[Instance]] = {}
    for one in instances:
        found.setdefault(one.bundle, []).append(one)
    return {bundle: tuple(sorted(found[bundle], key=_rank)) for bundle in sorted(found)}


def _rank(instance: Instance) -> tuple[int, str]:
    return sum(value is OPAQUE for value in instance.values), str(instance.values)


def with_instances(
    rules: Iterable[Rule], direction: Direction, instances: Instances
) -> Iterator[Rule]:
    """Yields the rules of a list, with the rules of instances inserted."""
    for rule in rules:
        if not rule.from_packet or rule.bundle is None:
            yield rule
            continue
        for instance in instances.get(rule.bundle, ()):
            made = _instance_rule(rule, direction, instance)
            if made is not None:
                yield made
        yield rule._replace(bundle=without_sa(rule.bundle))


def as_written(rule: Rule) -> Rule:
    """Returns a rule as the operator wrote it: undoes the change of `with_instances` to a rule with
    `from_packet`. Returns any other rule unchanged."""
    if not rule.from_packet or rule.bundle is None:
        return rule
    return rule._replace(bundle=named_bundle(rule.bundle))


def _instance_rule(rule: Rule, direction: Direction, instance: Instance) -> Rule | None:
    """Returns the rule for the packets of an instance, or None if `rule` matches none of them."""
    values = instance.values
    if direction is Direction.INBOUND:
        values = values.turned()
    if values.selectors != rule.from_packet:
        return None
    try:
        made = rule._replace(
            name=f"{rule.name}:{values}",
            bundle=instance.name,
            source=_only_address(rule.source, values.source),
            destination=_only_address(rule.destination, values.destination),
            protocol=_only_protocol(rule.protocol, values.protocol),
            source_port=_only_number(rule.source_port, values.source_ports),
            destination_port=_only_number(rule.destination_port, values.destination_ports),
            icmp=_only_number(rule.icmp, values.icmp),
            mobility_type=_only_number(rule.mobility_type, values.mobility_types),
            from_packet=(),
            is_instance=True,
        )
    except _NotAcceptedError:
        return None
    return made if _may_match(made) else None


class _NotAcceptedError(Exception):
    """Raised if a rule's selector does not accept an instance's value."""


def _only_address(
    ranges: tuple[AddressRange, ...] | None, value: Address | None
) -> tuple[AddressRange, ...] | None:
    """Returns the selector that accepts only `value`, or `ranges` if there is no value."""
    if value is None:
        return ranges
    if ranges is not None and not any(
        len(low) == len(value) and low <= value <= high for low, high in ranges
    ):
        raise _NotAcceptedError
    return (AddressRange(value, value),)


def _only_protocol(protocols: Protocols, value: NumberValue) -> Protocols:
    if value is None:
        return protocols
    if isinstance(value, Opaque):
        return _only_opaque(protocols)
    if protocols is OPAQUE or (protocols is not None and value not in protocols):
        raise _NotAcceptedError
    return (value,)


def _only_number(numbers: Numbers, value: NumberValue) -> Numbers:
    if value is None:
        return numbers
    if isinstance(value, Opaque):
        return _only_opaque(numbers)
    if numbers is OPAQUE or (
        numbers is not None and not any(low <= value <= high for low, high in numbers)
    ):
        raise _NotAcceptedError
    return (NumberRange(value, value),)


def _only_opaque(selector: object) -> Opaque:
    if selector is not None and selector is not OPAQUE:
        raise _NotAcceptedError
    return OPAQUE


def _may_match(rule: Rule) -> bool:
    """Returns whether any packet can match a rule. Source and destination must have a family in
    common. If the rule tests ports, ICMP or mobility types, one of its protocols must have these.
    """
    sources, destinations = (
        {4, 16} if ranges is None else {len(one.low) for one in ranges}
        for ranges in (rule.source, rule.destination)
    )
    return not sources.isdisjoint(destinations) and all(
        rule.protocol is None
        or (rule.protocol is not OPAQUE and not protocols.isdisjoint(rule.protocol))
        for name, protocols in NUMBERED.items()
        if isinstance(getattr(rule, FIELDS[name]), tuple)
    )


# -- reading values


def to_value(name: str, written: object) -> Address | int | Opaque:
    """Converts the value of the selector `name`. Raises ValueError."""
    text = str(written)
    if name in ("source", "destination"):
        return parse_address(text)
    if text in ("opaque", "OPAQUE"):
        return OPAQUE
    if name == "protocol" and text in PROTOCOLS:
        return PROTOCOLS[text]
    if name == "icmp":
        kind, slash, code = text.partition("/")
        if not slash:
            raise ValueError(f"{text!r} is no ICMP type and code like 8/0, nor `opaque`")
        return _number(kind, 0xFF) << 8 | _number(code, 0xFF)
    return _number(text, 0xFFFF if name.endswith("_ports") else 0xFF)


def _number(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6) or int(text) > most:
        raise ValueError(f"{text!r} is neither a number from 0 to {most:,} nor `opaque`")
    return int(text)


def to_document(values: Populated) -> dict[str, str | int]:
    """Converts values into a mapping. `to_value` reads each of its entries."""
    found: dict[str, str | int] = {}
    for name in values.selectors:
        value = getattr(values, name)
        if isinstance(value, bytes):
            found[name] = format_address(value)
        elif isinstance(value, Opaque):
            found[name] = value.value
        elif name == "icmp":
            found[name] = icmp_value_text(value)
        else:
            found[name] = _PROTOCOL_NAMES.get(value, value) if name == "protocol" else value
    return found


def populated_problem(values: Populated) -> str | None:
    """Returns the reason why no packet can have these values, or None."""
    if not values.selectors:
        return "gives no value; leave it out, or write the selectors that the rule populates"
    ends = values.source, values.destination
    if len({len(one) for one in ends if one is not None}) > 1:
        return "has an IPv4 and an IPv6 address"
    for name, protocols in NUMBERED.items():
        value = getattr(values, name)
        if value is None or isinstance(value, Opaque) or values.protocol is None:
            continue
        if values.protocol not in protocols:
            shown = _protocol_text(values.protocol)
            return f"the protocol {shown} has no `{name}`; write `opaque`, or leave it out"
    return None


def unpopulated_protocol(rule: Rule) -> Iterator[str]:
    """Yields the selectors in `from_packet` that some packets of the rule may lack. These are
    selectors that only certain protocols have, if the rule does not populate the protocol and
    accepts other protocols too."""
    if "protocol" not in rule.from_packet:
        for name in rule.from_packet:
            protocols = NUMBERED.get(name)
            if protocols is not None and not (
                isinstance(rule.protocol, tuple) and protocols.issuperset(rule.protocol)
            ):
                yield name
