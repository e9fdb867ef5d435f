# SPDX-License-Identifier: Apache-2.0
"""Implements `sluice spd check`: validates files of rules, with or without a controller.

Reports all problems of all files at once. If there are no problems, it reports warnings. Depends on
config, spdfile, warnings, coverage, fragments and generated_rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.config import DEFAULT_PUNT_RATES, Config
from sluice.frr import Routing
from sluice.model import Address, Prefix
from sluice.policy.coverage import quoted_names, warn_of_unreached
from sluice.policy.fragments import expectations
from sluice.policy.generated_rules import generated_rules
from sluice.policy.model import Direction
from sluice.policy.plain_spd import parse
from sluice.policy.spdfile import SpdText
from sluice.policy.warnings import GuardedInterface, RuleContext, warnings
from sluice.yamlreader import ConfigError


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks files of rules, against a configuration if there is one.

    `own` returns this router's addresses in the VRF of an SPD. If `own` is None, the checker uses
    the configured addresses.
    """

    config: Config | None = None
    own: Callable[[str], Iterable[Address]] | None = None
    routing: Routing | None = None
    progress: Callable[[int], None] = lambda _: None
    """Called with the number of rules of a long file that have been read."""

    def read(self, files: Iterable[tuple[str, str]]) -> dict[str, SpdText]:
        """Parses files, given as (name, text), and returns the rules by SPD.

        Raises ConfigError with the problems of all files. Two files for the same SPD are a problem.
        """
        texts: dict[str, SpdText] = {}
        problems: list[str] = []
        for name, text in files:
            try:
                spd = parse(text, name, self._bundles, self.progress)
            except ConfigError as error:
                problems += error.problems
                continue
            known = self._spds()
            if known is not None and spd.name not in known:
                names = ", ".join(known) or "none"
                problems.append(f"{name}: there is no SPD {spd.name!r}; this router has: {names}")
            if spd.name in texts:
                problems.append(f"{name}: an earlier file has the rules of {spd.name!r} too")
            texts[spd.name] = spd
        if problems:
            raise ConfigError(problems)
        return texts

    def report(self, texts: Mapping[str, SpdText]) -> list[dict[str, Any]]:
        """Returns a report on each SPD, for the API and for `sluice spd check`.

        Precondition: the rules come from `read`, so they are valid.
        """
        return [
            {
                "spd": name,
                "rules": {direction.value: len(rules) for direction, rules in text.rules.items()},
                "warnings": self.warnings(text),
                "sessions_unchecked": self._why_sessions_are_unchecked(name),
                "fragments": self._fragments(text),
                "fragments_per_second": self._fragments_per_second(),
            }
            for name, text in texts.items()
        ]

    def warnings(self, text: SpdText) -> list[str]:
        """Returns warnings about the effects of an SPD's rules, generated rules included."""
        own = tuple(self._own(text.name))
        rules = {
            direction: (*generated_rules(direction, own), *listed)
            for direction, listed in text.rules.items()
        }
        context = RuleContext(
            self._guarded(text.name),
            own,
            self.routing,
            self._elsewhere(text.name),
            self._are_errors_checked(text.name),
        )
        unreached = [
            f"{text.name}: {warning}"
            for direction in Direction
            for warning in warn_of_unreached(text.rules[direction], direction)
        ]
        by_hand = [f"{text.name}: {warning}" for warning in self._without_sas(text)]
        return warnings(rules, context, text.name) + unreached + by_hand

    def _without_sas(self, text: SpdText) -> Iterator[str]:
        """Yields a warning for each rule with `from_packet` whose bundle cannot have instances."""
        bundles = () if self.config is None else self.config.policy.bundles
        by_hand = {bundle.name for bundle in bundles if not bundle.engines}
        for direction, rules in text.rules.items():
            names = [one.name for one in rules if one.from_packet and one.bundle in by_hand]
            if names:
                yield (
                    f"the {direction.value} {'rule' if len(names) == 1 else 'rules'}"
                    f" {quoted_names(names)} with `from_packet` can have no SA: the SAs of the"
                    " bundle are installed by hand"
                )

    def _why_sessions_are_unchecked(self, spd: str) -> str | None:
        """Returns the reason why FRR's sessions were not checked, or None if they were checked."""
        if self.routing is None:
            return "give FRR's configuration with --frr"
        if not self.routing.has_sessions:
            return "FRR's configuration has no such session"
        if not self._guarded(spd):
            return f"no interface that {spd} guards is known; give the configuration with --config"
        return None

    @staticmethod
    def _fragments(text: SpdText) -> list[dict[str, Any]]:
        return [
            {
                "direction": one.direction.value,
                "families": list(one.families),
                "served_by": one.served_by.value,
                "rules": list(one.rules),
                "because": list(one.because),
            }
            for one in expectations(text.rules)
        ]

    def _fragments_per_second(self) -> int | None:
        """Returns the rate limit of punted fragments, in packets a second. None: unknown."""
        rates = DEFAULT_PUNT_RATES if self.config is None else self.config.punt_rates
        rate = rates.get("FRAGMENT")
        return None if rate is None else rate.rate

    def _bundles(self, spd: str) -> frozenset[str] | None:
        return None if self.config is None else self.config.policy.bundle_names(spd)

    def _spds(self) -> list[str] | None:
        return None if self.config is None else [spd.name for spd in self.config.policy.spds]

    def _own(self, spd: str) -> Iterable[Address]:
        if self.own is not None:
            return self.own(spd)
        return {each.address for one in self._guarded(spd) for each in one.addresses}

    def _guarded(self, spd: str) -> tuple[GuardedInterface, ...]:
        interfaces = () if self.config is None else self.config.interfaces
        return tuple(
            GuardedInterface(one.name, one.addresses) for one in interfaces if one.spd == spd
        )

    def _are_errors_checked(self, spd: str) -> bool:
        spds = () if self.config is None else self.config.policy.spds
        return any(one.icmp_errors_checked for one in spds if one.name == spd)

    def _elsewhere(self, spd: str) -> tuple[Prefix, ...]:
        interfaces = () if self.config is None else self.config.interfaces
        return tuple(
            address.prefix for one in interfaces if one.spd != spd for address in one.addresses
        )
