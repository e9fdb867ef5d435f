// SPDX-License-Identifier: Apache-2.0
//! Queues the packets that the switch punts to Python.
//!
//! * [`fair`]: the queue, fair between interfaces, sources and flows; [`ring`] is its building block,
//! * [`whole`]: reads the selectors of plain packets.
//!
//! A session puts packets into the queue, so Python never sees those that find no room. Python takes packets in slices.
//! It gets most first packets of flows as selectors ([`Fields::miss`]), and answers them without their metadata
//! ([`Fields::answer`]).

pub mod fair;
mod ring;
pub mod whole;

use std::os::fd::RawFd;

use crate::flows::key::FlowKey;
use crate::mailbox::{Contents, Mailbox};
use crate::p4runtime::packet::PacketIn;
use fair::FairQueue;
use whole::{PlainSelectors, plain};

/// Origin of a value in the metadata of a packet-out that answers a punt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This value.
    Constant(u128),
    /// The packet-in's metadata value at this position.
    Punted(usize),
    /// The answer's value at this position.
    Answer(usize),
}

/// Positions of values in the metadata of packet-ins, and the values that name first packets.
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
    /// Stage that punted the packet.
    pub stage: usize,
    /// Origin of the packet.
    pub origin: usize,
    /// Whether the packet is for this router.
    pub is_local: usize,
    /// Bundle that carried the packet.
    pub bundle: usize,
    /// List that was asked.
    pub list: usize,
    /// Reasons of first packets.
    pub misses: Vec<u128>,
    /// Stage of inbound policy.
    pub inbound: u128,
    /// Stage of outbound policy.
    pub outbound: u128,
    /// Origin of packets that this router sends.
    pub own: u128,
    /// Origins of the values of the packet-out that answers a first packet.
    pub answer: Vec<Origin>,
}

/// A plain first packet.
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

/// A plain first packet without its frame: what names its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedMiss {
    /// Punt reason.
    pub reason: u64,
    /// List to search.
    pub list: u32,
    /// Key in the list's flow cache.
    pub key: FlowKey,
    /// Whether the packet has ports. Otherwise, the ports of the key are 0.
    pub has_ports: bool,
}

impl Miss<'_> {
    /// Returns the packet without its frame. Returns `None` if a number is too large.
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

    /// Computes the metadata of the packet-out that re-injects a packet with an answer. Returns `None` if a value is
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

    /// Returns whether a packet has the right number of metadata values.
    pub fn fits(&self, packet: &PacketIn) -> bool {
        packet.metadata.len() == self.fields.count
    }

    /// Queues a packet that fits. Returns false if the packet is dropped, because there is no room.
    pub fn put(&self, packet: PacketIn) -> bool {
        self.mailbox.update(|queue| self.put_into(queue, packet))
    }

    /// Queues packets that fit, and wakes Python at most once.
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

    /// Reads or changes the queue.
    pub fn update<R>(&self, change: impl FnOnce(&mut FairQueue<PacketIn>) -> R) -> R {
        self.mailbox.update(change)
    }
}
