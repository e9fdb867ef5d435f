// SPDX-License-Identifier: Apache-2.0
use std::sync::Arc;

use proptest::prelude::*;
use sluice_program::Program;
use sluice_tables::{EntrySpec, Store};

use super::*;
use crate::entity::Context;
use crate::entity::direct::DirectWrites;
use crate::entity::table;
use crate::error::UpdateResult;
use crate::p4info;
use crate::proto::v1::action::Param;
use crate::proto::v1::field_match::{Exact, FieldMatchType, Lpm};
use crate::proto::v1::{
    Action, Entity, FieldMatch, TableAction, TableEntry, WriteRequest, entity, table_action,
};
use crate::schema::Schema;

const JSON: &[u8] = include_bytes!("../../../tests/server/programs/surface.json");
const P4INFO: &str = include_str!("../../../tests/server/programs/surface.p4info.txtpb");

/// A table with an exact field of 7 bits and a longest-prefix field of 32 bits.
const TABLE: &str = "ingress.lpm_table";

/// Returns the ids of the table's actions.
fn actions(schema: &Schema) -> Vec<u32> {
    let table = schema.tables.values().find(|table| table.name == TABLE);
    table.unwrap().actions.keys().copied().collect()
}

fn schema_and_store() -> (Schema, Store) {
    let program = Program::from_json(JSON).unwrap();
    let schema = Schema::bind(&p4info::from_text(P4INFO).unwrap(), &program).unwrap();
    (schema, Store::new(Arc::new(program)))
}

fn request(entry: TableEntry, operation: i32) -> Request {
    let entity = Some(entity::Entity::TableEntry(entry));
    let update = Update {
        r#type: operation,
        entity: Some(Entity { entity }),
    };
    let request = WriteRequest {
        updates: vec![update],
        ..WriteRequest::default()
    };
    Request::read(request.encode_to_vec().into()).unwrap()
}

/// Inserts the entry by the slow path, and returns the table's content.
fn long_way(schema: &Schema, store: &Store, entry: &TableEntry) -> UpdateResult<Vec<EntrySpec>> {
    let context = Context {
        schema,
        program: store.program(),
        port_exists: &|_| true,
    };
    let mut transaction = store.transaction();
    let mut direct = DirectWrites::default();
    table::apply(
        &context,
        &mut transaction,
        Operation::Insert,
        entry,
        &mut direct,
    )?;
    transaction.commit();
    Ok(held(schema, store))
}

fn held(schema: &Schema, store: &Store) -> Vec<EntrySpec> {
    let table = schema.tables.values().find(|table| table.name == TABLE);
    let (id, program) = (table.unwrap().id, store.program());
    let entries = store.view().entries(id);
    let specs = entries
        .iter()
        .map(|entry| entry.spec(program, program.table(id)));
    specs.collect()
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(0u8), 1 => Just(0x40), 1 => Just(0x80), 1 => any::<u8>()];
    proptest::collection::vec(byte, 0..6)
}

prop_compose! {
    fn field()(field_id in 0u32..4, exact: bool, value in bytes(), prefix_len in -1..40) -> FieldMatch {
        let kind = match exact {
            true => FieldMatchType::Exact(Exact { value }),
            false => FieldMatchType::Lpm(Lpm { value, prefix_len }),
        };
        FieldMatch { field_id, field_match_type: Some(kind) }
    }
}

