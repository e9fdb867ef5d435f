# SPDX-License-Identifier: Apache-2.0
"""What an SPD starts with: the rules that were committed last, and room for them in the pipeline.

Rules change by a commit and by nothing else. A start, and so a crash, takes what was committed last
(`spdstore` has it), whatever the files say by then; the configuration's rules are for an SPD that
was never in force before, or where the operator asks for them (`sluice run --configured-policy`).
Where the two differ it is said, and `sluice spd diff --configured SPD` shows how.

Pure; depends on config, state.spd and policy_model.
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
    """Impossible policy, or a change of policy that was not made, as a sentence."""


class Room(NamedTuple):
    """Capacity of the pipeline: flows of a direction's lists together, rules, list ids."""

    flows: Mapping[Direction, int]
    rules: int
    lists: int


def rules_at_start(config: Config, record: SpdRecord) -> dict[ListName, tuple[Rule, ...]]:
    """The operator's rules of every list, and a word where the files say otherwise. PolicyError."""
    committed = {(one.spd, one.direction): one.rules for one in record.lists}
    rules: dict[ListName, tuple[Rule, ...]] = {}
    problems: list[str] = []
    for spd in config.policy.spds:
        if spd.is_mirrored:  # what the kernel says now counts, and nothing else
            rules |= {(spd.name, direction): () for direction in Direction}
            continue
        in_force = {
            direction: known
            for direction in Direction
            if (known := committed.get((spd.name, direction))) is not None
        }
        bundles = config.policy.bundle_names(spd.name)
        problems += [
            f"{spd.name}: the {direction.value} rule {rule.name!r} that was committed names the"
            f" bundle {rule.bundle!r}, which is no longer configured: configure it, or start with"
            " `sluice run --configured-policy`"
            for direction, listed in in_force.items()
            for rule in listed
            if rule.bundle is not None and rule.bundle not in bundles
        ]
        for direction in Direction:
            rules[spd.name, direction] = in_force.get(direction, tuple(spd.rules[direction]))
        _tell_difference(spd, rules)
    if problems:
        raise PolicyError("\n".join(problems))
    return rules


def _tell_difference(spd: SpdConfig, rules: Mapping[ListName, tuple[Rule, ...]]) -> None:
    lists = [
        direction.value
        for direction in Direction
        if rules[spd.name, direction] != tuple(spd.rules[direction])
    ]
    if lists:
        log.warning(
            "policy %s: in force is what was committed last; %s says otherwise (%s): see"
            " `sluice spd diff --configured %s`, then `sluice spd commit --configured %s`",
            spd.name,
            spd.file or "the configuration",
            ", ".join(lists),
            spd.name,
            spd.name,
        )


def check_room(config: Config, room: Room) -> None:
    """Whether all flow caches fit the pipeline's tables, however the flows fall. PolicyError."""
    spds = config.policy.spds
    wanted = sum(spd.flow_cache.size for spd in spds)
    for direction, flows in room.flows.items():
        if wanted > flows:
            sizes = " + ".join(f"{spd.flow_cache.size} ({spd.name})" for spd in spds)
            raise PolicyError(
                f"spds: flow_cache.size: {sizes} = {wanted} flows, and the pipeline's"
                f" {direction.value} flow tables have room for {flows}; give the SPDs less"
            )
