// SPDX-License-Identifier: Apache-2.0
//! Holds all SAs of an engine. The engine answers each input frame with an output frame, drops it, or keeps it as a
//! fragment.
//!
//! The thread that moves the packets owns the engine. Other threads prepare SAs, because [`Sa::prepare`] writes to
//! disk, and pass them to the engine's thread. This thread returns removed SAs to the other threads, which drop them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use serde::Serialize;

use crate::batch::{Batch, Frame, Outcome};
use crate::counters::{Counters, Drop};
use crate::inbound::{InboundSa, Sealed};
use crate::ip::{Fragment, View, protocol};
use crate::lifetime::{Age, Nanoseconds};
use crate::outbound::OutboundSa;
use crate::reassembly::{Accepted, Reassembler};
use crate::reservation::{Fingerprint, Reservations, fingerprint};
use crate::sa_table::{SaIndex, SaTable};
use crate::shim::{PACKET, Shim, Task};
use crate::spec::{Direction, SaSpec};

/// The highest sequence number without ESN.
const LAST_SHORT: u64 = u32::MAX as u64;

/// An SA that is ready to serve packets.
pub enum Sa {
    /// An SA that encrypts.
    Out(Box<OutboundSa>),
    /// An SA that decrypts.
    In(Box<InboundSa>),
}

impl Sa {
    /// Creates an SA from a checked specification. Reserves sequence numbers on disk for an outbound SA.
    ///
    /// # Errors
    /// Describes why the SA cannot be created.
    pub fn prepare(
        spec: SaSpec,
        reservations: &Reservations,
        now: Nanoseconds,
    ) -> Result<Self, String> {
        if spec.direction == Direction::In {
            return Ok(Self::In(Box::new(InboundSa::new(spec, now)?)));
        }
        let mut of_keys = fingerprint(&spec.key_or_none(), &spec.integrity_key_or_none());
        if spec.algorithm.key_len() + spec.algorithm.integrity_key_len() == 0 {
            // The algorithm has no key, so no nonce can repeat. But each SA needs sequence numbers of its own. So the
            // SA number and the SPI take the place of the fingerprint.
            of_keys = [0; 16];
            of_keys[..4].copy_from_slice(&spec.sa.to_be_bytes());
            of_keys[4..8].copy_from_slice(&spec.spi.to_be_bytes());
        }
        let last = if spec.esn { u64::MAX } else { LAST_SHORT };
        let numbers = if spec.resume {
            reservations.resume(of_keys, last)
        } else {
            reservations.claim(of_keys, last)
        };
        let numbers = numbers.map_err(|error| error.to_string())?;
        Ok(Self::Out(Box::new(OutboundSa::new(spec, numbers, now)?)))
    }
}

/// Status of an SA: its specification, age and counters.
#[derive(Debug, Clone, Serialize)]
pub struct SaStatus {
    /// Specification of the SA, without keys.
    pub spec: SaSpec,
    /// Fingerprint of the SA's keys in hexadecimal digits. The fingerprint identifies the keys without revealing them.
    pub key_fingerprint: String,
    /// State of the SA, determined by its lifetimes.
    pub age: Age,
    /// Outbound: the last sequence number used. Inbound: the highest sequence number accepted.
    pub sequence: u64,
    /// Outbound: the peer's address, and the peer's port if ESP is in UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<(IpAddr, Option<u16>)>,
    /// Counters of the SA.
    pub counters: CountersView,
}

/// Counters as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct CountersView {
    /// Packets encrypted or decrypted.
    pub packets: u64,
    /// Bytes of these packets before encryption or after decryption.
    pub bytes: u64,
    /// Number of changes of the peer's address or port.
    pub peer_moved: u64,
    /// Number of reassembled datagrams. Counted only in the counters of packets without an SA.
    #[serde(skip_serializing_if = "is_zero")]
    pub reassembled: u64,
    /// Fragments of the reassembled datagrams.
    #[serde(skip_serializing_if = "is_zero")]
    pub reassembled_fragments: u64,
    /// Drops by reason; reasons without drops are left out.
    pub drops: BTreeMap<&'static str, u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl From<&Counters> for CountersView {
    fn from(counters: &Counters) -> Self {
        Self {
            packets: counters.packets,
            bytes: counters.bytes,
            peer_moved: counters.peer_moved,
            reassembled: counters.reassembled,
            reassembled_fragments: counters.reassembled_fragments,
            drops: counters.nonzero().collect(),
        }
    }
}

