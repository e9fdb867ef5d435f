// SPDX-License-Identifier: Apache-2.0
//! "Packet I/O", "Stream Error Reporting".

use std::time::Duration;

use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

fn metadata(values: &[(u32, &[u8])]) -> Vec<PacketMetadata> {
    let one = |(metadata_id, value): &(u32, &[u8])| PacketMetadata {
        metadata_id: *metadata_id,
        value: value.to_vec(),
    };
    values.iter().map(one).collect()
}

fn packet_out(metadata: Vec<PacketMetadata>) -> PacketOut {
    PacketOut {
        payload: frame([0, 0, 0, 1], 0).into(),
        metadata,
    }
}

async fn punt_everything(client: &mut Client) {
    client
        .insert(lpm_entry(&[], 0, direct("to_cpu", &[&[5]])))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_in_carries_the_packet_and_every_metadata_field() {
    let (fixture, mut client) = start_loaded().await;
    punt_everything(&mut client).await;
    let packet = frame([0, 0, 0, 1], 0);
    assert!(fixture.wires[3].send(&packet));
    let expected = PacketIn {
        payload: packet.into(),
        metadata: metadata(&[(1, &[3]), (2, &[5])]),
    };
    assert_eq!(client.next().await.unwrap(), Response::Packet(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_go_to_the_primary_and_follow_the_takeover() {
    let (fixture, mut old) = start_loaded().await;
    punt_everything(&mut old).await;
    let mut new = fixture.client().await;
    new.arbitrate(2).await.unwrap();
    old.told().await.unwrap();
    assert!(fixture.wires[0].send(&frame([0, 0, 0, 1], 0)));
    assert!(matches!(new.next().await.unwrap(), Response::Packet(_)));
    assert!(old.is_quiet().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_primary_packets_are_dropped_and_counted() {
    let (fixture, mut client) = start_loaded().await;
    punt_everything(&mut client).await;
    client.arbitrate(None).await.unwrap();
    fixture.forward(0, &frame([0, 0, 0, 1], 0));
    let statistics = fixture.device.statistics();
    assert_eq!((statistics.packet_in, statistics.packet_in_dropped), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_out_leaves_by_the_port_that_its_metadata_says() {
    let (fixture, client) = start_loaded().await;
    let packet = packet_out(metadata(&[(1, &[6]), (2, &[0])]));
    client.send(Request::Packet(packet.clone())).await;
    let sent = tokio::task::block_in_place(|| fixture.wires[6].receive(DEADLINE));
    assert_eq!(sent.unwrap(), packet.payload);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_out_that_does_not_fit_p4info_is_dropped_and_reported() {
    let (fixture, mut client) = start_loaded().await;
    for wrong in [
        metadata(&[]),
        metadata(&[(1, &[6])]),
        metadata(&[(1, &[6]), (2, &[0]), (2, &[0])]),
        metadata(&[(1, &[6]), (2, &[0]), (7, &[0])]),
        metadata(&[(1, &[2, 0]), (2, &[0])]),
        metadata(&[(1, &[]), (2, &[0])]),
    ] {
        let packet = packet_out(wrong);
        client.send(Request::Packet(packet.clone())).await;
        let Response::Error(error) = client.next().await.unwrap() else {
            panic!("no error")
        };
        assert_eq!(Code::from(error.canonical_code), Code::InvalidArgument);
        let details = PacketOutError {
            packet_out: Some(packet),
        };
        assert_eq!(
            error.details,
            Some(stream_error::Details::PacketOut(details))
        );
    }
    assert_eq!(fixture.device.statistics().packet_out, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_primary_sends_packets() {
    let (fixture, _primary) = start_loaded().await;
    let mut backup = fixture.client().await;
    backup.arbitrate(0).await.unwrap();
    backup
        .send(Request::Packet(packet_out(metadata(&[
            (1, &[6]),
            (2, &[0]),
        ]))))
        .await;
    let Response::Error(error) = backup.next().await.unwrap() else {
        panic!("no error")
    };
    assert_eq!(Code::from(error.canonical_code), Code::PermissionDenied);
    assert_eq!(fixture.wires[6].receive(Duration::ZERO), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn before_a_config_packets_cannot_be_sent() {
    let fixture = start().await;
    let mut client = fixture.primary().await;
    client.send(Request::Packet(packet_out(vec![]))).await;
    let Response::Error(error) = client.next().await.unwrap() else {
        panic!("no error")
    };
    assert_eq!(Code::from(error.canonical_code), Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_say_nothing_are_reported_and_do_not_end_the_stream() {
    let (_fixture, mut client) = start_loaded().await;
    client
        .requests
        .send(StreamMessageRequest { update: None })
        .await
        .unwrap();
    let Response::Error(error) = client.next().await.unwrap() else {
        panic!("no error")
    };
    assert_eq!(Code::from(error.canonical_code), Code::InvalidArgument);
    client
        .send(Request::Other(prost_types::Any::default()))
        .await;
    let Response::Error(error) = client.next().await.unwrap() else {
        panic!("no error")
    };
    assert_eq!(Code::from(error.canonical_code), Code::Unimplemented);
    assert_eq!(client.arbitrate(1).await.unwrap().code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_loses_packets_and_slows_nobody() {
    let (fixture, mut client) = start_loaded().await;
    punt_everything(&mut client).await;
    client.insert(exact_entry(&[0, 0, 0, 2], 4)).await;
    let large = [frame([0, 0, 0, 1], 0), vec![0; 8000]].concat();
    let mut sent = 0;
    while fixture.device.statistics().packet_in_dropped == 0 {
        assert!(sent < 100_000, "the queue is not bounded");
        fixture.forward(0, &large);
        sent += 1;
    }
    let mut other = fixture.client().await;
    assert_eq!(other.arbitrate(2).await.unwrap().code(), Code::Ok);
    let none = TableEntry {
        action: None,
        ..lpm_entry(&[], 0, None)
    };
    assert_eq!(other.delete(none).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 2], 0)), [4]);
}
