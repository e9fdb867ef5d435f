// SPDX-License-Identifier: Apache-2.0
//! Applies the batch of a Write request as one transaction (P4Runtime specification, "Write RPC").
//!
//! Updates are applied in order, and packets see all of them at once. This is more than any of the three atomicity
//! modes requires. The modes differ only in the effect of an error. CONTINUE_ON_ERROR keeps the other updates. The
//! other two modes roll the whole batch back, and report ABORTED for updates that would have succeeded.
//!
//! Counters, meters and registers exist once, not once for each version of the tables. So the writes to their cells are
//! performed together with the commit, while no packet is processed. A worker can therefore update a cell without
//! regard to such writes.

pub(crate) mod batch;
pub(crate) mod request;
mod shape;
mod value;
pub(crate) mod wire;

use sluice_tables::{AHEAD, Transaction};

use crate::entity::array::CellWrite;
use crate::entity::direct::DirectWrites;
use crate::entity::{Context, Operation, array, profile, replication, table, value_set};
use crate::error::{UpdateError, UpdateResult};
use crate::pipeline::Pipeline;
use crate::proto::v1::entity::Entity;
use crate::proto::v1::write_request::Atomicity;
use crate::proto::v1::{DigestEntry, Update};
use crate::role::Rights;
use crate::schema::unknown;
use crate::stream::digest::DigestConfigs;
use crate::write::batch::{Batch, DecodedEntry, DecodedUpdate};

/// Applies a batch for a role. Returns the result of each update, in order.
pub(crate) fn apply(
    pipeline: &Pipeline,
    port_exists: &dyn Fn(u32) -> bool,
    rights: &Rights,
    updates: &Batch<'_>,
    atomicity: Atomicity,
) -> Vec<UpdateResult> {
    let context = Context {
        schema: &pipeline.schema,
        program: pipeline.store.program(),
        port_exists,
    };
    let mut writing = Writing {
        context: &context,
        rights,
        transaction: pipeline.store.transaction(),
        direct: DirectWrites::default(),
        cells: Vec::new(),
        digest_configs: &pipeline.digests,
        digests: Vec::new(),
    };
    let items = updates.items();
    let mut results = Vec::with_capacity(items.len());
    let mut later = items.chunks(AHEAD);
    let mut prefetch_next = |writing: &Writing<'_>| {
        if let Some(items) = later.next() {
            writing.prefetch(updates, items);
        }
    };
    prefetch_next(&writing);
    for now in items.chunks(AHEAD) {
        prefetch_next(&writing);
        results.extend(now.iter().map(|item| match item {
            DecodedUpdate::Entry(entry) => writing.entry(updates, entry),
            DecodedUpdate::Update(update) => writing.update(update),
        }));
    }
    let failed = results.iter().any(Result::is_err);
    if failed && atomicity != Atomicity::ContinueOnError {
        // The transaction is dropped without a commit, so it is rolled back.
        let aborted = || {
            UpdateError::aborted(
                "this update was rolled back, because another update of the batch failed",
            )
        };
        return results
            .into_iter()
            .map(|result| result.and_then(|()| Err(aborted())))
            .collect();
    }
    writing.commit(pipeline);
    results
}

struct Writing<'a> {
    context: &'a Context<'a>,
    rights: &'a Rights,
    transaction: Transaction<'a>,
    direct: DirectWrites,
    cells: Vec<CellWrite>,
    digest_configs: &'a DigestConfigs,
    digests: Vec<(Operation, DigestEntry)>,
}

