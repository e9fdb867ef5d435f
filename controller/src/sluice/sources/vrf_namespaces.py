# SPDX-License-Identifier: Apache-2.0
"""Decides how the host stack isolates each VRF, and creates network namespaces for VRFs.

By default, each VRF gets a VRF device if the kernel has them (sources.vrf_devices), or else a
network namespace. If neither is possible, VRFs share the stack (sources.shared_stack). A VRF's
`isolation` setting overrides this choice. If the setting cannot be fulfilled, the start fails.

Namespaces that this module created stay when the controller ends, because FRR runs in them. They
are recorded on disk, so that a later start that does not need them can remove them. A namespace
that existed before is never removed. Depends on config, durable, privileges and namespaces.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sluice import privileges
from sluice.config import Config, Isolation, VrfConfig
from sluice.durable import boot_id, replace_json
from sluice.namespaces import LAST_NAMESPACE, OWN_NAMESPACE
from sluice.sources.namespace import DIRECTORY, NetworkNamespace

FILE_NAME = "namespaces.json"

log = logging.getLogger(__name__)


class VrfNamespaces:
    """Holds the network namespaces of VRFs, by number."""

    def __init__(self, state_dir: Path, directory: Path = DIRECTORY) -> None:
        self._file = state_dir / FILE_NAME
        self._directory = directory
        self.namespaces: dict[int, NetworkNamespace] = {}

    def decide(self, config: Config, prepare_devices: Callable[[list[VrfConfig]], bool]) -> Config:
        """Returns the configuration with each VRF's isolation, and opens the namespaces.

        `prepare_devices` creates the VRF devices of the given VRFs; it returns False if the kernel
        has no VRF devices. Needs CAP_SYS_ADMIN for namespaces. Raises OSError.
        """
        vrfs = [vrf for vrf in config.vrfs if vrf.id != OWN_NAMESPACE]
        wanted = [vrf for vrf in vrfs if vrf.isolation in (None, Isolation.DEVICE)]
        has_devices = prepare_devices(wanted)
        automatic = Isolation.DEVICE if has_devices else self._without_devices(wanted)
        decided = {
            vrf.name: vrf if vrf.isolation else replace(vrf, isolation=automatic) for vrf in vrfs
        }
        self._open(vrf for vrf in decided.values() if vrf.isolation is Isolation.NAMESPACE)
        return replace(
            config,
            vrfs=tuple(decided.get(vrf.name, vrf) for vrf in config.vrfs),
            interfaces=tuple(
                replace(one, vrf=decided.get(one.vrf.name, one.vrf)) for one in config.interfaces
            ),
        )

    def _without_devices(self, wanted: Iterable[VrfConfig]) -> Isolation:
        """Returns the isolation of VRFs that have no `isolation` setting, on a kernel without VRF
        devices."""
        for vrf in wanted:
            if vrf.isolation is Isolation.DEVICE:
                message = (
                    f"VRF {vrf.name}: this kernel has no VRF devices; give it another `isolation`"
                )
                raise OSError(errno.EOPNOTSUPP, message)
        if privileges.has(privileges.CAP_SYS_ADMIN):
            return Isolation.NAMESPACE
        names = ", ".join(vrf.name for vrf in wanted)
        if names:
            log.warning(
                "this kernel has no VRF devices, and network namespaces need CAP_SYS_ADMIN at the"
                " start: VRFs %s share the host's stack with the default VRF, so in these VRFs the"
                " host receives and sends no UDP except routing protocols and IKE",
                names,
            )
        return Isolation.SHARED

    def _open(self, vrfs: Iterable[VrfConfig]) -> None:
        known = self._load()
        made: dict[str, Any] = {}
        for vrf in vrfs:
            if vrf.id > LAST_NAMESPACE:
                raise OSError(f"VRF {vrf.name}: at most {LAST_NAMESPACE} VRFs have namespaces")
            name = vrf.namespace or vrf.name
            namespace = NetworkNamespace(name, self._directory)
            self.namespaces[vrf.id] = namespace
            if namespace.is_own():
                raise OSError(
                    f"VRF {vrf.name}: network namespace {name} is the one that the"
                    " controller runs in; give the VRF another `namespace`"
                )
            mark = _mark(namespace)
            if namespace.made or known.get(name) == mark:
                made[name] = mark
            found = "made" if namespace.made else "found"
            log.info("VRF %s: network namespace %s (%s)", vrf.name, name, found)
        left = {name: mark for name, mark in known.items() if name not in made}
        # A name stays in the file until its namespace is removed. So after a crash every namespace
        # has a record.
        if made != known:
            replace_json(self._file, made | left)
        for name, mark in left.items():
            self._remove(name, mark)
        if left:
            replace_json(self._file, made)

    def _remove(self, name: str, mark: Any) -> None:
        """Removes a namespace if this module created it, and not another one of the same name."""
        if any(one.name == name for one in self.namespaces.values()):
            return
        if not (self._directory / name).exists():
            return
        namespace = NetworkNamespace(name, self._directory)
        try:
            if _mark(namespace) == mark:
                namespace.remove()
                log.info("network namespace %s is removed: no VRF uses it any more", name)
        finally:
            namespace.close()

    def _load(self) -> dict[str, Any]:
        try:
            document = json.loads(self._file.read_bytes())
        except (OSError, ValueError):  # an unreadable file: remove nothing
            return {}
        return document if isinstance(document, dict) else {}

    def close(self) -> None:
        """Ends the threads in all namespaces. The namespaces stay."""
        for namespace in self.namespaces.values():
            namespace.close()


def _mark(namespace: NetworkNamespace) -> Any:
    """Returns a value that identifies a namespace uniquely.

    If the kernel has no cookies for namespaces, returns None. The file never contains None, so no
    namespace then counts as made by this module.
    """
    cookie = namespace.cookie
    return None if cookie is None else [boot_id(), cookie]
