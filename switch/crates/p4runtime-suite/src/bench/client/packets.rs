// SPDX-License-Identifier: Apache-2.0
//! Steps that send packets by way of the control plane, and look at what comes back.

use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;

use super::Client;
use crate::bench::{Frame, Seen, Walk};
use crate::case::{Failure, Outcome, same};

/// The source address of packets that only mark the end of what came before.
const MARKER: u64 = 0x02ff_ffff_ffff;

impl Client {
    /// Fails, as skipped, where packets do not come back.
    ///
    /// # Errors
    /// Skipped.
    pub fn needs_packets(&self) -> Outcome {
        if self.packet_io {
            return Ok(());
        }
        Err(Failure::Skipped(
            "packets do not come back from this server".into(),
        ))
    }

    /// Sends a packet-out.
    ///
    /// # Errors
    /// If the stream has ended. Skipped where packets do not come back.
    pub async fn packet_out(&self, packet: PacketOut) -> Outcome {
        self.needs_packets()?;
        self.send(Some(Request::Packet(packet))).await
    }

    /// Sends a packet through the program; what came back of it, in order.
    ///
    /// # Errors
    /// If the server does not even send back a packet that follows it. Skipped where packets do not come back.
    pub async fn walks(&mut self, walk: Walk, frame: Frame) -> Outcome<Vec<Seen>> {
        self.packet_out(frame.out(walk)).await?;
        let marker = Frame {
            src: MARKER,
            ..Frame::default()
        };
        self.packet_out(marker.out(Walk::Keyless)).await?;
        let mut seen = Vec::new();
        loop {
            let packet = self.next_of(packet_in).await?;
            let packet = Seen::read(&packet)?;
            if packet.payload == marker.bytes() {
                return Ok(seen);
            }
            seen.push(packet);
        }
    }

    /// Sends a packet through the program, which must come back once.
    ///
    /// # Errors
    /// As for [`walks`](Self::walks), or if it does not.
    pub async fn walk(&mut self, walk: Walk, frame: Frame) -> Outcome<Seen> {
        let mut seen = self.walks(walk, frame).await?;
        match (seen.pop(), seen.is_empty()) {
            (Some(packet), true) => Ok(packet),
            (last, _) => {
                let count = seen.len() + usize::from(last.is_some());
                Err(Failure::Failed(format!(
                    "one packet went out, {count} came back"
                )))
            }
        }
    }

    /// A packet must be marked with this value on its way.
    ///
    /// # Errors
    /// As for [`walk`](Self::walk), or if it is another.
    pub async fn marks(&mut self, walk: Walk, frame: Frame, expected: u128) -> Outcome {
        let seen = self.walk(walk, frame).await?;
        same(
            seen.mark,
            expected,
            &format!("the mark of {frame:x?} by {walk:?}"),
        )
    }
}

fn packet_in(response: Response) -> Option<PacketIn> {
    match response {
        Response::Packet(packet) => Some(packet),
        _ => None,
    }
}
