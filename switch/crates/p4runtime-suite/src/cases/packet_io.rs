// SPDX-License-Identifier: Apache-2.0
//! Tests packets from and to the controller.

use tokio::time::timeout;

use super::prelude::*;
use crate::bench::QUIET;

/// Number of attempts to send a packet that may be lost.
const ATTEMPTS: usize = 100;

fn packet(message: Response) -> Option<PacketIn> {
    match message {
        Response::Packet(packet) => Some(packet),
        _ => None,
    }
}

/// Expects that a packet-out with changed metadata is dropped. A StreamError with INVALID_ARGUMENT is allowed.
macro_rules! dropped {
    ($t:ident, $change:expr) => {{
        let mut c = $t.primary().await?;
        let mut wrong = Frame {
            src: 0xbad,
            ..Frame::default()
        }
        .out(Walk::Keyless);
        let change: fn(&mut PacketOut) = $change;
        change(&mut wrong);
        c.packet_out(wrong).await?;
        c.packet_out(Frame::default().out(Walk::Keyless)).await?;
        loop {
            match c.next().await? {
                Response::Error(error) => same(
                    Code::from(error.canonical_code),
                    INVALID,
                    "the stream error",
                )?,
                Response::Packet(packet) => {
                    same(
                        packet.payload.to_vec(),
                        Frame::default().bytes(),
                        "the packet that came back",
                    )?;
                    break;
                }
                _ => {}
            }
        }
    }};
}

section! { "Packet I/O";

async fn a_packet_in_has_the_frame_as_its_payload(t) {
    let mut c = t.primary().await?;
    let frame = Frame { a: 0x0102_0304, ..Frame::default() };
    let seen = c.walk(Walk::Keyless, frame).await?;
    same(seen.payload, frame.bytes(), "the payload")?;
}

async fn a_packet_in_has_every_metadata_field_once(t) {
    let mut c = t.primary().await?;
    c.packet_out(Frame::default().out(Walk::Keyless)).await?;
    let mut ids: Vec<_> = c.next_of(packet).await?.metadata.iter().map(|field| field.metadata_id).collect();
    ids.sort_unstable();
    same(ids, vec![1, 2, 3, 4, 5], "metadata ids")?;
}

async fn metadata_is_in_its_shortest_form(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("keyless_table", mark(7)), OK).await?;
    c.packet_out(Frame::default().out(Walk::Keyless)).await?;
    let found = c.next_of(packet).await?;
    let value = |id| found.metadata.iter().find(|field| field.metadata_id == id).map(|field| field.value.clone());
    same((value(2), value(4)), (Some(vec![7]), Some(vec![0])), "metadata")?;
}

async fn a_packet_from_the_controller_came_in_at_the_cpu_port(t) {
    let mut c = t.primary().await?;
    let seen = c.walk(Walk::Keyless, Frame::default()).await?;
    same(seen.ingress_port, program::CPU_PORT.into(), "the ingress port")?;
}

async fn padded_metadata_of_a_packet_out_is_taken(t) {
    let mut c = t.primary().await?;
    let mut packet_out = Frame::default().out(Walk::Keyless);
    for field in &mut packet_out.metadata {
        field.value.insert(0, 0);
    }
    c.packet_out(packet_out).await?;
    c.next_of(packet).await?;
}

async fn the_order_of_metadata_does_not_matter(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    let mut packet_out = Frame { a: 1, ..Frame::default() }.out(Walk::Exact);
    packet_out.metadata.reverse();
    c.packet_out(packet_out).await?;
    let found = c.next_of(packet).await?;
    let mark = found.metadata.iter().find(|field| field.metadata_id == 2);
    same(mark.map(|field| field.value.clone()), Some(vec![5]), "the mark")?;
}

async fn packets_keep_their_order(t) {
    let mut c = t.primary().await?;
    for src in 1..=50 {
        c.packet_out(Frame { src, ..Frame::default() }.out(Walk::Keyless)).await?;
    }
    for src in 1..=50 {
        let found = c.next_of(packet).await?;
        same(found.payload.to_vec(), Frame { src, ..Frame::default() }.bytes(), "the next packet")?;
    }
}

async fn packets_go_to_the_primary_alone(t) {
    let mut c = t.primary().await?;
    let mut backup = t.client().await?;
    backup.is_told(1, EXISTS).await?;
    c.walk(Walk::Keyless, Frame::default()).await?;
    backup.is_quiet().await?;
}

async fn packets_follow_a_takeover(t) {
    let mut old = t.primary().await?;
    let mut new = t.client().await?;
    new.is_told(101, OK).await?;
    old.hears(EXISTS).await?;
    new.walk(Walk::Keyless, Frame::default()).await?;
    old.is_quiet().await?;
}

async fn a_backups_packet_out_is_dropped(t) {
    let mut c = t.primary().await?;
    let mut backup = t.client().await?;
    backup.is_told(1, EXISTS).await?;
    backup.packet_out(Frame { src: 0xbad, ..Frame::default() }.out(Walk::Keyless)).await?;
    c.is_quiet().await?;
    c.walk(Walk::Keyless, Frame::default()).await?;
}

async fn a_packet_out_without_arbitration_is_dropped(t) {
    let mut c = t.primary().await?;
    let silent = t.client().await?;
    silent.packet_out(Frame { src: 0xbad, ..Frame::default() }.out(Walk::Keyless)).await?;
    c.is_quiet().await?;
}

async fn a_packet_out_without_metadata_is_dropped(t) {
    dropped!(t, |packet| packet.metadata.clear());
}

async fn a_packet_out_with_a_field_missing_is_dropped(t) {
    dropped!(t, |packet| drop(packet.metadata.pop()));
}

async fn a_packet_out_with_an_unknown_field_is_dropped(t) {
    dropped!(t, |packet| packet.metadata.push(PacketMetadata { metadata_id: 99, value: vec![1] }));
}

async fn a_packet_out_with_a_field_twice_is_dropped(t) {
    dropped!(t, |packet| {
        let first = packet.metadata[0].clone();
        packet.metadata.push(first);
    });
}

async fn a_packet_out_with_too_wide_a_value_is_dropped(t) {
    dropped!(t, |packet| packet.metadata[1].value = vec![1, 0]);
}

async fn a_packet_out_with_an_empty_value_is_dropped(t) {
    dropped!(t, |packet| packet.metadata[1].value.clear());
}

async fn a_client_that_does_not_read_slows_nobody(t) {
    let mut slow = t.primary().await?;
    slow.needs_packets()?;
    // The client `slow` does not read the packet-ins that these packet-outs cause.
    for src in 0..5_000 {
        slow.packet_out(Frame { src, ..Frame::default() }.out(Walk::Keyless)).await?;
    }
    slow.insert(exact_entry(1, 5), OK).await?;
    let mut next = t.client().await?;
    next.is_told(101, OK).await?;
    next.modify(exact_entry(1, 6), OK).await?;
    let frame = Frame { a: 1, src: 0x77, ..Frame::default() };
    // The queues are bounded and may still be full. So some packets may be lost, but not all of them.
    for _ in 0..ATTEMPTS {
        next.packet_out(frame.out(Walk::Exact)).await?;
        let comes = async {
            while next.next_of(packet).await?.payload.to_vec() != frame.bytes() {}
            Ok::<_, Failure>(())
        };
        if let Ok(came) = timeout(QUIET, comes).await {
            return came;
        }
    }
    holds(false, "no packet comes".to_string())?;
}

}
