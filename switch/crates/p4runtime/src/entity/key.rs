// SPDX-License-Identifier: Apache-2.0
//! Translates match keys (P4Runtime specification, "Match Format"). Apart from zero padding, each key has exactly one
//! encoding.

use std::sync::Arc;

use sluice_program::MatchKind;
use sluice_tables::KeyField;

use crate::bytestring::{canonical, check};
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary};
use crate::proto::v1::{FieldMatch, TableEntry};
use crate::schema::names::{self, Names};
use crate::schema::{MatchField, TableSchema};

/// Decodes a key. Returns one field for each of `fields`, in the same order. If the client omits a field, the field
/// is "don't care".
pub(crate) fn decode(fields: &[MatchField], matches: &[FieldMatch]) -> UpdateResult<Vec<KeyField>> {
    for (index, field_match) in matches.iter().enumerate() {
        let id = field_match.field_id;
        if fields.iter().all(|field| field.id != id) {
            return Err(UpdateError::invalid(format!(
                "there is no match field with id {id}"
            )));
        }
        if matches[..index].iter().any(|other| other.field_id == id) {
            return Err(UpdateError::invalid(format!(
                "match field {id} is given twice"
            )));
        }
    }
    let decode = |field: &MatchField| {
        let given = matches
            .iter()
            .find(|candidate| candidate.field_id == field.id);
        decode_field(field, given)
            .map_err(|error| error.of(&format!("match field {:?}", field.name)))
    };
    fields.iter().map(decode).collect()
}

/// Decodes an entry's key and priority.
pub(crate) fn decode_with_priority(
    table: &TableSchema,
    entry: &TableEntry,
) -> UpdateResult<(Vec<KeyField>, i32)> {
    let key = decode(&table.fields, &entry.r#match)?;
    match (table.needs_priority(), entry.priority) {
        (true, 0) => Err(UpdateError::invalid(
            "an entry of this table needs a priority above 0",
        )),
        (false, priority) if priority != 0 => Err(UpdateError::invalid(
            "an entry of this table must not have a priority",
        )),
        (_, priority) if priority < 0 => Err(UpdateError::invalid("the priority is negative")),
        (_, priority) => Ok((key, priority)),
    }
}

fn decode_field(field: &MatchField, given: Option<&FieldMatch>) -> UpdateResult<KeyField> {
    let Some(given) = given else {
        return match field.kind {
            MatchKind::Exact => Err(UpdateError::invalid("an exact match cannot be omitted")),
            _ => Ok(KeyField::DontCare),
        };
    };
    let (width, names) = (field.width, field.names.as_ref());
    match (field.kind, given.field_match_type.as_ref()) {
        (MatchKind::Exact, Some(FieldMatchType::Exact(exact))) => {
            Ok(KeyField::Exact(names::decode(names, &exact.value, width)?))
        }
        (MatchKind::Optional, Some(FieldMatchType::Optional(optional))) => {
            let value = names::decode(names, &optional.value, width)?;
            if field.as_ternary {
                return Ok(KeyField::Ternary {
                    value,
                    mask: ones(width),
                });
            }
            Ok(KeyField::Optional(value))
        }
        (MatchKind::Lpm, Some(FieldMatchType::Lpm(lpm))) => {
            let lpm = to_numbers::lpm(names, lpm, width)?;
            decode_lpm(&lpm, width)
        }
        (MatchKind::Ternary, Some(FieldMatchType::Ternary(ternary))) => {
            let ternary = to_numbers::ternary(names, ternary, width)?;
            decode_ternary(&ternary, width)
        }
        (MatchKind::Range, Some(FieldMatchType::Range(range))) => {
            let range = to_numbers::range(names, range, width)?;
            decode_range(&range, width)
        }
        (kind, _) => {
            let message =
                format!("the match is not set, or its kind is not the field's kind ({kind:?})");
            Err(UpdateError::invalid(message))
        }
    }
}

/// Decodes longest-prefix, ternary and range matches on fields whose type is a string for clients. Strings have no
/// order and no bits, so such a match must select exactly one string ("Translation of Match Fields"). The mask or
/// prefix length has the width of the type in the program.
mod to_numbers {
    use std::borrow::Cow;

    use super::*;

    const ONE: &str = "the field's type is a string: match the whole string, or omit the field";

    fn must(is_one: bool) -> UpdateResult {
        is_one
            .then_some(())
            .ok_or_else(|| UpdateError::invalid(ONE))
    }

    pub(super) fn lpm<'a>(
        names: Option<&Arc<Names>>,
        lpm: &'a Lpm,
        width: usize,
    ) -> UpdateResult<Cow<'a, Lpm>> {
        if names.is_none() {
            return Ok(Cow::Borrowed(lpm));
        }
        must(usize::try_from(lpm.prefix_len) == Ok(width))?;
        Ok(Cow::Owned(Lpm {
            value: names::decode(names, &lpm.value, width)?,
            ..lpm.clone()
        }))
    }

    pub(super) fn ternary<'a>(
        names: Option<&Arc<Names>>,
        ternary: &'a Ternary,
        width: usize,
    ) -> UpdateResult<Cow<'a, Ternary>> {
        if names.is_none() {
            return Ok(Cow::Borrowed(ternary));
        }
        must(canonical(&ternary.mask) == ones(width))?;
        Ok(Cow::Owned(Ternary {
            value: names::decode(names, &ternary.value, width)?,
            ..ternary.clone()
        }))
    }

    pub(super) fn range<'a>(
        names: Option<&Arc<Names>>,
        range: &'a Range,
        width: usize,
    ) -> UpdateResult<Cow<'a, Range>> {
        if names.is_none() {
            return Ok(Cow::Borrowed(range));
        }
        must(range.low == range.high)?;
        let value = names::decode(names, &range.low, width)?;
        Ok(Cow::Owned(Range {
            low: value.clone(),
            high: value,
        }))
    }
}

