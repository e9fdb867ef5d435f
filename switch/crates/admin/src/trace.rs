// SPDX-License-Identifier: Apache-2.0
//! Sends traces to a client through a bounded buffer, and counts the packets that did not fit.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use sluice_device::Device;
use sluice_device::trace::{Filter, PacketTrace, TraceHandle, TraceLine as Line, TraceSink};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

use crate::proto::{Detail, TraceLine, TraceResponse};

/// Capacity of the buffer of one client, in packets.
const BUFFER: usize = 256;

/// Buffer of traces for one client, filled by workers.
struct Buffer {
    sender: mpsc::Sender<Arc<PacketTrace>>,
    lost: Arc<AtomicU64>,
}

impl TraceSink for Buffer {
    fn ready(&self) -> bool {
        let room = self.sender.capacity() > 0;
        self.lost.fetch_add(u64::from(!room), Ordering::Relaxed);
        room
    }

    fn take(&self, trace: &Arc<PacketTrace>) -> bool {
        let taken = self.sender.try_send(Arc::clone(trace)).is_ok();
        self.lost.fetch_add(u64::from(!taken), Ordering::Relaxed);
        taken
    }
}

/// The stream of traces to a client. Dropping the stream ends the trace.
pub(crate) struct TraceStream {
    receiver: mpsc::Receiver<Arc<PacketTrace>>,
    lost: Arc<AtomicU64>,
    _handle: TraceHandle,
}

impl TraceStream {
    pub(crate) fn start(device: &Device, filter: Filter, count: Option<u64>) -> Self {
        let (sender, receiver) = mpsc::channel(BUFFER);
        let lost = Arc::<AtomicU64>::default();
        let buffer = Buffer {
            sender,
            lost: lost.clone(),
        };
        Self {
            receiver,
            lost,
            _handle: device.trace(filter, count, Arc::new(buffer)),
        }
    }
}

impl Stream for TraceStream {
    type Item = Result<TraceResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.receiver.poll_recv(context);
        next.map(|trace| Some(Ok(response(&*trace?, self.lost.swap(0, Ordering::Relaxed)))))
    }
}

pub(crate) fn response(trace: &PacketTrace, lost: u64) -> TraceResponse {
    TraceResponse {
        packet: trace.number,
        time_us: trace.time_us,
        lines: trace.lines.iter().map(line).collect(),
        lost,
    }
}

fn line(line: &Line) -> TraceLine {
    let detail = |(name, value): &(String, String)| Detail {
        name: name.clone(),
        value: value.clone(),
    };
    TraceLine {
        step: line.kind.name().to_owned(),
        name: line.name.clone(),
        details: line.details.iter().map(detail).collect(),
    }
}
