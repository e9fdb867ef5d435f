// SPDX-License-Identifier: Apache-2.0
//! Results of lookup structures.

use crate::slab::Target;

/// Result of a lookup.
pub(crate) enum Found<'a> {
    /// Slot of the entry.
    Slot(u32),
    /// The target of the entry, in tables whose entries keep no packet state. The second field is the slot of the entry
    /// that owns the group, if the target is a one-shot group; otherwise it has no meaning.
    Class(Target<'a>, u32),
}
