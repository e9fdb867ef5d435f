# SPDX-License-Identifier: Apache-2.0
"""An SPD as operators write it: two ordered lists of rules in YAML, validated whole.

    spd: corp
    outbound:
      - name: web
        action: protect
        bundle: branch
        source: 10.1.0.0/16
        destination: [10.2.0.0/16, 10.3.0.1-10.3.0.9]
        protocol: tcp
        destination_ports: [80, 443, 8000-8999]
      - {name: ping, action: bypass, protocol: icmp, icmp: [8, 0/0]}
    inbound: [...]

A rule names its action (bypass, discard, protect), what it looks at (absent or `any`: everything;
`opaque`, for ports and icmp: only packets that show no such value), and for protect a bundle.
Order decides; what no rule matches is discarded (RFC 4301, 4.4.1). Problems are told all at once,
each with file, line, list, and the rule's number and name. Depends on policy_model and yamlreader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from sluice import scalars
from sluice.model import Prefix, parse_address
from sluice.policy_model import (
    ICMP_PROTOCOLS,
    OPAQUE,
    PORT_PROTOCOLS,
    PROTOCOLS,
    Action,
    AddressRange,
    Direction,
    NumberRange,
    Numbers,
    Rule,
    prefix_range,
)
from sluice.yamlreader import Mapping, Reader, Value

T = TypeVar("T")
Bundles: TypeAlias = frozenset[str] | None
"""The names that protect rules may use; None: not known, so that any will do."""
_ACTIONS = {action.name.lower(): action for action in Action}


@dataclass(frozen=True, slots=True)
class SpdText:
    """What an SPD's file says."""

    name: str
    rules: dict[Direction, tuple[Rule, ...]]


def load_spd(path: Path, bundles: Bundles) -> SpdText:
    """The SPD in a file. Raises ConfigError with every problem in it."""
    return _read_spd(Reader.from_file(path), lambda _: bundles)


def parse_spd(text: str, name: str, bundles: Callable[[str], Bundles]) -> SpdText:
    """The SPD in the text of a file called `name`; `bundles` are those of an SPD by its name.

    Raises ConfigError with every problem in it.
    """
    return _read_spd(Reader(text, name), bundles)


def _read_spd(reader: Reader, bundles: Callable[[str], Bundles]) -> SpdText:
    root = reader.root()
    name = root.required("spd", scalars.name, "the SPD's name")
    rules = read_lists(root, bundles(name or ""))
    root.close()
    reader.finish()
    return SpdText(name or "", rules)


def read_lists(root: Mapping, bundles: Bundles) -> dict[Direction, tuple[Rule, ...]]:
    """The `inbound` and `outbound` lists under a mapping.

    `bundles` are the names that protect rules of this SPD may use.
    """
    return {
        direction: tuple(_read_list(root.sequence(direction.value), direction, bundles))
        for direction in Direction
    }


def _read_list(values: list[Value], direction: Direction, bundles: Bundles) -> Iterator[Rule]:
    names: dict[str, int] = {}
    for number, unnamed in enumerate(values, 1):
        name = unnamed.peek("name")
        called = "" if name is None else f" {name!r}"
        value = unnamed.named(f"{direction.value} rule {number}{called}")
        rule = _read_rule(value.mapping(), bundles)
        if name is not None and names.setdefault(name, number) != number:
            value.problem(f"rule {names[name]} of this list has that name; give each its own")
        if rule is not None:
            yield rule


def _read_rule(text: Mapping, bundles: Bundles) -> Rule | None:
    name = text.required("name", scalars.name, "a name for the rule, shown by `sluice show spd`")
    action = text.required("action", to_action, "bypass, discard or protect")
    bundle = text.optional("bundle", scalars.name, None)
    if action is Action.PROTECT and bundle is None:
        text.problem("bundle", "is missing: which SA bundle protects these packets")
    if action is not None and action is not Action.PROTECT and bundle is not None:
        text.problem("bundle", f"only a protect rule has one, this one says {action.name.lower()}")
    if bundle is not None and bundles is not None and bundle not in bundles:
        known = ", ".join(sorted(bundles)) or "none"
        text.problem("bundle", f"this SPD has no bundle {bundle!r}; it has: {known}")
    rule = Rule(
        name=name or "",
        action=action or Action.DISCARD,
        bundle=bundle,
        source=_listed(text, "source", to_address_range),
        destination=_listed(text, "destination", to_address_range),
        protocol=_listed(text, "protocol", to_protocol),
        source_port=_numbers(text, "source_ports", to_ports),
        destination_port=_numbers(text, "destination_ports", to_ports),
        icmp=_numbers(text, "icmp", to_icmp),
    )
    _check_together(text, rule)
    text.close()
    return rule if name is not None and action is not None else None


