// SPDX-License-Identifier: Apache-2.0
//! Handles both directions of StreamChannel: sends queued messages, and passes each received
//! message to its receiver.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio_stream::Stream;

use super::inbox::{Counters, Inbox, Notification};
use super::outlet::PacketOut;
use super::packet::packet_in_of;
use super::proto::p4::v1::stream_message_response::Update;
use super::proto::p4::v1::{
    MasterArbitrationUpdate, StreamMessageRequest, StreamMessageResponse, Uint128,
    stream_message_request,
};
use super::role::Role;
use std::sync::atomic::Ordering::Relaxed;

/// Serialized StreamMessageRequests to send. Control messages are sent before queued packets.
///
/// Invariant: this stream ends when the session ends. If it did not end, the gRPC connection
/// would stay open, and the switch would still treat this client as primary.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) control: Receiver<Bytes>,
    pub(super) packets: Receiver<PacketOut>,
    /// Resolves when the session drops the sender of this channel.
    pub(super) session_end: oneshot::Receiver<Infallible>,
}

impl Stream for Outgoing {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if Pin::new(&mut self.session_end).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(message)) = self.control.poll_recv(context) {
            return Poll::Ready(Some(message));
        }
        let packet = self.packets.poll_recv(context);
        packet.map(|packet| packet.map(|packet| packet.message))
    }
}

/// Encodes an arbitration request.
pub(super) fn arbitration(device_id: u64, election_id: (u64, u64), role: Option<&Role>) -> Bytes {
    let (high, low) = election_id;
    let update = MasterArbitrationUpdate {
        device_id,
        role: role.map(Role::message),
        election_id: Some(Uint128 { high, low }),
        status: None,
    };
    let update = Some(stream_message_request::Update::Arbitration(update));
    StreamMessageRequest { update }.encode_to_vec().into()
}

/// Decodes a received StreamMessageResponse and queues it in the inbox.
pub(super) fn receive(message: &Bytes, inbox: &mut Inbox, counters: &Counters) {
    if let Some(packet) = packet_in_of(message) {
        inbox.packet_in(&packet, counters);
        return;
    }
    let update = StreamMessageResponse::decode(message.clone())
        .ok()
        .and_then(|message| message.update);
    match update {
        Some(Update::Arbitration(update)) => {
            let status = update.status.unwrap_or_default();
            let election_id = update.election_id.map(|id| (id.high, id.low));
            inbox.arbitration((status.code, status.message), election_id);
        }
        Some(Update::Packet(packet)) => {
            inbox.packet_in(&packet.encode_to_vec().into(), counters);
        }
        Some(Update::Digest(digest)) => {
            inbox.notification(
                Notification::Digest,
                digest.encode_to_vec().into(),
                counters,
            );
        }
        Some(Update::IdleTimeoutNotification(idle)) => {
            inbox.notification(
                Notification::IdleTimeout,
                idle.encode_to_vec().into(),
                counters,
            );
        }
        Some(Update::Error(error)) => {
            inbox.notification(
                Notification::StreamError,
                error.encode_to_vec().into(),
                counters,
            );
        }
        Some(Update::Other(_)) | None => {
            counters.unknown_stream_messages.fetch_add(1, Relaxed);
        }
    }
}
