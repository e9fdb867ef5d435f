// SPDX-License-Identifier: Apache-2.0
//! Handles Read requests: returns the entities that match the requests (P4Runtime specification, "Read RPC", "Wildcard
//! Reads").
//!
//! A read is consistent, because one view of the tables serves the whole request. Writes wait while the view is held.
//! So the read only collects references meanwhile, and builds the messages afterwards, one chunk at a time. A slow
//! client therefore delays no other request.

mod entity_ref;
mod select;

use std::sync::Arc;

use crate::entity::requested::RequestedFields;
use crate::entity::stored_entry::StoredEntry;
use crate::entity::{array, cell, direct, table};
use crate::error::{UpdateError, UpdateResult};
use crate::pipeline::Pipeline;
use crate::proto::v1::entity::Entity as EntityKind;
use crate::proto::v1::{
    CounterEntry, DirectCounterEntry, DirectMeterEntry, Entity, MeterEntry, RegisterEntry,
    TableEntry,
};
use crate::role::Rights;
use entity_ref::EntityRef;

/// Result of a read, from which messages are built.
pub struct Reading {
    pipeline: Arc<Pipeline>,
    rights: Rights,
    items: std::vec::IntoIter<EntityRef>,
    now_us: u64,
}

/// Reads the entities that match the requests and that the role may access. Also returns a result for each request, in
/// order.
pub(crate) fn read(
    pipeline: &Arc<Pipeline>,
    rights: Rights,
    requests: &[Entity],
    now_us: u64,
) -> (Reading, Vec<UpdateResult>) {
    let view = pipeline.store.view();
    let mut reader = select::EntityCollector {
        pipeline,
        view,
        items: Vec::new(),
    };
    let read = |request: &Entity| match &request.entity {
        Some(kind) => reader.read(kind),
        None => Err(UpdateError::invalid("an entity of the request is empty")),
    };
    let results = requests.iter().map(read).collect();
    let items = reader.items.into_iter();
    (
        Reading {
            pipeline: pipeline.clone(),
            rights,
            items,
            now_us,
        },
        results,
    )
}

impl Iterator for Reading {
    type Item = Entity;

    fn next(&mut self) -> Option<Entity> {
        loop {
            let item = self.items.next()?;
            // Leaves out entities of other roles. Also leaves out entities that P4Info cannot express, such as an entry
            // whose action P4Info does not list.
            let entity = self.encode(item);
            let covered = |entity: &EntityKind| self.rights.covers(&self.pipeline.schema, entity);
            if let Some(entity) = entity.filter(covered) {
                return Some(Entity {
                    entity: Some(entity),
                });
            }
        }
    }
}

impl Reading {
    fn encode(&self, item: EntityRef) -> Option<EntityKind> {
        let schema = &self.pipeline.schema;
        let externs = self.pipeline.store.externs();
        let context = self.pipeline.context();
        let encode = |id, found: &StoredEntry, requested| {
            let table = schema.tables.get(&id)?;
            match found {
                StoredEntry::Entry(entry) => {
                    table::encode(&context, id, table, entry, requested, self.now_us)
                }
                StoredEntry::Default(entry) => {
                    Some(table::encode_default(&context, id, table, entry, requested))
                }
            }
        };
        // The key alone identifies the entry of a direct resource.
        let key = |id, found: &StoredEntry| {
            let entry = encode(id, found, RequestedFields::default())?;
            Some(TableEntry {
                action: None,
                ..entry
            })
        };
        Some(match item {
            EntityRef::Ready(kind) => *kind,
            EntityRef::Table(id, entry, requested) => {
                EntityKind::TableEntry(encode(id, &StoredEntry::Entry(entry), requested)?)
            }
            EntityRef::Default(id, entry, requested) => {
                EntityKind::TableEntry(encode(id, &StoredEntry::Default(entry), requested)?)
            }
            EntityRef::DirectCounter(id, found) => {
                EntityKind::DirectCounterEntry(DirectCounterEntry {
                    table_entry: Some(key(id, &found)?),
                    data: Some(direct::counter_data(found.state())),
                })
            }
            EntityRef::DirectMeter(id, found, colors) => {
                EntityKind::DirectMeterEntry(DirectMeterEntry {
                    table_entry: Some(key(id, &found)?),
                    config: direct::meter_config(found.meter()),
                    counter_data: direct::meter_counters(found.meter()).filter(|_| colors),
                })
            }
            EntityRef::Counter(id, index) => {
                let cell = externs.counter(schema.counters.get(&id)?.id, index)?;
                let (packets, bytes) = cell.get();
                EntityKind::CounterEntry(CounterEntry {
                    counter_id: id,
                    index: array::encode_index(index),
                    data: Some(cell::encode_counter(packets, bytes)),
                })
            }
            EntityRef::Meter(id, index, colors) => {
                let meter = externs.meter(schema.meters.get(&id)?.0.id, index)?;
                EntityKind::MeterEntry(MeterEntry {
                    meter_id: id,
                    index: array::encode_index(index),
                    config: meter.config().and_then(cell::encode_config),
                    counter_data: colors.then(|| cell::encode_colors(meter)),
                })
            }
            EntityRef::Register(id, index) => {
                let register = schema.registers.get(&id)?;
                let value = externs.register_read(register.array.id, index)?;
                EntityKind::RegisterEntry(RegisterEntry {
                    register_id: id,
                    index: array::encode_index(index),
                    data: Some(array::encode_register(register, &value)),
                })
            }
        })
    }
}
