// SPDX-License-Identifier: Apache-2.0
//! Tests which clients may write, and the limits on the resources that one client can use.

use sluice_p4runtime::hub::MAX_STREAMS;
use sluice_p4runtime::listen::MAX_CONNECTIONS;
use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;
use sluice_p4runtime::{MAX_ROLE_CONFIG, MAX_ROLE_NAME, MAX_ROLES};
use tonic::Code;

use crate::support::*;

/// Returns a second client. It uses the primary's election id, but the primary's stream belongs to another connection.
async fn impostor(fixture: &Fixture) -> Client {
    let mut impostor = fixture.client().await;
    impostor.election_id = Some(Uint128 { high: 0, low: 1 });
    impostor
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_primary_nobody_writes() {
    let fixture = start().await;
    let mut client = fixture.client().await;
    for election_id in [None, Some((0, 0)), Some((0, 1)), Some((u64::MAX, u64::MAX))] {
        client.election_id = election_id.map(|(high, low)| Uint128 { high, low });
        let refused = client.commit().await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{election_id:?}");
        let refused = client.write(vec![insert(exact_entry(1, 1))]).await;
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primarys_election_id_alone_does_not_write() {
    let (fixture, mut primary) = start_loaded().await;
    let mut impostor = impostor(&fixture).await;
    let refused = impostor.write(vec![insert(exact_entry(1, 1))]).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(
        refused.message().contains("another connection"),
        "{refused}"
    );
    let refused = impostor.commit().await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(primary.insert(exact_entry(1, 1)).await, Code::Ok);
    assert!(impostor.pipeline().await.is_some(), "any client may read");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_connection_writes_where_the_server_was_told_so() {
    let change = sluice_p4runtime::Server::with_writes_from_any_connection;
    let fixture = start_at("127.0.0.1:0", change).await;
    let mut primary = fixture.primary().await;
    primary.commit().await.unwrap();
    let mut other = impostor(&fixture).await;
    assert_eq!(other.insert(exact_entry(1, 1)).await, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_serves_and_tells_connections_apart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("switch.sock");
    let fixture = start_at(&format!("unix:{}", path.display()), |server| server).await;
    let mut primary = fixture.primary().await;
    primary.commit().await.unwrap();
    assert_eq!(primary.insert(exact_entry(1, 1)).await, Code::Ok);
    let refused = impostor(&fixture).await.write(vec![]).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_the_largest_election_id_and_leaves_locks_nobody_out() {
    let (fixture, _primary) = start_loaded().await;
    let largest = Some(Uint128 {
        high: u64::MAX,
        low: u64::MAX,
    });
    let arbitrate = async |client: &mut Client| {
        let update = MasterArbitrationUpdate {
            device_id: DEVICE,
            election_id: largest,
            ..MasterArbitrationUpdate::default()
        };
        client.election_id = largest;
        client.send(Request::Arbitration(update)).await;
        client.told().await.unwrap().code()
    };
    let mut first = fixture.client().await;
    assert_eq!(arbitrate(&mut first).await, Code::Ok);
    let mut second = fixture.client().await;
    assert_eq!(
        second.arbitrate(2).await.unwrap().code(),
        Code::AlreadyExists
    );
    drop(first);
    assert_eq!(second.told().await.unwrap().code(), Code::NotFound);
    assert_eq!(arbitrate(&mut second).await, Code::Ok);
    assert_eq!(second.insert(exact_entry(1, 1)).await, Code::Ok);
}

fn role(name: String, config: usize) -> Request {
    let config = (config > 0).then(|| prost_types::Any {
        type_url: "type.googleapis.com/sluice.p4runtime.v1.RoleConfig".into(),
        value: vec![0; config],
    });
    Request::Arbitration(MasterArbitrationUpdate {
        device_id: DEVICE,
        role: Some(Role {
            name,
            config,
            ..Role::default()
        }),
        election_id: Some(Uint128 { high: 0, low: 1 }),
        status: None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_is_too_large_ends_its_stream() {
    let fixture = start().await;
    for (update, code) in [
        (role("r".repeat(MAX_ROLE_NAME), 0), Code::Ok),
        (
            role("r".repeat(MAX_ROLE_NAME + 1), 0),
            Code::InvalidArgument,
        ),
        (role("r".into(), MAX_ROLE_CONFIG), Code::InvalidArgument),
        (role("r".into(), 8 << 20), Code::ResourceExhausted),
    ] {
        let mut client = fixture.client().await;
        client.send(update).await;
        let told = client.told().await;
        let found = told
            .as_ref()
            .map_or_else(|status| status.code(), Arbitration::code);
        assert_eq!(found, code, "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_streams_are_bounded_and_free_when_streams_end() {
    let fixture = start().await;
    let mut clients = Vec::new();
    for number in 0..MAX_ROLES {
        let mut client = fixture.client().await;
        client.send(role(format!("role {number}"), 0)).await;
        assert_eq!(client.told().await.unwrap().code(), Code::Ok);
        clients.push(client);
    }
    let mut more = fixture.client().await;
    more.send(role("more".into(), 0)).await;
    let refused = more.told().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("roles have open streams"),
        "{refused}"
    );
    while clients.len() < MAX_STREAMS {
        clients.push(fixture.client().await);
    }
    let mut one_more = clients[0].rpc.clone();
    let stream = one_more.stream_channel(tokio_stream::pending()).await;
    assert_eq!(
        stream.err().map(|status| status.code()),
        Some(Code::ResourceExhausted)
    );
    const { assert!(MAX_CONNECTIONS > MAX_STREAMS) };
    drop(clients);
    let deadline = std::time::Instant::now() + DEADLINE;
    loop {
        if one_more
            .stream_channel(tokio_stream::pending())
            .await
            .is_ok()
        {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "streams are not released"
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_error_does_not_carry_back_what_is_large() {
    let fixture = start().await;
    let mut client = fixture.client().await;
    client.arbitrate(None).await.unwrap();
    let packet = |length| PacketOut {
        payload: vec![0; length].into(),
        metadata: Vec::new(),
    };
    for (length, echoed) in [(100, true), (60_000, false)] {
        client.send(Request::Packet(packet(length))).await;
        let Response::Error(error) = client.next().await.unwrap() else {
            panic!("not a stream error");
        };
        let Some(stream_error::Details::PacketOut(details)) = error.details else {
            panic!("there are no details");
        };
        assert_eq!(details.packet_out.is_some(), echoed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_no_longer_than_a_stream_message() {
    let (_fixture, mut client) = start_loaded().await;
    let request = ReadRequest {
        device_id: DEVICE,
        role: "r".repeat(5 << 20),
        entities: Vec::new(),
    };
    let refused = client.rpc.read(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(
        refused.message().contains("the maximum for this method"),
        "{refused}"
    );
}

/// Returns the pipeline config with `exact_table` assigned to the role "acl".
fn annotated() -> ForwardingPipelineConfig {
    let mut config = pipeline_config();
    let tables = &mut config.p4info.as_mut().unwrap().tables;
    let preambles = tables
        .iter_mut()
        .filter_map(|table| table.preamble.as_mut());
    for preamble in preambles.filter(|preamble| preamble.alias == "exact_table") {
        preamble.annotations.push("@p4runtime_role(\"acl\")".into());
    }
    config
}

/// Tries to insert an entry into two tables, as a client of role `name`. The program assigns `exact_table` to the role
/// "acl", and `lpm_table` to no role. Returns the two codes.
async fn inserted_by(fixture: &Fixture, name: &str) -> (Code, Code) {
    let mut client = fixture.client().await;
    client.role = name.into();
    assert_eq!(client.arbitrate(1).await.unwrap().code(), Code::Ok);
    let of_acl = client.insert(exact_entry(1, 1)).await;
    let of_all = client.insert(lpm_entry(1 << 24, 8, forward_to(1))).await;
    client.delete(exact_entry(1, 1)).await;
    client.delete(lpm_entry(1 << 24, 8, None)).await;
    (of_acl, of_all)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_a_configuration_has_full_access_unless_annotations_are_enforced() {
    type Change = fn(sluice_p4runtime::Server) -> sluice_p4runtime::Server;
    let enforced: Change = sluice_p4runtime::Server::with_roles_by_annotation;
    for (change, of_others) in [
        ((|server| server) as Change, Code::Ok),
        (enforced, Code::PermissionDenied),
    ] {
        let fixture = start_at("127.0.0.1:0", change).await;
        let mut primary = fixture.primary().await;
        let config = Some(annotated());
        let action = set_forwarding_pipeline_config_request::Action::VerifyAndCommit;
        primary.set_pipeline(action, config).await.unwrap();
        assert_eq!(
            inserted_by(&fixture, "routing").await,
            (of_others, Code::Ok)
        );
        assert_eq!(inserted_by(&fixture, "acl").await, (Code::Ok, Code::Ok));
        assert_eq!(primary.insert(exact_entry(1, 1)).await, Code::Ok);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_more_than_four_megabytes_is_accepted() {
    let (_fixture, mut client) = start_loaded().await;
    let entry = |n: u128| TableEntry {
        metadata: vec![7; 1 << 20],
        ..exact_entry(n, 1)
    };
    let codes = client
        .write_codes((1..=6).map(|n| insert(entry(n))).collect())
        .await;
    assert_eq!(codes, [Code::Ok; 6]);
    let read = client.read_entries(all_of("exact_table")).await;
    assert_eq!(read.len(), 6);
    assert_eq!(read[0].metadata.len(), 1 << 20);
}
