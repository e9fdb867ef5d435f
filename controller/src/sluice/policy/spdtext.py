# SPDX-License-Identifier: Apache-2.0
"""Converts rules into the language of SPD files, for the record on disk and `sluice spd export`.

Invariant: `from_document(to_document(rule)) == rule` for every rule that a file can hold. Generated
rules are never written to a file. Depends on spdfile, which defines the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from sluice.policy.model import (
    OPAQUE,
    PROTOCOLS,
    Direction,
    Opaque,
    Rule,
    Scope,
    icmp_text,
    range_text,
)
from sluice.policy.spdfile import (
    to_action,
    to_address_range,
    to_from_packet,
    to_icmp,
    to_mobility_types,
    to_ports,
    to_protocol,
)

T = TypeVar("T")
_PROTOCOL_NAMES = {number: name for name, number in PROTOCOLS.items()}


def spd_document(spd: str, rules: Mapping[Direction, Iterable[Rule]]) -> dict[str, Any]:
    """Converts an SPD's rules into the content of a file for `sluice spd commit`.

    Write the result as YAML or JSON. Omits generated rules.
    """
    lists = {
        direction.value: [to_document(rule) for rule in listed if not rule.generated]
        for direction, listed in rules.items()
    }
    return {"spd": spd} | lists


def to_document(rule: Rule) -> dict[str, Any]:
    """Converts a rule into a mapping of scalars and lists. Omits selectors that match anything."""
    written: dict[str, Any] = {"name": rule.name, "action": rule.action.name.lower()}
    if rule.bundle is not None:
        written["bundle"] = rule.bundle
    for key, ranges in (("source", rule.source), ("destination", rule.destination)):
        if ranges is not None:
            written[key] = [range_text(one) for one in ranges]
    if rule.protocol is OPAQUE:
        written["protocol"] = OPAQUE.value
    elif rule.protocol is not None:
        written["protocol"] = [_PROTOCOL_NAMES.get(one, one) for one in rule.protocol]
    for key, numbers, text in (
        ("source_ports", rule.source_port, str),
        ("destination_ports", rule.destination_port, str),
        ("icmp", rule.icmp, icmp_text),
        ("mobility_types", rule.mobility_type, str),
    ):
        if numbers is OPAQUE:
            written[key] = OPAQUE.value
        elif numbers is not None:
            written[key] = [text(one) for one in numbers]
    if rule.from_packet:
        written["from_packet"] = list(rule.from_packet)
    flags = {"audit": rule.audit, "reject": rule.reject, "default": rule.is_default}
    written |= {name: True for name, is_set in flags.items() if is_set}
    if rule.scope is not Scope.ANY:
        written["scope"] = rule.scope.value
    return written


def from_document(written: Mapping[str, Any]) -> Rule:
    """Converts the output of `to_document` back into a rule.

    Raises ValueError, KeyError or TypeError if `written` is malformed.
    """
    return Rule(
        name=str(written["name"]),
        action=to_action(written["action"]),
        bundle=written.get("bundle"),
        source=_listed(written, "source", to_address_range),
        destination=_listed(written, "destination", to_address_range),
        protocol=_or_opaque(written, "protocol", to_protocol),
        source_port=_or_opaque(written, "source_ports", to_ports),
        destination_port=_or_opaque(written, "destination_ports", to_ports),
        icmp=_or_opaque(written, "icmp", to_icmp),
        audit=written.get("audit") is True,
        scope=Scope(written.get("scope", Scope.ANY.value)),
        reject=written.get("reject") is True,
        is_default=written.get("default") is True,
        mobility_type=_or_opaque(written, "mobility_types", to_mobility_types),
        from_packet=to_from_packet(written.get("from_packet", ())),
    )


def _listed(
    written: Mapping[str, Any], key: str, converter: Callable[[object], T]
) -> tuple[T, ...] | None:
    values = written.get(key)
    return None if values is None else tuple(map(converter, values))


def _or_opaque(
    written: Mapping[str, Any], key: str, converter: Callable[[object], T]
) -> tuple[T, ...] | Opaque | None:
    if written.get(key) == OPAQUE.value:
        return OPAQUE
    return _listed(written, key, converter)
