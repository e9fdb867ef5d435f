// SPDX-License-Identifier: Apache-2.0
//! Queues the packets that the switch punts to Python.
//!
//! * [`fair`]: the queue, fair between interfaces, sources and flows; it is built from [`ring`]s,
//! * [`whole`]: reads the selectors of plain packets.
//!
//! The switch punts the first packet of a flow when it has no verdict for the flow. A session adds punted packets to
//! the queue, so Python never sees packets that are dropped because the queue is full. Python takes a limited number of
//! packets at a time. For most first packets it gets only the selectors ([`Fields::miss`]). It gives the verdict, and
//! this module builds the metadata of the re-injected packet ([`Fields::answer`]).

pub mod fair;
mod ring;
pub mod whole;

use std::os::fd::RawFd;

use crate::flows::key::FlowKey;
use crate::mailbox::{Contents, Mailbox};
use crate::p4runtime::packet::PacketIn;
use fair::FairQueue;
use whole::{PlainSelectors, plain};

/// Source of one metadata value of the packet-out that re-injects a punted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This value.
    Constant(u128),
    /// The value at this position of the packet-in's metadata.
    Punted(usize),
    /// The value at this position of Python's answer.
    Answer(usize),
}

/// Positions of fields in the metadata of packet-ins, and the field values that mark a first packet.
#[derive(Clone, Debug)]
pub struct Fields {
    /// Number of values.
    pub count: usize,
    /// Ingress port.
    pub port: usize,
    /// Ingress interface.
    pub interface: usize,
    /// Punt reason.
    pub reason: usize,
    /// Pipeline stage that punted the packet.
    pub stage: usize,
    /// Origin of the packet: received, or sent by this router.
    pub origin: usize,
    /// Whether the packet is for this router.
    pub is_local: usize,
    /// Number of the bundle that carried the packet.
    pub bundle: usize,
    /// Policy list that had no verdict for the packet.
    pub list: usize,
    /// Punt reasons of first packets.
    pub misses: Vec<u128>,
    /// Value of `stage` for the inbound policy.
    pub inbound: u128,
    /// Value of `stage` for the outbound policy.
    pub outbound: u128,
    /// Value of `origin` for packets that this router sends.
    pub own: u128,
    /// Sources of the metadata of the packet-out that re-injects a first packet.
    pub answer: Vec<Origin>,
}

/// A plain first packet (see [`whole`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss<'f> {
    /// Punt reason.
    pub reason: u128,
    /// List to search.
    pub list: u128,
    /// Selectors.
    pub plain: PlainSelectors<'f>,
    /// Whether the packet is for this router (inbound) or from it (outbound).
    pub is_own: bool,
    /// Bundle that carried an inbound packet; 0 for outbound packets.
    pub bundle: u128,
}

/// A plain first packet without its frame: list and flow key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedMiss {
    /// Punt reason.
    pub reason: u64,
    /// List to search.
    pub list: u32,
    /// Key in the list's flow cache.
    pub key: FlowKey,
    /// Whether the packet has ports. If not, the ports in the key are 0.
    pub has_ports: bool,
}

impl Miss<'_> {
    /// Returns list and flow key of the packet. Returns `None` if a number is too large for its field.
    pub fn named(&self) -> Option<NamedMiss> {
        let mut key = FlowKey::new(self.plain.source, self.plain.destination)?;
        let ports = self.plain.ports;
        (key.source_port, key.destination_port) = ports.unwrap_or_default();
        key.protocol = self.plain.protocol;
        key.bundle = self.bundle.try_into().ok()?;
        key.set_local(self.is_own);
        Some(NamedMiss {
            reason: self.reason.try_into().ok()?,
            list: self.list.try_into().ok()?,
            key,
            has_ports: ports.is_some(),
        })
    }
}

