// SPDX-License-Identifier: Apache-2.0
//! Reassembles fragmented ESP: fragments of IPv4 (RFC 791) and IPv6 (RFC 8200, 4.5).
//!
//! An ESP packet can be authenticated only when it is complete. So anyone can send fragments with a forged source.
//! Promises:
//!
//! * Memory, datagrams and fragments are limited, both for each source and in total.
//! * When a limit is reached, the oldest incomplete datagram is evicted. So even during a flood, a datagram is
//!   completed if its fragments arrive close together.
//! * If fragments overlap, their whole datagram is dropped (RFC 5722).
//! * Each fragment becomes part of a complete datagram, or is dropped and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::counters::{Counters, Drop};
use crate::ip::{self, Fragment};
use crate::lifetime::Nanoseconds;

/// Limit in bytes for all kept fragments, including the overhead of storage.
pub const MAX_BYTES: usize = 4 << 20;
/// Limit in bytes for the fragments of one source.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Limit for the total number of incomplete datagrams.
pub const MAX_DATAGRAMS: usize = 1024;
/// Limit for incomplete datagrams of one source.
pub const MAX_SOURCE_DATAGRAMS: usize = 64;
/// Limit for fragments of one datagram. The longest datagram has 53 fragments of 1,280 bytes.
pub const MAX_FRAGMENTS: usize = 64;
/// Time limit in nanoseconds for an incomplete datagram.
pub const TIMEOUT: Nanoseconds = 15_000_000_000;