prop_compose! {
    /// Generates entries: many valid ones, and many with a mistake.
    fn entry()(
        good in (0u8..128, any::<u32>(), 1..=32, 0u64..512),
        fields in proptest::option::weighted(0.5, proptest::collection::vec(field(), 0..4)),
        which in any::<prop::sample::Index>(),
        params in proptest::option::weighted(0.3, proptest::collection::vec((0u32..3, bytes()), 0..3)),
        priority in prop_oneof![9 => Just(0), 1 => Just(1)],
        idle_timeout_ns in prop_oneof![5 => Just(0i64), 1 => any::<i64>()],
        is_default_action in proptest::bool::weighted(0.05),
    ) -> TableEntry {
        let (schema, _) = schema_and_store();
        let table_id = *schema.tables.iter().find(|(_, table)| table.name == TABLE).unwrap().0;
        let (exact, address, prefix_len, number) = good;
        let address = (address as u64 >> (32 - prefix_len) << (32 - prefix_len)) as u32;
        let exact = FieldMatchType::Exact(Exact { value: vec![exact] });
        let lpm = FieldMatchType::Lpm(Lpm { value: address.to_be_bytes().into(), prefix_len });
        let right = [(1, exact), (2, lpm)].map(|(field_id, kind)| FieldMatch {
            field_id,
            field_match_type: Some(kind),
        });
        let action_id = *which.get(&actions(&schema));
        let declared = &schema.actions[&action_id].params;
        let right_params = declared.iter().map(|param| (param.id, number.to_be_bytes().into()));
        let params = params.unwrap_or_else(|| right_params.collect());
        let params = params.into_iter().map(|(param_id, value)| Param { param_id, value });
        let action = Action { action_id, params: params.collect() };
        TableEntry {
            table_id,
            r#match: fields.unwrap_or_else(|| right.into()),
            action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
            priority,
            idle_timeout_ns,
            is_default_action,
            ..TableEntry::default()
        }
    }
}

proptest! {
    #[test]
    fn what_is_taken_in_one_step_is_what_the_long_way_makes_of_it(entry in entry()) {
        let (schema, store) = schema_and_store();
        let plans = Plans::new(&schema, store.program());
        let request = request(entry.clone(), 1);
        let batch = Batch::decode(&plans, &request).unwrap();
        let (_, other) = schema_and_store();
        let expected = long_way(&schema, &other, &entry);
        match &batch.items()[0] {
            DecodedUpdate::Entry(item) => {
                let mut transaction = store.transaction();
                transaction.insert_compiled(item.plan.table, &batch.compiled(item)).unwrap();
                transaction.commit();
                prop_assert_eq!(Ok(held(&schema, &store)), expected);
            }
            // Only unusual updates may take the slow path. An example is an update in which every key field is
            // "don't care".
            DecodedUpdate::Update(update) => {
                let unusual = entry.is_default_action || entry.priority != 0;
                prop_assert!(expected.is_err() || unusual, "{update:?}");
            }
        }
    }
}

/// Builds a request from encoded updates.
fn of_encoded<const N: usize>(updates: [&[u8]; N]) -> Request {
    let mut body = Vec::new();
    for update in updates {
        prost::encoding::bytes::encode(4, &update.to_vec(), &mut body);
    }
    Request::read(body.into()).unwrap()
}

/// Returns a description of how the last update of a request was decoded.
fn last(plans: &Plans, request: &Request) -> Result<String, tonic::Code> {
    let batch = Batch::decode(plans, request).map_err(|status| status.code())?;
    let last = batch.items().last().unwrap();
    Ok(match last {
        DecodedUpdate::Entry(item) => {
            let (operation, entry) = (item.operation, batch.compiled(item));
            format!("{operation:?} {} {entry:?}", item.plan.id)
        }
        DecodedUpdate::Update(update) => format!("{update:?}"),
    })
}

proptest! {
    #[test]
    fn an_update_means_the_same_after_any_other(
        entry in entry(),
        operation in 0..4,
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![Just(0u8), Just(0x80), any::<u8>()]),
            0..4,
        ),
    ) {
        let (schema, store) = schema_and_store();
        let plans = Plans::new(&schema, store.program());
        let request = request(entry, operation);
        let one = request.updates().next().unwrap();
        let mut other = one.to_vec();
        for (at, byte) in changes {
            let at = at.index(other.len());
            other[at] = byte;
        }
        let alone = last(&plans, &of_encoded([&other]));
        prop_assert_eq!(last(&plans, &of_encoded([one, &other])), alone.clone());
        prop_assert_eq!(last(&plans, &of_encoded([one, &other, one, &other])), alone);
    }
}

#[test]
fn a_message_that_is_none_refuses_the_request() {
    let (schema, store) = schema_and_store();
    let plans = Plans::new(&schema, store.program());
    let request = Request::read(vec![0x22, 2, 0x12, 9].into()).unwrap();
    let status = Batch::decode(&plans, &request).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Internal);
}