/// Returns whether each string in a key has a number already. Ignores values that are not strings.
pub(crate) fn knows(fields: &[MatchField], matches: &[FieldMatch]) -> bool {
    matches.iter().all(|given| {
        let field = fields.iter().find(|field| field.id == given.field_id);
        let value = given.field_match_type.as_ref().and_then(|kind| match kind {
            FieldMatchType::Exact(exact) => Some(&exact.value),
            FieldMatchType::Optional(optional) => Some(&optional.value),
            FieldMatchType::Lpm(lpm) => Some(&lpm.value),
            FieldMatchType::Ternary(ternary) => Some(&ternary.value),
            FieldMatchType::Range(range) => Some(&range.low),
            FieldMatchType::Other(_) => None,
        });
        match (field.and_then(|field| field.names.as_ref()), value) {
            (Some(names), Some(value)) => names.knows(value),
            _ => true,
        }
    })
}

/// Returns the mask of a field that is matched exactly: all ones.
fn ones(width: usize) -> Vec<u8> {
    let mut mask = vec![0xff; width.div_ceil(8)];
    if !width.is_multiple_of(8) {
        mask[0] >>= 8 - width % 8;
    }
    mask
}

const OMIT: &str = "the match selects every value: omit the field to express \"don't care\"";

fn decode_lpm(lpm: &Lpm, width: usize) -> UpdateResult<KeyField> {
    let value = check(&lpm.value, width)?;
    let prefix_len = match usize::try_from(lpm.prefix_len) {
        Ok(0) => return Err(UpdateError::invalid(OMIT)),
        Ok(length) if length <= width => length,
        _ => {
            let message = format!(
                "prefix length {} is not valid for a field of {width} bits",
                lpm.prefix_len
            );
            return Err(UpdateError::invalid(message));
        }
    };
    if value != [0] && trailing_zeros(value) < width - prefix_len {
        return Err(UpdateError::invalid("bits beyond the prefix are not 0"));
    }
    Ok(KeyField::Lpm {
        value: value.to_vec(),
        prefix_len: prefix_len as u32,
    })
}

fn trailing_zeros(value: &[u8]) -> usize {
    let zero_bytes = value.iter().rev().take_while(|byte| **byte == 0).count();
    let last = value
        .iter()
        .rev()
        .nth(zero_bytes)
        .map_or(0, |byte| byte.trailing_zeros());
    zero_bytes * 8 + last as usize
}