/// Storage overhead in bytes charged for each fragment.
const FRAGMENT_COST: usize = 64;
/// Storage overhead in bytes charged for each datagram.
const DATAGRAM_COST: usize = 512;
const MAX_IP: usize = 65_535;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Source {
    vrf: u16,
    address: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Id {
    source: Source,
    destination: IpAddr,
    identification: u32,
}

/// Bytes of a fragment, and their offset in the datagram.
struct Part {
    offset: usize,
    bytes: Box<[u8]>,
}

impl Part {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// An incomplete datagram.
struct Datagram {
    /// Serial number of the datagram. Older datagrams have lower numbers.
    serial: u64,
    deadline: Nanoseconds,
    /// Reason for refusing the datagram. Later fragments of the datagram are dropped for the same reason.
    refused: Option<Drop>,
    /// Fragments of the datagram, ordered by offset. Invariant: they do not overlap.
    parts: Vec<Part>,
    /// The first fragment, and its header up to the fragmentable part.
    first: Option<(Fragment, Box<[u8]>)>,
    /// Length of the datagram's fragmented part; None until the last fragment has arrived.
    length: Option<usize>,
    /// ECN values of the fragments. Bit n is set if some fragment had the ECN value n.
    ecn: u8,
    /// Bytes of this datagram that count towards the limits.
    cost: usize,
}

#[derive(Default)]
struct Usage {
    cost: usize,
    serials: BTreeSet<u64>,
}

/// The incomplete datagrams of an engine.
#[derive(Default)]
pub(crate) struct Reassembler {
    datagrams: HashMap<Id, Datagram>,
    by_age: BTreeMap<u64, Id>,
    sources: HashMap<Source, Usage>,
    cost: usize,
    next_serial: u64,
}

/// Result of accepting a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// The fragment is kept.
    Held,
    /// The datagram is complete and has replaced the fragment; the packet has this length.
    Complete(usize),
}

impl Reassembler {
    /// Returns the number of kept fragments.
    pub(crate) fn held(&self) -> u64 {
        let parts = self.datagrams.values().map(|datagram| datagram.parts.len());
        parts.sum::<usize>() as u64
    }

    /// Drops datagrams that have timed out.
    pub(crate) fn tick(&mut self, now: Nanoseconds, counters: &mut Counters) {
        while let Some((_, id)) = self.by_age.first_key_value() {
            let id = *id;
            if self
                .datagrams
                .get(&id)
                .is_some_and(|one| now < one.deadline)
            {
                return;
            }
            self.drop_datagram(&id, Drop::FragmentTimeout, counters);
        }
    }

    /// Accepts a fragment from the beginning of `room`. `vrf` is the fragment's VRF. If the fragment completes its
    /// datagram, writes the whole packet to `room`.
    ///
    /// # Errors
    /// Returns the reason for dropping the fragment. The caller counts this drop. If other fragments of the datagram
    /// are dropped for the same reason, this function counts them.
    pub(crate) fn accept(
        &mut self,
        vrf: u16,
        fragment: &Fragment,
        room: &mut [u8],
        now: Nanoseconds,
        counters: &mut Counters,
    ) -> Result<Accepted, Drop> {
        self.tick(now, counters);
        let (address, destination) = ip::addresses(room);
        let id = Id {
            source: Source { vrf, address },
            destination,
            identification: fragment.identification,
        };
        self.admit(&id, fragment, now, counters);
        let placed = match self.datagrams.get_mut(&id) {
            Some(datagram) => datagram.place(fragment, room),
            None => Err(Drop::FragmentLimit),
        };
        match placed {
            Ok(cost) => self.charge(&id, cost),
            Err(why) => {
                if matches!(why, Drop::FragmentOverlap | Drop::FragmentTooMany) {
                    self.refuse(&id, why, counters);
                } else if self.datagrams.get(&id).is_some_and(Datagram::is_empty) {
                    self.forget(&id);
                }
                return Err(why);
            }
        }
        let complete = self.datagrams.get(&id).is_some_and(Datagram::is_complete);
        if !complete {
            return Ok(Accepted::Held);
        }
        let Some(datagram) = self.forget(&id) else {
            return Ok(Accepted::Held);
        };
        let fragments = datagram.parts.len() as u64;
        match datagram.assemble(room) {
            Ok(length) => {
                counters.reassembled(fragments);
                Ok(Accepted::Complete(length))
            }
            Err(why) => {
                counters.dropped_many(why, fragments - 1);
                Err(why)
            }
        }
    }

    /// Makes room for a fragment by evicting old datagrams. If the fragment's datagram is new, creates an entry for it.
    fn admit(&mut self, id: &Id, fragment: &Fragment, now: Nanoseconds, counters: &mut Counters) {
        let is_new = !self.datagrams.contains_key(id);
        let mut cost = cost_of(fragment);
        if is_new {
            cost += DATAGRAM_COST;
        }
        let more = usize::from(is_new);
        while self.cost + cost > MAX_BYTES || self.datagrams.len() + more > MAX_DATAGRAMS {
            let Some(oldest) = self.oldest(id, self.by_age.values()) else {
                break;
            };
            self.drop_datagram(&oldest, Drop::FragmentLimit, counters);
        }
        while let Some(usage) = self.sources.get(&id.source) {
            if usage.cost + cost <= MAX_SOURCE_BYTES
                && usage.serials.len() + more <= MAX_SOURCE_DATAGRAMS
            {
                break;
            }
            let own = usage.serials.iter().filter_map(|one| self.by_age.get(one));
            let Some(oldest) = self.oldest(id, own) else {
                break;
            };
            self.drop_datagram(&oldest, Drop::FragmentLimit, counters);
        }
        if is_new {
            let serial = self.next_serial;
            self.next_serial += 1;
            self.by_age.insert(serial, *id);
            self.datagrams.insert(*id, Datagram::new(serial, now));
            self.sources
                .entry(id.source)
                .or_default()
                .serials
                .insert(serial);
            self.charge(id, DATAGRAM_COST);
        }
    }

    /// Returns the first datagram in `of` other than `id`. `of` must begin with the oldest datagram.
    fn oldest<'a>(&self, id: &Id, mut of: impl Iterator<Item = &'a Id>) -> Option<Id> {
        of.find(|one| *one != id).copied()
    }

    fn charge(&mut self, id: &Id, cost: usize) {
        self.cost += cost;
        if let Some(datagram) = self.datagrams.get_mut(id) {
            datagram.cost += cost;
        }
        self.sources.entry(id.source).or_default().cost += cost;
    }

    /// Drops a datagram's fragments. Keeps the datagram's entry, so that later fragments are recognized and dropped.
    fn refuse(&mut self, id: &Id, why: Drop, counters: &mut Counters) {
        let Some(datagram) = self.datagrams.get_mut(id) else {
            return;
        };
        datagram.refused = Some(why);
        counters.dropped_many(why, datagram.parts.len() as u64);
        datagram.parts = Vec::new();
        datagram.first = None;
        let freed = datagram.cost - DATAGRAM_COST;
        datagram.cost = DATAGRAM_COST;
        self.cost -= freed;
        if let Some(usage) = self.sources.get_mut(&id.source) {
            usage.cost -= freed;
        }
    }

    fn drop_datagram(&mut self, id: &Id, why: Drop, counters: &mut Counters) {
        if let Some(datagram) = self.forget(id) {
            counters.dropped_many(why, datagram.parts.len() as u64);
        }
    }

    fn forget(&mut self, id: &Id) -> Option<Datagram> {
        let datagram = self.datagrams.remove(id)?;
        self.by_age.remove(&datagram.serial);
        self.cost -= datagram.cost;
        if let Entry::Occupied(mut usage) = self.sources.entry(id.source) {
            usage.get_mut().cost -= datagram.cost;
            usage.get_mut().serials.remove(&datagram.serial);
            if usage.get().serials.is_empty() {
                usage.remove();
            }
        }
        Some(datagram)
    }
}

