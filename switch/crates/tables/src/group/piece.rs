// SPDX-License-Identifier: Apache-2.0
//! Ranges of positions in buckets. An assignment is a list of such pieces.

/// A range of positions in one bucket. It belongs to one member, or is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BucketPiece {
    pub(super) bucket: usize,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) owner: Option<usize>,
}

impl BucketPiece {
    /// Returns a whole bucket.
    pub(super) fn whole(bucket: usize, owner: Option<usize>) -> Self {
        Self {
            bucket,
            first: 0,
            last: u64::MAX,
            owner,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.first == 0 && self.last == u64::MAX
    }

    pub(super) fn of(self, owner: usize) -> Self {
        let owner = Some(owner);
        Self { owner, ..self }
    }

    pub(super) fn positions(&self) -> u128 {
        u128::from(self.last - self.first) + 1
    }

    /// Splits off the first `positions` positions. The piece must have more positions than that, and `positions` must
    /// not be 0.
    pub(super) fn split(self, positions: u128) -> (Self, Self) {
        let last = self.first + (positions - 1) as u64;
        let first = last + 1;
        (Self { last, ..self }, Self { first, ..self })
    }
}
