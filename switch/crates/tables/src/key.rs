// SPDX-License-Identifier: Apache-2.0
//! Match keys. Converts the control plane's fields to the bytes that are compared with packets, and back.
//!
//! Every field takes (width + 7) / 8 bytes, in table order. A table without ternary, range or optional fields stores
//! only the value and, for a prefix, its length. Other tables store a second sequence of bytes, which has the mask of
//! each field or the upper bound of a range.

use std::fmt;

use sluice_program::{Key, MatchKind, Table, TableKeyValue};

use crate::error::{Result, invalid};
use crate::model::KeyField;
use crate::value;

/// A compiled key. Two keys of one table are equal if their bytes and prefix lengths are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatchKey {
    bytes: Box<[u8]>,
    prefix_len: u16,
}

/// Shape of a table's key as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyShape {
    /// All fields are exact, or there are no fields.
    Exact,
    /// One longest-prefix field, at this position. All other fields are exact.
    Lpm(usize),
    /// Entries are matched in order of priority.
    Ordered,
}

/// Width of the widest prefix field that has a FIB, in bits. Wider fields are matched like ternary fields, longest
/// prefix first.
const MAX_TRIE_BITS: u16 = 128;

impl KeyShape {
    pub(crate) fn of(table: &Table) -> Self {
        let lpm = table.key.iter().position(|key| key.kind == MatchKind::Lpm);
        match lpm {
            _ if table.needs_priority() => Self::Ordered,
            None => Self::Exact,
            Some(index) if table.key[index].width <= MAX_TRIE_BITS => Self::Lpm(index),
            Some(_) => Self::Ordered,
        }
    }
}

impl MatchKey {
    /// Compiles a key.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that does not fit the table, `OutOfRange` for a bad value.
    pub(crate) fn compile(table: &Table, fields: &[KeyField]) -> Result<Self> {
        if fields.len() != table.key.len() {
            return invalid(format!(
                "table {} has {} key fields, not {}",
                table.name,
                table.key.len(),
                fields.len()
            ));
        }
        let ordered = KeyShape::of(table) == KeyShape::Ordered;
        let mut builder = Builder::new(table.key_bytes, ordered);
        for (key, field) in table.key.iter().zip(fields) {
            builder.push(&FieldOfTable { table, key }, field)?;
        }
        let mut bytes = builder.value;
        for key in &table.key {
            if let Some(mask) = &key.mask {
                let range = key.offset..key.offset + key.bytes();
                bytes[range]
                    .iter_mut()
                    .zip(mask)
                    .for_each(|(byte, mask)| *byte &= mask);
            }
        }
        if ordered {
            bytes.extend_from_slice(&builder.second);
        }
        Ok(Self {
            bytes: bytes.into_boxed_slice(),
            prefix_len: builder.prefix_len,
        })
    }

    /// Returns the key as a reference.
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        KeyRef {
            bytes: &self.bytes,
            prefix_len: self.prefix_len,
        }
    }
}

/// Compiles a key. Returns the key and its rank. The rank decides which of several matching entries wins: the
/// priority, or the prefix length for a prefix field that is too wide for a FIB. The rank is 0 in other tables.
pub(crate) fn compile_entry_key(
    table: &Table,
    fields: &[KeyField],
    priority: i32,
) -> Result<(MatchKey, i32)> {
    if table.needs_priority() != (priority > 0) || priority < 0 {
        return invalid(if table.needs_priority() {
            format!("entries of table {} need a priority above 0", table.name)
        } else {
            format!("entries of table {} have no priority", table.name)
        });
    }
    let key = MatchKey::compile(table, fields)?;
    let by_length = !table.needs_priority() && KeyShape::of(table) == KeyShape::Ordered;
    let rank = if by_length {
        key.as_ref().prefix_len() as i32
    } else {
        priority
    };
    Ok((key, rank))
}

/// A borrowed [`MatchKey`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRef<'a> {
    bytes: &'a [u8],
    prefix_len: u16,
}

impl<'a> KeyRef<'a> {
    /// Creates a reference to a key that the caller has compiled. Only for tables that are not matched by priority.
    pub(crate) fn new(bytes: &'a [u8], prefix_len: u16) -> Self {
        Self { bytes, prefix_len }
    }

