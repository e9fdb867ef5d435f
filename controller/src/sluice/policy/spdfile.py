# SPDX-License-Identifier: Apache-2.0
"""Reads an SPD file: two ordered lists of rules in YAML, validated as a whole.

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
      - {name: rest, action: discard, audit: true}
    inbound: [...]

A rule has an action (bypass, discard, protect) and selectors. A selector that is absent or `any`
matches everything. The value `opaque` of protocol, ports, icmp and mobility_types matches only
packets without a visible value, such as later fragments. A protect rule names a bundle. A discard
rule may request audit log records. docs/how-to/rules.md has examples.

The first rule that matches decides. A packet that matches no rule is discarded (RFC 4301, 4.4.1).
All problems are reported at once, each with file, line, list, and the rule's number and name.
Depends on model, config_keys and yamlreader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from sluice import scalars
from sluice.config_keys import ConfigKey, ConfigSection, defaulted, optional, required, sections_of
from sluice.model import Prefix, parse_address
from sluice.policy.model import (
    ICMP_PROTOCOLS,
    MOBILITY_PROTOCOLS,
    OPAQUE,
    PORT_PROTOCOLS,
    PROTOCOLS,
    Action,
    AddressRange,
    Direction,
    NumberRange,
    Opaque,
    Rule,
    prefix_range,
)
from sluice.policy.populated import FIELDS, NUMBERED, unpopulated_protocol
from sluice.yamlreader import YamlMapping, YamlReader, YamlValue

T = TypeVar("T")
Bundles: TypeAlias = frozenset[str] | None
"""The bundle names that protect rules may use; None: unknown, so any name is accepted."""
_ACTIONS = {action.name.lower(): action for action in Action}
_ANY = "`any`"
_ADDRESSES = "address, prefix, `LOW-HIGH`, list of them"
ANY_NAMES, OPAQUE_NAMES = frozenset({"any", "ANY"}), frozenset({"opaque", "OPAQUE"})
"""The values that RFC 4301 calls ANY and OPAQUE. Exported rules have the lower case."""
_PORTS = "0 to 65,535, `LOW-HIGH`, list of them, `opaque`"


@scalars.takes(", ".join(f"`{name}`" for name in _ACTIONS))
def to_action(value: object) -> Action:
    """Converts `bypass`, `discard` or `protect`. Raises ValueError."""
    try:
        return _ACTIONS[str(value)]
    except KeyError:
        raise ValueError(f"{value!r} is no action: write bypass, discard or protect") from None


class RuleKeys(ConfigSection, title="Keys of a rule"):
    """Keys of a rule. An absent selector matches everything."""

    name = required(scalars.name, "Name of the rule, shown by `sluice show spd`.")
    action = required(to_action, "Action for a packet that matches the rule.")
    bundle = optional(
        scalars.name,
        "The SA bundle that protects the packets.",
        "required with `protect`, otherwise not allowed",
    )
    source = ConfigKey(_ADDRESSES, "Source address of the packet.", _ANY)
    destination = ConfigKey(_ADDRESSES, "Destination address of the packet.", _ANY)
    protocol = ConfigKey(
        f"name ({', '.join(f'`{name}`' for name in PROTOCOLS)}), 0 to 255, list of them, `opaque`",
        "IP protocol. In IPv6, the protocol after the extension headers.",
        _ANY,
    )
    source_ports = ConfigKey(_PORTS, "Source port. Only for protocols that have ports.", _ANY)
    destination_ports = ConfigKey(
        _PORTS, "Destination port. Only for protocols that have ports.", _ANY
    )
    icmp = ConfigKey(
        "type, range of types, `TYPE/CODE`, `TYPE/LOW-HIGH`, list of them, `opaque`",
        "Type and code of ICMP or ICMPv6.",
        _ANY,
    )
    mobility_types = ConfigKey(
        "0 to 255, `LOW-HIGH`, list of them, `opaque`",
        "Message type of the Mobility Header (RFC 6275).",
        _ANY,
    )
    from_packet = ConfigKey(
        f"one of {', '.join(f'`{name}`' for name in FIELDS)}, list of them",
        "Selectors that the SAs take from packets ([Populate from packet](#populate-from-packet))."
        " Only for `protect`.",
        "none",
    )
    audit = defaulted(
        scalars.boolean, False, "Logs discarded packets, up to `audit.rate`. Only for `discard`."
    )
    reject = defaulted(
        scalars.boolean,
        False,
        'Answers discarded packets by the ICMP error "administratively prohibited"'
        " ([Reject](#reject)). Only for `discard` under `outbound`.",
    )


class SpdFileKeys(ConfigSection, title="Keys of an SPD's file"):
    """Keys of an SPD's file."""

    spd = required(scalars.name, "Name of the SPD.")
    inbound = sections_of(RuleKeys, "Rules for packets that the router receives")
    outbound = sections_of(RuleKeys, "Rules for packets that the router sends")


