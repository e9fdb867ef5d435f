// SPDX-License-Identifier: Apache-2.0
//! The control plane, as the switch sees it.

use sluice_program::{DigestId, TableId};
use sluice_tables::Entry;

/// Receives notifications of the switch for the control plane. Methods run on workers and housekeeping threads, so they
/// must not block.
pub trait Handler: Send + Sync {
    /// Receives a packet that was sent to the CPU port. Returns true if the packet is accepted, false if the packet
    /// must be dropped.
    fn packet_in(&self, packet: &[u8]) -> bool;

    /// Receives a digest that the program sent. Each field in `fields` is big-endian and padded to whole bytes. Returns
    /// true if the digest is accepted.
    fn digest(&self, digest: DigestId, fields: &[u8]) -> bool;

    /// Receives entries whose idle timeouts have passed without a hit.
    fn idle(&self, entries: Vec<(TableId, Entry)>);
}
