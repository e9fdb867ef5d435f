// SPDX-License-Identifier: Apache-2.0
//! Receives the packet-ins of a session, and passes them to the fast path, the punt queue or the inbox.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::inbox::{Counters, Inbox};
use super::packet::{Layout, PacketIn, packet_in_of};
use crate::fast_path::{FastPath, Switch};
use crate::mailbox::{Mailbox, lock};
use crate::punts::PuntQueue;

/// The receiving side of a session's packets.
#[derive(Debug)]
pub(super) struct Inlet {
    path: Arc<FastPath>,
    /// Layout of packet-ins. `None` until Python sets it; until then the inbox handles packet-ins.
    layout: Mutex<Option<Arc<Layout>>>,
    /// Queue of the packets that Python must handle. If it is `None`, these packets go to the inbox.
    punts: Option<Arc<PuntQueue>>,
}

impl Inlet {
    pub(super) fn new(path: Arc<FastPath>, punts: Option<Arc<PuntQueue>>) -> Self {
        Self {
            path,
            punts,
            layout: Mutex::default(),
        }
    }

    /// Starts forwarding packets in both directions.
    pub(super) fn open(&self, packet_in: Layout, switch: Arc<dyn Switch>) {
        *lock(&self.layout) = Some(Arc::new(packet_in));
        self.path.attach_switch(switch);
    }

    /// Passes a packet-in to the fast path. If Python must handle the packet-in, adds it to `punted`, or to the inbox
    /// if there is no punt queue. Returns false if the message is not a packet-in, or if the layout is not set yet.
    pub(super) fn receive(
        &self,
        message: &Bytes,
        mailbox: &Mailbox<Inbox>,
        counters: &Counters,
        punted: &mut Vec<PacketIn>,
    ) -> bool {
        let Some(layout) = lock(&self.layout).clone() else {
            return false;
        };
        let Some(packet) = packet_in_of(message) else {
            return false;
        };
        match layout.decode_packet_in(&packet) {
            Err(_) => {
                counters.packet_in_malformed.fetch_add(1, Relaxed);
            }
            Ok(packet) if self.path.to_host(&packet) => {}
            Ok(packet) => match &self.punts {
                Some(punts) if punts.fits(&packet) => {
                    punted.push(packet);
                    counters.packet_in.fetch_add(1, Relaxed);
                }
                Some(_) => {
                    counters.packet_in_malformed.fetch_add(1, Relaxed);
                }
                None => mailbox.update(|inbox| inbox.put(packet, counters)),
            },
        }
        true
    }

    /// Moves all packets to the punt queue in one step, so that Python is woken once. The queue counts the packets
    /// that it drops.
    pub(super) fn put(&self, punted: &mut Vec<PacketIn>) {
        if let Some(punts) = self.punts.as_ref().filter(|_| !punted.is_empty()) {
            punts.put_all(punted.drain(..));
        }
    }
}