impl Datagram {
    fn new(serial: u64, now: Nanoseconds) -> Self {
        Self {
            serial,
            deadline: now.saturating_add(TIMEOUT),
            refused: None,
            parts: Vec::new(),
            first: None,
            length: None,
            ecn: 0,
            cost: 0,
        }
    }

    /// Stores a fragment's bytes. Returns how many bytes count towards the limits.
    fn place(&mut self, fragment: &Fragment, packet: &[u8]) -> Result<usize, Drop> {
        if let Some(why) = self.refused {
            return Err(why);
        }
        let bytes = &packet[fragment.data..fragment.end];
        let (from, to) = (fragment.offset, fragment.offset + bytes.len());
        let is_whole = fragment.last || bytes.len().is_multiple_of(8);
        if bytes.is_empty() || !is_whole || to > MAX_IP {
            return Err(Drop::FragmentMalformed);
        }
        // The parts before index `at` begin before this fragment ends. Only the last of them can overlap it.
        let at = self.parts.partition_point(|part| part.offset < to);
        if let Some(before) = at.checked_sub(1).map(|before| &self.parts[before])
            && before.end() > from
        {
            return Err(if before.offset == from && *before.bytes == *bytes {
                Drop::FragmentDuplicate
            } else {
                Drop::FragmentOverlap
            });
        }
        let end = self.parts.last().map_or(0, Part::end);
        let beyond = match (self.length, fragment.last) {
            // The datagram already has an end, and this fragment is marked as last too.
            (Some(_), true) => true,
            (Some(length), false) => to > length,
            (None, last) => last && to < end,
        };
        if beyond {
            return Err(Drop::FragmentOverlap);
        }
        if self.parts.len() == MAX_FRAGMENTS {
            return Err(Drop::FragmentTooMany);
        }
        if fragment.last {
            self.length = Some(to);
        }
        if from == 0 {
            self.first = Some((*fragment, packet[..fragment.data].into()));
        }
        self.ecn |= 1 << (ip::traffic_class(packet) & 3);
        let bytes = bytes.into();
        self.parts.insert(
            at,
            Part {
                offset: from,
                bytes,
            },
        );
        Ok(cost_of(fragment))
    }

    /// Returns whether no fragment has been kept and the datagram has not been refused.
    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.refused.is_none()
    }

    fn is_complete(&self) -> bool {
        let Some(length) = self.length else {
            return false;
        };
        // Parts never overlap, so there is no gap if their lengths add up to the whole length.
        self.parts
            .iter()
            .map(|part| part.bytes.len())
            .sum::<usize>()
            == length
    }

    /// Writes the whole packet to `room`, and returns its length.
    fn assemble(&self, room: &mut [u8]) -> Result<usize, Drop> {
        let malformed = Drop::FragmentMalformed;
        let (first, header) = self.first.as_ref().ok_or(malformed)?;
        let length = self.length.ok_or(malformed)?;
        let copy = room.get_mut(..header.len()).ok_or(malformed)?;
        copy.copy_from_slice(header);
        let at = first.unfragmented(copy, length).ok_or(malformed)?;
        for part in &self.parts {
            let place = room.get_mut(at + part.offset..at + part.end());
            place.ok_or(malformed)?.copy_from_slice(&part.bytes);
        }
        self.mark_congestion(room)?;
        Ok(at + length)
    }

    /// Marks the packet with the congestion mark if some fragment had it (RFC 3168, 5.3).
    fn mark_congestion(&self, packet: &mut [u8]) -> Result<(), Drop> {
        const NOT_ECT: u8 = 1;
        const CE: u8 = 1 << 3;
        if self.ecn & CE == 0 {
            return Ok(());
        }
        if self.ecn & NOT_ECT != 0 {
            return Err(Drop::EcnNotCapable);
        }
        ip::set_traffic_class(packet, ip::traffic_class(packet) | 3);
        Ok(())
    }
}

/// Returns how many bytes a fragment counts towards the limits.
fn cost_of(fragment: &Fragment) -> usize {
    let header = if fragment.offset == 0 {
        fragment.data
    } else {
        0
    };
    fragment.end - fragment.data + header + FRAGMENT_COST
}
