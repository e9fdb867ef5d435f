# SPDX-License-Identifier: Apache-2.0
"""Builds the complete rules of every list: the generated rules, then the operator's rules. Rules of
instances are inserted among the operator's rules.

A list also changes with this router's addresses, which the generated rules name, and with the
instances of bundles (`policy.populated`). Depends on config, generated_rules and populated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import compress
from operator import itemgetter

from sluice.config import Config
from sluice.model import Address
from sluice.policy.generated_rules import generated_rules
from sluice.policy.model import Direction, Rule
from sluice.policy.populated import Instances, with_instances, without_sa
from sluice.state.spd import ListName

LOOPBACK6 = bytes(15) + b"\x01"
_FROM_PACKET: Callable[[Rule], tuple[str, ...]] = itemgetter(Rule._fields.index("from_packet"))


class OperatorRules:
    """Holds the operator's rules of each list in `by_list`.

    `own(vrf)` returns this router's addresses in a VRF. `add_bundles` gives numbers to those of the
    named bundles that have none yet.
    """

    def __init__(
        self,
        config: Config,
        rules: Mapping[ListName, tuple[Rule, ...]],
        own: Callable[[int], Iterable[Address]],
        add_bundles: Callable[[Iterable[str]], None] = lambda names: None,
    ) -> None:
        self.by_list = dict(rules)
        self.instances: Instances = {}
        """The instances whose rules the lists have."""
        self._add_bundles = add_bundles
        self._vrfs = {
            spd.name: {one.vrf.id for one in config.interfaces if one.spd == spd.name}
            for spd in config.policy.spds
        }
        self._own = own
        self._proposed: Mapping[ListName, tuple[Rule, ...]] = {}

    @contextmanager
    def proposed(self, rules: Mapping[ListName, tuple[Rule, ...]]) -> Iterator[None]:
        """Proposes rules for these lists while the `with` block runs.

        During the block, `of` and `wanted` return the proposed rules, while `by_list` keeps the
        rules in force. The block's end puts the proposed rules into `by_list`, unless the block
        raises.
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

    def bundles_without_sa(self, spds: Iterable[str]) -> list[str]:
        """Returns the names of the bundles without SA that these SPDs' rules with `from_packet`
        need. May be called from any thread."""
        names = (name for rules in self.of(spds).values() for name in _without_sa(rules))
        return list(dict.fromkeys(names))

    def wanted(
        self, spds: Collection[str], generated: Mapping[ListName, tuple[Rule, ...]] | None = None
    ) -> dict[ListName, tuple[Rule, ...]]:
        """Returns the complete lists of these SPDs: the generated rules, then the operator's rules
        with the rules of instances.

        `generated` is the result of the method `generated`; with it, another thread may call this
        method. Order: the bundles of `bundles_without_sa` must have numbers before.
        """
        first = self.generated(spds) if generated is None else generated
        return {
            name: self._complete(name, first[name], rules) for name, rules in self.of(spds).items()
        }

    def with_generated(
        self, spd: str, direction: Direction, rules: Iterable[Rule]
    ) -> tuple[Rule, ...]:
        """Returns a complete list: the generated rules, then these rules of the operator with the
        rules of instances. Raises TooManyBundlesError."""
        listed = tuple(rules)
        self._add_bundles(_without_sa(listed))
        first = generated_rules(direction, self.own_addresses(spd))
        return self._complete((spd, direction), first, listed)

    def _complete(
        self, name: ListName, generated: tuple[Rule, ...], rules: tuple[Rule, ...]
    ) -> tuple[Rule, ...]:
        """Returns a complete list."""
        if not any(map(_FROM_PACKET, rules)):
            return generated + rules
        return (*generated, *with_instances(rules, name[1], self.instances))


def _without_sa(rules: tuple[Rule, ...]) -> list[str]:
    """Returns the names of the bundles without an SA that the rules with `from_packet` need."""
    populating = compress(rules, map(_FROM_PACKET, rules))
    return list(dict.fromkeys(without_sa(rule.bundle or "") for rule in populating))
