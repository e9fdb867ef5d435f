// SPDX-License-Identifier: Apache-2.0
//! A session as the fast path sees it: packet-outs into its queue, packet-ins before its inbox.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use tokio::sync::mpsc::{Sender, error::TrySendError};

use super::inbox::Inbox;
use super::packet::{Layout, packet_in_of};
use super::session::Shared;
use crate::fast_path::{FastPath, Place, Sent, Switch};
use crate::mailbox::lock;

/// A serialized packet-out in the queue. A frame of the fast path keeps its place until it is sent.
#[derive(Debug)]
pub(super) struct PacketOut {
    pub(super) message: Bytes,
    pub(super) _place: Option<Place>,
}

/// The way into a session's packet-out queue. It does not keep the session.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) layout: Layout,
    pub(super) packets: Sender<PacketOut>,
    pub(super) session: Weak<Shared>,
}

impl Switch for Outlet {
    fn send(&self, frame: &[u8], metadata: &[u128], place: Place) -> Sent {
        let Some(session) = self
            .session
            .upgrade()
            .filter(|session| !session.has_ended())
        else {
            return Sent::Refused;
        };
        let Ok(message) = self.layout.encode_packet_out(frame, metadata) else {
            return Sent::Refused;
        };
        let packet = PacketOut {
            message,
            _place: Some(place),
        };
        // The other half is Python's.
        let has_room = self.packets.capacity() > self.packets.max_capacity() / 2;
        let counters = &session.counters;
        match has_room.then(|| self.packets.try_send(packet)) {
            Some(Ok(())) => {
                counters.packet_out.fetch_add(1, Relaxed);
                Sent::Queued
            }
            Some(Err(TrySendError::Closed(_))) => Sent::Refused,
            Some(Err(TrySendError::Full(_))) | None => {
                counters.packet_out_dropped.fetch_add(1, Relaxed);
                Sent::Full
            }
        }
    }
}

/// A session's part in the fast path.
#[derive(Debug)]
pub(super) struct Inlet {
    path: Arc<FastPath>,
    /// How packet-ins are read; none yet: they are the inbox's.
    layout: Mutex<Option<Arc<Layout>>>,
}

impl Inlet {
    pub(super) fn new(path: Arc<FastPath>) -> Self {
        Self {
            path,
            layout: Mutex::default(),
        }
    }

    /// Lets packets pass from now on, both ways.
    pub(super) fn open(&self, packet_in: Layout, outlet: Outlet) {
        *lock(&self.layout) = Some(Arc::new(packet_in));
        self.path.attach_switch(Arc::new(outlet));
    }

    /// Deals with a stream message that is a packet-in; false: it is none, or comes too early.
    pub(super) fn receive(&self, message: &Bytes, session: &Shared) -> bool {
        let Some(layout) = lock(&self.layout).clone() else {
            return false;
        };
        let Some(packet) = packet_in_of(message) else {
            return false;
        };
        let counters = &session.counters;
        match layout.decode_packet_in(&packet) {
            Err(_) => {
                counters.packet_in_malformed.fetch_add(1, Relaxed);
            }
            Ok(packet) if self.path.to_host(&packet) => {}
            Ok(packet) => session
                .mailbox
                .update(|inbox: &mut Inbox| inbox.put(packet, counters)),
        }
        true
    }
}
