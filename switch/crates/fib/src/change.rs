// SPDX-License-Identifier: Apache-2.0
//! Change notifications from a RIB to its followers.

use crate::address::{Address, Prefix};
use crate::answer::NONE;

/// A change of the route to a prefix, or of several routes to prefixes inside that prefix. For a single route, the code
/// that changes the RIB also finds the new answer of the prefix's addresses, and stores it here. So the followers need
/// not search the RIB for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change<A> {
    address: A,
    length: u8,
    /// Whether all addresses of the prefix now have the answer `value`.
    is_uniform: bool,
    value: u32,
}

impl<A: Address> Change<A> {
    /// Creates a change whose new answers must be looked up in the RIB.
    pub fn of(prefix: Prefix<A>) -> Self {
        Self {
            address: prefix.address(),
            length: prefix.length() as u8,
            is_uniform: false,
            value: NONE,
        }
    }

    /// Creates a change after which all addresses of the prefix have this answer.
    pub(crate) fn to(prefix: Prefix<A>, value: Option<u32>) -> Self {
        Self {
            is_uniform: true,
            value: value.unwrap_or(NONE),
            ..Self::of(prefix)
        }
    }

    /// Returns the prefix.
    pub fn prefix(self) -> Prefix<A> {
        Prefix::new(self.address, self.length.into())
    }

    /// Returns the answer that all addresses of the prefix have, if the change states one. The answer is [`NONE`] if no
    /// route matches.
    pub(crate) fn answer(self) -> Option<u32> {
        self.is_uniform.then_some(self.value)
    }
}

/// Sorts changes, and removes each change whose prefix is covered by the prefix of another change. The remaining
/// changes cover all addresses whose answers may have changed.
pub(crate) fn outermost<A: Address>(changes: &mut Vec<Change<A>>) {
    if changes.len() < 2 {
        return;
    }
    changes.sort_unstable();
    let mut outer = 0;
    for index in 1..changes.len() {
        if changes[outer].prefix().covers(changes[index].prefix()) {
            // The answer of the outer change may be older than the inner change, so the followers must look it up
            // again.
            changes[outer].is_uniform = false;
        } else {
            outer += 1;
            changes[outer] = changes[index];
        }
    }
    changes.truncate(outer + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_under_another_change_is_left_out_and_what_covers_it_is_asked_about() {
        let prefix = |bits: u32, length| Prefix::new(bits << 24, length);
        let mut changes = vec![
            Change::to(prefix(10, 16), Some(4)),
            Change::to(prefix(12, 8), None),
            Change::to(prefix(10, 8), Some(3)),
            Change::to(prefix(14, 8), Some(5)),
            Change::to(prefix(14, 8), Some(6)),
            Change::of(prefix(9, 8)),
        ];
        outermost(&mut changes);
        let left = changes
            .iter()
            .map(|change| (change.prefix(), change.answer()));
        let expected = [
            (prefix(9, 8), None),
            (prefix(10, 8), None),
            (prefix(12, 8), Some(NONE)),
            (prefix(14, 8), None),
        ];
        assert!(left.eq(expected));
    }
}
