# SPDX-License-Identifier: Apache-2.0
"""Generates random rules and packets. Both use the same few values, so that packets often match."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from sluice.model import parse_address
from sluice.policy.model import OPAQUE, Action, AddressRange, NumberRange, Rule, Scope, Selectors

ADDRESSES = sorted(parse_address(f"10.0.0.{i}") for i in range(6)) + sorted(
    parse_address(f"2001:db8::{i}") for i in range(6)
)
NUMBERS = st.integers(0, 8) | st.sampled_from([0xFFFE, 0xFFFF])
PROTOCOLS = st.sampled_from([1, 6, 17, 50, 58, 132, 135])


@st.composite
def address_ranges(draw: st.DrawFn) -> AddressRange:
    low, high = sorted([draw(st.sampled_from(ADDRESSES)) for _ in range(2)])
    return AddressRange(low, high if len(high) == len(low) else low)


@st.composite
def number_ranges(draw: st.DrawFn) -> NumberRange:
    return NumberRange(*sorted([draw(NUMBERS), draw(NUMBERS)]))


def some(elements: SearchStrategy[object]) -> SearchStrategy[object]:
    return st.none() | st.lists(elements, min_size=1, max_size=3).map(tuple)


def rules() -> SearchStrategy[Rule]:
    numbers = some(number_ranges()) | st.just(OPAQUE)
    return st.builds(
        Rule,
        name=st.uuids().map(str),
        action=st.sampled_from([Action.BYPASS, Action.DISCARD]),
        source=some(address_ranges()),
        destination=some(address_ranges()),
        protocol=some(PROTOCOLS) | st.just(OPAQUE),
        source_port=numbers,
        destination_port=numbers,
        icmp=numbers,
        mobility_type=numbers,
        generated=st.booleans(),
        scope=st.sampled_from(Scope),
        from_packet=st.just(()),
        is_instance=st.just(False),
    )


def packets() -> SearchStrategy[Selectors]:
    number = st.none() | NUMBERS
    address = st.sampled_from(ADDRESSES)
    protocol = st.none() | PROTOCOLS
    return st.builds(
        Selectors, address, address, protocol, number, number, number, st.booleans(), number
    )
