// SPDX-License-Identifier: Apache-2.0
//! All SAs of an engine: one frame in, one frame or a drop out.
//!
//! An engine belongs to the thread that moves its packets. SAs are prepared elsewhere ([`Sa::prepare`] writes to disk) and
//! handed over; SAs that end are handed back, to be dropped elsewhere.

use std::collections::BTreeMap;
use std::net::IpAddr;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use serde::Serialize;

use crate::counters::{Counters, Drop};
use crate::inbound::{InboundSa, Sealed};
use crate::ip::View;
use crate::lifetime::{Age, Nanoseconds};
use crate::outbound::OutboundSa;
use crate::reservation::{Fingerprint, Reservations, fingerprint};
use crate::shim::{PACKET, Shim, Task};
use crate::spec::{Direction, SaSpec};

/// Room that every output frame fits into: the shim, and the longest IPv6 packet.
pub const MAX_OUTPUT: usize = PACKET + 40 + 65_535;

/// The number of the highest sequence number without ESN.
const LAST_SHORT: u64 = u32::MAX as u64;

/// An SA that is ready.
pub enum Sa {
    /// It encrypts.
    Out(Box<OutboundSa>),
    /// It decrypts.
    In(Box<InboundSa>),
}

impl Sa {
    /// Makes an SA of a checked specification; an outbound one gets its sequence numbers, which are on disk then.
    ///
    /// # Errors
    /// Says why not.
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
            // No key, so no nonce either; but numbers of its own all the same.
            of_keys = [0; 16];
            of_keys[..4].copy_from_slice(&spec.sa.to_be_bytes());
            of_keys[4..8].copy_from_slice(&spec.spi.to_be_bytes());
        }
        let last = if spec.esn { u64::MAX } else { LAST_SHORT };
        let numbers = reservations.claim(of_keys, last);
        let numbers = numbers.map_err(|error| error.to_string())?;
        Ok(Self::Out(Box::new(OutboundSa::new(spec, numbers, now)?)))
    }
}

/// Describes an SA: its specification, age and counts.
#[derive(Debug, Clone, Serialize)]
pub struct SaStatus {
    /// Its specification, without keys.
    pub spec: SaSpec,
    /// How far it is.
    pub age: Age,
    /// Out: the last sequence number used. In: the highest accepted.
    pub sequence: u64,
    /// Out: where its packets go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<(IpAddr, Option<u16>)>,
    /// Counts of its packets.
    pub counters: CountersView,
}

/// Counters as JSON.
#[derive(Debug, Clone, Serialize)]
pub struct CountersView {
    /// Packets encrypted or decrypted.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times that the peer moved.
    pub peer_moved: u64,
    /// Drops by reason, where there were any.
    pub drops: BTreeMap<&'static str, u64>,
}

