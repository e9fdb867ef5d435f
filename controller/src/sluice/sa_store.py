# SPDX-License-Identifier: Apache-2.0
"""Stores SAs that commands added or rekeyed on disk, so that a restart resumes with them.

One JSON file, replaced whole. It names the files that keys are in and never holds one. A rekeyed SA
of the configuration is kept with what the configuration said then: once that says something else,
it counts. Depends on durable and sa_config.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sluice.durable import replace_json
from sluice.sa_config import BundleOfSas, SaFileKeys, Taken, parse_associations, to_document
from sluice.sa_model import Origin, SecurityAssociation
from sluice.sa_uses import SaStoreError
from sluice.yamlreader import ConfigError

FILE_NAME = "security-associations.json"
VERSION = 1
HERE = Path("/")
"""What the names of key files are relative to: they are written whole."""


class StoredSa(NamedTuple):
    """An SA that is not, or not just, the configuration's.

    `instead_of` is what the configuration said of the SA that was rekeyed; None: a command's.
    """

    sa: SecurityAssociation
    instead_of: dict[str, Any] | None = None


class SaStore:
    """The file in a state directory; `bundles` are those of the configuration."""

    def __init__(self, directory: Path, bundles: Mapping[str, BundleOfSas]) -> None:
        self.path = directory / FILE_NAME
        self._bundles = bundles
        self._names = {bundle.id: name for name, bundle in bundles.items()}

    def load(self, told: Callable[[str], None]) -> list[StoredSa]:
        """The SAs that were saved last, but for those that cannot be any more: `told` hears which,
        and why. Raises SaStoreError."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SaStoreError(f"{self.path}: {error.strerror}") from None
        try:
            document = json.loads(text)
            if document["version"] != VERSION:
                raise ValueError(f"version {document['version']}, this is for {VERSION}")
            found = [self._read(entry, told) for entry in document["sas"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SaStoreError(
                f"{self.path}: damaged ({error!r}); remove it, and add the SAs again"
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
                Taken.by(),
            )
        except ConfigError as error:
            told(f"{self.path}: left out: {error}")
            return None
        origin = Origin.COMMAND if instead_of is None else Origin.CONFIGURATION
        sa = replace(sa, origin=origin, is_retiring=bool(entry["retiring"]))
        return StoredSa(sa, instead_of)
