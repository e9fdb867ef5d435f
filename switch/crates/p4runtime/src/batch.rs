// SPDX-License-Identifier: Apache-2.0
//! The updates of a Write request, decoded before any lock is taken.
//!
//! Entries of the usual tables ([`Plans`]) are brought from the wire into the form that tables keep in one step, and
//! without memory of their own; one that is like the one before in all but its values without looking for its fields
//! ([`Shape`]). This accepts only what needs no explanation: every other update, one with a mistake in it
//! above all, is decoded by prost and goes the long way, which says what is wrong.

use prost::Message;
use sluice_program::ActionId;
use sluice_tables::{ActionRef, CompiledEntry};
use tonic::Status;

use crate::entity::Operation;
use crate::proto::v1::Update;
use crate::request::{Request, malformed};
use crate::schema::{ActionPlan, FieldPlan, Plans, TablePlan};
use crate::shape::{Of, Piece, Shape, fits};
use crate::wire::{Kind, Value, each};

/// Updates in their order.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    items: Vec<Item<'a>>,
    /// Keys, one after the other.
    keys: Vec<u8>,
    /// Parameters, one after the other.
    words: Vec<u64>,
    /// The last entry that was read field by field, and what it looks like.
    last: Option<EntryItem<'a>>,
    shape: Shape,
    /// Where the values of the update are that is being read.
    pieces: Vec<Piece>,
}

/// An update.
#[derive(Debug)]
pub enum Item<'a> {
    /// An entry in the form that tables keep.
    Entry(EntryItem<'a>),
    /// Anything else.
    Update(Box<Update>),
}

/// An entry; its key and parameters are with the batch.
#[derive(Debug, Clone, Copy)]
pub struct EntryItem<'a> {
    /// What to do with it.
    pub operation: Operation,
    /// Its table.
    pub plan: &'a TablePlan,
    key: usize,
    prefix_len: u16,
    /// Absent in a DELETE only.
    action: Option<&'a ActionPlan>,
    words: usize,
    idle_timeout_ns: u64,
}

impl<'a> Batch<'a> {
    /// Decodes a request's updates.
    pub fn decode(plans: &'a Plans, request: &Request) -> Result<Self, Status> {
        let updates = request.updates();
        let mut batch = Self {
            items: Vec::with_capacity(updates.len()),
            ..Self::default()
        };
        for update in updates {
            let (keys, words) = (batch.keys.len(), batch.words.len());
            let item = match batch.entry(plans, update) {
                Some(entry) => Item::Entry(entry),
                None => {
                    batch.keys.truncate(keys);
                    batch.words.truncate(words);
                    Item::Update(Box::new(Update::decode(update).map_err(malformed)?))
                }
            };
            batch.items.push(item);
        }
        Ok(batch)
    }

    /// Updates as they are.
    pub fn of(updates: impl Iterator<Item = Update>) -> Self {
        let items = updates.map(|update| Item::Update(Box::new(update)));
        Self {
            items: items.collect(),
            ..Self::default()
        }
    }

    /// The updates.
    pub fn items(&self) -> &[Item<'a>] {
        &self.items
    }