/// Sums over all SAs, including SAs that have ended. So the sums never decrease.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Current outbound SAs.
    pub outbound_sas: usize,
    /// Current inbound SAs.
    pub inbound_sas: usize,
    /// Counters of outbound SAs.
    pub outbound: Counters,
    /// Counters of inbound SAs.
    pub inbound: Counters,
    /// Counters of packets without an SA.
    pub others: Counters,
}

/// The ESP engine; see the module's documentation.
#[derive(Default)]
pub struct Engine {
    outbound: SaTable<u32, OutboundSa>,
    inbound: SaTable<(u16, u32), InboundSa>,
    keys_out: HashSet<Fingerprint>,
    keys_in: HashMap<Fingerprint, usize>,
    /// Counters of packets without an SA.
    counters: Counters,
    fragments: Reassembler,
    /// Counters of removed outbound and inbound SAs.
    ended: (Counters, Counters),
    /// Result of the SA lookup for each frame of the current batch, in the order of the frames.
    found: Vec<Found>,
    /// The batch that [`Engine::process`] uses, allocated at its first call.
    single: Option<Box<Batch>>,
}

/// Prefetch distance in frames for the keys of an SA. The SA itself is prefetched at twice this distance.
const AHEAD: usize = 4;

/// Result of the SA lookup for a frame.
type Found = Result<SaReference, Drop>;

/// Reference to an SA in one of the tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SaReference {
    /// The frame is a fragment that is kept, so it needs no SA.
    None,
    Out(SaIndex),
    In(SaIndex),
}

impl Engine {
    /// Adds an SA.
    ///
    /// # Errors
    /// Returns the SA and a description of the conflict.
    pub fn add(&mut self, sa: Sa) -> Result<(), (Sa, String)> {
        match sa {
            Sa::Out(sa) => {
                // Two SAs with the same key in opposite directions would both count from 1. So both would use the same
                // nonces.
                if self.keys_in.contains_key(&sa.fingerprint()) {
                    return Err((
                        Sa::Out(sa),
                        "an inbound SA has this key: generate a new one".into(),
                    ));
                }
                let number = sa.spec().sa;
                if self.outbound.contains(&number) {
                    let problem = format!("there is an outbound SA {number} already");
                    return Err((Sa::Out(sa), problem));
                }
                self.keys_out.insert(sa.fingerprint());
                self.outbound.insert(number, sa);
                Ok(())
            }
            Sa::In(sa) => {
                let keyed = sa.spec().algorithm.icv_len() != 0;
                if keyed && self.keys_out.contains(&sa.fingerprint()) {
                    return Err((
                        Sa::In(sa),
                        "an outbound SA has this key: generate a new one".into(),
                    ));
                }
                let key = (sa.spec().vrf, sa.spec().spi);
                if self.inbound.contains(&key) {
                    let problem = format!("there is an inbound SA with SPI {} already", key.1);
                    return Err((Sa::In(sa), problem));
                }
                *self.keys_in.entry(sa.fingerprint()).or_default() += 1;
                self.inbound.insert(key, sa);
                Ok(())
            }
        }
    }

    /// Removes and returns the outbound SA with this number.
    pub fn remove_outbound(&mut self, sa: u32) -> Option<Sa> {
        let removed = self.outbound.remove(&sa)?;
        self.keys_out.remove(&removed.fingerprint());
        self.ended.0.add(removed.counters());
        Some(Sa::Out(removed))
    }

