# SPDX-License-Identifier: Apache-2.0
"""Stores on disk the SAs that commands added or rekeyed, so that they survive a restart.

The store is one JSON file, replaced as a whole. It holds the names of key files, never keys. An SA
of the configuration that a command rekeyed is stored together with its configuration at that time.
If its configuration has changed since, the stored SA is discarded. Depends on durable and
sa_config.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sluice.durable import replace_json
from sluice.sa_config import BundleOfSas, SaFileKeys, ValuesInUse, parse_associations, to_document
from sluice.sa_model import Origin, SecurityAssociation
from sluice.sa_uses import SaStoreError
from sluice.yamlreader import ConfigError

FILE_NAME = "security-associations.json"
VERSION = 1
HERE = Path("/")
"""Base directory for the paths of key files. It has no effect, since stored paths are absolute."""


class StoredSa(NamedTuple):
    """Holds an SA that a command added or rekeyed.

    `instead_of`: the configuration of the SA at the time when a command rekeyed it. None if a
    command added the SA.
    """

    sa: SecurityAssociation
    instead_of: dict[str, Any] | None = None


class SaStore:
    """Reads and writes the file of stored SAs in a state directory. `bundles` are the configured
    bundles."""

    def __init__(self, directory: Path, bundles: Mapping[str, BundleOfSas]) -> None:
        self.path = directory / FILE_NAME
        self._bundles = bundles
        self._names = {bundle.id: name for name, bundle in bundles.items()}

    def load(self, told: Callable[[str], None]) -> list[StoredSa]:
        """Returns the SAs saved last, except those that are no longer valid.

        Calls `told` with the name and reason of each invalid SA. Raises SaStoreError.
        """
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SaStoreError(f"{self.path}: {error.strerror}") from None
        try:
            document = json.loads(text)
            if document["version"] != VERSION:
                raise ValueError(f"its version is {document['version']}, not {VERSION}")
            found = [self._read(entry, told) for entry in document["sas"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SaStoreError(
                f"{self.path}: damaged ({error!r}); remove the file, and add the SAs again"
            ) from None
        return [stored for stored in found if stored is not None]

    def save(self, stored: Iterable[StoredSa]) -> None:
        """Saves the SAs to disk. Raises SaStoreError."""
        entries = [
            {
                "sa": self.document(one.sa),
                "retiring": one.sa.is_retiring,
                "instead_of": one.instead_of,
            }
            for one in stored
        ]
        try:
            replace_json(self.path, {"version": VERSION, "sas": entries})
        except OSError as error:
            raise SaStoreError(f"{self.path}: {error.strerror}") from None

    def document(self, sa: SecurityAssociation) -> dict[str, Any]:
        """Returns an SA in the form of the configuration."""
        return to_document(sa, self._names[sa.settings.bundle])

    def _read(self, entry: dict[str, Any], told: Callable[[str], None]) -> StoredSa | None:
        document, instead_of = entry["sa"], entry["instead_of"]
        try:
            (sa,) = parse_associations(
                json.dumps({SaFileKeys.security_associations.name: [document]}),
                f"SA {document['name']}",
                HERE,
                self._bundles,
                ValuesInUse.by(),
            )
        except ConfigError as error:
            told(f"{self.path}: left out: {error}")
            return None
        origin = Origin.COMMAND if instead_of is None else Origin.CONFIGURATION
        sa = replace(sa, origin=origin, is_retiring=bool(entry["retiring"]))
        return StoredSa(sa, instead_of)
