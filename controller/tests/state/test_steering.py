# SPDX-License-Identifier: Apache-2.0
"""Tests which packets the kernel gets and which the switch gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.model import Prefix, parse_address
from sluice.state.steering import NEVER_ROUTED, SteeredPrefixes, SteeringVerdict


class Receiver:
    """Applies the changes as the tables of the steering programs do, and looks addresses up."""

    def __init__(self) -> None:
        self.prefixes = SteeredPrefixes()
        self.verdicts: dict[Prefix, SteeringVerdict] = {}

    def local(self, *prefixes: str) -> None:
        self.apply(self.prefixes.set_local(map(Prefix.parse, prefixes)))

    def route(self, prefix: str, usable: bool | None) -> None:
        self.apply(self.prefixes.set_route(Prefix.parse(prefix), usable))

    def apply(self, changes: list[tuple[Prefix, SteeringVerdict | None]]) -> None:
        for prefix, verdict in changes:
            assert self.verdicts.get(prefix) is not verdict
            if verdict is None:
                del self.verdicts[prefix]
            else:
                self.verdicts[prefix] = verdict

    def goes_to(self, address: str) -> SteeringVerdict:
        wanted = parse_address(address)
        matching = [prefix for prefix in self.verdicts if prefix.covers(wanted)]
        longest = max(matching, key=lambda prefix: prefix.length, default=None)
        return SteeringVerdict.SWITCH if longest is None else self.verdicts[longest]


def test_own_addresses_and_unrouted_prefixes_go_to_the_kernel() -> None:
    steered = Receiver()
    steered.local("10.0.0.1/32", "2001:db8::1/128")
    for address in ("10.0.0.1", "2001:db8::1", "224.0.0.5", "fe80::1", "ff02::1", "127.0.0.1"):
        assert steered.goes_to(address) is SteeringVerdict.KERNEL
    for address in ("10.0.0.2", "2001:db8::2"):
        assert steered.goes_to(address) is SteeringVerdict.SWITCH


def test_usable_routes_need_no_verdict() -> None:
    steered = Receiver()
    steered.local()
    for number in range(100):
        steered.route(f"10.{number}.0.0/16", usable=True)
    assert set(steered.verdicts) == NEVER_ROUTED


def test_kernel_forwards_by_a_route_that_the_switch_cannot_use() -> None:
    steered = Receiver()
    steered.route("10.1.2.0/24", usable=True)
    steered.route("10.0.0.0/8", usable=False)
    assert steered.goes_to("10.9.9.9") is SteeringVerdict.KERNEL
    assert steered.goes_to("10.1.2.3") is SteeringVerdict.SWITCH
    assert steered.goes_to("192.0.2.1") is SteeringVerdict.SWITCH
    steered.route("10.1.2.128/25", usable=False)
    assert steered.goes_to("10.1.2.200") is SteeringVerdict.KERNEL
    steered.route("10.1.2.128/25", usable=None)
    steered.route("10.0.0.0/8", usable=None)
    assert not steered.verdicts


def test_route_that_becomes_usable() -> None:
    steered = Receiver()
    steered.route("0.0.0.0/0", usable=False)
    assert steered.goes_to("192.0.2.1") is SteeringVerdict.KERNEL
    steered.route("0.0.0.0/0", usable=True)
    assert steered.goes_to("192.0.2.1") is SteeringVerdict.SWITCH


def test_local_prefix_comes_before_more_specific_routes() -> None:
    """The kernel looks up its local table first, so its prefixes win."""
    steered = Receiver()
    steered.local("10.1.0.0/16")
    steered.route("10.0.0.0/8", usable=False)
    steered.route("10.1.2.0/24", usable=True)
    assert steered.goes_to("10.1.2.3") is SteeringVerdict.KERNEL
    steered.local()
    assert steered.goes_to("10.1.2.3") is SteeringVerdict.SWITCH


PREFIXES = ("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "10.2.0.0/16")
ADDRESSES = ("10.1.2.3", "10.1.2.4", "10.1.3.1", "10.2.0.1", "10.9.0.1", "192.0.2.1")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(PREFIXES), st.sampled_from([True, False, None])),
        st.lists(st.sampled_from(PREFIXES[1:]), max_size=2),
    ),
    max_size=12,
)


@given(STEPS)
def test_verdicts_are_those_of_the_kernels_lookup(
    steps: list[tuple[str, bool | None] | list[str]],
) -> None:
    """The kernel looks up its local table, and then the longest match in the main table."""
    steered = Receiver()
    routes: dict[Prefix, bool] = {}
    local: list[Prefix] = []
    for step in steps:
        if isinstance(step, list):
            local = [Prefix.parse(one) for one in step]
            steered.local(*step)
        else:
            text, usable = step
            routes.pop(Prefix.parse(text), None)
            if usable is not None:
                routes[Prefix.parse(text)] = usable
            steered.route(text, usable)
    for text in ADDRESSES:
        address = parse_address(text)
        matching = [prefix for prefix in routes if prefix.covers(address)]
        best = max(matching, key=lambda prefix: prefix.length, default=None)
        is_local = any(prefix.covers(address) for prefix in local)
        to_kernel = is_local or (best is not None and not routes[best])
        assert steered.goes_to(text) is (
            SteeringVerdict.KERNEL if to_kernel else SteeringVerdict.SWITCH
        )
