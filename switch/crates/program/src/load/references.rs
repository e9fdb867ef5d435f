// SPDX-License-Identifier: Apache-2.0
//! Resolves names in the JSON to ids. Errors contain the unknown name.

use super::cursor::{Cursor, Result};
use super::headers::Headers;
use super::loader::Loader;
use crate::ids::*;
use crate::layout::FieldSlot;

/// Name of the hidden field with which BMv2 stands for a header's validity.
pub(super) const VALID_FIELD: &str = "$valid$";

/// What a `["header", "field"]` pair names.
pub(super) enum FieldName {
    /// A field: its header, and its slot.
    Field(HeaderId, FieldSlot),
    /// A header's `varbit` field.
    Varbit(HeaderId),
    /// The hidden validity field of a header.
    Valid(HeaderId),
}

fn lookup<I: Copy>(
    map: &std::collections::HashMap<String, I>,
    name: &Cursor<'_>,
    kind: &str,
) -> Result<I> {
    let text = name.str()?;
    map.get(text)
        .copied()
        .ok_or_else(|| name.error(format!("there is no {kind} called {text}")))
}

impl Headers {
    pub(super) fn header_named(&self, name: &Cursor<'_>) -> Result<HeaderId> {
        lookup(&self.header_names, name, "header")
    }

    pub(super) fn stack_named(&self, name: &Cursor<'_>) -> Result<StackId> {
        lookup(&self.stack_names, name, "header stack")
    }

    pub(super) fn union_named(&self, name: &Cursor<'_>) -> Result<UnionId> {
        lookup(&self.union_names, name, "header union")
    }

    pub(super) fn union_stack_named(&self, name: &Cursor<'_>) -> Result<UnionStackId> {
        lookup(&self.union_stack_names, name, "header union stack")
    }

    /// Resolves a `["header", "field"]` pair.
    pub(super) fn field_named(&self, pair: &Cursor<'_>) -> Result<FieldName> {
        let header = self.header_named(&pair.nth(0)?)?;
        let name = pair.nth(1)?;
        if name.str()? == VALID_FIELD {
            return Ok(FieldName::Valid(header));
        }
        let ty = self.headers[header.index()].ty;
        let index = self.field_index(ty, &name)?;
        Ok(if self.types[ty.index()].fields[index].varbit {
            FieldName::Varbit(header)
        } else {
            FieldName::Field(header, self.slot(header, index))
        })
    }

    /// Resolves a pair that must name an ordinary field, and returns the field's slot.
    pub(super) fn slot_named(&self, pair: &Cursor<'_>) -> Result<FieldSlot> {
        match self.field_named(pair)? {
            FieldName::Field(_, slot) => Ok(slot),
            FieldName::Varbit(_) => Err(pair.unsupported("a varbit field in this place")),
            FieldName::Valid(_) => Err(pair.unsupported("$valid$ in this place")),
        }
    }

    /// Returns the index of a field in a header type.
    pub(super) fn field_index(&self, ty: HeaderTypeId, name: &Cursor<'_>) -> Result<usize> {
        let text = name.str()?;
        let ty = &self.types[ty.index()];
        ty.fields
            .iter()
            .position(|field| field.name == text)
            .ok_or_else(|| {
                name.error(format!(
                    "header type {} has no field called {text}",
                    ty.name
                ))
            })
    }

    /// Returns the slot of a field in a stack element of this header type. The slot is relative to the start of the
    /// element.
    pub(super) fn element_slot(&self, ty: HeaderTypeId, field: usize) -> Option<FieldSlot> {
        let field = self.types[ty.index()].fields.get(field)?;
        (!field.varbit).then_some(field.slot)
    }
}

impl Loader {
    pub(super) fn counter_named(&self, name: &Cursor<'_>) -> Result<CounterId> {
        lookup(&self.counters, name, "counter")
    }

    pub(super) fn meter_named(&self, name: &Cursor<'_>) -> Result<MeterId> {
        lookup(&self.meters, name, "meter")
    }

    pub(super) fn register_named(&self, name: &Cursor<'_>) -> Result<(RegisterId, u16)> {
        lookup(&self.registers, name, "register")
    }

    pub(super) fn calculation_named(&self, name: &Cursor<'_>) -> Result<CalculationId> {
        lookup(&self.calculations, name, "calculation")
    }
}
