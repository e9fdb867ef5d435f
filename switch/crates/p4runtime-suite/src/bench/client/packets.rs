// SPDX-License-Identifier: Apache-2.0
//! Implements steps that send packets through the control plane, and check the packets that come back.

use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;

use super::Client;
use crate::bench::{Frame, ReturnedPacket, Walk};
use crate::outcome::{Failure, Outcome, same};

/// Source address of marker packets. When a marker packet comes back, all earlier packets were processed.
const MARKER: u64 = 0x02ff_ffff_ffff;

impl Client {
    /// Skips the case if the server does not return packet-outs as packet-ins.
    ///
    /// # Errors
    /// The failure [`Failure::Skipped`], if packets do not come back.
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
    /// The stream has ended. Skipped if packets do not come back.
    pub async fn packet_out(&self, packet: PacketOut) -> Outcome {
        self.needs_packets()?;
        self.send(Some(Request::Packet(packet))).await
    }

    /// Sends a packet through the program, then a marker packet. Returns the packets that came back before the marker
    /// packet, in order.
    ///
    /// # Errors
    /// The marker packet does not come back. Skipped if packets do not come back.
    pub async fn walks(&mut self, walk: Walk, frame: Frame) -> Outcome<Vec<ReturnedPacket>> {
        self.packet_out(frame.out(walk)).await?;
        let marker = Frame {
            src: MARKER,
            ..Frame::default()
        };
        self.packet_out(marker.out(Walk::Keyless)).await?;
        let mut seen = Vec::new();
        loop {
            let packet = self.next_of(packet_in).await?;
            let packet = ReturnedPacket::read(&packet)?;
            if packet.payload == marker.bytes() {
                return Ok(seen);
            }
            seen.push(packet);
        }
    }

    /// Sends a packet through the program, and expects exactly one packet back.
    ///
    /// # Errors
    /// The errors of [`walks`](Self::walks), or another number of packets.
    pub async fn walk(&mut self, walk: Walk, frame: Frame) -> Outcome<ReturnedPacket> {
        let mut seen = self.walks(walk, frame).await?;
        match (seen.pop(), seen.is_empty()) {
            (Some(packet), true) => Ok(packet),
            (last, _) => {
                let count = seen.len() + usize::from(last.is_some());
                Err(Failure::Failed(format!(
                    "one packet was sent, but {count} packets came back"
                )))
            }
        }
    }

    /// Sends a packet through the program, and expects it back with this mark.
    ///
    /// # Errors
    /// The errors of [`walk`](Self::walk), or another mark.
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
