# SPDX-License-Identifier: Apache-2.0
"""Compares configurations for a reload. Decides for each changed key how the change takes effect.

Each key is of one of three classes:

- A **fixed** key cannot change while the process runs. It identifies the process, its files or its
  switch, or its change needs privileges that the process has only at its start (VRFs). A
  configuration that changes a fixed key is refused as a whole.
- A **setting** is a number or an SA. A new number is used from the next packet on. An SA is added
  or removed independently of other keys.
- A change of any other key is applied like a restart, but within the process: the controller closes
  the affected entities in the switch, changes them, and opens them.

Keys are named as in the file, list items by their name: `interfaces.eth1.addresses`. Pure; depends
on config and its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from sluice.config import (
    AuditConfig,
    Config,
    ControllerLimits,
    InterfaceConfig,
    PuntRate,
    VrfConfig,
)
from sluice.connection_config import FpmConfig, IkeConfig, SwitchConfig, TlsConfig
from sluice.policy.config import (
    BundleConfig,
    EngineConfig,
    FlowCacheConfig,
    OutboundSa,
    PolicyConfig,
    SpdConfig,
)
from sluice.sa_model import SecurityAssociation

FIXED = ("router", "state_dir", "api", "metrics", "switch", "vrfs")
NOT_FIXED = ("switch.tls", "switch.cpu_port")
SETTINGS = ("limits", "punt_rates", "audit.rate", "security_associations")
FILE_KEYS = {"api_socket": "api.socket", "metrics_listen": "metrics.listen"}
"""Maps fields of `Config` to their keys in the file, where these differ."""
NOT_IN_THE_FILE = frozenset({"l3_if"})
SECTIONS = (
    *(AuditConfig, FpmConfig, IkeConfig, InterfaceConfig, ControllerLimits, PuntRate, SwitchConfig),
    *(TlsConfig, VrfConfig, BundleConfig, EngineConfig, FlowCacheConfig, OutboundSa, SpdConfig),
)
LISTED = (*SECTIONS, SecurityAssociation)
"""Types of items in lists of named items. A change within an SA is reported as a change of the
whole SA."""


class Differences(NamedTuple):
    """Holds the keys that differ between two configurations, with one field for each class of
    keys."""

    fixed: tuple[str, ...]
    settings: tuple[str, ...]
    by_restart: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Returns all keys that differ, the most disruptive first."""
        return self.by_restart + self.settings + self.fixed


@dataclass
class ReloadReport:
    """Holds the result of the last reload."""

    succeeded_at: float
    """Time when the configuration in force was read, in seconds since the epoch."""
    refused: str | None = None
    """Reason why the last reload was refused. None if it succeeded, or before the first reload."""


def differences(old: Config, new: Config) -> Differences:
    """Compares two configurations as read, before the isolation of VRFs is decided."""
    keys = tuple(dict.fromkeys(_of_config(old, new)))
    fixed = tuple(key for key in keys if _is_fixed(key))
    settings = tuple(key for key in keys if key not in fixed and _is_setting(key))
    walked = tuple(key for key in keys if key not in fixed and key not in settings)
    return Differences(fixed, settings, walked)


def with_isolation_of(new: Config, running: Config) -> Config:
    """Returns `new` with each VRF's isolation taken from the running configuration."""
    known = {vrf.name: vrf for vrf in running.vrfs}

    def decided(vrf: VrfConfig) -> VrfConfig:
        return replace(vrf, isolation=known[vrf.name].isolation)

    return replace(
        new,
        vrfs=tuple(map(decided, new.vrfs)),
        interfaces=tuple(replace(one, vrf=decided(one.vrf)) for one in new.interfaces),
    )


def _is_fixed(key: str) -> bool:
    if key.startswith("vrfs.") and key.endswith(".next_hop_vrfs"):
        return False
    return _is_under(key, FIXED) and not _is_under(key, NOT_FIXED)


def _is_setting(key: str) -> bool:
    # A reload only records the rules of SPD files, for comparison at the next reload. Only a commit
    # changes the rules in force.
    return _is_under(key, SETTINGS) or (
        key.startswith("spds.") and key.endswith((".file", ".rules"))
    )


def _is_under(key: str, parents: Iterable[str]) -> bool:
    return any(key == parent or key.startswith(f"{parent}.") for parent in parents)


def _of_config(old: Config, new: Config) -> Iterator[str]:
    for field in fields(Config):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if isinstance(before, PolicyConfig):
            for part in fields(PolicyConfig):
                yield from _changed(
                    part.name, getattr(before, part.name), getattr(after, part.name)
                )
        else:
            yield from _changed(FILE_KEYS.get(field.name, field.name), before, after)


def _changed(key: str, before: Any, after: Any) -> Iterator[str]:
    """Yields the keys that differ. Names the innermost key that contains a difference."""
    if before == after:
        return
    if type(before) is type(after) and _has_keys(before):
        for field in fields(before):
            if field.name not in NOT_IN_THE_FILE:
                old, new = getattr(before, field.name), getattr(after, field.name)
                yield from _changed(f"{key}.{field.name}", *_vrf_by_name(old, new))
    elif isinstance(before, Mapping) and isinstance(after, Mapping) and _named(before, after):
        for name in sorted({*before, *after}):
            yield from _changed(f"{key}.{name}", before.get(name), after.get(name))
    elif _is_list_of_named(before) and _is_list_of_named(after):
        olds, news = _by_name(before), _by_name(after)
        for name in dict.fromkeys([*olds, *news]):
            yield from _changed(f"{key}.{name}", olds.get(name), news.get(name))
    else:
        yield key


def _has_keys(value: Any) -> bool:
    """Returns whether a value is a section of the file. False: it is a scalar, perhaps with several
    fields."""
    return isinstance(value, SECTIONS)


def _vrf_by_name(before: Any, after: Any) -> tuple[Any, Any]:
    """Replaces VRFs by their names, because `vrf` of an interface is a name in the file."""
    if isinstance(before, VrfConfig) and isinstance(after, VrfConfig):
        return before.name, after.name
    return before, after


def _named(*mappings: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) for mapping in mappings for key in mapping)


def _is_list_of_named(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, LISTED) for one in value)


def _by_name(items: Iterable[Any]) -> dict[str, Any]:
    return {str(getattr(item, "name", getattr(item, "id", item))): item for item in items}
