# SPDX-License-Identifier: Apache-2.0
"""Finds the objects of the pipeline's P4Info by the names of the P4 source.

`Schema` finds tables, actions, match fields, enums and packet metadata by alias. So the
controller's code contains no ids. The controller refuses a pipeline that lacks a needed name;
`SchemaError` lists all missing names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from google.protobuf import text_format

from sluice.about import DEVICE_CONFIG_FILE, default_pipeline
from sluice.p4messages import p4i

T = TypeVar("T")

P4INFO_FILE = "router.p4info.txtpb"


class SchemaError(Exception):
    """Raised if the pipeline's files are missing or unreadable, or lack needed names."""


@dataclass(frozen=True, slots=True)
class ActionSchema:
    """Describes an action: its id, and the ids of its parameters by name."""

    id: int
    params: dict[str, int]


NO_ACTION = ActionSchema(0, {})
"""Placeholder for an action that the pipeline lacks, until `Schema.check` raises SchemaError."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Describes a table: id, ids of match fields by name, actions by alias, size in entries."""

    id: int
    fields: dict[str, int]
    actions: dict[str, ActionSchema]
    size: int


class Schema:
    """Holds the contents of P4Info by name.

    A method that does not find a name records the name and returns a placeholder. `check` then
    raises SchemaError with all recorded names.
    """

    def __init__(self, p4info: p4i.P4Info) -> None:
        self.p4info = p4info
        self._missing: list[str] = []
        actions = {
            action.preamble.id: (
                action.preamble.alias,
                ActionSchema(action.preamble.id, {param.name: param.id for param in action.params}),
            )
            for action in p4info.actions
        }
        self._tables = {
            table.preamble.alias: TableSchema(
                table.preamble.id,
                {field.name: field.id for field in table.match_fields},
                dict(actions[ref.id] for ref in table.action_refs),
                table.size,
            )
            for table in p4info.tables
        }
        self._meters = {meter.preamble.alias: meter.preamble.id for meter in p4info.meters}
        self._counters = {
            counter.preamble.alias: (counter.preamble.id, counter.size)
            for counter in p4info.counters
        }
        self._profiles = {
            profile.preamble.alias: (profile.preamble.id, profile.size, profile.max_group_size)
            for profile in p4info.action_profiles
        }
        self._enums = {
            name: {member.name: int.from_bytes(member.value, "big") for member in enum.members}
            for name, enum in p4info.type_info.serializable_enums.items()
        }
        self._metadata = {
            header.preamble.alias: [
                (field.id, field.name, field.bitwidth) for field in header.metadata
            ]
            for header in p4info.controller_packet_metadata
        }

    def table(
        self, alias: str, fields: tuple[str, ...], actions: dict[str, tuple[str, ...]]
    ) -> TableSchema:
        """Returns a table. Records missing match fields, actions and parameters of actions."""
        table = self._tables.get(alias)
        if table is None:
            self._missing.append(f"table {alias}")
            return TableSchema(0, dict.fromkeys(fields, 0), _blank_actions(actions), 0)
        for field in fields:
            if field not in table.fields:
                self._missing.append(f"match field {field} of table {alias}")
        for name, params in actions.items():
            action = table.actions.get(name)
            if action is None:
                self._missing.append(f"action {name} of table {alias}")
                continue
            for param in params:
                if param not in action.params:
                    self._missing.append(f"parameter {param} of action {name}")
        return table

    def meter(self, alias: str) -> int:
        """Returns a meter's id."""
        return self._need(self._meters, alias, "meter", 0)

    def counter(self, alias: str) -> tuple[int, int]:
        """Returns an indexed counter's id and size."""
        return self._need(self._counters, alias, "counter", (0, 0))

    def action_profile(self, alias: str) -> tuple[int, int, int]:
        """Returns an action profile's id, its size, and the largest sum of a group's weights.

        The last value is 0 if the sum is not limited.
        """
        return self._need(self._profiles, alias, "action profile", (0, 0, 0))

    def enum(self, name: str) -> dict[str, int]:
        """Returns a serializable enum's member values by name."""
        return self._need(self._enums, name, "enum", {})

    def member(self, enum: str, name: str) -> int:
        """Returns the value of one member of an enum."""
        return self._need(self.enum(enum), name, f"member of {enum}", 0)

    def metadata(self, alias: str, names: tuple[str, ...]) -> list[tuple[int, int]]:
        """Returns (id, width in bits) of each field of packet-in or packet-out metadata.

        The fields must have exactly these `names`, in this order.
        """
        fields = self._metadata.get(alias, [])
        found = tuple(name for _, name, _ in fields)
        if found != names:
            self._missing.append(
                f"{alias} metadata {', '.join(names)} (it has: {', '.join(found)})"
            )
        return [(identifier, width) for identifier, _, width in fields]

    def lack(self, what: str) -> None:
        """Records `what` as missing in the pipeline."""
        self._missing.append(what)

    def check(self) -> None:
        """Raises SchemaError if any requested name is missing."""
        if self._missing:
            raise SchemaError(
                "this controller cannot drive the pipeline; the pipeline's P4Info lacks: "
                + "; ".join(self._missing)
            )

    def _need(self, names: dict[str, T], name: str, what: str, otherwise: T) -> T:
        if name not in names:
            self._missing.append(f"{what} {name}")
            return otherwise
        return names[name]


def _blank_actions(actions: dict[str, tuple[str, ...]]) -> dict[str, ActionSchema]:
    return {name: ActionSchema(0, dict.fromkeys(params, 0)) for name, params in actions.items()}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Holds a compiled pipeline: P4Info and the target's device config."""

    p4info: p4i.P4Info
    device_config: bytes


def load_pipeline(directory: Path | None) -> Pipeline:
    """Reads a compiled pipeline, by default the one of this package or checkout.

    Raises SchemaError if a file is missing or unreadable.
    """
    directory = directory or default_pipeline()
    p4info = p4i.P4Info()
    try:
        text = (directory / P4INFO_FILE).read_text(encoding="utf-8")
        device_config = (directory / DEVICE_CONFIG_FILE).read_bytes()
    except OSError as error:
        raise SchemaError(
            f"{error.filename}: {error.strerror}; set switch.pipeline to the directory that holds "
            f"{DEVICE_CONFIG_FILE} and {P4INFO_FILE}, or build it (make p4)"
        ) from None
    try:
        text_format.Parse(text, p4info)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise SchemaError(f"{directory / P4INFO_FILE}: not a P4Info text file: {error}") from None
    return Pipeline(p4info, device_config)
