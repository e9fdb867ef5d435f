// SPDX-License-Identifier: Apache-2.0
//! Decodes the updates of a Write request, before any lock is taken.
//!
//! Entries of tables with a plan ([`Plans`]) are decoded in one step, from the wire into the form that tables keep. No
//! memory is allocated for a single entry. An entry that differs from the last one only in its values is decoded
//! without parsing its fields ([`UpdateShape`]). This fast path accepts only well-formed updates of such entries. prost
//! decodes every other update, also a malformed one. The slow path then applies the update or reports the mistake.

use prost::Message;
use sluice_program::ActionId;
use sluice_tables::{ActionRef, CompiledEntry};
use tonic::Status;

use super::request::{Request, malformed};
use super::shape::{UpdateShape, ValueSpan, ValueTarget};
use super::value::{fits, number_of, put};
use super::wire::{Occurrence, Value, each};
use crate::entity::Operation;
use crate::proto::v1::Update;
use crate::schema::{ActionPlan, FieldPlan, Plans, TablePlan};

/// A batch of updates, in order.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    items: Vec<DecodedUpdate<'a>>,
    /// The keys of all entries, concatenated.
    keys: Vec<u8>,
    /// The parameters of all entries, concatenated.
    words: Vec<u64>,
    /// The last entry that was parsed field by field. `shape` describes the bytes of its update.
    last: Option<DecodedEntry<'a>>,
    shape: UpdateShape,
    /// Positions of the values in the update that is being parsed.
    spans: Vec<ValueSpan>,
}

/// One decoded update.
#[derive(Debug)]
pub(crate) enum DecodedUpdate<'a> {
    /// An entry in the form that tables keep.
    Entry(DecodedEntry<'a>),
    /// Any other update. The slow path applies it.
    Update(Box<Update>),
}

/// A table entry. The batch stores its key and parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodedEntry<'a> {
    /// The operation on the entry.
    pub operation: Operation,
    /// The entry's table.
    pub plan: &'a TablePlan,
    key: usize,
    prefix_len: u16,
    /// Action of the entry; `None` only in a DELETE.
    action: Option<&'a ActionPlan>,
    words: usize,
    idle_timeout_ns: u64,
}

impl<'a> Batch<'a> {
    /// Decodes a request's updates.
    pub(crate) fn decode(plans: &'a Plans, request: &Request) -> Result<Self, Status> {
        let updates = request.updates();
        let mut batch = Self {
            items: Vec::with_capacity(updates.len()),
            ..Self::default()
        };
        for update in updates {
            let (keys, words) = (batch.keys.len(), batch.words.len());
            let item = match batch.entry(plans, update) {
                Some(entry) => DecodedUpdate::Entry(entry),
                None => {
                    batch.keys.truncate(keys);
                    batch.words.truncate(words);
                    DecodedUpdate::Update(Box::new(Update::decode(update).map_err(malformed)?))
                }
            };
            batch.items.push(item);
        }
        Ok(batch)
    }

    /// Creates a batch from decoded updates.
    pub(crate) fn of(updates: impl Iterator<Item = Update>) -> Self {
        let items = updates.map(|update| DecodedUpdate::Update(Box::new(update)));
        Self {
            items: items.collect(),
            ..Self::default()
        }
    }

    /// Returns the updates.
    pub(crate) fn items(&self) -> &[DecodedUpdate<'a>] {
        &self.items
    }

