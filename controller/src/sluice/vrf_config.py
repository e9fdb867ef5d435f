# SPDX-License-Identifier: Apache-2.0
"""Reads the configuration section `vrfs`: VRFs, their routing tables, and their isolation in the
host.

Depends on yamlreader, config_keys and scalars.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from sluice import scalars
from sluice.config_keys import ConfigSection, PartKey, list_of, optional, required
from sluice.model import MAIN_TABLE
from sluice.namespaces import OWN_NAMESPACE
from sluice.yamlreader import YamlMapping

DEFAULT_VRF = "default"
KERNEL_TABLES = {253: "default table", 255: "local table"}


class Isolation(Enum):
    """Mechanisms that isolate a VRF from the default VRF in the host stack."""

    DEVICE = "device"
    """A VRF device of the kernel."""
    NAMESPACE = "namespace"
    """A network namespace for this VRF alone."""
    SHARED = "shared"
    """No isolation: the VRF uses the default VRF's stack. The host receives and sends only packets
    whose answers cannot leave in another VRF (`sources.shared_stack`)."""


@dataclass(frozen=True, slots=True)
class VrfConfig:
    """Describes a VRF: its number in the pipeline and its kernel routing table.

    - `next_hop_vrfs` names the other VRFs whose interfaces routes of this VRF may use.
    - `device` and `namespace` name the VRF device and the network namespace of this VRF, if the
      isolation uses one. Both are None for the default VRF.
    - `isolation` is None until it is decided (`sources.vrf_namespaces`), and for the default VRF.
    """

    name: str
    id: int
    table: int
    next_hop_vrfs: frozenset[str] = frozenset()
    device: str | None = None
    namespace: str | None = None
    isolation: Isolation | None = None

    @property
    def namespace_number(self) -> int:
        """Returns the number of the network namespace that holds the VRF's interfaces."""
        return self.id if self.isolation is Isolation.NAMESPACE else OWN_NAMESPACE


class VrfKeys(ConfigSection, title="vrfs"):
    """Keys of the section of a VRF."""

    table = required(
        scalars.integer(1, 2**32 - 1),
        "Number of the VRF's routing table in the kernel.",
        "required, except for `default`",
    )
    isolation = optional(
        scalars.one_of(tuple(kind.value for kind in Isolation)),
        "Mechanism that separates the VRF's host stack from those of other VRFs"
        " ([vrfs.md](../how-to/vrfs.md)).",
        "the first of these that is possible on the host",
    )
    device = optional(
        scalars.interface_name,
        "Name of the kernel's VRF device, if the VRF is isolated by a device.",
        "the VRF's name",
    )
    namespace = optional(
        scalars.name,
        "Name of the VRF's network namespace, if the VRF is isolated by one.",
        "the VRF's name",
    )
    next_hop_vrfs = list_of(
        scalars.name,
        "VRFs",
        "Other VRFs whose interfaces the next hops of this VRF's routes may use.",
    )


def read_vrfs(section: YamlMapping) -> dict[str, VrfConfig]:
    """Reads the section `vrfs`. Returns VRFs by name, always including the default VRF."""
    vrfs = {DEFAULT_VRF: VrfConfig(DEFAULT_VRF, 0, MAIN_TABLE)}
    tables = {MAIN_TABLE: DEFAULT_VRF}
    names = {DEFAULT_VRF, *(name for name, _ in section.items())}
    for name, value in section.items():
        vrf = value.mapping()
        others = _read_next_hop_vrfs(vrf, names - {name})
        if name == DEFAULT_VRF:
            if vrf.value(VrfKeys.table) is not None:
                vrf.problem(VrfKeys.table, "the default VRF has the main table; remove this key")
            vrf.close()
            vrfs[name] = VrfConfig(name, 0, MAIN_TABLE, others)
            continue
        table = vrf.required(VrfKeys.table)
        device = vrf.optional(VrfKeys.device, _device_name(name, table))
        namespace = vrf.optional(VrfKeys.namespace, _namespace_name(name, table))
        isolation = vrf.optional(VrfKeys.isolation, None)
        vrf.close()
        if table is None:
            continue
        if table in KERNEL_TABLES:
            value.problem(
                f"table {table} is the kernel's {KERNEL_TABLES[table]}; use another table"
            )
            continue
        if table in tables:
            value.problem(f"table {table} belongs to VRF {tables[table]!r}; use another table")
            continue
        tables[table] = name
        kind = None if isolation is None else Isolation(isolation)
        vrfs[name] = VrfConfig(name, len(vrfs), table, others, device, namespace, kind)
    return vrfs


def _namespace_name(vrf: str, table: int | None) -> str:
    """Returns the default name of a VRF's network namespace: the VRF's name if it is a valid name
    of a namespace, else a name made from the table number."""
    try:
        return scalars.name(vrf)
    except ValueError:
        return f"vrf{table}"


def _device_name(vrf: str, table: int | None) -> str:
    """Returns the default name of a VRF's device: the VRF's name if it is a valid name of a device,
    else a name made from the table number."""
    try:
        return scalars.interface_name(vrf)
    except ValueError:
        return f"vrf{table}"


def _read_next_hop_vrfs(vrf: YamlMapping, others: set[str]) -> frozenset[str]:
    name = scalars.one_of(tuple(sorted(others)))
    read = (value.convert(name) for value in vrf.sequence(VrfKeys.next_hop_vrfs))
    return frozenset(one for one in read if one is not None)


def check_namespaces(root: YamlMapping, key: PartKey, vrfs: Iterable[VrfConfig]) -> None:
    """Checks that no two VRFs have the same network namespace."""
    taken: dict[str | None, str] = {}
    for vrf in vrfs:
        if vrf.namespace in taken:
            problem = f"VRFs {taken[vrf.namespace]!r} and {vrf.name!r} share a network namespace"
            root.problem(key, f"{problem}, {vrf.namespace!r}; give each VRF its own `namespace`")
        if vrf.namespace is not None:
            taken[vrf.namespace] = vrf.name
