// SPDX-License-Identifier: Apache-2.0
//! Writes packets to the log in the format of simple_switch: every step of every packet, at level `trace`.
//!
//! A separate thread writes the traces, which it takes from a bounded queue. If the log is too slow, the queue
//! drops packets, and the thread logs how many. So a slow log delays no packet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use sluice_device::Device;
use sluice_device::trace::{Filter, PacketTrace, TraceHandle, TraceSink};

/// Capacity of the queue in packets.
const QUEUE: usize = 1024;

struct Queue {
    sender: Sender<Arc<PacketTrace>>,
    lost: Arc<AtomicU64>,
}

impl TraceSink for Queue {
    fn ready(&self) -> bool {
        let room = !self.sender.is_full();
        self.lost.fetch_add(u64::from(!room), Ordering::Relaxed);
        room
    }

    fn take(&self, trace: &Arc<PacketTrace>) -> bool {
        let taken = self.sender.try_send(Arc::clone(trace)).is_ok();
        self.lost.fetch_add(u64::from(!taken), Ordering::Relaxed);
        taken
    }
}

/// Logs every packet until the handle is dropped. Returns `None` if the log does not include traces.
pub(crate) fn start(device: &Device) -> std::io::Result<Option<TraceHandle>> {
    if !tracing::enabled!(tracing::Level::TRACE) {
        return Ok(None);
    }
    let (sender, receiver) = bounded(QUEUE);
    let lost = Arc::<AtomicU64>::default();
    let queue = Queue {
        sender,
        lost: lost.clone(),
    };
    // The thread ends when the last sender is dropped.
    thread::Builder::new()
        .name("trace-log".into())
        .spawn(move || write(&receiver, &lost))?;
    Ok(Some(device.trace(Filter::default(), None, Arc::new(queue))))
}

fn write(traces: &Receiver<Arc<PacketTrace>>, lost: &AtomicU64) {
    for trace in traces {
        for line in trace.text() {
            tracing::trace!("{line}");
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost != 0 {
            tracing::trace!("{lost} packets were not traced: the log is too slow");
        }
    }
}