    /// Removes and returns the inbound SA with this SPI.
    pub fn remove_inbound(&mut self, vrf: u16, spi: u32) -> Option<Sa> {
        let removed = self.inbound.remove(&(vrf, spi))?;
        self.ended.1.add(removed.counters());
        if let Entry::Occupied(mut count) = self.keys_in.entry(removed.fingerprint()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(Sa::In(removed))
    }

    /// Checks the lifetimes of SAs. SAs that have reached a hard lifetime erase their keys; incomplete datagrams time
    /// out.
    pub fn tick(&mut self, now: Nanoseconds) {
        for sa in self.outbound.iter_mut() {
            sa.tick(now);
        }
        for sa in self.inbound.iter_mut() {
            sa.tick(now);
        }
        self.fragments.tick(now, &mut self.counters);
    }

    /// Returns the number of ESP fragments that are kept until their datagrams are complete.
    pub fn held_fragments(&self) -> u64 {
        self.fragments.held()
    }

    /// Returns the status of all SAs: outbound ones by number, then inbound ones by VRF and SPI.
    pub fn status(&mut self, now: Nanoseconds) -> Vec<SaStatus> {
        let mut all = Vec::with_capacity(self.outbound.len() + self.inbound.len());
        for sa in self.outbound.iter_mut() {
            all.push(SaStatus {
                spec: sa.spec().clone(),
                key_fingerprint: hex(sa.fingerprint()),
                age: sa.tick(now),
                sequence: sa.sequence(),
                peer: Some(sa.peer()),
                counters: sa.counters().into(),
            });
        }
        for sa in self.inbound.iter_mut() {
            all.push(SaStatus {
                spec: sa.spec().clone(),
                key_fingerprint: hex(sa.fingerprint()),
                age: sa.tick(now),
                sequence: sa.sequence(),
                peer: None,
                counters: sa.counters().into(),
            });
        }
        all.sort_by_key(|status| {
            let spec = &status.spec;
            match spec.direction {
                Direction::Out => (0, 0, spec.sa),
                Direction::In => (1, spec.vrf, spec.spi),
            }
        });
        all
    }

    /// Returns the counters of packets without an SA.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sums the counters of all SAs.
    pub fn totals(&self) -> Totals {
        let (mut outbound, mut inbound) = self.ended.clone();
        for sa in self.outbound.iter() {
            outbound.add(sa.counters());
        }
        for sa in self.inbound.iter() {
            inbound.add(sa.counters());
        }
        Totals {
            outbound_sas: self.outbound.len(),
            inbound_sas: self.inbound.len(),
            outbound,
            inbound,
            others: self.counters.clone(),
        }
    }

    /// Serves the frames of a batch in order. Writes the outcome of each frame into the batch, and counts it.
    ///
    /// The SAs of all frames are looked up before the first frame is served. So a run of frames with the same SA needs
    /// one lookup, and each SA is prefetched before its frames are served.
    pub fn process_batch(&mut self, batch: &mut Batch, now: Nanoseconds) {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let mut last = None;
        for position in 0..batch.len() {
            let mut frame = batch.frame(position);
            let sa = self.find(&mut frame, &mut last, now);
            let end = frame.end;
            batch.set_end(position, end);
            found.push(sa);
        }
        for position in 0..2 * AHEAD {
            self.prefetch(&found, position);
        }
        for position in 0..AHEAD {
            self.prefetch_keys(&found, position);
        }
        for (position, sa) in found.iter().enumerate() {
            self.prefetch(&found, position + 2 * AHEAD);
            self.prefetch_keys(&found, position + AHEAD);
            let mut frame = batch.frame(position);
            let outcome = self.serve(&mut frame, *sa, now);
            let (start, end) = (frame.start, frame.end);
            batch.settle(position, outcome, start, end);
        }
        self.found = found;
    }

    /// Serves a single frame. Writes the answer into `out`, which must have [`MAX_OUTPUT`] bytes. Returns the answer's
    /// length, or 0 if the frame is a fragment that is kept. Copies the frame twice, while [`Engine::process_batch`]
    /// does not copy it.
    ///
    /// # Errors
    /// Returns the reason of the drop, which the engine has counted.
    pub fn process(
        &mut self,
        frame: &[u8],
        now: Nanoseconds,
        out: &mut [u8],
    ) -> Result<usize, Drop> {
        let mut batch = self.single.take().unwrap_or_default();
        batch.clear();
        batch.push(frame, &[]);
        self.process_batch(&mut batch, now);
        let length = batch.answers().next().map_or(0, |answer| {
            out[..answer.len()].copy_from_slice(answer);
            answer.len()
        });
        let outcome = batch.outcome(0);
        self.single = Some(batch);
        match outcome {
            Outcome::Dropped(why) => Err(why),
            _ => Ok(length),
        }
    }

    /// Finds a frame's SA. Reuses the previous frame's result if both frames have the same lookup key.
    #[inline]
    fn find(
        &mut self,
        frame: &mut Frame<'_>,
        last: &mut Option<Lookup>,
        now: Nanoseconds,
    ) -> Found {
        let (shim, packet) = Shim::read(frame.bytes())?;
        let Some(view) = View::of(shim.ether_type, packet) else {
            return Err(Drop::Malformed);
        };
        let key = match shim.task {
            Task::Encrypt => (shim.task, 0, shim.sa),
            Task::Decrypt if view.fragment => match self.reassemble(frame, &shim, &view, now)? {
                Some(spi) => (shim.task, shim.vrf, spi),
                None => return Ok(SaReference::None),
            },
            Task::Decrypt => (shim.task, shim.vrf, Sealed::find(packet, &view)?.spi),
        };
        if let Some((of, sa)) = last
            && *of == key
        {
            return *sa;
        }
        let sa = match shim.task {
            Task::Encrypt => match self.outbound.find(&shim.sa) {
                Some(index) => Ok(SaReference::Out(index)),
                None => Err(Drop::UnknownSa),
            },
            Task::Decrypt => match self.inbound.find(&(key.1, key.2)) {
                Some(index) => Ok(SaReference::In(index)),
                None => Err(Drop::UnknownSpi),
            },
        };
        *last = Some((key, sa));
        sa
    }

    /// Accepts a fragment. If the fragment completes a datagram, the datagram replaces the fragment in the frame.
    /// Returns the datagram's SPI.
    #[cold]
    fn reassemble(
        &mut self,
        frame: &mut Frame<'_>,
        shim: &Shim,
        view: &View,
        now: Nanoseconds,
    ) -> Result<Option<u32>, Drop> {
        let start = frame.start + PACKET;
        let room = &mut frame.slot[start..];
        let fragment = Fragment::read(&room[..view.length], view).ok_or(Drop::Malformed)?;
        if fragment.protocol != protocol::ESP {
            return Err(Drop::EspFragment);
        }
        let counters = &mut self.counters;
        let accepted = self
            .fragments
            .accept(shim.vrf, &fragment, room, now, counters)?;
        let Accepted::Complete(length) = accepted else {
            return Ok(None);
        };
        frame.end = start + length;
        let packet = &frame.bytes()[PACKET..];
        let view = View::of(shim.ether_type, packet).ok_or(Drop::Malformed)?;
        Ok(Some(Sealed::find(packet, &view)?.spi))
    }

    /// Prefetches the SA of a frame of the batch.
    #[inline]
    fn prefetch(&self, found: &[Found], position: usize) {
        match first_of_run(found, position) {
            Some(SaReference::Out(index)) => self.outbound.prefetch(index),
            Some(SaReference::In(index)) => self.inbound.prefetch(index),
            Some(SaReference::None) | None => {}
        }
    }

    /// Prefetches the keys of a frame's SA. Reads the SA, which should be in the cache already.
    #[inline]
    fn prefetch_keys(&self, found: &[Found], position: usize) {
        match first_of_run(found, position) {
            Some(SaReference::Out(index)) => {
                if let Some(sa) = self.outbound.peek(index) {
                    sa.prefetch_keys();
                }
            }
            Some(SaReference::In(index)) => {
                if let Some(sa) = self.inbound.peek(index) {
                    sa.prefetch_keys();
                }
            }
            Some(SaReference::None) | None => {}
        }
    }

    /// Encrypts or decrypts a frame with its SA. The answer replaces the frame in its slot.
    #[inline]
    fn serve(&mut self, frame: &mut Frame<'_>, sa: Found, now: Nanoseconds) -> Outcome {
        let served = match sa {
            Ok(SaReference::None) => return Outcome::Held,
            Ok(SaReference::Out(index)) => self.encrypt(frame, index, now),
            Ok(SaReference::In(index)) => self.decrypt(frame, index, now),
            Err(why) => {
                self.counters.dropped(why);
                Err(why)
            }
        };
        match served {
            Ok(()) => Outcome::Answered,
            Err(why) => Outcome::Dropped(why),
        }
    }

    #[inline]
    fn encrypt(
        &mut self,
        frame: &mut Frame<'_>,
        index: SaIndex,
        now: Nanoseconds,
    ) -> Result<(), Drop> {
        let sa = self.outbound.at(index).ok_or(Drop::UnknownSa)?;
        encrypt(sa, frame, now).inspect_err(|why| sa.dropped(*why))
    }

    #[inline]
    fn decrypt(
        &mut self,
        frame: &mut Frame<'_>,
        index: SaIndex,
        now: Nanoseconds,
    ) -> Result<(), Drop> {
        let sa = self.inbound.at(index).ok_or(Drop::UnknownSpi)?;
        let peer = decrypt(sa, frame, now).inspect_err(|why| sa.dropped(*why))?;
        if let (Some((address, port)), Some(follower)) = (peer, sa.followed_by())
            && let Some(follower) = self.outbound.get(&follower)
        {
            follower.follow(address, port);
        }
        Ok(())
    }
}

/// Encrypts a frame's packet and writes the answer's shim. Parses the headers again, because this is cheaper than
/// keeping the result of [`Engine::find`].
#[inline]
fn encrypt(sa: &mut OutboundSa, frame: &mut Frame<'_>, now: Nanoseconds) -> Result<(), Drop> {
    let (shim, packet) = Shim::read(frame.bytes())?;
    let Some(view) = View::of(shim.ether_type, packet) else {
        return Err(Drop::Malformed);
    };
    belongs(&shim, sa.owner())?;
    let macs = Shim::macs(frame.bytes());
    let (packet, end) = sa.seal(frame, &view, now)?;
    let ether_type = View::of_version(frame.slot[packet] >> 4);
    (frame.start, frame.end) = (packet - PACKET, end);
    shim.answer(
        &macs,
        shim.bundle,
        ether_type,
        &mut frame.slot[frame.start..],
    );
    Ok(())
}

/// Decrypts a frame's packet and writes the answer's shim. Returns [`Opened::peer`].
#[inline]
fn decrypt(
    sa: &mut InboundSa,
    frame: &mut Frame<'_>,
    now: Nanoseconds,
) -> Result<Option<(IpAddr, u16)>, Drop> {
    let (shim, packet) = Shim::read(frame.bytes())?;
    let Some(view) = View::of(shim.ether_type, packet) else {
        return Err(Drop::Malformed);
    };
    match belongs(&shim, sa.owner()) {
        // A shim with bundle 0 fits every SA. The pipeline did not know the bundle, because it could not read the SPI.
        Err(Drop::WrongBundle) if shim.bundle == 0 => {}
        other => other?,
    }
    let sealed = Sealed::find(packet, &view)?;
    let macs = Shim::macs(frame.bytes());
    let opened = sa.open(frame, &view, &sealed, now)?;
    (frame.start, frame.end) = (opened.start - PACKET, opened.end);
    let bundle = sa.owner().1;
    shim.answer(
        &macs,
        bundle,
        opened.ether_type,
        &mut frame.slot[frame.start..],
    );
    Ok(opened.peer)
}

/// Returns the SA of a frame. Returns None if the frame has no SA, or the same SA as the previous frame.
#[inline]
fn first_of_run(found: &[Found], position: usize) -> Option<SaReference> {
    let sa = (*found.get(position)?).ok()?;
    (position == 0 || found[position - 1] != Ok(sa)).then_some(sa)
}

/// The last SA lookup: its key and its result. The key consists of the task and of the SA's number (encryption), or of
/// the task, the VRF and the SPI (decryption).
type Lookup = ((Task, u16, u32), Found);

fn hex(fingerprint: Fingerprint) -> String {
    fingerprint
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Checks that shim and SA name the same VRF and bundle. They can disagree, because different programs write the
/// router's tables and the engine's SAs.
#[inline]
fn belongs(shim: &Shim, (vrf, bundle): (u16, u16)) -> Result<(), Drop> {
    if shim.vrf != vrf {
        return Err(Drop::WrongVrf);
    }
    if shim.bundle != bundle {
        return Err(Drop::WrongBundle);
    }
    Ok(())
}
