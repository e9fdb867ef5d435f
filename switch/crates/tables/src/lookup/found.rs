// SPDX-License-Identifier: Apache-2.0
//! Results of lookup structures.

use crate::slab::Target;

/// Result of a lookup.
pub(crate) enum Found<'a> {
    /// Slot of the entry.
    Slot(u32),
    /// Target of the entry, in tables whose entries keep no packet state. If the target is a one-shot group, the number
    /// is the slot of the entry that owns the group.
    Class(Target<'a>, u32),
}
