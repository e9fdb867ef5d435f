# SPDX-License-Identifier: Apache-2.0
"""Builds the complete rules of every list: the generated rules, then the operator's rules.

The generated rules name this router's addresses, so a list also changes when these addresses
change. Depends on config and generated_rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from sluice.config import Config
from sluice.model import Address
from sluice.policy.generated_rules import generated_rules
from sluice.policy.model import Direction, Rule
from sluice.state.spd import ListName

LOOPBACK6 = bytes(15) + b"\x01"


class OperatorRules:
    """Holds the operator's rules of each list in `by_list`.

    `own(vrf)` returns this router's addresses in a VRF.
    """

    def __init__(
        self,
        config: Config,
        rules: Mapping[ListName, tuple[Rule, ...]],
        own: Callable[[int], Iterable[Address]],
    ) -> None:
        self.by_list = dict(rules)
        self._vrfs = {
            spd.name: {one.vrf.id for one in config.interfaces if one.spd == spd.name}
            for spd in config.policy.spds
        }
        self._own = own
        self._proposed: Mapping[ListName, tuple[Rule, ...]] = {}

    @contextmanager
    def proposed(self, rules: Mapping[ListName, tuple[Rule, ...]]) -> Iterator[None]:
        """Proposes rules for these lists while the `with` block runs.

        `of` and `wanted` then return the proposed rules, and `by_list` still has the rules in
        force. `by_list` changes after the block, unless the block raises.
        """
        self._proposed = rules
        try:
            yield
            self.by_list.update(rules)
        finally:
            self._proposed = {}

    def own_addresses(self, spd: str) -> list[Address]:
        """Returns this router's addresses in the VRFs whose interfaces an SPD guards.

        Omits loopback addresses.
        """
        own = {address for vrf in self._vrfs[spd] for address in self._own(vrf)}
        return sorted(one for one in own if one[0] != 127 and one != LOOPBACK6)

    def named_by(self, spds: Iterable[str]) -> dict[str, list[Address]]:
        """Returns the addresses that the generated rules of these SPDs name."""
        return {spd: self.own_addresses(spd) for spd in spds}

    def of(self, spds: Iterable[str]) -> dict[ListName, tuple[Rule, ...]]:
        """Returns the operator's rules of these SPDs' lists."""
        chosen = set(spds)
        rules = self.by_list | dict(self._proposed)
        return {name: listed for name, listed in rules.items() if name[0] in chosen}

    def generated(self, spds: Iterable[str]) -> dict[ListName, tuple[Rule, ...]]:
        """Returns the generated rules of these SPDs' lists."""
        return {
            (spd, direction): generated_rules(direction, own)
            for spd, own in self.named_by(spds).items()
            for direction in Direction
        }

    def wanted(
        self, spds: Collection[str], generated: Mapping[ListName, tuple[Rule, ...]] | None = None
    ) -> dict[ListName, tuple[Rule, ...]]:
        """Returns the complete lists of these SPDs: the generated rules, then the operator's rules.

        With `generated`, the result of the method `generated`, another thread may call this method.
        """
        first = self.generated(spds) if generated is None else generated
        return {name: first[name] + rules for name, rules in self.of(spds).items()}

    def with_generated(
        self, spd: str, direction: Direction, rules: Iterable[Rule]
    ) -> tuple[Rule, ...]:
        """Returns the complete list: the generated rules, then these rules of the operator."""
        return (*generated_rules(direction, self.own_addresses(spd)), *rules)