fn decode_ternary(ternary: &Ternary, width: usize) -> UpdateResult<KeyField> {
    let value = check(&ternary.value, width)?;
    let mask = check(&ternary.mask, width)?;
    if mask == [0] {
        return Err(UpdateError::invalid(OMIT));
    }
    let longer = value.len() > mask.len();
    let aligned = value.iter().rev().zip(mask.iter().rev());
    if longer || aligned.into_iter().any(|(value, mask)| value & !mask != 0) {
        return Err(UpdateError::invalid("bits outside the mask are not 0"));
    }
    Ok(KeyField::Ternary {
        value: value.to_vec(),
        mask: mask.to_vec(),
    })
}

fn decode_range(range: &Range, width: usize) -> UpdateResult<KeyField> {
    let low = check(&range.low, width)?;
    let high = check(&range.high, width)?;
    // Both bounds are in shortest form. So if one is longer, it is larger, and bounds of equal length compare as
    // bytes.
    if (low.len(), low) > (high.len(), high) {
        return Err(UpdateError::invalid(
            "the low bound is above the high bound",
        ));
    }
    let largest = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>() as usize;
    if low == [0] && largest(high) == width {
        return Err(UpdateError::invalid(OMIT));
    }
    Ok(KeyField::Range {
        low: low.to_vec(),
        high: high.to_vec(),
    })
}

