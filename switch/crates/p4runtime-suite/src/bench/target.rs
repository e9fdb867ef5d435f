// SPDX-License-Identifier: Apache-2.0
//! The server under test.

/// A server and its device.
#[derive(Debug, Clone)]
pub struct Target {
    pub(super) address: String,
    pub(super) device_id: u64,
    pub(super) packet_io: bool,
}

impl Target {
    /// Describes a server at `HOST:PORT`. `packet_io` tells whether the server returns the suite's packet-outs as
    /// packet-ins.
    pub fn new(address: &str, device_id: u64, packet_io: bool) -> Self {
        Self {
            address: address.into(),
            device_id,
            packet_io,
        }
    }

    /// Returns whether the server returns the suite's packet-outs as packet-ins.
    pub fn has_packet_io(&self) -> bool {
        self.packet_io
    }
}
