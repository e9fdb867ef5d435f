// SPDX-License-Identifier: Apache-2.0
//! Status of ports. When a port goes down, groups skip the members that watch this port, from the next packet on. No
//! transaction is needed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of ports: a port of v1model has 9 bits.
const PORTS: usize = 512;

/// Bit set of the ports that are down. Initially every port is up.
#[derive(Debug, Default)]
pub struct PortStatus {
    down: [AtomicU64; PORTS / 64],
}

impl PortStatus {
    /// Records that a port went up or down. Ports above 511 do not exist and are ignored.
    pub fn set(&self, port: u32, up: bool) {
        let Some(word) = self.down.get(port as usize / 64) else {
            return;
        };
        let bit = 1 << (port % 64);
        if up {
            word.fetch_and(!bit, Ordering::Relaxed);
        } else {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Returns whether a port is up.
    #[inline]
    pub fn is_up(&self, port: u32) -> bool {
        let word = self.down.get(port as usize / 64);
        word.is_none_or(|word| word.load(Ordering::Relaxed) >> (port % 64) & 1 == 0)
    }
}
