// SPDX-License-Identifier: Apache-2.0
//! Members of parser value sets, and the test whether a key is a member.

use sluice_program::ValueSet;

use crate::error::{Result, invalid};
use crate::key::ones;
use crate::model::KeyField;
use crate::value;

/// Condition on one component of a member.
#[derive(Debug)]
enum Matcher {
    Masked { value: Vec<u8>, mask: Vec<u8> },
    Range { low: Vec<u8>, high: Vec<u8> },
}

impl Matcher {
    fn matches(&self, key: &[u8], extra: Option<&[u8]>) -> bool {
        match self {
            Self::Masked { value, mask } => key.iter().enumerate().all(|(i, byte)| {
                let mask = mask[i] & extra.map_or(0xff, |extra| extra[i]);
                byte & mask == value[i] & mask
            }),
            Self::Range { low, high } => low[..] <= *key && *key <= high[..],
        }
    }
}

/// The members of one set.
#[derive(Debug, Default)]
pub(crate) struct ValueSetMembers {
    pub(crate) specs: Vec<Vec<KeyField>>,
    matchers: Vec<Vec<Matcher>>,
}

impl ValueSetMembers {
    /// Compiles members. A member has one field for each component of the `select` key in which the set is used.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong number or kind of fields, `OutOfRange` for a bad value.
    pub(crate) fn compile(set: &ValueSet, specs: Vec<Vec<KeyField>>) -> Result<Self> {
        let mut matchers = Vec::with_capacity(specs.len());
        for spec in &specs {
            if spec.len() != set.components.len() {
                return invalid(format!(
                    "a member of {} has {} fields, not {}",
                    set.name,
                    set.components.len(),
                    spec.len()
                ));
            }
            let fields = spec.iter().zip(&set.components);
            matchers.push(
                fields
                    .map(|(field, width)| matcher(field, *width, &set.name))
                    .collect::<Result<_>>()?,
            );
        }
        Ok(Self { specs, matchers })
    }

    pub(crate) fn contains(&self, key: &[u8], mask: Option<&[u8]>) -> bool {
        self.matchers.iter().any(|member| {
            let mut start = 0;
            member.iter().all(|matcher| {
                let bytes = match matcher {
                    Matcher::Masked { value, .. } | Matcher::Range { low: value, .. } => {
                        value.len()
                    }
                };
                let range = start..start + bytes;
                start += bytes;
                matcher.matches(&key[range.clone()], mask.map(|mask| &mask[range]))
            })
        })
    }
}

fn matcher(field: &KeyField, width: u16, name: &str) -> Result<Matcher> {
    let padded = |value: &[u8]| {
        let mut bytes = Vec::new();
        value::append_padded(&mut bytes, value, width, &name).map(|()| bytes)
    };
    Ok(match field {
        KeyField::Exact(value) | KeyField::Optional(value) => Matcher::Masked {
            value: padded(value)?,
            mask: ones(width),
        },
        KeyField::Ternary { value, mask } => Matcher::Masked {
            value: padded(value)?,
            mask: padded(mask)?,
        },
        KeyField::Lpm { value, prefix_len } if *prefix_len <= u32::from(width) => {
            let value = padded(value)?;
            let mask = crate::key::prefix_mask(width, *prefix_len);
            Matcher::Masked { value, mask }
        }
        KeyField::Lpm { .. } => return invalid(format!("{name}: the prefix is too long")),
        KeyField::Range { low, high } => Matcher::Range {
            low: padded(low)?,
            high: padded(high)?,
        },
        KeyField::DontCare => {
            let bytes = usize::from(width).div_ceil(8);
            Matcher::Masked {
                value: vec![0; bytes],
                mask: vec![0; bytes],
            }
        }
    })
}
