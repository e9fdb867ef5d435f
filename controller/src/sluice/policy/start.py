# SPDX-License-Identifier: Apache-2.0
"""Selects the rules that an SPD starts with, and checks that they fit the pipeline's tables.

Rules change only by a commit. At each start, also after a crash, an SPD gets its last committed
rules (from `spdstore`), even if its file has changed since that commit. The configured rules are
used only for an SPD that was never in force, or if the operator requests them (`sluice run
--configured-policy`). A difference between committed and configured rules is logged, and `sluice
spd diff --configured SPD` shows it.

Pure; depends on config, state.spd and model.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from sluice.config import Config
from sluice.policy.config import SpdConfig
from sluice.policy.model import Direction, Rule
from sluice.state.spd import ListName, SpdRecord

log = logging.getLogger(__name__)


class PolicyError(Exception):
    """Raised for a policy that cannot be put into force, or for a failed change of policy.

    The text is a complete sentence.
    """


class Capacity(NamedTuple):
    """Capacity of the pipeline: flows per direction (all lists together), number of rules, and
    number of list ids."""

    flows: Mapping[Direction, int]
    rules: int
    lists: int


def rules_at_start(config: Config, record: SpdRecord) -> dict[ListName, tuple[Rule, ...]]:
    """Returns the operator's rules of every list. Logs differences from the configured rules.

    Raises PolicyError if committed rules name a bundle that is no longer configured.
    """
    committed = {(one.spd, one.direction): one.rules for one in record.lists}
    rules: dict[ListName, tuple[Rule, ...]] = {}
    problems: list[str] = []
    for spd in config.policy.spds:
        if spd.is_mirrored:  # a mirrored SPD has the kernel's policies and no committed rules
            rules |= {(spd.name, direction): () for direction in Direction}
            continue
        in_force = {
            direction: known
            for direction in Direction
            if (known := committed.get((spd.name, direction))) is not None
        }
        bundles = config.policy.bundle_names(spd.name)
        problems += [
            f"{spd.name}: the committed {direction.value} rule {rule.name!r} names the bundle"
            f" {rule.bundle!r}, which is no longer configured: configure it, or start with"
            " `sluice run --configured-policy`"
            for direction, listed in in_force.items()
            for rule in listed
            if rule.bundle is not None and rule.bundle not in bundles
        ]
        for direction in Direction:
            rules[spd.name, direction] = in_force.get(direction, tuple(spd.rules[direction]))
        _log_difference(spd, rules)
    if problems:
        raise PolicyError("\n".join(problems))
    return rules


def _log_difference(spd: SpdConfig, rules: Mapping[ListName, tuple[Rule, ...]]) -> None:
    lists = [
        direction.value
        for direction in Direction
        if rules[spd.name, direction] != tuple(spd.rules[direction])
    ]
    if lists:
        log.warning(
            "policy %s: the rules committed last are in force; %s differs (%s): see"
            " `sluice spd diff --configured %s`, then `sluice spd commit --configured %s`",
            spd.name,
            spd.file or "the configuration",
            ", ".join(lists),
            spd.name,
            spd.name,
        )


def check_capacity(config: Config, capacity: Capacity) -> None:
    """Checks that the flow caches of all SPDs together fit into the pipeline's flow tables.

    Each address family has its own table. The caches must fit even if all flows are of the same
    family. Raises PolicyError.
    """
    spds = config.policy.spds
    wanted = sum(spd.flow_cache.size for spd in spds)
    for direction, flows in capacity.flows.items():
        if wanted > flows:
            sizes = " + ".join(f"{spd.flow_cache.size} ({spd.name})" for spd in spds)
            raise PolicyError(
                f"spds: flow_cache.size: {sizes} = {wanted} flows, but the pipeline's"
                f" {direction.value} flow tables have room for {flows}; reduce the sizes"
            )
