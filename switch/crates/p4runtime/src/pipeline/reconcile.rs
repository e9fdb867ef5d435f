// SPDX-License-Identifier: Apache-2.0
//! Implements RECONCILE_AND_COMMIT: carries the state of the running pipeline over to the new pipeline. If the state
//! does not fit, refuses the new pipeline.
//!
//! The server does what a client would do: it reads the state from the old pipeline, and writes it to the new
//! pipeline by P4Info ids.

use std::sync::Arc;

use tonic::Status;

use crate::entity::{Operation, table};
use crate::pipeline::Pipeline;
use crate::proto::v1::entity::Entity as EntityKind;
use crate::proto::v1::write_request::Atomicity;
use crate::proto::v1::{
    ActionProfileGroup, ActionProfileMember, CounterData, CounterEntry, Entity, MeterConfig,
    MeterEntry, PacketReplicationEngineEntry, RegisterEntry, TableEntry, Update, ValueSetEntry,
    update,
};
use crate::role::Rights;
use crate::schema::Schema;
use crate::write::batch::Batch;
use crate::{read, write};

/// Builds read requests for all state that clients have written.
fn everything() -> [Entity; 9] {
    // Order: referenced entities come before the entities that refer to them.
    let everything = [
        EntityKind::ActionProfileMember(ActionProfileMember::default()),
        EntityKind::ActionProfileGroup(ActionProfileGroup::default()),
        EntityKind::PacketReplicationEngineEntry(PacketReplicationEngineEntry::default()),
        EntityKind::ValueSetEntry(ValueSetEntry::default()),
        EntityKind::TableEntry(with_resources(false)),
        EntityKind::TableEntry(with_resources(true)),
        EntityKind::MeterEntry(MeterEntry::default()),
        EntityKind::CounterEntry(CounterEntry::default()),
        EntityKind::RegisterEntry(RegisterEntry::default()),
    ];
    everything.map(|kind| Entity { entity: Some(kind) })
}

/// Reads all state that clients have written, which marks every string in this state as used. The sweep that called
/// this then removes all other strings.
pub(crate) fn read_all(pipeline: &Arc<Pipeline>) {
    let (entities, _) = read::read(pipeline, Rights::default(), &everything(), 0);
    entities.for_each(drop);
}

/// Copies the old pipeline's state into the new one. An error names the entity that does not fit.
pub(crate) fn carry_over(
    old: &Arc<Pipeline>,
    new: &Pipeline,
    port_exists: &dyn Fn(u32) -> bool,
) -> Result<(), Status> {
    let (entities, results) = read::read(old, Rights::default(), &everything(), 0);
    if let Some(Err(error)) = results.into_iter().find(Result::is_err) {
        return Err(Status::internal(error.message));
    }
    let updates = entities.filter_map(|entity| update(&old.schema, entity));
    let updates = Batch::of(updates);
    let results = write::apply(
        new,
        port_exists,
        &Rights::default(),
        &updates,
        Atomicity::RollbackOnError,
    );
    let refused = results
        .iter()
        .zip(updates.items())
        .find_map(|(result, update)| match result {
            Err(error) if error.code != tonic::Code::Aborted => Some((error, update)),
            _ => None,
        });
    if let Some((error, update)) = refused {
        let message = format!(
            "an entity of the running config does not fit the new config: {error}: {update:?}"
        );
        return Err(Status::invalid_argument(message));
    }
    for (digest_id, config) in old.digests.all() {
        if new.schema.digests.contains_key(&digest_id) {
            let entry = crate::proto::v1::DigestEntry {
                digest_id,
                config: Some(config),
            };
            new.digests.apply(Operation::Insert, &entry);
        }
    }
    Ok(())
}

/// Builds a request for all entries, or all default entries, with their direct resources.
fn with_resources(is_default_action: bool) -> TableEntry {
    TableEntry {
        is_default_action,
        counter_data: Some(CounterData::default()),
        meter_config: Some(MeterConfig::default()),
        ..TableEntry::default()
    }
}

/// Returns the update that restores an entity. Returns `None` for an entity that belongs to the program itself.
fn update(old: &Schema, entity: Entity) -> Option<Update> {
    let r#type = match entity.entity.as_ref()? {
        EntityKind::TableEntry(entry) if entry.is_const => return None,
        EntityKind::TableEntry(entry) if entry.is_default_action => {
            let table = old.tables.get(&entry.table_id)?;
            if !table::may_set_default(table) {
                return None;
            }
            update::Type::Modify
        }
        EntityKind::MeterEntry(MeterEntry { config: None, .. }) => return None,
        EntityKind::MeterEntry(_)
        | EntityKind::CounterEntry(_)
        | EntityKind::RegisterEntry(_)
        | EntityKind::ValueSetEntry(_) => update::Type::Modify,
        _ => update::Type::Insert,
    };
    Some(Update {
        r#type: r#type.into(),
        entity: Some(entity),
    })
}
