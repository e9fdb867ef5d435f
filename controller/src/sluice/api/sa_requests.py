# SPDX-License-Identifier: Apache-2.0
"""Handles the API's requests about security associations.

No answer contains a key or a file's contents. Depends on the controller's associations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sluice.api.server import BadRequestError
from sluice.associations import AssociationError
from sluice.controller import Controller
from sluice.model import format_address
from sluice.policy.populated import named_bundle
from sluice.sa_config import SaKeys, parse_associations
from sluice.sa_keys import KeyFiles
from sluice.sa_model import ALGORITHMS, Lifetime, SecurityAssociation
from sluice.sa_uses import SaStoreError
from sluice.state.sa_table import SaReport
from sluice.yamlreader import ConfigError


class SaRequests:
    """Handles `sa add`, `sa del` and `sa rekey`, and shows all SAs."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._associations = controller.associations
        self.commands: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "sa add": self._refusing(self._add),
            "sa del": self._refusing(self._delete),
            "sa rekey": self._refusing(self._rekey),
        }

    @staticmethod
    def _refusing(
        command: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Callable[[dict[str, Any]], Awaitable[Any]]:
        async def answer(request: dict[str, Any]) -> Any:
            try:
                return await command(request)
            except (AssociationError, ConfigError, SaStoreError) as error:
                raise BadRequestError(str(error)) from error

        return answer

    async def show(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns all SAs, or those of a bundle, with their state."""
        bundle = request.get("bundle")
        names = sorted(set(map(named_bundle, self._controller.policy.numbers.by_name)))
        if bundle is not None and bundle not in names:
            known = ", ".join(names) or "none"
            raise BadRequestError(f"there is no bundle {bundle!r}; there is: {known}")
        rows = map(self._row, self._associations.table.reports())
        return [row for row in rows if bundle in (None, row["bundle"])]

    async def _add(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        text, name, directory = (str(request.get(key)) for key in ("text", "name", "directory"))
        sas = parse_associations(
            text,
            name,
            _whole_path(directory),
            self._associations.bundles,
            self._associations.values_in_use(),
        )
        return [*map(self._row, await self._associations.add(sas))]

    async def _delete(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        spi = request.get("spi")
        deleted = await self._associations.delete(
            str(request.get("name")), None if spi is None else _spi(spi)
        )
        return [self._described(one) for one in deleted]

    async def _rekey(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        name, associations = str(request.get("name")), self._associations
        algorithm = ALGORITHMS[associations.serving_sa(name).settings.algorithm]
        paths: list[Path | None] = []
        sizes = (
            (SaKeys.key_file.name, algorithm.key),
            (SaKeys.integrity_key_file.name, algorithm.integrity_key),
        )
        for key, size in sizes:
            given = request.get(key)
            if bool(size) != (given is not None):
                option = f"--{key.replace('_', '-')}"
                raise BadRequestError(
                    f"{algorithm.name} needs the successor's key: give {option} FILE"
                    f" (`{key}` in an API request)"
                    if size
                    else f"{algorithm.name} has no key of this kind: leave out {option}"
                    f" (`{key}` in an API request)"
                )
            paths.append(None if given is None else _whole_path(str(given)))
        keys = KeyFiles(algorithm, *paths)
        return [*map(self._row, await associations.rekey(name, _spi(request.get("spi")), keys))]

    def _row(self, report: SaReport) -> dict[str, Any]:
        held = report.held
        return self._described(report.sa) | {
            "state": report.state.value,
            "why": report.why,
            "engine": report.engine,
            "number": None if held is None else held.number,
            "age": None if held is None else held.age.value,
            "sequence": None if held is None else held.sequence,
            "packets": None if held is None else held.packets,
            "bytes": None if held is None else held.bytes,
            "drops": {} if held is None else dict(held.drops),
            "path_mtu": self._path_mtu(report.sa),
        }

    def _path_mtu(self, sa: SecurityAssociation) -> dict[str, Any] | None:
        """Returns the path MTU of an outbound SA and what limits it, or None for an inbound SA."""
        found = self._associations.path_mtu_of(sa)
        if found is None:
            return None
        interfaces = self._controller.fib.interfaces.by_l3_if
        bound = None if found.l3_if is None else interfaces.get(found.l3_if)
        reported, now = found.reported, asyncio.get_running_loop().time()
        return {
            "bytes": found.mtu,
            "interface": None if bound is None else bound.spec.name,
            "told_by": None if reported is None else format_address(reported.sender),
            "forgotten_in": None if reported is None else round(max(0.0, reported.until - now), 1),
        }

    def _bundle_name(self, number: int) -> str:
        """Returns the name of the configured bundle, given the number of an SA's bundle or
        instance."""
        numbers = self._controller.policy.numbers
        return numbers.name_of(numbers.configured_number(number)) or str(number)

    def _described(self, sa: SecurityAssociation) -> dict[str, Any]:
        settings = sa.settings
        local, remote = settings.local, settings.remote
        return {
            "name": sa.name,
            "bundle": self._bundle_name(settings.bundle),
            "traffic": None if sa.traffic is None else str(sa.traffic),
            "direction": settings.direction.value,
            "spi": settings.spi,
            "mode": settings.mode.value,
            "algorithm": settings.algorithm,
            "origin": sa.origin.value,
            "local": None if local is None else format_address(local),
            "remote": None if remote is None else format_address(remote),
            "fragmentation": sa.fragmentation.value if sa.is_outbound else None,
            "soft": _limits(settings.soft),
            "hard": _limits(settings.hard),
        }


def _limits(lifetime: Lifetime) -> dict[str, int]:
    return {name: value for name, value in lifetime._asdict().items() if value is not None}


def _spi(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 256 <= value <= 0xFFFFFFFF:
        raise BadRequestError(f"{value!r} is not an SPI: 256 to {0xFFFFFFFF}")
    return value


def _whole_path(text: str) -> Path:
    if not text.startswith("/"):
        raise BadRequestError(f"{text!r}: a path in a request must begin with /")
    return Path(text)