_LISTS = {Direction.INBOUND: SpdFileKeys.inbound, Direction.OUTBOUND: SpdFileKeys.outbound}


@dataclass(frozen=True, slots=True)
class SpdText:
    """Holds the content of an SPD's file: the SPD's name and its rules."""

    name: str
    rules: dict[Direction, tuple[Rule, ...]]


def load_spd(path: Path, bundles: Bundles) -> SpdText:
    """Reads an SPD from a file. Raises ConfigError with every problem in the file."""
    return _read_spd(YamlReader.from_file(path), lambda _: bundles)


def parse_spd(text: str, name: str, bundles: Callable[[str], Bundles]) -> SpdText:
    """Reads an SPD from the text of a file. `name` is the file's name for error messages.

    `bundles` maps an SPD's name to the names of its bundles. Raises ConfigError with every problem
    in the text.
    """
    return _read_spd(YamlReader(text, name), bundles)


def parse_rule(text: str, name: str, direction: Direction, bundles: Bundles) -> Rule:
    """Reads one rule: a YAML mapping like those in a file's lists.

    `name` appears in error messages. Raises ConfigError with every problem in the text.
    """
    reader = YamlReader(text, name)
    rule = _read_rule(reader.root(), direction, bundles)
    reader.finish()
    if rule is None:
        raise AssertionError("a rule that cannot be read leaves a problem in the reader")
    return rule


def _read_spd(reader: YamlReader, bundles: Callable[[str], Bundles]) -> SpdText:
    root = reader.root()
    name = root.required(SpdFileKeys.spd)
    rules = read_lists(root, bundles(name or ""))
    root.close()
    reader.finish()
    return SpdText(name or "", rules)


def read_lists(root: YamlMapping, bundles: Bundles) -> dict[Direction, tuple[Rule, ...]]:
    """Reads the `inbound` and `outbound` lists under a mapping.

    `bundles` are the names that protect rules of this SPD may use.
    """
    return {
        direction: tuple(_read_list(root.sequence(key), direction, bundles))
        for direction, key in _LISTS.items()
    }


def _read_list(values: list[YamlValue], direction: Direction, bundles: Bundles) -> Iterator[Rule]:
    names: dict[str, int] = {}
    for number, unnamed in enumerate(values, 1):
        name = unnamed.peek("name")
        called = "" if name is None else f" {name!r}"
        value = unnamed.named(f"{direction.value} rule {number}{called}")
        rule = _read_rule(value.mapping(), direction, bundles)
        if name is not None and names.setdefault(name, number) != number:
            value.problem(f"rule {names[name]} of this list has that name; give each rule its own")
        if rule is not None:
            yield rule


def _read_rule(text: YamlMapping, direction: Direction, bundles: Bundles) -> Rule | None:
    name = text.required(RuleKeys.name)
    action = text.required(RuleKeys.action)
    bundle = text.optional(RuleKeys.bundle, None)
    if action is Action.PROTECT and bundle is None:
        text.problem(RuleKeys.bundle, f"is missing: {RuleKeys.bundle.missing}")
    if action is not None and action is not Action.PROTECT and bundle is not None:
        text.problem(
            RuleKeys.bundle,
            f"only a protect rule has a bundle; this rule says {action.name.lower()}",
        )
    if bundle is not None and bundles is not None and bundle not in bundles:
        known = ", ".join(sorted(bundles)) or "none"
        text.problem(RuleKeys.bundle, f"this SPD has no bundle {bundle!r}; it has: {known}")
    audit = text.defaulted(RuleKeys.audit)
    if audit and action not in (Action.DISCARD, None):
        text.problem(
            RuleKeys.audit,
            f"only a discard rule has this key; this rule says {action.name.lower()}",
        )
    reject = text.defaulted(RuleKeys.reject)
    if reject and direction is Direction.INBOUND:
        text.problem(
            RuleKeys.reject, "only an outbound rule has it: packets from outside get no answer"
        )
    elif reject and action not in (Action.DISCARD, None):
        text.problem(
            RuleKeys.reject, f"only a discard rule has it, this one says {action.name.lower()}"
        )
    from_packet = _read_from_packet(text, action)
    rule = Rule(
        name=name or "",
        action=action or Action.DISCARD,
        bundle=bundle,
        source=_addresses(text, RuleKeys.source),
        destination=_addresses(text, RuleKeys.destination),
        protocol=_numbers(text, RuleKeys.protocol, to_protocol),
        source_port=_numbers(text, RuleKeys.source_ports, to_ports),
        destination_port=_numbers(text, RuleKeys.destination_ports, to_ports),
        icmp=_numbers(text, RuleKeys.icmp, to_icmp),
        audit=audit,
        reject=reject or False,
        mobility_type=_numbers(text, RuleKeys.mobility_types, to_mobility_types),
        from_packet=from_packet,
    )
    for key, problem in misplaced_selectors(rule):
        text.problem(key, problem)
    text.close()
    return rule if name is not None and action is not None else None


