# SPDX-License-Identifier: Apache-2.0
"""Reads the filters of a `show flows` request, and applies them to recorded flows.

`FlowFilter.of` reads the keys of a request. `selected` returns the flows of a slice that pass all
filters. No I/O. Depends on model, policy.model and state.flow_cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sluice.api.server import BadRequestError
from sluice.model import Prefix, parse_address
from sluice.policy.coverage import quoted_names
from sluice.policy.model import (
    ICMP_PROTOCOLS,
    MOBILITY_PROTOCOLS,
    PROTOCOLS,
    Action,
    AddressRange,
    Direction,
    FlowKey,
    prefix_range,
)
from sluice.policy.populated import named_bundle
from sluice.state.flow_cache import FlowVerdict, RankedFlow

Test: TypeAlias = Callable[[FlowKey, FlowVerdict], bool]
_TYPED_PROTOCOLS = ICMP_PROTOCOLS | MOBILITY_PROTOCOLS


@dataclass(frozen=True)
class FlowFilter:
    """Selects flows. An attribute that is None selects all flows.

    `tests` are the filters that look only at the flow itself. `rule` is the name of a rule; only
    current flows have one.
    """

    direction: Direction | None = None
    tests: tuple[Test, ...] = ()
    rule: str | None = None
    stale: bool | None = None

    @classmethod
    def of(cls, request: Mapping[str, Any], bundles: Mapping[str, int]) -> FlowFilter:
        """Reads the filters of a request. Raises BadRequestError, which names the key."""
        readers: dict[str, Callable[[str, Any], Test]] = {
            "source": _source,
            "destination": _destination,
            "host": _host,
            "protocol": _protocol,
            "port": _port,
            "action": _action,
            "bundle": lambda key, value: _bundle(key, value, bundles),
        }
        direction = request.get("list")
        if direction is not None:
            names = [one.value for one in Direction]
            direction = Direction(one_of("list", direction, names))
        stale, rule = request.get("stale"), request.get("rule")
        if stale is not None and not isinstance(stale, bool):
            raise bad_value("stale", stale, "true (stale flows) or false (current flows)")
        if rule is not None and not isinstance(rule, str):
            raise bad_value("rule", rule, "the name of a rule")
        tests = [
            read(key, request[key]) for key, read in readers.items() if request.get(key) is not None
        ]
        return cls(direction, tuple(tests), rule, stale)

    @property
    def is_empty(self) -> bool:
        """Returns whether all flows of a list pass."""
        return not self.tests and self.rule is None and self.stale is None

    def selected(
        self, flows: list[RankedFlow], epoch: int, names: Mapping[int, str]
    ) -> list[RankedFlow]:
        """Returns the flows that pass. `epoch` is the list's epoch. `names` has the names of its
        rules by rule id."""
        for test in self.tests:
            flows = [one for one in flows if test(one.key, one.verdict)]
        if self.stale is not None:
            flows = [one for one in flows if (one.verdict.epoch != epoch) is self.stale]
        if self.rule is not None:  # a stale flow's rule may be gone, and its number reused
            flows = [
                one
                for one in flows
                if one.verdict.epoch == epoch and names.get(one.verdict.rule_id) == self.rule
            ]
        return flows


def one_of(key: str, value: object, allowed: list[str]) -> str:
    """Returns a value that must be one of a few words. Raises BadRequestError."""
    if value not in allowed:
        raise bad_value(key, value, f"one of {', '.join(allowed)}")
    return str(value)


def number_of(key: str, value: object, allowed: range) -> int:
    """Returns a value that must be a whole number. Raises BadRequestError."""
    number = int(value) if isinstance(value, str) and _is_number(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or number not in allowed:
        raise bad_value(key, value, f"a whole number from {allowed[0]} to {allowed[-1]}")
    return number


def bad_value(key: str, value: object, allowed: str) -> BadRequestError:
    """Returns the error about a value that is not allowed."""
    return BadRequestError(f"{key}: {_shown(value)} is not {allowed}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10


# --- tests ---------------------------------------------------------------------------------------


def _range(key: str, value: object) -> AddressRange:
    allowed = "an address (192.0.2.1, 2001:db8::1) or a prefix (192.0.2.0/24)"
    if not isinstance(value, str):
        raise bad_value(key, value, allowed)
    try:
        if "/" in value:
            return prefix_range(Prefix.parse(value))
        address = parse_address(value)
    except ValueError as error:
        raise BadRequestError(f"{key}: {error}; allowed is {allowed}") from None
    return AddressRange(address, address)


def _source(key: str, value: object) -> Test:
    low, high = _range(key, value)
    return lambda flow, _: len(flow.source) == len(low) and low <= flow.source <= high


def _destination(key: str, value: object) -> Test:
    low, high = _range(key, value)
    return lambda flow, _: len(flow.destination) == len(low) and low <= flow.destination <= high


def _host(key: str, value: object) -> Test:
    low, high = _range(key, value)
    return lambda flow, _: (
        len(flow.source) == len(low)
        and (low <= flow.source <= high or low <= flow.destination <= high)
    )


def _protocol(key: str, value: object) -> Test:
    number = PROTOCOLS.get(value.lower()) if isinstance(value, str) else None
    if number is None:
        try:
            number = number_of(key, value, range(256))
        except BadRequestError:
            allowed = f"a number from 0 to 255, or one of {', '.join(PROTOCOLS)}"
            raise bad_value(key, value, allowed) from None
    return lambda flow, _: flow.protocol == number


def _port(key: str, value: object) -> Test:
    port = number_of(key, value, range(1, 1 << 16))
    # The keys of ICMP and of mobility messages have a type in place of the destination port.
    return lambda flow, _: (
        port in (flow.source_port, flow.destination_port) and flow.protocol not in _TYPED_PROTOCOLS
    )


def _action(key: str, value: object) -> Test:
    action = Action[one_of(key, value, [one.name.lower() for one in Action]).upper()]
    return lambda _, verdict: verdict.action is action


def _bundle(key: str, value: object, bundles: Mapping[str, int]) -> Test:
    numbers = {number for name, number in bundles.items() if value in (name, named_bundle(name))}
    if not numbers:
        names = quoted_names(sorted({*map(named_bundle, bundles)})) or "none"
        raise BadRequestError(
            f"{key}: there is no bundle {_shown(value)}; this router has: {names}"
        )
    return lambda flow, verdict: (
        flow.bundle in numbers or (verdict.bundle in numbers and verdict.action is Action.PROTECT)
    )
