// SPDX-License-Identifier: Apache-2.0
//! Counters of packets outside of ports and program.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters; relaxed atomics.
        #[derive(Debug, Default)]
        pub struct DeviceCounters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// A reading of [`DeviceCounters`].
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
    /// Packets that arrived before a program was loaded: dropped.
    no_program,
    /// Packets sent to a port that does not exist: dropped.
    no_such_port,
    /// Packets to the control plane.
    packet_in,
    /// Packets to the control plane that it did not take, or not fast enough: dropped.
    packet_in_dropped,
    /// Packets from the control plane.
    packet_out,
    /// Packets from the control plane that found the queue full: dropped.
    packet_out_dropped,
    /// Digests that the control plane did not take: dropped.
    digest_dropped,
    /// Packets that waited in a port's queue when the program was replaced: dropped.
    queue_program_replaced,
    /// Packets that waited in the queue of a port that was removed: dropped.
    queue_port_removed,
    /// Times that an interface was found open to the host's network stack, and was closed again.
    port_closed_again,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds several.
pub(crate) fn add(counter: &AtomicU64, several: usize) {
    counter.fetch_add(several as u64, Ordering::Relaxed);
}
