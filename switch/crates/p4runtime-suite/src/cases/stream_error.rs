// SPDX-License-Identifier: Apache-2.0
//! Tests the errors that the server sends for messages on a stream. These errors are optional. If a server
//! sends none, the cases are skipped.

use super::prelude::*;
use crate::bench::Client;
use crate::outcome::Outcome;

/// Returns the stream error for an earlier message. Sends an arbitration update, after whose answer no
/// more errors are expected.
async fn error(c: &mut Client) -> Outcome<StreamError> {
    c.send_election_id().await?;
    let unsaid = || Failure::Skipped("optional, and not sent here".into());
    // The arbitration message may arrive before the error.
    for _ in 0..2 {
        match c.next().await {
            Ok(Response::Error(error)) => return Ok(error),
            Ok(Response::Arbitration(_)) => {}
            Ok(other) => {
                return Err(Failure::Failed(format!(
                    "expected a stream error, found {other:?}"
                )));
            }
            Err(_) => return Err(unsaid()),
        }
    }
    Err(unsaid())
}

section! { "Stream Error Reporting";

async fn a_packet_out_of_a_backup_is_permission_denied(t) {
    let _primary = t.primary().await?;
    let mut backup = t.client().await?;
    backup.is_told(1, EXISTS).await?;
    backup.packet_out(Frame::default().out(Walk::Keyless)).await?;
    let error = error(&mut backup).await?;
    same(Code::from(error.canonical_code), DENIED, "the code")?;
    holds(matches!(error.details, Some(stream_error::Details::PacketOut(_))), format!("{error:?}"))?;
}

async fn a_malformed_packet_out_is_invalid_argument(t) {
    let mut c = t.primary().await?;
    let mut packet = Frame::default().out(Walk::Keyless);
    packet.metadata.clear();
    c.packet_out(packet).await?;
    let error = error(&mut c).await?;
    same(Code::from(error.canonical_code), INVALID, "the code")?;
    holds(matches!(error.details, Some(stream_error::Details::PacketOut(_))), format!("{error:?}"))?;
}

async fn the_error_carries_the_packet_or_nothing(t) {
    let mut c = t.primary().await?;
    let mut packet = Frame::default().out(Walk::Keyless);
    packet.metadata.clear();
    c.packet_out(packet.clone()).await?;
    if let Some(stream_error::Details::PacketOut(details)) = error(&mut c).await?.details {
        holds(details.packet_out.is_none_or(|found| found == packet), "it carries another packet")?;
    }
}

async fn an_acknowledgement_of_an_unknown_digest_is_an_error(t) {
    let mut c = t.primary().await?;
    let ack = DigestListAck { digest_id: 0x17ff_fff1, list_id: 1 };
    c.send(Some(Request::DigestAck(ack))).await?;
    let error = error(&mut c).await?;
    holds(matches!(error.details, Some(stream_error::Details::DigestListAck(_))), format!("{error:?}"))?;
}

async fn an_acknowledgement_by_a_backup_is_permission_denied(t) {
    let _primary = t.primary().await?;
    let mut backup = t.client().await?;
    backup.is_told(1, EXISTS).await?;
    let ack = DigestListAck { digest_id: id("learned_t"), list_id: 1 };
    backup.send(Some(Request::DigestAck(ack))).await?;
    same(Code::from(error(&mut backup).await?.canonical_code), DENIED, "the code")?;
}

async fn an_architectures_own_message_is_not_known(t) {
    let mut c = t.primary().await?;
    c.send(Some(Request::Other(prost_types::Any::default()))).await?;
    let error = error(&mut c).await?;
    holds(matches!(Code::from(error.canonical_code), UNIMPLEMENTED | INVALID), format!("{error:?}"))?;
}

async fn an_empty_message_does_not_end_the_stream(t) {
    let mut c = t.primary().await?;
    c.send(None).await?;
    c.send_arbitration(200).await?;
    c.next_of(|message| matches!(message, Response::Arbitration(_)).then_some(())).await?;
}

async fn a_packet_out_before_any_config_is_failed_precondition(t) {
    t.before_any_pipeline().await?;
    let mut c = t.elected(100).await?;
    c.send(Some(Request::Packet(PacketOut::default()))).await?;
    let error = error(&mut c).await?;
    same(Code::from(error.canonical_code), PRECONDITION, "the code")?;
}

async fn an_error_does_not_end_the_stream(t) {
    let mut c = t.primary().await?;
    let mut packet = Frame::default().out(Walk::Keyless);
    packet.metadata.clear();
    c.packet_out(packet).await?;
    c.walk(Walk::Keyless, Frame::default()).await?;
}

}
