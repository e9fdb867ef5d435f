// SPDX-License-Identifier: Apache-2.0
//! Counts packets for the device as a whole, such as packet-ins. Ports and the program have their own counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of engines, by name.
pub(crate) type EngineCounters = BTreeMap<&'static str, u64>;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Current counters, as relaxed atomics.
        #[derive(Debug, Default)]
        pub struct DeviceCounters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// Values of [`DeviceCounters`] at one time.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct DeviceStatistics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl DeviceCounters {
            /// Reads all counters.
            pub fn read(&self) -> DeviceStatistics {
                DeviceStatistics { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl DeviceStatistics {
            /// Returns names and values, for display.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Packets that were dropped because they arrived before a program was loaded.
    no_program,
    /// Packets that were dropped because they were sent to a port that does not exist.
    no_such_port,
    /// Packets sent to the control plane.
    packet_in,
    /// Packets to the control plane that were dropped, because the control plane did not accept them or was too slow.
    packet_in_dropped,
    /// Packets from the control plane.
    packet_out,
    /// Packets from the control plane that were dropped because their queue was full.
    packet_out_dropped,
    /// Digests that were dropped because the control plane did not accept them.
    digest_dropped,
    /// Packets that were dropped from a port's queue because the program was replaced.
    queue_program_replaced,
    /// Packets that were dropped from a port's queue because the port was removed.
    queue_port_removed,
    /// Number of times that an interface was found open to the host's network stack and was closed again.
    port_closed_again,
}

/// Adds 1 to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds `several` to a counter.
pub(crate) fn add(counter: &AtomicU64, several: usize) {
    counter.fetch_add(several as u64, Ordering::Relaxed);
}