impl From<&Counters> for CountersView {
    fn from(counters: &Counters) -> Self {
        Self {
            packets: counters.packets,
            bytes: counters.bytes,
            peer_moved: counters.peer_moved,
            drops: counters.nonzero().collect(),
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Engine {
    outbound: HashMap<u32, Box<OutboundSa>>,
    inbound: HashMap<(u16, u32), Box<InboundSa>>,
    keys_out: HashSet<Fingerprint>,
    keys_in: HashMap<Fingerprint, usize>,
    /// Of packets that met no SA.
    counters: Counters,
}

impl Engine {
    /// Takes an SA over.
    ///
    /// # Errors
    /// Gives it back, and says what is in its way.
    pub fn add(&mut self, sa: Sa) -> Result<(), (Sa, String)> {
        match sa {
            Sa::Out(sa) => {
                // Both directions would count from 1 with one key: the same nonces.
                if self.keys_in.contains_key(&sa.fingerprint()) {
                    return Err((Sa::Out(sa), "an inbound SA has this key".into()));
                }
                match self.outbound.entry(sa.spec().sa) {
                    Entry::Occupied(_) => {
                        let problem = format!("there is an outbound SA {} already", sa.spec().sa);
                        Err((Sa::Out(sa), problem))
                    }
                    Entry::Vacant(place) => {
                        self.keys_out.insert(sa.fingerprint());
                        place.insert(sa);
                        Ok(())
                    }
                }
            }
            Sa::In(sa) => {
                let keyed = sa.spec().algorithm.icv_len() != 0;
                if keyed && self.keys_out.contains(&sa.fingerprint()) {
                    return Err((Sa::In(sa), "an outbound SA has this key".into()));
                }
                let spec = sa.spec();
                match self.inbound.entry((spec.vrf, spec.spi)) {
                    Entry::Occupied(_) => {
                        let problem = format!("there is an inbound SA of SPI {} already", spec.spi);
                        Err((Sa::In(sa), problem))
                    }
                    Entry::Vacant(place) => {
                        *self.keys_in.entry(sa.fingerprint()).or_default() += 1;
                        place.insert(sa);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Gives an outbound SA back, if there is one of this number.
    pub fn remove_outbound(&mut self, sa: u32) -> Option<Sa> {
        let removed = self.outbound.remove(&sa)?;
        self.keys_out.remove(&removed.fingerprint());
        Some(Sa::Out(removed))
    }

    /// Gives an inbound SA back, if there is one of this SPI.
    pub fn remove_inbound(&mut self, vrf: u16, spi: u32) -> Option<Sa> {
        let removed = self.inbound.remove(&(vrf, spi))?;
        if let Entry::Occupied(mut count) = self.keys_in.entry(removed.fingerprint()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(Sa::In(removed))
    }

    /// Looks at the clock: SAs whose time is over give up their keys.
    pub fn tick(&mut self, now: Nanoseconds) {
        for sa in self.outbound.values_mut() {
            sa.tick(now);
        }
        for sa in self.inbound.values_mut() {
            sa.tick(now);
        }
    }

    /// All SAs: outbound ones by number, then inbound ones by VRF and SPI.
    pub fn status(&mut self, now: Nanoseconds) -> Vec<SaStatus> {
        let mut all = Vec::with_capacity(self.outbound.len() + self.inbound.len());
        for sa in self.outbound.values_mut() {
            all.push(SaStatus {
                spec: sa.spec().clone(),
                age: sa.tick(now),
                sequence: sa.sequence(),
                peer: Some(sa.peer()),
                counters: sa.counters().into(),
            });
        }
        for sa in self.inbound.values_mut() {
            all.push(SaStatus {
                spec: sa.spec().clone(),
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

    /// Counts of packets that met no SA.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Serves a frame: writes the answer into `out`, which has [`MAX_OUTPUT`] bytes, and returns its length.
    ///
    /// # Errors
    /// Why there is none; it has been counted.
    pub fn process(
        &mut self,
        frame: &[u8],
        now: Nanoseconds,
        out: &mut [u8],
    ) -> Result<usize, Drop> {
        let read = Shim::read(frame)
            .and_then(|(shim, packet)| Ok((shim, View::of(shim.ether_type, packet)?, packet)));
        let (shim, view, packet) = read.inspect_err(|why| self.counters.dropped(*why))?;
        match shim.task {
            Task::Encrypt => self.encrypt(frame, &shim, packet, &view, now, out),
            Task::Decrypt => self.decrypt(frame, &shim, packet, &view, now, out),
        }
    }

    fn encrypt(
        &mut self,
        frame: &[u8],
        shim: &Shim,
        packet: &[u8],
        view: &View,
        now: Nanoseconds,
        out: &mut [u8],
    ) -> Result<usize, Drop> {
        let Some(sa) = self.outbound.get_mut(&shim.sa) else {
            self.counters.dropped(Drop::UnknownSa);
            return Err(Drop::UnknownSa);
        };
        let sealed = belongs(shim, sa.spec()).and_then(|()| sa.seal(packet, view, now, out));
        let end = sealed.inspect_err(|why| sa.dropped(*why))?;
        let ether_type = View::of_version(out[PACKET] >> 4);
        shim.answer(frame, shim.bundle, ether_type, out);
        Ok(end)
    }

    fn decrypt(
        &mut self,
        frame: &[u8],
        shim: &Shim,
        packet: &[u8],
        view: &View,
        now: Nanoseconds,
        out: &mut [u8],
    ) -> Result<usize, Drop> {
        let sealed = Sealed::find(packet, view).inspect_err(|why| self.counters.dropped(*why))?;
        let Some(sa) = self.inbound.get_mut(&(shim.vrf, sealed.spi)) else {
            self.counters.dropped(Drop::UnknownSpi);
            return Err(Drop::UnknownSpi);
        };
        let opened = match belongs(shim, sa.spec()) {
            // The pipeline names no bundle where it has not seen the SPI.
            Err(Drop::WrongBundle) if shim.bundle == 0 => sa.open(packet, view, &sealed, now, out),
            Ok(()) => sa.open(packet, view, &sealed, now, out),
            Err(why) => Err(why),
        };
        let opened = opened.inspect_err(|why| sa.dropped(*why))?;
        shim.answer(frame, sa.spec().bundle, opened.ether_type, out);
        if let (Some((address, port)), Some(follower)) = (opened.peer, sa.spec().followed_by)
            && let Some(follower) = self.outbound.get_mut(&follower)
        {
            follower.follow(address, port);
        }
        Ok(opened.end)
    }
}

/// The router's tables and the engine's SAs are written by different hands: numbers of one must mean the same in both.
fn belongs(shim: &Shim, spec: &SaSpec) -> Result<(), Drop> {
    if shim.vrf != spec.vrf {
        return Err(Drop::WrongVrf);
    }
    if shim.bundle != spec.bundle {
        return Err(Drop::WrongBundle);
    }
    Ok(())
}
