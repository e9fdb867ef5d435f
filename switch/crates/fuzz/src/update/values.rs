// SPDX-License-Identifier: Apache-2.0
//! Generates values and match keys, all valid for their fields.

use sluice_p4runtime::proto::v1::*;

use super::info::{Field, MatchType};
use crate::choices::Choices;

/// Generates a value of this width. Some values are padded with zeros, which do not change their meaning.
pub(super) fn value(choices: &mut Choices<'_>, width: usize) -> Vec<u8> {
    let mut value = match choices.below(8) {
        0 => top(choices.bytes(width.div_ceil(8)), width),
        1 => top(vec![0xff; width.div_ceil(8)], width),
        n => top(vec![n as u8 % 4], width.min(8)),
    };
    if choices.one_in(8) {
        value.insert(0, 0);
    }
    value
}

/// Clears the bits above the width.
pub(super) fn top(mut value: Vec<u8>, width: usize) -> Vec<u8> {
    if let Some(first) = value.first_mut()
        && !width.is_multiple_of(8)
    {
        *first &= 0xff >> (8 - width % 8);
    }
    value
}

/// Returns a mask of `width` bits: first `length` ones, then zeros.
fn mask(width: usize, length: usize) -> Vec<u8> {
    let bytes = width.div_ceil(8);
    let spare = bytes * 8 - width;
    let mut mask = vec![0; bytes];
    for bit in spare..spare + length {
        mask[bit / 8] |= 0x80 >> (bit % 8);
    }
    mask
}

fn under(mut value: Vec<u8>, mask: &[u8]) -> Vec<u8> {
    let missing = mask.len().saturating_sub(value.len());
    value.splice(0..0, vec![0; missing]);
    let value = value.split_off(value.len() - mask.len());
    value.iter().zip(mask).map(|(v, m)| v & m).collect()
}

pub(super) fn matches(choices: &mut Choices<'_>, fields: &[Field]) -> Vec<FieldMatch> {
    let mut matches = Vec::new();
    for field in fields {
        if field.kind != MatchType::Exact && choices.one_in(4) {
            continue;
        }
        matches.push(FieldMatch {
            field_id: field.id,
            field_match_type: Some(field_match(choices, field)),
        });
    }
    if choices.one_in(8) {
        matches.reverse();
    }
    matches
}

pub(super) fn field_match(choices: &mut Choices<'_>, field: &Field) -> field_match::FieldMatchType {
    use field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary};
    let width = field.width;
    let wanted = value(choices, width);
    match field.kind {
        MatchType::Lpm => {
            let prefix_len = 1 + choices.below(width);
            let value = under(wanted, &mask(width, prefix_len));
            FieldMatchType::Lpm(Lpm {
                value,
                prefix_len: prefix_len as i32,
            })
        }
        MatchType::Ternary => {
            let mask = mask(width, 1 + choices.below(width));
            let value = under(wanted, &mask);
            FieldMatchType::Ternary(Ternary { value, mask })
        }
        MatchType::Range => {
            let low = top(vec![choices.byte() % 4], width.min(8));
            FieldMatchType::Range(Range {
                high: low.clone(),
                low,
            })
        }
        MatchType::Optional => FieldMatchType::Optional(Optional { value: wanted }),
        _ => FieldMatchType::Exact(Exact { value: wanted }),
    }
}