def _read_from_packet(text: YamlMapping, action: Action | None) -> tuple[str, ...]:
    value = text.value(RuleKeys.from_packet)
    if value is None:
        return ()
    if action not in (Action.PROTECT, None):
        text.problem(
            RuleKeys.from_packet,
            f"only a protect rule has this key; this rule says {action.name.lower()}",
        )
    elements = value.sequence() if value.is_sequence() else [value]
    if not elements:
        value.problem("an empty list populates nothing; leave the key out")
    try:
        return to_from_packet([one.text() or "" for one in elements])
    except ValueError as error:
        value.problem(str(error))
        return ()


def to_from_packet(names: Iterable[object]) -> tuple[str, ...]:
    """Converts the names of selectors, and sorts them in the order of `FIELDS`. Raises
    ValueError."""
    found = [str(name) for name in names]
    for name in found:
        if name not in FIELDS:
            raise ValueError(f"{name!r} is no selector; there is: {', '.join(FIELDS)}")
        if found.count(name) > 1:
            raise ValueError(f"{name!r} is written twice")
    return tuple(filter(found.__contains__, FIELDS))


def misplaced_selectors(rule: Rule) -> Iterator[tuple[ConfigKey, str]]:
    """Yields the selectors that contradict other selectors of a rule, each with the problem."""
    families = {len(r.low) for ranges in (rule.source, rule.destination) for r in ranges or ()}
    if len(families) > 1:
        where = RuleKeys.source if rule.destination is None else RuleKeys.destination
        yield where, "IPv4 and IPv6 addresses in one rule; write a rule for each family"
    for key, numbers, wanted in (
        (RuleKeys.source_ports, rule.source_port, PORT_PROTOCOLS),
        (RuleKeys.destination_ports, rule.destination_port, PORT_PROTOCOLS),
        (RuleKeys.icmp, rule.icmp, ICMP_PROTOCOLS),
        (RuleKeys.mobility_types, rule.mobility_type, MOBILITY_PROTOCOLS),
    ):
        # An empty tuple means invalid protocols, which were reported already.
        if isinstance(numbers, tuple) and not (
            isinstance(rule.protocol, tuple) and wanted.issuperset(rule.protocol)
        ):
            names = ", ".join(name for name, number in PROTOCOLS.items() if number in wanted)
            yield key, f"numbers need a `protocol:` of {names}, and no other protocol"
    for selector in unpopulated_protocol(rule):
        names = ", ".join(name for name, one in PROTOCOLS.items() if one in NUMBERED[selector])
        yield (
            RuleKeys.from_packet,
            f"`{selector}` needs `protocol` beside it, or a `protocol:` of {names}, and no other"
            " protocol",
        )


# -- values: each is a scalar or a list of scalars. `any` and a missing key are read as None.


def _addresses(text: YamlMapping, key: ConfigKey) -> tuple[AddressRange, ...] | None:
    value = text.value(key)
    return None if value is None else _listed(value, lambda one: one.convert(to_address_range))


def _numbers(
    text: YamlMapping, key: ConfigKey, converter: Callable[[object], T]
) -> tuple[T, ...] | Opaque | None:
    value = text.value(key)
    if value is None:
        return None
    if value.text() in OPAQUE_NAMES:
        return OPAQUE
    return _listed(value, lambda one: one.convert(_decimal(one.text() or "", converter)))


