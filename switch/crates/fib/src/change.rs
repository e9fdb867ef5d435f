// SPDX-License-Identifier: Apache-2.0
//! What those who follow a RIB are told of its changes.

use crate::{Address, NONE, Prefix};

/// The routes to a prefix, or to prefixes in it, have changed. Where one route has, what it gives the
/// prefix' addresses is found out by who changes it, on the way: followers need not search the RIB for
/// it, each of them anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change<A> {
    address: A,
    length: u8,
    /// Whether all addresses have one answer, which is `value`.
    is_uniform: bool,
    value: u32,
}

impl<A: Address> Change<A> {
    /// The RIB knows what the addresses' answers are.
    pub fn of(prefix: Prefix<A>) -> Self {
        Self {
            address: prefix.address(),
            length: prefix.length() as u8,
            is_uniform: false,
            value: NONE,
        }
    }

    /// All addresses have this answer now.
    pub(crate) fn to(prefix: Prefix<A>, value: Option<u32>) -> Self {
        Self {
            is_uniform: true,
            value: value.unwrap_or(NONE),
            ..Self::of(prefix)
        }
    }

    /// The prefix.
    pub fn prefix(self) -> Prefix<A> {
        Prefix::new(self.address, self.length.into())
    }

    /// The answer of all its addresses, [`NONE`] for no route, if they have one and it is known.
    pub(crate) fn answer(self) -> Option<u32> {
        self.is_uniform.then_some(self.value)
    }
}

/// Sorts changes and leaves out those that lie under others: what remains covers all that look-ups can see
/// of them.
pub fn outermost<A: Address>(changes: &mut Vec<Change<A>>) {
    if changes.len() < 2 {
        return;
    }
    changes.sort_unstable();
    let mut outer = 0;
    for index in 1..changes.len() {
        if changes[outer].prefix().covers(changes[index].prefix()) {
            // What was found out of the outer one may have been before this.
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
