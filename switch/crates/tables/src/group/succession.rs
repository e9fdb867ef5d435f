// SPDX-License-Identifier: Apache-2.0
//! What becomes of buckets when a group is written again: shares stay exact, and no flow moves that need not.
//!
//! A group keeps the assignment that it had when all its members were there: its *base*. Of that
//! each member has its own part. While members are absent, each absent member's part is shared out among those
//! present, exactly by their weights, and each part on its own:
//!
//! - A member that leaves: its part, and its shares of the parts of those absent before it, go to the members
//!   present, whose shares have grown by as much in each part. So none of theirs moves.
//! - A member that returns gets its part back, and of each part that is still absent its share from the others,
//!   whose shares have shrunk by as much. So nothing moves but to that member.
//! - With all members back, in whatever order, the assignment is the base again, whatever happened between.
//!
//! A write with another member or other proportions is a new base. Every position whose member is in it stays
//! with that member as long as it has room, first where a new group of this content would have it too. The rest
//! goes to whom a new group would give it, then to the highest bidders with room.
//!
//! Invariant: a group of content A that is written with content B and then with A again, is as before: who had to
//! give something kept only what it had at first, who got something has all of that, and the latter comes first.

use std::sync::Arc;

use super::bids::{Bidder, Rooms, shares};
use super::buckets::{Buckets, Piece};

/// Most parts of divided buckets, in 16 bytes each. A group of up to some hundred members has fewer,
/// whichever are absent.
const MOST_PARTS: usize = 1 << 16;

/// A new base has at most this many parts for each member; a few more flows move rather than that
/// buckets are divided ever more.
const PARTS_EACH: usize = 8;

/// Members, and who of them has which bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) bidders: Vec<Bidder>,
    pub(super) buckets: Buckets,
    /// Buckets of the group, also where one member has all of one.
    pub(super) count: usize,
    /// What it will be when absent members are back; none where there are no absent ones.
    pub(super) base: Option<Arc<Assignment>>,
}

impl Assignment {
    /// A new group's.
    pub(super) fn new(bidders: Vec<Bidder>, count: usize) -> Self {
        Self {
            buckets: Buckets::new(&bidders, count),
            bidders,
            count,
            base: None,
        }
    }

    /// The assignment when the group is written with these members.
    pub(super) fn next(self: &Arc<Self>, bidders: Vec<Bidder>) -> Self {
        let fits = Buckets::are_few(&self.bidders) && Buckets::are_few(&bidders);
        if !fits || self.bidders.is_empty() && self.base.is_none() {
            return Self::new(bidders, self.count);
        }
        let base = self.base.as_ref().unwrap_or(self);
        let Some(places) = base.places_of(&bidders) else {
            return self.rebased(bidders);
        };
        let next = if bidders.len() == base.bidders.len() {
            base.reordered(bidders, &places)
        } else {
            self.without_absent(base, bidders, &places)
        };
        if next.buckets.parts() > MOST_PARTS {
            return self.rebased(next.bidders);
        }
        next
    }

    /// Which of this assignment's members these are, if all of them are and their weights have the same proportions.
    fn places_of(&self, bidders: &[Bidder]) -> Option<Vec<usize>> {
        let places = places(&self.bidders, bidders);
        let places: Vec<usize> = places.into_iter().collect::<Option<_>>()?;
        let pairs = || {
            places
                .iter()
                .map(|place| &self.bidders[*place])
                .zip(bidders)
        };
        let Some((own, one)) = pairs().next() else {
            return Some(places);
        };
        let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
        pairs()
            .all(|(a, b)| product(a.weight, one.weight) == product(b.weight, own.weight))
            .then_some(places)
    }

    /// The same with its members in another order, and weights of the same proportions.
    fn reordered(&self, bidders: Vec<Bidder>, places: &[usize]) -> Self {
        let now = inverse(places, self.bidders.len());
        let pieces = self.buckets.pieces(self.count).into_iter();
        let pieces = pieces.map(|piece| Piece {
            owner: piece.owner.and_then(|owner| now[owner]),
            ..piece
        });
        let pieces: Vec<Piece> = pieces.collect();
        Self {
            buckets: Buckets::of_pieces(&pieces, bidders.len(), self.count),
            bidders,
            count: self.count,
            base: None,
        }
    }