impl Fields {
    /// Checks that all positions are less than `count`.
    pub fn are_valid(&self) -> bool {
        let positions = [
            self.port,
            self.interface,
            self.reason,
            self.stage,
            self.origin,
            self.is_local,
            self.bundle,
            self.list,
        ];
        let punted = self.answer.iter().filter_map(|origin| match origin {
            Origin::Punted(position) => Some(*position),
            _ => None,
        });
        positions
            .into_iter()
            .chain(punted)
            .all(|position| position < self.count)
    }

    /// Reads a plain first packet. Returns `None` for any other packet.
    pub fn miss<'f>(&self, packet: &'f PacketIn) -> Option<Miss<'f>> {
        let value = |position: usize| packet.metadata.get(position).copied();
        let reason = value(self.reason)?;
        if !self.misses.contains(&reason) {
            return None;
        }
        let stage = value(self.stage)?;
        let (is_own, bundle) = if stage == self.inbound {
            (value(self.is_local)? != 0, value(self.bundle)?)
        } else if stage == self.outbound {
            (value(self.origin)? == self.own, 0)
        } else {
            return None;
        };
        Some(Miss {
            reason,
            list: value(self.list)?,
            plain: plain(&packet.payload)?,
            is_own,
            bundle,
        })
    }

    /// Writes to `values` the metadata of the packet-out that re-injects a packet. Returns `None` if a value is
    /// missing.
    pub fn answer(&self, punted: &[u128], answer: &[u128], values: &mut Vec<u128>) -> Option<()> {
        values.clear();
        for origin in &self.answer {
            values.push(match *origin {
                Origin::Constant(value) => value,
                Origin::Punted(position) => *punted.get(position)?,
                Origin::Answer(position) => *answer.get(position)?,
            });
        }
        Some(())
    }
}

impl Contents for FairQueue<PacketIn> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// The queue of punted packets.
#[derive(Debug)]
pub struct PuntQueue {
    fields: Fields,
    mailbox: Mailbox<FairQueue<PacketIn>>,
}

impl PuntQueue {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is available.
    pub fn new(fields: Fields, limit: usize, limit_each: usize) -> std::io::Result<Self> {
        Ok(Self {
            fields,
            mailbox: Mailbox::new(FairQueue::new(limit, limit_each))?,
        })
    }

    /// Returns the positions and values of the metadata.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// Returns a descriptor that is readable while packets wait.
    pub fn descriptor(&self) -> RawFd {
        self.mailbox.descriptor()
    }

    /// Returns whether a packet has as many metadata values as these fields require.
    pub fn fits(&self, packet: &PacketIn) -> bool {
        packet.metadata.len() == self.fields.count
    }

    /// Queues a packet that fits ([`Self::fits`]). Returns false if the packet is dropped, because there is no room.
    pub fn put(&self, packet: PacketIn) -> bool {
        self.mailbox.update(|queue| self.put_into(queue, packet))
    }

    /// Queues packets that fit ([`Self::fits`]). Wakes Python at most once.
    pub fn put_all(&self, packets: impl Iterator<Item = PacketIn>) {
        self.mailbox.update(|queue| {
            for packet in packets {
                self.put_into(queue, packet);
            }
        });
    }

    fn put_into(&self, queue: &mut FairQueue<PacketIn>, packet: PacketIn) -> bool {
        let value = |position: usize| packet.metadata.get(position).copied().unwrap_or_default();
        let share = (
            value(self.fields.port),
            value(self.fields.interface),
            value(self.fields.reason),
        );
        let frame = packet.payload.clone();
        queue.put(share, &frame, packet)
    }

    /// Removes and returns at most `limit` packets.
    pub fn take(&self, limit: usize) -> Vec<PacketIn> {
        self.mailbox
            .update(|queue| std::iter::from_fn(|| queue.take()).take(limit).collect())
    }

    /// Reads or changes the queue under its lock.
    pub fn update<R>(&self, change: impl FnOnce(&mut FairQueue<PacketIn>) -> R) -> R {
        self.mailbox.update(change)
    }
}
