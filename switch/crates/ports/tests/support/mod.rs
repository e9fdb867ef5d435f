// SPDX-License-Identifier: Apache-2.0
//! Provides a veth pair in a separate network namespace, with both ends as ports.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sluice_ports::af_packet::{BatchTransmitter, RingReceiver};
use sluice_ports::poller::Poller;
use sluice_ports::{PortCounters, Receiver, Transmitter};

pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Runs `test` on a thread with a separate network namespace, which has a veth pair `sw` and `peer`.
pub(crate) fn with_veth(test: impl FnOnce() + Send + 'static) {
    let run = move || {
        // SAFETY: unshare takes no pointers; with this flag it affects only the calling thread.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(
            result,
            0,
            "{} (these tests need root)",
            std::io::Error::last_os_error()
        );
        sh("ip link add sw type veth peer name peer && ip link set peer up && ip link set lo up");
        test();
    };
    thread::spawn(run).join().unwrap();
}

pub(crate) fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) struct Port {
    pub(crate) receiver: RingReceiver,
    pub(crate) transmitter: BatchTransmitter,
    pub(crate) counters: Arc<PortCounters>,
}

pub(crate) fn open(name: &str) -> Port {
    let counters = Arc::new(PortCounters::default());
    Port {
        receiver: RingReceiver::open(name, 5, 256, counters.clone()).unwrap(),
        transmitter: BatchTransmitter::open(name, counters.clone()).unwrap(),
        counters,
    }
}

impl Port {
    pub(crate) fn send(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            self.transmitter.push(frame);
        }
        self.transmitter.flush();
    }

    /// Receives until `count` frames have arrived for which `filter` is true. Returns these frames.
    pub(crate) fn receive(&mut self, count: usize, filter: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let mut poller = Poller::new().unwrap();
        poller.add(self.receiver.readiness().unwrap(), 0).unwrap();
        let deadline = Instant::now() + DEADLINE;
        let mut frames = Vec::new();
        while frames.len() < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} frames: {frames:02x?}",
                frames.len()
            );
            poller
                .wait(Some(Duration::from_millis(100)))
                .unwrap()
                .for_each(drop);
            self.receiver.receive(64, &mut |port, frame| {
                assert_eq!(port, 5);
                if filter(&frame) {
                    frames.push(frame.to_vec());
                }
            });
        }
        frames
    }
}

/// Returns a frame of an experimental EtherType that contains a number.
pub(crate) fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.extend_from_slice(&number.to_be_bytes());
    frame.resize(length, number as u8);
    frame
}

pub(crate) fn is_ours(frame: &[u8]) -> bool {
    frame[12..14] == [0x88, 0xb5]
}
