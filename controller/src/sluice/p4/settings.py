# SPDX-License-Identifier: Apache-2.0
"""Decodes a switch's settings for the auditor: punt meters, hash seed, and replication groups.

The controller writes the meters and the hash seed, which is a default action, without reading them
first. It never creates multicast groups or clone sessions, so any that exist come from another
client. Depends on schema and tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from sluice.entities import HASH_SEED_KEY, UNKNOWN, EntityKind, EntityValue, HashSeed, PuntLimit
from sluice.p4.entries import read_action
from sluice.p4.schema import Schema
from sluice.p4.tables import PipelineTables
from sluice.p4messages import p4r
from sluice.p4runtime.messages import UpdateType, update

SwitchSetting = tuple[EntityKind, str, EntityValue]


class SettingsCodec:
    """Decodes the settings of one pipeline. Raises SchemaError."""

    def __init__(self, schema: Schema) -> None:
        tables = PipelineTables(schema)
        self._meter = tables.punt_meter
        self._reasons = {number: name for name, number in tables.reasons.items()}
        self._seed_table = tables.hash_seed.id
        self._seed_action = tables.hash_seed.actions["set_hash_seed"].id

    def read_requests(self) -> list[p4r.Entity]:
        """Returns requests that together read all settings.

        The caller must send them one by one. If the target does not support one of them, the others
        then still succeed.
        """
        seed = p4r.TableEntry(table_id=self._seed_table, is_default_action=True)
        copies = p4r.PacketReplicationEngineEntry
        return [
            p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=self._meter)),
            p4r.Entity(table_entry=seed),
            p4r.Entity(
                packet_replication_engine_entry=copies(
                    multicast_group_entry=p4r.MulticastGroupEntry()
                )
            ),
            p4r.Entity(
                packet_replication_engine_entry=copies(clone_session_entry=p4r.CloneSessionEntry())
            ),
        ]

    def decode(self, entity: p4r.Entity) -> SwitchSetting | None:
        """Decodes a punt meter's limit or the hash seed. Returns None for any other entity."""
        if entity.HasField("meter_entry"):
            meter = entity.meter_entry
            reason = self._reasons.get(meter.index.index)
            config = meter.config
            known = (config.cir, config.cburst) == (config.pir, config.pburst)
            limit = PuntLimit(config.cir, config.cburst)
            return (
                None
                if reason is None
                else (EntityKind.PUNT_METER, reason, limit if known else UNKNOWN)
            )
        entry = entity.table_entry
        if entry.table_id != self._seed_table or not entry.is_default_action:
            return None
        identifier, params = read_action(entry)
        known = identifier == self._seed_action and len(params) == 1
        return EntityKind.HASH_SEED, HASH_SEED_KEY, HashSeed(params[0]) if known else UNKNOWN

    def copies(self, entities: Sequence[p4r.Entity]) -> list[tuple[str, bytes]]:
        """Returns the name of each multicast group and clone session, and the update that deletes
        it."""
        found = []
        for entity in entities:
            copy = entity.packet_replication_engine_entry
            if copy.HasField("multicast_group_entry"):
                name = f"multicast_group {copy.multicast_group_entry.multicast_group_id}"
            elif copy.HasField("clone_session_entry"):
                name = f"clone_session {copy.clone_session_entry.session_id}"
            else:
                continue
            found.append((name, update(UpdateType.DELETE, entity.SerializeToString())))
        return found
