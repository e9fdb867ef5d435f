// SPDX-License-Identifier: Apache-2.0
//! Connects a session to the fast path. Queues packet-outs of the fast path, and passes packet-ins
//! to the fast path.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use tokio::sync::mpsc::{Sender, error::TrySendError};

use super::inbox::Inbox;
use super::packet::{Layout, packet_in_of};
use super::session::Shared;
use crate::fast_path::{FastPath, Place, Sent, Switch};
use crate::mailbox::lock;

/// A serialized packet-out in the queue. A packet-out of the fast path has a [`Place`], which is
/// dropped when the packet-out is sent.
#[derive(Debug)]
pub(super) struct PacketOut {
    pub(super) message: Bytes,
    pub(super) _place: Option<Place>,
}

/// Sending end of a session's packet-out queue. The session may end while this value exists.
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
        // Half of the queue is reserved for Python.
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

/// Passes a session's packet-ins to the fast path.
#[derive(Debug)]
pub(super) struct Inlet {
    path: Arc<FastPath>,
    /// Layout of packet-ins. While the layout is `None`, the inbox handles packet-ins.
    layout: Mutex<Option<Arc<Layout>>>,
}

impl Inlet {
    pub(super) fn new(path: Arc<FastPath>) -> Self {
        Self {
            path,
            layout: Mutex::default(),
        }
    }

    /// Starts forwarding packets in both directions.
    pub(super) fn open(&self, packet_in: Layout, outlet: Outlet) {
        *lock(&self.layout) = Some(Arc::new(packet_in));
        self.path.attach_switch(Arc::new(outlet));
    }

    /// Passes a packet-in to the fast path, or to the inbox if Python must handle the packet-in.
    /// Returns false if the message is not a packet-in, or if the layout is not set yet.
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::mpsc::{self, Receiver};

    use super::*;
    use crate::fast_path::tests::a_place;
    use crate::mailbox::Mailbox;

    const ROOM: usize = 8;

    fn outlet() -> io::Result<(Outlet, Arc<Shared>, Receiver<PacketOut>)> {
        let mailbox = Mailbox::new(Inbox::new(1, 1))?;
        let shared = Shared::new(String::new(), Duration::from_secs(1), mailbox, None);
        let (session, (packets, queue)) = (Arc::new(shared), mpsc::channel(ROOM));
        let outlet = Outlet {
            layout: Layout::new(Vec::new()).map_err(io::Error::other)?,
            packets,
            session: Arc::downgrade(&session),
        };
        Ok((outlet, session, queue))
    }

    #[test]
    fn half_of_the_queue_is_pythons() -> io::Result<()> {
        let (outlet, session, mut queue) = outlet()?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let send = || outlet.send(b"frame", &[], a_place(&waiting));
        for _ in 0..ROOM / 2 {
            assert_eq!(send(), Sent::Queued);
        }
        assert_eq!(send(), Sent::Full);
        assert_eq!(waiting.load(Relaxed), ROOM / 2, "no place is kept");
        for _ in 0..ROOM / 2 {
            let message = Bytes::new();
            let sent = outlet.packets.try_send(PacketOut {
                message,
                _place: None,
            });
            assert!(sent.is_ok());
        }
        assert_eq!(send(), Sent::Full);
        // Python's packets count, too. The fast path must leave half of the queue free.
        for _ in 0..ROOM / 2 {
            drop(queue.try_recv());
        }
        assert_eq!(waiting.load(Relaxed), 0);
        assert_eq!(send(), Sent::Full);
        drop(queue.try_recv());
        assert_eq!(send(), Sent::Queued);
        let counters = &session.counters;
        assert_eq!(counters.packet_out.load(Relaxed), ROOM as u64 / 2 + 1);
        assert_eq!(counters.packet_out_dropped.load(Relaxed), 3);
        Ok(())
    }

    #[test]
    fn a_session_that_is_gone_takes_nothing() -> io::Result<()> {
        let (outlet, session, _queue) = outlet()?;
        let waiting = Arc::new(AtomicUsize::new(0));
        session.end();
        assert_eq!(outlet.send(b"frame", &[], a_place(&waiting)), Sent::Refused);
        drop(session);
        assert_eq!(outlet.send(b"frame", &[], a_place(&waiting)), Sent::Refused);
        assert_eq!(waiting.load(Relaxed), 0);
        Ok(())
    }
}