    /// Returns the key's value. If the table is matched by priority, masks and upper bounds follow.
    #[inline]
    pub(crate) fn stored(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the prefix length of the table's longest-prefix field.
    pub(crate) fn prefix_len(self) -> u32 {
        u32::from(self.prefix_len)
    }
}

/// Returns the exact fields of a longest-prefix table.
pub(crate) fn exact_fields(table: &Table) -> impl Iterator<Item = &Key> {
    let fields = table.key.iter();
    fields.filter(|field| field.kind != MatchKind::Lpm)
}

/// Converts a stored key ([`KeyRef::stored`]) to the control plane's form.
pub(crate) fn fields(table: &Table, stored: &[u8], prefix_len: u32) -> Vec<KeyField> {
    let (value, second) = stored.split_at(table.key_bytes);
    let fields = table.key.iter();
    fields
        .map(|key| field(key, value, second, prefix_len))
        .collect()
}

/// Returns, for a longest-prefix table, the key of an entry with this prefix length that matches a packet's key.
pub(crate) fn matched_fields(table: &Table, value: &[u8], prefix_len: u32) -> Vec<KeyField> {
    let mut value = value.to_vec();
    for key in table.key.iter().filter(|key| key.kind == MatchKind::Lpm) {
        let mask = prefix_mask(key.width, prefix_len);
        let field = &mut value[key.offset..key.offset + key.bytes()];
        field
            .iter_mut()
            .zip(mask)
            .for_each(|(byte, mask)| *byte &= mask);
    }
    fields(table, &value, prefix_len)
}

fn field(key: &Key, value: &[u8], second: &[u8], prefix_len: u32) -> KeyField {
    let range = key.offset..key.offset + key.bytes();
    let raw = &value[range.clone()];
    let value = value::canonical(raw);
    if key.kind == MatchKind::Exact {
        return KeyField::Exact(value);
    }
    if key.kind == MatchKind::Lpm {
        return match prefix_len {
            0 => KeyField::DontCare,
            _ => KeyField::Lpm { value, prefix_len },
        };
    }
    let second = &second[range];
    let (none, all) = (
        second.iter().all(|byte| *byte == 0),
        second == ones(key.width),
    );
    match key.kind {
        MatchKind::Ternary if none => KeyField::DontCare,
        MatchKind::Ternary => KeyField::Ternary {
            value,
            mask: value::canonical(second),
        },
        MatchKind::Optional if none => KeyField::DontCare,
        MatchKind::Optional => KeyField::Optional(value),
        _ if all && raw.iter().all(|byte| *byte == 0) => KeyField::DontCare,
        _ => KeyField::Range {
            low: value,
            high: value::canonical(second),
        },
    }
}

/// A field of a table, as error messages name it.
struct FieldOfTable<'a> {
    table: &'a Table,
    key: &'a Key,
}

impl fmt::Display for FieldOfTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}, field {}", self.table.name, self.key.name)
    }
}

/// Returns a mask of `width` one bits, as whole bytes.
pub(crate) fn ones(width: u16) -> Vec<u8> {
    let mut bytes = vec![0xff; usize::from(width).div_ceil(8)];
    bytes[0] >>= (8 - width % 8) % 8;
    bytes
}

/// Returns a mask of the first `len` of `width` bits, as whole bytes.
pub(crate) fn prefix_mask(width: u16, len: u32) -> Vec<u8> {
    let mut mask = ones(width);
    let first = mask.len() * 8 - usize::from(width);
    for bit in first + len as usize..mask.len() * 8 {
        mask[bit / 8] &= !(0x80 >> (bit % 8));
    }
    mask
}

struct Builder {
    value: Vec<u8>,
    second: Vec<u8>,
    prefix_len: u16,
}

impl Builder {
    fn new(key_bytes: usize, ordered: bool) -> Self {
        Self {
            value: Vec::with_capacity(key_bytes * if ordered { 2 } else { 1 }),
            second: Vec::with_capacity(key_bytes),
            prefix_len: 0,
        }
    }

