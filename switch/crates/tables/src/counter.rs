// SPDX-License-Identifier: Apache-2.0
//! Counter cells, which packets and the control plane share.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cell of a counter. It counts packets and bytes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CounterCell {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl CounterCell {
    /// Byte offset of the packet count in a cell, for machine code.
    pub const PACKETS: usize = offset_of!(Self, packets);
    /// Byte offset of the byte count in a cell, for machine code.
    pub const BYTES: usize = offset_of!(Self, bytes);

    /// Counts a packet of `bytes` bytes.
    #[inline]
    pub fn count(&self, bytes: u64) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a packet of `bytes` bytes. No other thread may write the cell at the same time.
    #[inline]
    pub fn count_alone(&self, bytes: u64) {
        let add = |cell: &AtomicU64, more: u64| {
            let sum = cell.load(Ordering::Relaxed).wrapping_add(more);
            cell.store(sum, Ordering::Relaxed);
        };
        add(&self.packets, 1);
        add(&self.bytes, bytes);
    }

    /// Returns the packet count and the byte count.
    pub fn get(&self) -> (u64, u64) {
        (
            self.packets.load(Ordering::Relaxed),
            self.bytes.load(Ordering::Relaxed),
        )
    }

    /// Overwrites the packet count and the byte count. While workers count packets, call this only within
    /// [`Transaction::commit_with`](crate::Transaction::commit_with), which runs between two packets.
    pub fn set(&self, packets: u64, bytes: u64) {
        self.packets.store(packets, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}