/// Encodes a key. Leaves out "don't care" fields.
pub(crate) fn encode(fields: &[MatchField], key: &[KeyField]) -> Vec<FieldMatch> {
    let encode = |(field, value): (&MatchField, &KeyField)| {
        let bytes = |value: &[u8]| names::encode(field.names.as_ref(), value);
        let field_match = match value {
            KeyField::DontCare => return None,
            KeyField::Exact(value) => FieldMatchType::Exact(Exact {
                value: bytes(value),
            }),
            KeyField::Optional(value) => FieldMatchType::Optional(Optional {
                value: bytes(value),
            }),
            KeyField::Lpm { prefix_len: 0, .. } => return None,
            KeyField::Lpm { value, prefix_len } => FieldMatchType::Lpm(Lpm {
                value: bytes(value),
                prefix_len: *prefix_len as i32,
            }),
            KeyField::Ternary { mask, .. } if canonical(mask) == [0] => return None,
            KeyField::Ternary { value, .. } if field.as_ternary => {
                FieldMatchType::Optional(Optional {
                    value: bytes(value),
                })
            }
            KeyField::Ternary { value, mask } => FieldMatchType::Ternary(Ternary {
                value: bytes(value),
                mask: canonical(mask).to_vec(),
            }),
            KeyField::Range { low, high } => FieldMatchType::Range(Range {
                low: bytes(low),
                high: bytes(high),
            }),
        };
        Some(FieldMatch {
            field_id: field.id,
            field_match_type: Some(field_match),
        })
    };
    fields.iter().zip(key).filter_map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn field(kind: MatchKind, width: usize) -> MatchField {
        MatchField {
            id: 1,
            name: "f".into(),
            kind,
            as_ternary: false,
            translated: false,
            names: None,
            width,
        }
    }

    fn one(
        kind: MatchKind,
        width: usize,
        field_match: FieldMatchType,
    ) -> Result<Vec<FieldMatch>, Code> {
        let matches = [FieldMatch {
            field_id: 1,
            field_match_type: Some(field_match),
        }];
        let fields = [field(kind, width)];
        let key = decode(&fields, &matches).map_err(|error| error.code)?;
        Ok(encode(&fields, &key))
    }

    fn lpm(value: &[u8], prefix_len: i32) -> FieldMatchType {
        FieldMatchType::Lpm(Lpm {
            value: value.into(),
            prefix_len,
        })
    }

    fn ternary(value: &[u8], mask: &[u8]) -> FieldMatchType {
        FieldMatchType::Ternary(Ternary {
            value: value.into(),
            mask: mask.into(),
        })
    }

    fn range(low: &[u8], high: &[u8]) -> FieldMatchType {
        FieldMatchType::Range(Range {
            low: low.into(),
            high: high.into(),
        })
    }

    #[test]
    fn values_come_back_in_their_shortest_form() {
        let back = one(MatchKind::Lpm, 32, lpm(&[0, 10, 0, 0, 0], 8)).unwrap();
        assert_eq!(back[0].field_match_type, Some(lpm(&[10, 0, 0, 0], 8)));
    }

    #[test]
    fn lpm_rules() {
        for (value, length) in [
            (&[10, 0, 0, 0][..], 0),
            (&[10, 0, 0, 0], 33),
            (&[10, 0, 0, 0], -1),
            (&[10, 0, 0, 1], 24),
        ] {
            let error = one(MatchKind::Lpm, 32, lpm(value, length)).unwrap_err();
            assert_eq!(error, Code::InvalidArgument, "{value:?}/{length}");
        }
        assert!(one(MatchKind::Lpm, 32, lpm(&[0], 1)).is_ok());
        assert!(one(MatchKind::Lpm, 32, lpm(&[1], 32)).is_ok());
        assert_eq!(
            one(MatchKind::Lpm, 9, lpm(&[2, 0], 9)),
            Err(Code::OutOfRange)
        );
    }

    #[test]
    fn ternary_rules() {
        for (value, mask) in [(&[0][..], &[0][..]), (&[1], &[2]), (&[1, 0], &[0xff])] {
            let error = one(MatchKind::Ternary, 16, ternary(value, mask)).unwrap_err();
            assert_eq!(error, Code::InvalidArgument, "{value:?} & {mask:?}");
        }
        assert!(one(MatchKind::Ternary, 16, ternary(&[0, 1], &[1, 1])).is_ok());
    }

    #[test]
    fn an_optional_field_that_the_program_has_as_ternary() {
        let field = MatchField {
            as_ternary: true,
            ..field(MatchKind::Optional, 9)
        };
        let optional = FieldMatchType::Optional(Optional { value: vec![1, 2] });
        let matches = [FieldMatch {
            field_id: 1,
            field_match_type: Some(optional),
        }];
        let fields = std::slice::from_ref(&field);
        let key = decode(fields, &matches).unwrap();
        assert_eq!(
            key,
            [KeyField::Ternary {
                value: vec![1, 2],
                mask: vec![1, 0xff]
            }]
        );
        assert_eq!(encode(fields, &key), matches);
    }

    #[test]
    fn range_rules() {
        for (low, high) in [(&[2][..], &[1][..]), (&[1, 0], &[0xff]), (&[0], &[1, 0xff])] {
            let error = one(MatchKind::Range, 9, range(low, high)).unwrap_err();
            assert_eq!(error, Code::InvalidArgument, "{low:?}..{high:?}");
        }
        assert!(one(MatchKind::Range, 9, range(&[0], &[0xff])).is_ok());
        assert!(one(MatchKind::Range, 9, range(&[7], &[7])).is_ok());
    }

    #[test]
    fn omitted_doubled_unknown_and_mismatched_fields() {
        let exact = FieldMatchType::Exact(Exact { value: vec![1] });
        let given = |id| FieldMatch {
            field_id: id,
            field_match_type: Some(exact.clone()),
        };
        let decode = |kind, matches: &[FieldMatch]| {
            decode(&[field(kind, 8)], matches).map_err(|error| error.code)
        };
        assert_eq!(decode(MatchKind::Exact, &[]), Err(Code::InvalidArgument));
        assert_eq!(
            decode(MatchKind::Ternary, &[]),
            Ok(vec![KeyField::DontCare])
        );
        assert_eq!(
            decode(MatchKind::Exact, &[given(1), given(1)]),
            Err(Code::InvalidArgument)
        );
        assert_eq!(
            decode(MatchKind::Exact, &[given(2)]),
            Err(Code::InvalidArgument)
        );
        assert_eq!(
            decode(MatchKind::Lpm, &[given(1)]),
            Err(Code::InvalidArgument)
        );
        let unset = FieldMatch {
            field_id: 1,
            field_match_type: None,
        };
        assert_eq!(
            decode(MatchKind::Exact, &[unset]),
            Err(Code::InvalidArgument)
        );
    }
}
