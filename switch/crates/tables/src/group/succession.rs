// SPDX-License-Identifier: Apache-2.0
//! Assigns buckets when a group is modified. Shares stay exact, and only those flows move that must move for this.
//!
//! A group keeps its *base*, the assignment when all its members are present. Each member has a part of the base. A
//! member that a write removes is *absent* until a later write adds it again. While a member is absent, its part is
//! divided among the present members, exactly by weight, and separately from the parts of other absent members:
//!
//! - When a member leaves, its part goes to the present members. If the member also owned shares of the parts of
//!   members that left earlier, these shares go to the present members, too. The shares of the present members grow by
//!   exactly this much, so none of their flows moves.
//! - When a member returns, it gets its part back, and a share of each part whose member is still absent. The shares of
//!   the other members shrink by exactly this much. So flows move only to the returning member.
//! - When all members have returned, in any order, the assignment is the base again.
//!
//! A write that adds a new member, or changes the proportions of the weights, creates a new base. Each member that
//! stays keeps as many of its positions as its new share allows. If it must give up some, it keeps first those that it
//! would also have in a new group with this content. Each remaining position goes to the member that would have it in
//! such a new group. If that member has no quota left, the position goes to the highest bidder that has.
//!
//! Invariant: if a new group with content A is written with content B and then with A again, it has its first
//! assignment again. Reason: a member with a smaller share in B has, in B, only positions that it had in A. A member
//! with a larger share in B has all positions that it had in A, and more. The second write of A first keeps each
//! position that its owner also has in A. The rest goes to the owners of A, who have just enough quota left.

use std::sync::Arc;

use super::bids::{Bidder, Quotas, shares};
use super::buckets::Buckets;
use super::piece::BucketPiece;

/// Maximum number of parts of divided buckets. A part takes 16 bytes. A group of up to a few hundred members never
/// reaches this number.
const MAX_PARTS: usize = 1 << 16;

/// Maximum number of parts for each member in a new base. With more parts, the new base keeps only whole buckets: a few
/// more flows move, but a long history does not divide all buckets.
const PARTS_EACH: usize = 8;

/// The members of a group, and the owner of each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) bidders: Vec<Bidder>,
    pub(super) buckets: Buckets,
    /// Number of buckets of the group. This number does not change if a single member owns all positions, although
    /// `buckets` then has only one bucket.
    pub(super) count: usize,
    /// The assignment when all absent members have returned. `None` if no member is absent.
    pub(super) base: Option<Arc<Assignment>>,
}

impl Assignment {
    /// Creates the assignment of a new group.
    pub(super) fn new(bidders: Vec<Bidder>, count: usize) -> Self {
        Self {
            buckets: Buckets::new(&bidders, count),
            bidders,
            count,
            base: None,
        }
    }

    /// Returns the assignment after the group is written with these members.
    pub(super) fn next(self: &Arc<Self>, bidders: Vec<Bidder>) -> Self {
        let fits = Buckets::are_few(&self.bidders) && Buckets::are_few(&bidders);
        if !fits || self.bidders.is_empty() && self.base.is_none() {
            return Self::new(bidders, self.count);
        }
        let base = self.base.as_ref().unwrap_or(self);
        let Some(base_indices) = base.base_indices_of(&bidders) else {
            return self.rebased(bidders);
        };
        let next = if bidders.len() == base.bidders.len() {
            base.reordered(bidders, &base_indices)
        } else {
            self.without_absent(base, bidders, &base_indices)
        };
        if next.buckets.parts() > MAX_PARTS {
            return self.rebased(next.bidders);
        }
        next
    }

    /// Returns the index of each of these members in this assignment. Returns `None` if a member is not in this
    /// assignment, or if the weights have other proportions.
    fn base_indices_of(&self, bidders: &[Bidder]) -> Option<Vec<usize>> {
        let base_indices = indices_of(&self.bidders, bidders);
        let base_indices: Vec<usize> = base_indices.into_iter().collect::<Option<_>>()?;
        let pairs = || {
            base_indices
                .iter()
                .map(|index| &self.bidders[*index])
                .zip(bidders)
        };
        let Some((own, one)) = pairs().next() else {
            return Some(base_indices);
        };
        let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
        pairs()
            .all(|(a, b)| product(a.weight, one.weight) == product(b.weight, own.weight))
            .then_some(base_indices)
    }