def _check_together(text: Mapping, rule: Rule) -> None:
    families = {len(r.low) for ranges in (rule.source, rule.destination) for r in ranges or ()}
    if len(families) > 1:
        text.problem("destination", "IPv4 and IPv6 addresses in one rule; write a rule for each")
    for key, numbers, wanted in (
        ("source_ports", rule.source_port, PORT_PROTOCOLS),
        ("destination_ports", rule.destination_port, PORT_PROTOCOLS),
        ("icmp", rule.icmp, ICMP_PROTOCOLS),
    ):
        # An empty tuple of protocols is a problem that was told already.
        if isinstance(numbers, tuple) and (
            rule.protocol is None or not wanted.issuperset(rule.protocol)
        ):
            names = ", ".join(name for name, number in PROTOCOLS.items() if number in wanted)
            text.problem(key, f"numbers need a `protocol:` of {names} and no other")


# -- values: a scalar or a list of scalars; `any`, or no such key, is None


def _listed(text: Mapping, key: str, converter: Callable[[object], T]) -> tuple[T, ...] | None:
    value = text.value(key)
    if value is None or value.text() == "any":
        return None
    if value.is_null():  # might be a slip, and would match everything
        value.problem("nothing is written here; write `any`, or leave the key out")
        return ()
    elements = value.sequence() if value.is_sequence() else [value]
    if not elements:
        value.problem("an empty list matches nothing; write `any`, or leave the key out")
    converted = [element.convert(converter) for element in elements]
    return tuple(one for one in converted if one is not None)


def _numbers(text: Mapping, key: str, converter: Callable[[object], NumberRange]) -> Numbers:
    value = text.value(key)
    if value is not None and value.text() == "opaque":
        return OPAQUE
    return _listed(text, key, converter)


def to_action(value: object) -> Action:
    """`bypass`, `discard` or `protect`. Raises ValueError, as all of these do."""
    try:
        return _ACTIONS[str(value)]
    except KeyError:
        raise ValueError(f"{value!r} is no action: bypass, discard or protect") from None


def to_address_range(value: object) -> AddressRange:
    """An address, a prefix, or two addresses with a dash."""
    text = value if isinstance(value, str) else f"{value!r} (put it in quotes)"
    if "-" in text:
        low, _, high = text.partition("-")
        first, last = parse_address(low.strip()), parse_address(high.strip())
        if len(first) != len(last) or first > last:
            raise ValueError(f"{text!r} is no range of one family, low to high")
        return AddressRange(first, last)
    if "/" not in text:
        return AddressRange(parse_address(text), parse_address(text))
    return prefix_range(Prefix.parse(text))


def to_protocol(value: object) -> int:
    """A protocol's name or number."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255:
        return value
    try:
        return PROTOCOLS[str(value)]
    except KeyError:
        raise ValueError(
            f"{value!r} is no protocol: a number from 0 to 255, or one of {', '.join(PROTOCOLS)}"
        ) from None


def to_ports(value: object) -> NumberRange:
    """A port, or two with a dash."""
    low, dash, high = str(value).partition("-")
    return _number_range(value, low, high if dash else low, 0xFFFF)


def to_icmp(value: object) -> NumberRange:
    """`8` is every code of type 8, `3/4` is one code."""
    kind, slash, code = str(value).partition("/")
    types = _number_range(value, kind, kind, 0xFF)
    if not slash:
        return NumberRange(types.low << 8, types.low << 8 | 0xFF)
    codes = _number_range(value, code, code, 0xFF)
    return NumberRange(types.low << 8 | codes.low, types.low << 8 | codes.low)


def _number_range(value: object, low: str, high: str, most: int) -> NumberRange:
    low, high = low.strip(), high.strip()
    if not all(text.isascii() and text.isdigit() for text in (low, high)):
        raise ValueError(f"{value!r} is neither a number nor a range or type/code of numbers")
    first, last = int(low), int(high)
    if not 0 <= first <= last <= most:
        raise ValueError(f"{value!r}: numbers go from 0 to {most}, ranges from low to high")
    return NumberRange(first, last)