    /// The assignment to members of the base, some of which are absent.
    fn without_absent(
        &self,
        base: &Arc<Assignment>,
        bidders: Vec<Bidder>,
        places: &[usize],
    ) -> Self {
        let in_base = |place: &usize| base.bidders[*place];
        let present: Vec<Bidder> = places.iter().map(in_base).collect();
        let weights = |of: &mut dyn Iterator<Item = u32>| of.map(u64::from).sum::<u64>();
        let before = self.bidders.iter().map(|bidder| bidder.key);
        let before = indices(&base.bidders, before).into_iter().flatten();
        let before = weights(&mut before.map(|place| base.bidders[place].weight));
        let after = weights(&mut present.iter().map(|bidder| bidder.weight));

        let mut given = Vec::new();
        let mut absent = vec![Vec::new(); base.bidders.len()];
        let of_base = inverse(places, base.bidders.len());
        let now = places_by_key(&self.bidders, &present);
        let both = overlay(
            &base.buckets.pieces(self.count),
            &self.buckets.pieces(self.count),
        );
        for (piece, own, had) in both {
            let Some(own) = own else { continue };
            match of_base[own] {
                Some(owner) => given.push(piece.of(owner)),
                None => absent[own].push(Piece {
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

    /// The assignment to members of whatever content.
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

    /// As much of this as there is room for in what `new` has for its members. Parts of buckets only where `new` has
    /// them too, unless `parts` says otherwise.
    fn kept(&self, new: &Self, parts: bool) -> Buckets {
        let now = places_by_key(&self.bidders, &new.bidders);
        let mut room = vec![0; new.bidders.len()];
        let wanted = new.buckets.pieces(self.count);
        for piece in &wanted {
            if let Some(owner) = piece.owner {
                room[owner] += piece.positions();
            }
        }
        let mut rooms = Rooms::new(&new.bidders, room);
        let mut given = Vec::new();
        let had = self.buckets.pieces(self.count);
        let both = overlay(&wanted, &had).into_iter();
        let both = both.map(|(piece, wanted, had)| (piece, wanted, had.and_then(|had| now[had])));
        let (same, mut left): (Vec<_>, Vec<_>) = both.partition(|(_, wanted, had)| wanted == had);
        for (piece, _, had) in same {
            keep(&mut rooms, piece, had, &mut given);
        }
        // Whole buckets first, so that few are divided.
        left.sort_by_key(|(piece, ..)| !piece.is_whole());
        let had_first = |&(piece, wanted, had): &(Piece, Option<usize>, Option<usize>)| {
            let had = had.filter(|_| parts || piece.is_whole());
            (piece, [had, wanted])
        };
        let mut free: Vec<_> = left.iter().map(had_first).collect();
        for choice in 0..2 {
            let mut rest = Vec::new();
            for (piece, owners) in free {
                let left = keep(&mut rooms, piece, owners[choice], &mut given);
                rest.extend(left.map(|piece| (piece, owners)));
            }
            free = rest;
        }
        free.sort_unstable_by_key(|(piece, _)| (piece.bucket, piece.first));
        rooms.give(free.into_iter().map(|(piece, _)| piece), &mut given);
        given.sort_unstable_by_key(|piece| (piece.bucket, piece.first));
        Buckets::of_pieces(&given, new.bidders.len(), self.count)
    }
}

/// Gives an owner as much of a piece as it has room for; returns the rest.
fn keep(
    rooms: &mut Rooms<'_>,
    piece: Piece,
    owner: Option<usize>,
    given: &mut Vec<Piece>,
) -> Option<Piece> {
    let Some(owner) = owner else {
        return Some(piece);
    };
    let (taken, rest) = rooms.take(owner, piece);
    given.extend(taken);
    rest
}

/// Shares an absent member's part out to those present. Pieces have the owners that they had; these give some of them
/// away if their shares have shrunk.
fn share_out(part: Vec<Piece>, present: &[Bidder], shrunk: bool, given: &mut Vec<Piece>) {
    let all = part.iter().map(Piece::positions).sum();
    let mut room = shares(present, all);
    let (mut held, mut free): (Vec<_>, Vec<_>) =
        part.into_iter().partition(|piece| piece.owner.is_some());
    if !shrunk {
        for piece in &held {
            if let Some(owner) = piece.owner {
                room[owner] = room[owner].saturating_sub(piece.positions());
            }
        }
        given.append(&mut held);
    }
    let mut rooms = Rooms::new(present, room);
    // Whole buckets first, so that few are divided.
    held.sort_by_key(|piece| !piece.is_whole());
    for piece in held {
        free.extend(keep(&mut rooms, piece, piece.owner, given));
    }
    free.sort_unstable_by_key(|piece| (piece.bucket, piece.first));
    rooms.give(free, given);
}

/// The positions of two assignments, divided where either is, with the owner in each.
fn overlay(a: &[Piece], b: &[Piece]) -> Vec<(Piece, Option<usize>, Option<usize>)> {
    let mut both = Vec::with_capacity(a.len() + b.len());
    let mut rest = b.iter().copied().peekable();
    for piece in a {
        let mut first = piece.first;
        loop {
            let other = rest.peek().filter(|other| other.bucket == piece.bucket);
            let last = other.map_or(piece.last, |other| other.last.min(piece.last));
            let had = other.and_then(|other| other.owner);
            let stretch = Piece {
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

/// Where each of `others` is among `bidders`.
fn places(bidders: &[Bidder], others: &[Bidder]) -> Vec<Option<usize>> {
    indices(bidders, others.iter().map(|bidder| bidder.key))
}

fn places_by_key(of: &[Bidder], among: &[Bidder]) -> Vec<Option<usize>> {
    places(among, of)
}

/// Where the bidders with these keys are.
fn indices(bidders: &[Bidder], keys: impl Iterator<Item = u64>) -> Vec<Option<usize>> {
    let mut order: Vec<(u64, usize)> = bidders.iter().map(|bidder| bidder.key).zip(0..).collect();
    order.sort_unstable();
    let find = |key| {
        let at = order.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(order[at].1)
    };
    keys.map(find).collect()
}

/// For each of `count` places the index at which `places` has it.
fn inverse(places: &[usize], count: usize) -> Vec<Option<usize>> {
    let mut inverse = vec![None; count];
    for (index, place) in places.iter().enumerate() {
        inverse[*place] = Some(index);
    }
    inverse
}

#[cfg(test)]
mod tests;