    fn push(&mut self, what: &FieldOfTable<'_>, field: &KeyField) -> Result<()> {
        let key = what.key;
        let start = self.value.len();
        match (key.kind, field) {
            (MatchKind::Exact, KeyField::Exact(value)) => {
                // The mask covers all bits. So no bit of the value lies outside the mask, and the check below is not
                // needed.
                return self.masked(value, what);
            }
            (MatchKind::Exact, KeyField::DontCare) => {
                return invalid(format!("{what}: an exact field must be given"));
            }
            (_, KeyField::DontCare) => self.anything(key),
            (MatchKind::Optional | MatchKind::Ternary, KeyField::Optional(value)) => {
                self.masked(value, what)?;
            }
            (MatchKind::Lpm, KeyField::Lpm { value, prefix_len }) => {
                if *prefix_len == 0 || *prefix_len > u32::from(key.width) {
                    return invalid(format!(
                        "{what}: a prefix has 1 to {} bits (leave the field out for 0)",
                        key.width
                    ));
                }
                self.prefix_len = *prefix_len as u16;
                value::append_padded(&mut self.value, value, key.width, what)?;
                self.second.extend(prefix_mask(key.width, *prefix_len));
            }
            (MatchKind::Ternary, KeyField::Ternary { value, mask }) => {
                value::append_padded(&mut self.value, value, key.width, what)?;
                value::append_padded(&mut self.second, mask, key.width, what)?;
                if self.second[start..].iter().all(|byte| *byte == 0) {
                    return invalid(format!("{what}: leave the field out for a mask of 0"));
                }
            }
            (MatchKind::Range, KeyField::Range { low, high }) => {
                value::append_padded(&mut self.value, low, key.width, what)?;
                value::append_padded(&mut self.second, high, key.width, what)?;
                let (low, high) = (&self.value[start..], &self.second[start..]);
                if low > high {
                    return invalid(format!("{what}: the range is empty"));
                }
                if low.iter().all(|byte| *byte == 0) && high == ones(key.width) {
                    return invalid(format!("{what}: leave the field out for the full range"));
                }
                return Ok(());
            }
            (kind, _) => return invalid(format!("{what}: a match of kind {kind:?} is expected")),
        }
        let outside = self.value[start..].iter().zip(&self.second[start..]);
        if outside.into_iter().any(|(value, mask)| value & !mask != 0) {
            return invalid(format!("{what}: bits outside the mask or prefix must be 0"));
        }
        Ok(())
    }

    fn masked(&mut self, value: &[u8], what: &FieldOfTable<'_>) -> Result<()> {
        let key = what.key;
        value::append_padded(&mut self.value, value, key.width, what)?;
        let start = self.second.len();
        self.second.resize(start + key.bytes(), 0xff);
        self.second[start] >>= (8 - key.width % 8) % 8;
        Ok(())
    }

    fn anything(&mut self, key: &Key) {
        self.value.resize(self.value.len() + key.bytes(), 0);
        if key.kind == MatchKind::Range {
            self.second.extend(ones(key.width));
        } else {
            self.second.resize(self.second.len() + key.bytes(), 0);
        }
    }
}

/// Converts a constant entry's key to the control plane's form. p4c writes "any value" as an empty prefix, a mask of 0
/// or the full range. It may also set bits outside a mask.
pub(crate) fn constant_fields(table: &Table, values: &[TableKeyValue]) -> Vec<KeyField> {
    table
        .key
        .iter()
        .zip(values)
        .map(|(key, value)| constant_field(key, value))
        .collect()
}

fn constant_field(key: &Key, value: &TableKeyValue) -> KeyField {
    let under = |value: &[u8], mask: &[u8]| -> Vec<u8> {
        value
            .iter()
            .zip(mask)
            .map(|(value, mask)| value & mask)
            .collect()
    };
    match value {
        TableKeyValue::Exact(value) => match key.kind {
            MatchKind::Ternary | MatchKind::Optional => KeyField::Optional(value.clone()),
            _ => KeyField::Exact(value.clone()),
        },
        TableKeyValue::Lpm(_, 0) => KeyField::DontCare,
        TableKeyValue::Lpm(value, bits) => {
            let mask = prefix_mask(key.width, *bits);
            match key.kind {
                MatchKind::Ternary => KeyField::Ternary {
                    value: under(value, &mask),
                    mask,
                },
                _ => KeyField::Lpm {
                    value: under(value, &mask),
                    prefix_len: *bits,
                },
            }
        }
        TableKeyValue::Ternary(_, mask) if mask.iter().all(|byte| *byte == 0) => KeyField::DontCare,
        TableKeyValue::Ternary(value, mask) => {
            let mask = under(mask, &ones(key.width));
            KeyField::Ternary {
                value: under(value, &mask),
                mask,
            }
        }
        TableKeyValue::Range(low, high) => {
            if low.iter().all(|byte| *byte == 0) && *high == ones(key.width) {
                return KeyField::DontCare;
            }
            KeyField::Range {
                low: low.clone(),
                high: high.clone(),
            }
        }
        TableKeyValue::Optional(None) => KeyField::DontCare,
        TableKeyValue::Optional(Some(value)) => KeyField::Optional(value.clone()),
    }
}
