// SPDX-License-Identifier: Apache-2.0
//! Provides the far ends of a switch's ports, and the frames that tests send there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_ports::af_packet::{BatchTransmitter, RingReceiver};
use sluice_ports::poller::Poller;
use sluice_ports::{PortCounters, Receiver, Transmitter};

use crate::running::DEADLINE;

/// The far end of a port's link.
pub(crate) struct Wire {
    receiver: RingReceiver,
    transmitter: BatchTransmitter,
}

impl Wire {
    pub(crate) fn open(name: &str) -> Self {
        let counters = Arc::new(PortCounters::default());
        Self {
            receiver: RingReceiver::open(name, 0, 256, counters.clone()).unwrap(),
            transmitter: BatchTransmitter::open(name, counters).unwrap(),
        }
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.transmitter.push(frame);
        self.transmitter.flush();
    }

    /// Returns the first `count` frames for which `filter` is true.
    pub(crate) fn receive(&mut self, count: usize, filter: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let mut poller = Poller::new().unwrap();
        poller.add(self.receiver.readiness().unwrap(), 0).unwrap();
        let deadline = Instant::now() + DEADLINE;
        let mut frames = Vec::new();
        while frames.len() < count {
            assert!(Instant::now() < deadline, "{} of {count}", frames.len());
            let events = poller.wait(Some(Duration::from_millis(100))).unwrap();
            events.for_each(drop);
            self.receiver.receive(64, &mut |_, frame| {
                if filter(&frame) {
                    frames.push(frame.to_vec());
                }
            });
        }
        frames
    }

    /// Returns whether a frame of this EtherType arrives before the timeout. Skips other frames, which the far kernel
    /// may send.
    pub(crate) fn sees(&mut self, kind: u16, timeout: Duration) -> bool {
        let mut poller = Poller::new().unwrap();
        poller.add(self.receiver.readiness().unwrap(), 0).unwrap();
        let deadline = Instant::now() + timeout;
        let mut seen = false;
        while !seen && Instant::now() < deadline {
            poller.wait(Some(timeout)).unwrap().for_each(drop);
            self.receiver.receive(64, &mut |_, frame| {
                seen |= frame[12..14] == kind.to_be_bytes()
            });
        }
        seen
    }
}

/// Sends frames until one arrives. The switch may drop the first frames, because it has not yet noticed that the link
/// is up.
pub(crate) fn arrives(from: &mut Wire, to: &mut Wire, kind: u16) {
    let deadline = Instant::now() + DEADLINE;
    from.send(&frame_of(kind, 1));
    while !to.sees(kind, Duration::from_millis(20)) {
        assert!(Instant::now() < deadline, "no frame arrived");
        from.send(&frame_of(kind, 1));
    }
}

/// EtherType of frames for which `surface.p4` does a lookup.
pub(crate) const LOOKED_UP: u16 = 0x88b5;

/// Returns a frame that `surface.p4` looks up by the key `a`.
pub(crate) fn frame(a: u32) -> Vec<u8> {
    frame_of(LOOKED_UP, a)
}

/// Returns a frame of the given EtherType.
pub(crate) fn frame_of(kind: u16, a: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&a.to_be_bytes());
    frame.resize(60, 0);
    frame
}