    /// Returns this assignment with its members in another order, and weights of the same proportions.
    fn reordered(&self, bidders: Vec<Bidder>, base_indices: &[usize]) -> Self {
        let now = inverse(base_indices, self.bidders.len());
        let pieces = self.buckets.pieces(self.count).into_iter();
        let pieces = pieces.map(|piece| BucketPiece {
            owner: piece.owner.and_then(|owner| now[owner]),
            ..piece
        });
        let pieces: Vec<BucketPiece> = pieces.collect();
        Self {
            buckets: Buckets::of_pieces(&pieces, bidders.len(), self.count),
            bidders,
            count: self.count,
            base: None,
        }
    }

    /// Returns the assignment to some members of the base. The other members of the base are absent.
    fn without_absent(
        &self,
        base: &Arc<Assignment>,
        bidders: Vec<Bidder>,
        base_indices: &[usize],
    ) -> Self {
        let in_base = |index: &usize| base.bidders[*index];
        let present: Vec<Bidder> = base_indices.iter().map(in_base).collect();
        let weights = |of: &mut dyn Iterator<Item = u32>| of.map(u64::from).sum::<u64>();
        let before = self.bidders.iter().map(|bidder| bidder.key);
        let before = indices(&base.bidders, before).into_iter().flatten();
        let before = weights(&mut before.map(|index| base.bidders[index].weight));
        let after = weights(&mut present.iter().map(|bidder| bidder.weight));

        let mut given = Vec::new();
        let mut absent = vec![Vec::new(); base.bidders.len()];
        let of_base = inverse(base_indices, base.bidders.len());
        let now = indices_of(&present, &self.bidders);
        let both = overlay(
            &base.buckets.pieces(self.count),
            &self.buckets.pieces(self.count),
        );
        for (piece, own, had) in both {
            let Some(own) = own else { continue };
            match of_base[own] {
                Some(owner) => given.push(piece.of(owner)),
                None => absent[own].push(BucketPiece {
                    owner: had.and_then(|had| now[had]),
                    ..piece
                }),
            }
        }
        for part in absent {
            share_out(part, &present, before < after, &mut given);
        }
        given.sort_unstable_by_key(|piece| (piece.bucket, piece.first));
        Self {
            buckets: Buckets::of_pieces(&given, bidders.len(), self.count),
            bidders,
            count: self.count,
            base: Some(Arc::clone(base)),
        }
    }

    /// Returns the assignment to any members, with a new base.
    fn rebased(&self, bidders: Vec<Bidder>) -> Self {
        let mut next = Self::new(bidders, self.count);
        let most = PARTS_EACH * next.bidders.len().max(self.bidders.len());
        let kept = self.kept(&next, true);
        next.buckets = match kept.parts() > most {
            true => self.kept(&next, false),
            false => kept,
        };
        next
    }

    /// Returns the buckets of a new base. The members of `new` get their shares, and keep as many of their present
    /// positions as fit. If `parts` is false, positions in divided buckets are kept only where they are the same in
    /// `new`.
    fn kept(&self, new: &Self, parts: bool) -> Buckets {
        let now = indices_of(&new.bidders, &self.bidders);
        let mut quota = vec![0; new.bidders.len()];
        let wanted = new.buckets.pieces(self.count);
        for piece in &wanted {
            if let Some(owner) = piece.owner {
                quota[owner] += piece.positions();
            }
        }
        let mut quotas = Quotas::new(&new.bidders, quota);
        let mut given = Vec::new();
        let had = self.buckets.pieces(self.count);
        let both = overlay(&wanted, &had).into_iter();
        let both = both.map(|(piece, wanted, had)| (piece, wanted, had.and_then(|had| now[had])));
        let (same, mut left): (Vec<_>, Vec<_>) = both.partition(|(_, wanted, had)| wanted == had);
        for (piece, _, had) in same {
            keep(&mut quotas, piece, had, &mut given);
        }
        // Whole buckets are assigned first, so that few buckets are divided.
        left.sort_by_key(|(piece, ..)| !piece.is_whole());
        let had_first = |&(piece, wanted, had): &(BucketPiece, Option<usize>, Option<usize>)| {
            let had = had.filter(|_| parts || piece.is_whole());
            (piece, [had, wanted])
        };
        let mut free: Vec<_> = left.iter().map(had_first).collect();
        for choice in 0..2 {
            let mut rest = Vec::new();
            for (piece, owners) in free {
                let left = keep(&mut quotas, piece, owners[choice], &mut given);
                rest.extend(left.map(|piece| (piece, owners)));
            }
            free = rest;
        }
        free.sort_unstable_by_key(|(piece, _)| (piece.bucket, piece.first));
        quotas.give(free.into_iter().map(|(piece, _)| piece), &mut given);
        given.sort_unstable_by_key(|piece| (piece.bucket, piece.first));
        Buckets::of_pieces(&given, new.bidders.len(), self.count)
    }
}

