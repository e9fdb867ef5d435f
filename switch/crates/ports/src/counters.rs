// SPDX-License-Identifier: Apache-2.0
//! Counts frames for each port. The halves of a port write the counters; any thread can read them without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Current counters of one port, as relaxed atomics: each value is exact, but several values do not form a consistent
/// snapshot.
#[derive(Debug, Default)]
pub struct PortCounters {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    rx_dropped: AtomicU64,
    rx_errors: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    tx_link_down: AtomicU64,
    tx_queue_full: AtomicU64,
    tx_too_long: AtomicU64,
}

/// Reason why a frame could not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendDrop {
    /// The link is down, or the interface is gone.
    LinkDown,
    /// The queue of the interface was full.
    QueueFull,
    /// The frame exceeded the interface's limit, or was shorter than a link-layer header.
    Length,
}

/// Values of [`PortCounters`] at one time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PortStatistics {
    /// Frames delivered to the pipeline.
    pub rx_packets: u64,
    /// Bytes of these frames, without frame check sequence.
    pub rx_bytes: u64,
    /// Frames lost because the receive queue was full.
    pub rx_dropped: u64,
    /// Frames that arrived damaged: truncated by the kernel, or with a descriptor out of bounds.
    pub rx_errors: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes of these frames.
    pub tx_bytes: u64,
    /// Frames that could not be sent: the sum of the fields below.
    pub tx_dropped: u64,
    /// Frames lost because the link was down or the interface was gone.
    pub tx_link_down: u64,
    /// Frames lost because the interface's queue was full.
    pub tx_queue_full: u64,
    /// Frames that exceeded the interface's limit, or were shorter than a link-layer header.
    pub tx_too_long: u64,
}

impl PortCounters {
    /// Counts a batch of received frames.
    pub fn received(&self, packets: u64, bytes: u64) {
        self.rx_packets.fetch_add(packets, Ordering::Relaxed);
        self.rx_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts frames that were lost because the receive queue was full.
    pub fn receive_dropped(&self, packets: u64) {
        self.rx_dropped.fetch_add(packets, Ordering::Relaxed);
    }

    /// Counts frames that arrived damaged.
    pub fn receive_error(&self, packets: u64) {
        self.rx_errors.fetch_add(packets, Ordering::Relaxed);
    }

    /// Counts a batch of sent frames.
    pub fn sent(&self, packets: u64, bytes: u64) {
        self.tx_packets.fetch_add(packets, Ordering::Relaxed);
        self.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts frames that could not be sent.
    pub fn send_dropped(&self, why: SendDrop, packets: u64) {
        let counter = match why {
            SendDrop::LinkDown => &self.tx_link_down,
            SendDrop::QueueFull => &self.tx_queue_full,
            SendDrop::Length => &self.tx_too_long,
        };
        counter.fetch_add(packets, Ordering::Relaxed);
    }

    /// Reads all counters.
    pub fn read(&self) -> PortStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (tx_link_down, tx_queue_full) = (load(&self.tx_link_down), load(&self.tx_queue_full));
        let tx_too_long = load(&self.tx_too_long);
        PortStatistics {
            rx_packets: load(&self.rx_packets),
            rx_bytes: load(&self.rx_bytes),
            rx_dropped: load(&self.rx_dropped),
            rx_errors: load(&self.rx_errors),
            tx_packets: load(&self.tx_packets),
            tx_bytes: load(&self.tx_bytes),
            tx_dropped: tx_link_down + tx_queue_full + tx_too_long,
            tx_link_down,
            tx_queue_full,
            tx_too_long,
        }
    }
}
