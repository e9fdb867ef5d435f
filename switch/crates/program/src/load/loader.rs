// SPDX-License-Identifier: Apache-2.0
//! Objects that later parts of the JSON refer to.

use std::collections::HashMap;

use super::headers::Headers;
use crate::ids::*;

/// Objects that were already read, so that later parts can refer to them by their names and ids in the JSON.
pub(super) struct Loader {
    pub(super) headers: Headers,
    pub(super) counters: HashMap<String, CounterId>,
    pub(super) meters: HashMap<String, MeterId>,
    pub(super) registers: HashMap<String, (RegisterId, u16)>,
    pub(super) calculations: HashMap<String, CalculationId>,
    pub(super) digests: HashMap<u32, DigestId>,
    pub(super) field_lists: HashMap<u32, FieldListId>,
}
