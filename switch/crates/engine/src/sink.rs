// SPDX-License-Identifier: Apache-2.0
//! The output of packet processing.

use sluice_program::DigestId;

use crate::queue::{Admission, Arrival};

/// Receives the output of packet processing. Called from inside the packet path: implementations must be fast.
pub trait Sink {
    /// Sends a packet through a port. The port may be the CPU port.
    fn transmit(&mut self, port: u32, data: &[u8]);

    /// Sends a packet whose headers are in a buffer and whose payload is still in the input. Some sinks can write
    /// headers and payload directly to their own buffers. These should override this function, to avoid a copy of the
    /// packet.
    #[inline]
    fn transmit_parts(&mut self, port: u32, headers: &mut Vec<u8>, payload: &[u8]) {
        headers.extend_from_slice(payload);
        self.transmit(port, headers);
    }

    /// Decides whether a packet enters egress now, waits in a queue, or is dropped. Called only while packets may have
    /// to wait ([`crate::Congestion`]).
    fn queue(&mut self, arrival: &mut Arrival<'_>) -> Admission {
        let _ = arrival;
        Admission::Pass
    }

    /// Sends a digest to the control plane. Fields are concatenated in the order of
    /// [`sluice_program::Digest::fields`], each as (width + 7) / 8 big-endian bytes.
    fn digest(&mut self, digest: DigestId, fields: &[u8]);

    /// Receives a line that the program logs with `log_msg`. Building the line allocates.
    fn log(&mut self, message: &str) {
        let _ = message;
    }
}