    /// Returns an entry's key, action and parameters.
    pub(crate) fn compiled(&self, item: &DecodedEntry<'_>) -> CompiledEntry<'_> {
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

    /// Decodes an update. Returns `None` if the update needs the slow path.
    fn entry(&mut self, plans: &'a Plans, update: &[u8]) -> Option<DecodedEntry<'a>> {
        if let Some(last) = self.last
            && self.shape.is_of(update)
        {
            return self.alike(last, update);
        }
        self.spans.clear();
        let entry = self.read(plans, update)?;
        self.shape.learn(update, &self.spans);
        self.last = Some(entry);
        Some(entry)
    }

    /// Decodes an update that differs only in its values from the update of the entry `other`.
    #[inline]
    fn alike(&mut self, other: DecodedEntry<'a>, update: &[u8]) -> Option<DecodedEntry<'a>> {
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
        Some(DecodedEntry {
            key,
            prefix_len,
            words,
            ..other
        })
    }

    /// Parses an update field by field.
    fn read(&mut self, plans: &'a Plans, update: &[u8]) -> Option<DecodedEntry<'a>> {
        let (mut operation, mut entity) = (None, None);
        each(update, |number, value| {
            match (number, value) {
                (1, Value::Varint(1)) => operation = Some(Operation::Insert),
                (1, Value::Varint(2)) => operation = Some(Operation::Modify),
                (1, Value::Varint(3)) => operation = Some(Operation::Delete),
                (2, Value::Bytes(bytes)) => entity = Some(bytes),
                _ => return None,
            }
            Some(Occurrence::Once)
        })?;
        let mut entry = None;
        each(entity?, |number, value| match (number, value) {
            (2, Value::Bytes(bytes)) => {
                entry = Some(bytes);
                Some(Occurrence::Once)
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
    ) -> Option<DecodedEntry<'a>> {
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
                    let note =
                        |value: &[u8], of| self.spans.push(ValueSpan::new(update, value, of));
                    key.field(fields, field, &mut self.keys[start..], note)?;
                    return Some(Occurrence::Repeated);
                }
                (3, Value::Bytes(given)) => action = Some(self.action(plan?, update, given)?),
                (9, Value::Varint(timeout)) => idle_timeout_ns = timeout,
                _ => return None,
            }
            Some(Occurrence::Once)
        })?;
        let plan = plan?;
        let timeout_fits =
            idle_timeout_ns == 0 || plan.idle_timeout && i64::try_from(idle_timeout_ns).is_ok();
        let complete = key.is_complete(&plan.fields) && timeout_fits;
        (complete && (action.is_some() || operation == Operation::Delete)).then_some(DecodedEntry {
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
                Some(Occurrence::Once)
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
                Some(Occurrence::Once)
            }
            (4, Value::Bytes(param)) => {
                let params = &plan?.params;
                let (id, value) = numbered(param, 2, 3)?;
                let at = position(params, count, |plan| plan.id == id)?;
                seen |= once(seen, at)?;
                count += 1;
                self.words[start + params[at].word] = number_of(value, params[at].width)?;
                self.spans
                    .push(ValueSpan::new(update, value, ValueTarget::Param(at)));
                Some(Occurrence::Repeated)
            }
            _ => None,
        })?;
        plan.filter(|plan| plan.params.len() == count)
    }
}

/// The encoded key (field number and wire type) of `FieldMatch.LPM.prefix_len`.
const PREFIX_LEN: u8 = 2 << 3;

/// Progress of parsing a key.
#[derive(Default)]
struct Key {
    count: usize,
    seen: u64,
    prefix_len: u16,
}

impl Key {
    /// Parses an encoded match field, and writes its value to its place in the key. Calls `note` with each encoded
    /// value and the part of the entry to which it belongs.
    fn field(
        &mut self,
        fields: &[FieldPlan],
        encoded: &[u8],
        key: &mut [u8],
        mut note: impl FnMut(&[u8], ValueTarget),
    ) -> Option<()> {
        let (mut id, mut exact, mut lpm) = (0, None, None);
        each(encoded, |number, value| {
            match (number, value) {
                (1, Value::Varint(number)) => id = u32::try_from(number).ok()?,
                (2, Value::Bytes(bytes)) => exact = Some(bytes),
                (4, Value::Bytes(bytes)) => lpm = Some(bytes),
                _ => return None,
            }
            Some(Occurrence::Once)
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
                        Some(Occurrence::Once)
                    }
                    _ => None,
                })?;
                note(value?, ValueTarget::Field(at));
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
                    Some(Occurrence::Once)
                })?;
                note(value?, ValueTarget::Field(at));
                put(value?, field.width, place)?;
                let length = usize::try_from(length).ok()?;
                self.prefix_len = length as u16;
                // Notes the prefix length only if it is encoded in one byte at the end of the message, as usual.
                if let [.., PREFIX_LEN, last] = lpm
                    && usize::from(*last) == length
                {
                    note(std::slice::from_ref(last), ValueTarget::PrefixLen);
                }
                fits(field, length, key).then_some(())
            }
            _ => None,
        }
    }

    /// Returns whether all mandatory fields were seen.
    fn is_complete(&self, fields: &[FieldPlan]) -> bool {
        let given = |(at, field): (usize, &FieldPlan)| field.is_lpm || self.seen >> at & 1 == 1;
        self.count == fields.len() || fields.iter().enumerate().all(given)
    }
}

/// Reads an id and a value from a message that has these two fields only.
fn numbered(message: &[u8], id_number: u32, value_number: u32) -> Option<(u32, &[u8])> {
    let (mut id, mut found) = (0, None);
    each(message, |number, value| {
        match value {
            Value::Varint(given) if number == id_number => id = u32::try_from(given).ok()?,
            Value::Bytes(bytes) if number == value_number => found = Some(bytes),
            _ => return None,
        }
        Some(Occurrence::Once)
    })?;
    Some((id, found?))
}

/// Returns the position of an item. Tries `expected` first, because clients nearly always keep P4Info's order.
fn position<T>(all: &[T], expected: usize, is: impl Fn(&T) -> bool) -> Option<usize> {
    if all.get(expected).is_some_and(&is) {
        return Some(expected);
    }
    all.iter().position(is)
}

/// Returns the bit number `at`. Returns `None` if `seen` already has this bit.
fn once(seen: u64, at: usize) -> Option<u64> {
    let bit = 1u64.checked_shl(at as u32)?;
    (seen & bit == 0).then_some(bit)
}

#[cfg(test)]
mod tests;