impl Writing<'_> {
    /// Prefetches the memory for writing entries: those that belong to the same table as the first entry.
    fn prefetch(&self, batch: &Batch<'_>, items: &[DecodedUpdate<'_>]) {
        let entries = items.iter().filter_map(|item| match item {
            DecodedUpdate::Entry(entry) => Some(entry),
            DecodedUpdate::Update(_) => None,
        });
        let table = entries.clone().next().map(|entry| entry.plan.table);
        if let Some(table) = table {
            let same = entries.filter(|entry| entry.plan.table == table);
            self.transaction
                .prefetch(table, same.map(|entry| batch.compiled(entry)));
        }
    }

    /// Writes an entry that is already in the tables' form.
    fn entry(&mut self, batch: &Batch<'_>, item: &DecodedEntry<'_>) -> UpdateResult {
        let (schema, plan) = (self.context.schema, item.plan);
        self.rights.check_id(schema, plan.id)?;
        let (table, entry) = (plan.table, batch.compiled(item));
        let written = match item.operation {
            Operation::Insert => self.transaction.insert_compiled(table, &entry),
            Operation::Modify => self.transaction.modify_compiled(table, &entry),
            Operation::Delete => self.transaction.delete_compiled(table, &entry),
        };
        written.map_err(|error| {
            let name = schema.table(plan.id).map_or("", |table| &table.name);
            UpdateError::from(error).of(&format!("table {name:?}"))
        })
    }

    /// Applies one update, and rolls it back if it fails.
    fn update(&mut self, update: &Update) -> UpdateResult {
        let operation = Operation::decode(update.r#type())?;
        let entity = update
            .entity
            .as_ref()
            .and_then(|entity| entity.entity.as_ref());
        let Some(entity) = entity else {
            return Err(UpdateError::invalid(
                "the field `entity` of the update is not set",
            ));
        };
        self.rights.check(self.context.schema, entity)?;
        let savepoint = self.transaction.savepoint();
        let direct = self.direct.savepoint();
        let result = self.entity(operation, entity);
        if result.is_err() {
            self.transaction.rollback(savepoint);
            self.direct.rollback(direct);
        }
        result
    }

    fn entity(&mut self, operation: Operation, entity: &Entity) -> UpdateResult {
        let Self {
            context,
            transaction,
            direct,
            ..
        } = self;
        match entity {
            Entity::TableEntry(entry) => {
                table::apply(context, transaction, operation, entry, direct)
            }
            Entity::ActionProfileMember(member) => {
                profile::apply_member(context, transaction, operation, member)
            }
            Entity::ActionProfileGroup(group) => {
                profile::apply_group(context, transaction, operation, group)
            }
            Entity::PacketReplicationEngineEntry(entry) => {
                replication::apply(context, transaction, operation, entry)
            }
            Entity::ValueSetEntry(entry) => {
                value_set::apply(context, transaction, operation, entry)
            }
            Entity::DirectCounterEntry(entry) => {
                direct.counter(context, transaction, operation, entry)
            }
            Entity::DirectMeterEntry(entry) => direct.meter(context, transaction, operation, entry),
            Entity::CounterEntry(entry) => {
                self.cells
                    .extend(array::counter(context, operation, entry)?);
                Ok(())
            }
            Entity::MeterEntry(entry) => {
                self.cells.extend(array::meter(context, operation, entry)?);
                Ok(())
            }
            Entity::RegisterEntry(entry) => {
                self.cells.push(array::register(context, operation, entry)?);
                Ok(())
            }
            Entity::DigestEntry(entry) => self.digest(operation, entry),
            Entity::ExternEntry(_) => Err(UpdateError::unimplemented(
                "extern entries are not implemented",
            )),
        }
    }

    fn digest(&mut self, operation: Operation, entry: &DigestEntry) -> UpdateResult {
        if !self.context.schema.digests.contains_key(&entry.digest_id) {
            return Err(unknown("digest", entry.digest_id));
        }
        DigestConfigs::check(operation, entry)?;
        self.digest_configs
            .admit(&self.digests, operation, entry.digest_id)?;
        self.digests.push((operation, *entry));
        Ok(())
    }

    fn commit(self, pipeline: &Pipeline) {
        let (direct, cells) = (self.direct, self.cells);
        let has_cells = !direct.is_empty() || !cells.is_empty();
        let write_cells = || {
            direct.perform();
            let externs = pipeline.store.externs();
            cells.iter().for_each(|write| write.perform(externs));
        };
        if has_cells {
            self.transaction.commit_with(write_cells);
        } else {
            self.transaction.commit();
        }
        for (operation, entry) in self.digests {
            pipeline.digests.apply(operation, &entry);
        }
    }
}
