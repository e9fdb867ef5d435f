// SPDX-License-Identifier: Apache-2.0
//! Tests packet I/O through ports, and the server's counts of these packets.

use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

fn metadata(values: &[(u32, &[u8])]) -> Vec<PacketMetadata> {
    let field = |(metadata_id, value): &(u32, &[u8])| PacketMetadata {
        metadata_id: *metadata_id,
        value: value.to_vec(),
    };
    values.iter().map(field).collect()
}

async fn punt_everything(client: &mut Client) {
    let entry = lpm_entry(0, 0, direct("to_cpu", &[&[5]]));
    assert_eq!(client.insert(entry).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_in_has_the_packet_and_every_metadata_field() {
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
async fn a_packet_out_leaves_by_the_port_in_its_metadata() {
    let (fixture, client) = start_loaded().await;
    let packet = PacketOut {
        payload: frame([0, 0, 0, 1], 0).into(),
        metadata: metadata(&[(1, &[6]), (2, &[0])]),
    };
    client.send(Request::Packet(packet.clone())).await;
    let sent = tokio::task::block_in_place(|| fixture.wires[6].receive(DEADLINE));
    assert_eq!(sent.unwrap(), packet.payload);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_out_that_does_not_fit_p4info_is_not_counted() {
    let (fixture, mut client) = start_loaded().await;
    let packet = PacketOut {
        payload: frame([0, 0, 0, 1], 0).into(),
        metadata: Vec::new(),
    };
    client.send(Request::Packet(packet)).await;
    assert!(matches!(client.next().await, Ok(Response::Error(_))));
    assert_eq!(fixture.device.statistics().packet_out, 0);
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
async fn the_queue_of_a_client_that_does_not_read_is_bounded() {
    let (fixture, mut client) = start_loaded().await;
    punt_everything(&mut client).await;
    assert_eq!(client.insert(exact_entry(2, 4)).await, Code::Ok);
    let large = [frame([0, 0, 0, 1], 0), vec![0; 8000]].concat();
    let mut sent = 0;
    while fixture.device.statistics().packet_in_dropped == 0 {
        assert!(sent < 100_000, "the queue is not bounded");
        fixture.forward(0, &large);
        sent += 1;
    }
    let mut other = fixture.client().await;
    assert_eq!(other.arbitrate(2).await.unwrap().code(), Code::Ok);
    assert_eq!(other.delete(lpm_entry(0, 0, None)).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 2], 0)), [4]);
}