    /// An entry's key and what it leads to.
    pub fn compiled(&self, item: &EntryItem<'_>) -> CompiledEntry<'_> {
        let (action, words) = item
            .action
            .map_or((ActionId(0), 0), |plan| (plan.action, plan.words));
        CompiledEntry {
            key: &self.keys[item.key..item.key + item.plan.key_bytes],
            prefix_len: item.prefix_len,
            action: ActionRef {
                action,
                params: &self.words[item.words..item.words + words],
            },
            idle_timeout_ns: item.idle_timeout_ns,
        }
    }

    /// Reads an encoded update; `None` for what is not of the usual kind.
    fn entry(&mut self, plans: &'a Plans, update: &[u8]) -> Option<EntryItem<'a>> {
        if let Some(last) = self.last
            && self.shape.is_of(update)
        {
            return self.alike(last, update);
        }
        self.pieces.clear();
        let entry = self.read(plans, update)?;
        self.shape.learn(update, &self.pieces);
        self.last = Some(entry);
        Some(entry)
    }

    /// Reads an update that is like another's in all but its values.
    #[inline]
    fn alike(&mut self, other: EntryItem<'a>, update: &[u8]) -> Option<EntryItem<'a>> {
        let (key, words) = (self.keys.len(), self.words.len());
        let (plan, action) = (other.plan, other.action);
        self.keys.resize(key + plan.key_bytes, 0);
        self.words
            .resize(words + action.map_or(0, |action| action.words), 0);
        let in_key = (plan, &mut self.keys[key..]);
        let in_words = (action, &mut self.words[words..]);
        let prefix_len = self
            .shape
            .take(update, in_key, in_words, other.prefix_len)?;
        Some(EntryItem {
            key,
            prefix_len,
            words,
            ..other
        })
    }

    /// Reads an update field by field.
    fn read(&mut self, plans: &'a Plans, update: &[u8]) -> Option<EntryItem<'a>> {
        let (mut operation, mut entity) = (None, None);
        each(update, |number, value| {
            match (number, value) {
                (1, Value::Varint(1)) => operation = Some(Operation::Insert),
                (1, Value::Varint(2)) => operation = Some(Operation::Modify),
                (1, Value::Varint(3)) => operation = Some(Operation::Delete),
                (2, Value::Bytes(bytes)) => entity = Some(bytes),
                _ => return None,
            }
            Some(Kind::Once)
        })?;
        let mut entry = None;
        each(entity?, |number, value| match (number, value) {
            (2, Value::Bytes(bytes)) => {
                entry = Some(bytes);
                Some(Kind::Once)
            }
            _ => None,
        })?;
        self.table_entry(plans, operation?, update, entry?)
    }

    fn table_entry(
        &mut self,
        plans: &'a Plans,
        operation: Operation,
        update: &[u8],
        entry: &[u8],
    ) -> Option<EntryItem<'a>> {
        let mut key = Key::default();
        let (start, words) = (self.keys.len(), self.words.len());
        let mut plan = None;
        let (mut action, mut idle_timeout_ns) = (None, 0);
        each(entry, |number, value| {
            match (number, value) {
                (1, Value::Varint(id)) => {
                    let found = plans.of(u32::try_from(id).ok()?)?;
                    self.keys.resize(start + found.key_bytes, 0);
                    plan = Some(found);
                }
                (2, Value::Bytes(field)) => {
                    let fields = &plan?.fields;
                    let note = |value: &[u8], of| self.pieces.push(Piece::new(update, value, of));
                    key.field(fields, field, &mut self.keys[start..], note)?;
                    return Some(Kind::Repeated);
                }
                (3, Value::Bytes(given)) => action = Some(self.action(plan?, update, given)?),
                (9, Value::Varint(timeout)) => idle_timeout_ns = timeout,
                _ => return None,
            }
            Some(Kind::Once)
        })?;
        let plan = plan?;
        let timeout_fits =
            idle_timeout_ns == 0 || plan.idle_timeout && i64::try_from(idle_timeout_ns).is_ok();
        let complete = key.is_complete(&plan.fields) && timeout_fits;
        (complete && (action.is_some() || operation == Operation::Delete)).then_some(EntryItem {
            operation,
            plan,
            key: start,
            prefix_len: key.prefix_len,
            action,
            words,
            idle_timeout_ns,
        })
    }

    fn action(
        &mut self,
        table: &'a TablePlan,
        update: &[u8],
        given: &[u8],
    ) -> Option<&'a ActionPlan> {
        let mut call = None;
        each(given, |number, value| match (number, value) {
            (1, Value::Bytes(bytes)) => {
                call = Some(bytes);
                Some(Kind::Once)
            }
            _ => None,
        })?;
        let start = self.words.len();
        let mut plan = None;
        let (mut count, mut seen) = (0, 0u64);
        each(call?, |number, value| match (number, value) {
            (1, Value::Varint(id)) => {
                let found = table.actions.iter().find(|plan| u64::from(plan.id) == id)?;
                self.words.resize(start + found.words, 0);
                plan = Some(found);
                Some(Kind::Once)
            }
            (4, Value::Bytes(param)) => {
                let params = &plan?.params;
                let (id, value) = numbered(param, 2, 3)?;
                let at = position(params, count, |plan| plan.id == id)?;
                seen |= once(seen, at)?;
                count += 1;
                self.words[start + params[at].word] = number_of(value, params[at].width)?;
                self.pieces.push(Piece::new(update, value, Of::Param(at)));
                Some(Kind::Repeated)
            }
            _ => None,
        })?;
        plan.filter(|plan| plan.params.len() == count)
    }
}

/// The key of `FieldMatch.LPM.prefix_len` on the wire.
const PREFIX_LEN: u8 = 2 << 3;

/// What is known of a key that is being read.
#[derive(Default)]
struct Key {
    count: usize,
    seen: u64,
    prefix_len: u16,
}

impl Key {
    /// Reads an encoded match field into its place in the key, and notes where its values are.
    fn field(
        &mut self,
        fields: &[FieldPlan],
        encoded: &[u8],
        key: &mut [u8],
        mut note: impl FnMut(&[u8], Of),
    ) -> Option<()> {
        let (mut id, mut exact, mut lpm) = (0, None, None);
        each(encoded, |number, value| {
            match (number, value) {
                (1, Value::Varint(number)) => id = u32::try_from(number).ok()?,
                (2, Value::Bytes(bytes)) => exact = Some(bytes),
                (4, Value::Bytes(bytes)) => lpm = Some(bytes),
                _ => return None,
            }
            Some(Kind::Once)
        })?;
        let at = position(fields, self.count, |field| field.id == id)?;
        self.seen |= once(self.seen, at)?;
        self.count += 1;
        let field = &fields[at];
        let place = &mut key[field.place()];
        match (exact, lpm) {
            (Some(exact), None) if !field.is_lpm => {
                let mut value = None;
                each(exact, |number, bytes| match (number, bytes) {
                    (1, Value::Bytes(bytes)) => {
                        value = Some(bytes);
                        Some(Kind::Once)
                    }
                    _ => None,
                })?;
                note(value?, Of::Field(at));
                put(value?, field.width, place)
            }
            (None, Some(lpm)) if field.is_lpm => {
                let (mut value, mut length) = (None, 0);
                each(lpm, |number, given| {
                    match (number, given) {
                        (1, Value::Bytes(bytes)) => value = Some(bytes),
                        (2, Value::Varint(bits)) => length = bits,
                        _ => return None,
                    }
                    Some(Kind::Once)
                })?;
                note(value?, Of::Field(at));
                put(value?, field.width, place)?;
                let length = usize::try_from(length).ok()?;
                self.prefix_len = length as u16;
                // The length comes last, and is mostly encoded in one byte.
                if let [.., PREFIX_LEN, last] = lpm
                    && usize::from(*last) == length
                {
                    note(std::slice::from_ref(last), Of::PrefixLen);
                }
                fits(field, length, key).then_some(())
            }
            _ => None,
        }
    }

    /// Whether all fields that must be given are.
    fn is_complete(&self, fields: &[FieldPlan]) -> bool {
        let given = |(at, field): (usize, &FieldPlan)| field.is_lpm || self.seen >> at & 1 == 1;
        self.count == fields.len() || fields.iter().enumerate().all(given)
    }
}

/// An id and a value from a message that has just them.
fn numbered(message: &[u8], id_number: u32, value_number: u32) -> Option<(u32, &[u8])> {
    let (mut id, mut found) = (0, None);
    each(message, |number, value| {
        match value {
            Value::Varint(given) if number == id_number => id = u32::try_from(given).ok()?,
            Value::Bytes(bytes) if number == value_number => found = Some(bytes),
            _ => return None,
        }
        Some(Kind::Once)
    })?;
    Some((id, found?))
}

/// Where something is; clients nearly always keep P4Info's order.
fn position<T>(all: &[T], expected: usize, is: impl Fn(&T) -> bool) -> Option<usize> {
    if all.get(expected).is_some_and(&is) {
        return Some(expected);
    }
    all.iter().position(is)
}

/// The bit of something that has not been seen.
fn once(seen: u64, at: usize) -> Option<u64> {
    let bit = 1u64.checked_shl(at as u32)?;
    (seen & bit == 0).then_some(bit)
}

/// Puts a value at the end of its place, which holds zeros. An empty or too large one is not of the usual kind.
pub(crate) fn put(value: &[u8], width: usize, place: &mut [u8]) -> Option<()> {
    let excess = value.len().saturating_sub(place.len());
    let (front, value) = value.split_at(excess);
    let (first, zeros) = (*value.first()?, front.iter().all(|byte| *byte == 0));
    let spare = place.len() * 8 - width;
    if !zeros || value.len() == place.len() && u32::from(first) >> (8 - spare) != 0 {
        return None;
    }
    let start = place.len() - value.len();
    place[start..].copy_from_slice(value);
    Some(())
}

/// A number of at most 64 bits.
pub(crate) fn number_of(value: &[u8], width: usize) -> Option<u64> {
    let mut word = [0; 8];
    put(value, 64, &mut word)?;
    let number = u64::from_be_bytes(word);
    (u64::BITS - number.leading_zeros() <= width as u32).then_some(number)
}

/// Whether the last of some bytes' bits are zeros.
pub(crate) fn ends_in_zeros(bytes: &[u8], bits: usize) -> bool {
    let (whole, rest) = (bits / 8, bits % 8);
    let (front, end) = bytes.split_at(bytes.len() - whole);
    let partial = front
        .last()
        .is_none_or(|byte| byte.trailing_zeros() as usize >= rest);
    partial && end.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
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

    const JSON: &[u8] = include_bytes!("../tests/spec/programs/surface.json");
    const P4INFO: &str = include_str!("../tests/spec/programs/surface.p4info.txtpb");

    /// A table with an exact field of 7 bits and a longest-prefix field of 32.
    const TABLE: &str = "ingress.lpm_table";

    /// Actions that it has, among others.
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

    /// The entry goes in by the long way; what the table holds then.
    fn long_way(
        schema: &Schema,
        store: &Store,
        entry: &TableEntry,
    ) -> UpdateResult<Vec<EntrySpec>> {
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
        /// Often a good entry, often one with a mistake.
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
                Item::Entry(item) => {
                    let mut transaction = store.transaction();
                    transaction.insert_compiled(item.plan.table, &batch.compiled(item)).unwrap();
                    transaction.commit();
                    prop_assert_eq!(Ok(held(&schema, &store)), expected);
                }
                // Right is only what is unusual: a key of nothing but "don't care" is, say.
                Item::Update(update) => {
                    let unusual = entry.is_default_action || entry.priority != 0;
                    prop_assert!(expected.is_err() || unusual, "{update:?}");
                }
            }
        }
    }

    /// A request of updates as they are encoded.
    fn of_encoded<const N: usize>(updates: [&[u8]; N]) -> Request {
        let mut body = Vec::new();
        for update in updates {
            prost::encoding::bytes::encode(4, &update.to_vec(), &mut body);
        }
        Request::read(body.into()).unwrap()
    }

    /// What is read of a request's last update.
    fn last(plans: &Plans, request: &Request) -> Result<String, tonic::Code> {
        let batch = Batch::decode(plans, request).map_err(|status| status.code())?;
        let last = batch.items().last().unwrap();
        Ok(match last {
            Item::Entry(item) => {
                let (operation, entry) = (item.operation, batch.compiled(item));
                format!("{operation:?} {} {entry:?}", item.plan.id)
            }
            Item::Update(update) => format!("{update:?}"),
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
}
