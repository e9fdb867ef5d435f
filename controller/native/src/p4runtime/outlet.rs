// SPDX-License-Identifier: Apache-2.0
//! Queues the packet-outs of the fast path for a session.

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use tokio::sync::mpsc::{Sender, error::TrySendError};

use super::packet::Layout;
use super::shared::Shared;
use crate::fast_path::{Sent, Switch, WaitingFrame};

/// A serialized packet-out in the queue. If the fast path sent it, `_waiting` counts it as waiting
/// until the packet-out leaves the queue.
#[derive(Debug)]
pub(super) struct PacketOut {
    pub(super) message: Bytes,
    pub(super) _waiting: Option<WaitingFrame>,
}

/// Sending end of a session's packet-out queue. The session may end while this value exists.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) layout: Layout,
    pub(super) packets: Sender<PacketOut>,
    pub(super) session: Weak<Shared>,
}

impl Switch for Outlet {
    fn send(&self, frame: &[u8], metadata: &[u128], waiting: WaitingFrame) -> Sent {
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
            _waiting: Some(waiting),
        };
        // Leaves half of the queue to Python's packets.
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::mpsc::{self, Receiver};

    use super::*;
    use crate::fast_path::tests::a_waiting_frame;
    use crate::mailbox::Mailbox;
    use crate::p4runtime::inbox::Inbox;

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
        let send = || outlet.send(b"frame", &[], a_waiting_frame(&waiting));
        for _ in 0..ROOM / 2 {
            assert_eq!(send(), Sent::Queued);
        }
        assert_eq!(send(), Sent::Full);
        assert_eq!(waiting.load(Relaxed), ROOM / 2, "no frame is counted twice");
        for _ in 0..ROOM / 2 {
            let message = Bytes::new();
            let sent = outlet.packets.try_send(PacketOut {
                message,
                _waiting: None,
            });
            assert!(sent.is_ok());
        }
        assert_eq!(send(), Sent::Full);
        // Packets from Python occupy room, too. The fast path must still leave half of the queue free.
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
        assert_eq!(
            outlet.send(b"frame", &[], a_waiting_frame(&waiting)),
            Sent::Refused
        );
        drop(session);
        assert_eq!(
            outlet.send(b"frame", &[], a_waiting_frame(&waiting)),
            Sent::Refused
        );
        assert_eq!(waiting.load(Relaxed), 0);
        Ok(())
    }
}