def _listed(value: YamlValue, convert: Callable[[YamlValue], T | None]) -> tuple[T, ...] | None:
    if value.text() in ANY_NAMES:
        return None
    if value.is_null():  # probably a mistake; must not mean `any`
        value.problem("nothing is written here; write `any`, or leave the key out")
        return ()
    elements = value.sequence() if value.is_sequence() else [value]
    if not elements:
        value.problem("an empty list matches nothing; write `any`, or leave the key out")
    if value.is_sequence() and any(one.text() in ANY_NAMES | OPAQUE_NAMES for one in elements):
        value.problem("`any` and `opaque` stand alone: write one of them without a list")
        return ()
    converted = [convert(element) for element in elements]
    return tuple(one for one in converted if one is not None)


def _decimal(written: str, converter: Callable[[object], T]) -> Callable[[object], T]:
    """Wraps a converter so that it refuses a number that is not written in plain decimal.

    YAML 1.1 would also read octal (010), hexadecimal (0x10), base 60 (1:30) and 1_000. `written` is
    the text in the file.
    """

    def convert(value: object) -> T:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and str(value) != written:
            meant = f"{value} or {written.lstrip('0')}" if written.isdigit() else str(value)
            raise ValueError(f"YAML takes {written} for the number {value}; write {meant}")
        return converter(value)

    return convert


def to_address_range(value: object) -> AddressRange:
    """Converts an address, a prefix, or two addresses separated by a dash."""
    text = value if isinstance(value, str) else f"{value!r} (put it in quotes)"
    if "-" in text:
        low, _, high = text.partition("-")
        first, last = parse_address(low.strip()), parse_address(high.strip())
        if len(first) != len(last) or first > last:
            raise ValueError(f"{text!r} is not a range LOW-HIGH of one family")
        return AddressRange(first, last)
    if "/" not in text:
        return AddressRange(parse_address(text), parse_address(text))
    return prefix_range(Prefix.parse(text))


def to_protocol(value: object) -> int:
    """Converts a protocol's name or number."""
    if str(value) in PROTOCOLS:
        return PROTOCOLS[str(value)]
    number = _number(str(value), 0xFF)
    if number is None:
        raise ValueError(
            f"{value!r} is no protocol: write a number from 0 to 255, or one of"
            f" {', '.join(PROTOCOLS)}; write several as a list, not as a range"
        )
    return number


def to_ports(value: object) -> NumberRange:
    """Converts a port, or two ports separated by a dash."""
    ports = _range(str(value), 0xFFFF)
    if ports is None:
        raise ValueError(
            f"{value!r} is no port: write a number like 80, or a range like 8000-8999, low to high,"
            " from 0 to 65535, without leading zeros"
        )
    return ports


def to_icmp(value: object) -> NumberRange:
    """Converts ICMP types and codes.

    `8` means all codes of type 8, and `5-7` all codes of three types. `3/4` and `3/0-4` mean codes
    of type 3.
    """
    kind, slash, code = str(value).partition("/")
    types, codes = _range(kind, 0xFF), _range(code if slash else "0-255", 0xFF)
    if types is None or codes is None or (slash and types.low != types.high):
        raise ValueError(
            f"{value!r} is no ICMP type: write a type like 8, types like 5-7, or one type with its"
            " codes like 3/4 or 3/0-4; low to high, from 0 to 255, without leading zeros"
        )
    return NumberRange(types.low << 8 | codes.low, types.high << 8 | codes.high)


def to_mobility_types(value: object) -> NumberRange:
    """Converts a mobility type, or two types separated by a dash."""
    types = _range(str(value), 0xFF)
    if types is None:
        raise ValueError(
            f"{value!r} is no mobility type: write a type like 5, or a range like 5-6, low to high,"
            " from 0 to 255, without leading zeros"
        )
    return types


def _range(text: str, most: int) -> NumberRange | None:
    """Parses a number, or two numbers separated by a dash, up to `most`. Else returns None."""
    low, dash, high = text.partition("-")
    first = _number(low.strip(), most)
    last = _number(high.strip(), most) if dash else first
    if first is None or last is None or first > last:
        return None
    return NumberRange(first, last)


def _number(text: str, most: int) -> int | None:
    """Parses a decimal number up to `most` without leading zeros. Else returns None."""
    is_decimal = text.isascii() and text.isdigit() and len(text) <= 5
    if not is_decimal or (text[0] == "0" and text != "0") or int(text) > most:
        return None
    return int(text)