/// Assigns to an owner as much of a piece as the owner's quota allows. Returns the rest.
fn keep(
    quotas: &mut Quotas<'_>,
    piece: BucketPiece,
    owner: Option<usize>,
    given: &mut Vec<BucketPiece>,
) -> Option<BucketPiece> {
    let Some(owner) = owner else {
        return Some(piece);
    };
    let (taken, rest) = quotas.take(owner, piece);
    given.extend(taken);
    rest
}

/// Divides an absent member's part among the present members. Each piece names its present owner. If `shrunk` is set,
/// the shares of the present owners have become smaller, so they give up some of their pieces.
fn share_out(
    part: Vec<BucketPiece>,
    present: &[Bidder],
    shrunk: bool,
    given: &mut Vec<BucketPiece>,
) {
    let all = part.iter().map(BucketPiece::positions).sum();
    let mut quota = shares(present, all);
    let (mut held, mut free): (Vec<_>, Vec<_>) =
        part.into_iter().partition(|piece| piece.owner.is_some());
    if !shrunk {
        for piece in &held {
            if let Some(owner) = piece.owner {
                quota[owner] = quota[owner].saturating_sub(piece.positions());
            }
        }
        given.append(&mut held);
    }
    let mut quotas = Quotas::new(present, quota);
    // Whole buckets are assigned first, so that few buckets are divided.
    held.sort_by_key(|piece| !piece.is_whole());
    for piece in held {
        free.extend(keep(&mut quotas, piece, piece.owner, given));
    }
    free.sort_unstable_by_key(|piece| (piece.bucket, piece.first));
    quotas.give(free, given);
}

/// Overlays two assignments. Returns pieces that end wherever a piece of `a` or `b` ends, each with its owner in `a`
/// and its owner in `b`.
fn overlay(
    a: &[BucketPiece],
    b: &[BucketPiece],
) -> Vec<(BucketPiece, Option<usize>, Option<usize>)> {
    let mut both = Vec::with_capacity(a.len() + b.len());
    let mut rest = b.iter().copied().peekable();
    for piece in a {
        let mut first = piece.first;
        loop {
            let other = rest.peek().filter(|other| other.bucket == piece.bucket);
            let last = other.map_or(piece.last, |other| other.last.min(piece.last));
            let had = other.and_then(|other| other.owner);
            let stretch = BucketPiece {
                bucket: piece.bucket,
                first,
                last,
                owner: None,
            };
            both.push((stretch, piece.owner, had));
            if other.is_some_and(|other| other.last == last) {
                rest.next();
            }
            if last == piece.last {
                break;
            }
            first = last + 1;
        }
    }
    both
}

/// Returns for each of `others` its index in `bidders`.
fn indices_of(bidders: &[Bidder], others: &[Bidder]) -> Vec<Option<usize>> {
    indices(bidders, others.iter().map(|bidder| bidder.key))
}

/// Returns for each key the index of its bidder in `bidders`.
fn indices(bidders: &[Bidder], keys: impl Iterator<Item = u64>) -> Vec<Option<usize>> {
    let mut order: Vec<(u64, usize)> = bidders.iter().map(|bidder| bidder.key).zip(0..).collect();
    order.sort_unstable();
    let find = |key| {
        let at = order.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(order[at].1)
    };
    keys.map(find).collect()
}

/// Returns the inverse of the map `indices`: for each number below `count`, its position in `indices`.
fn inverse(indices: &[usize], count: usize) -> Vec<Option<usize>> {
    let mut inverse = vec![None; count];
    for (position, index) in indices.iter().enumerate() {
        inverse[*index] = Some(position);
    }
    inverse
}

#[cfg(test)]
mod tests;
