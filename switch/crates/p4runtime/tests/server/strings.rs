// SPDX-License-Identifier: Apache-2.0
//! Tests "User-defined types" and "Translation of Port Numbers": types that clients see as strings or in another width.
//! The tests cover every entity, packet-ins and packet-outs.

use std::sync::OnceLock;

use sluice_p4runtime::p4info;
use sluice_p4runtime::proto::config::v1::P4Info;
use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action as PipelineAction;
use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

const JSON: &[u8] = include_bytes!("programs/translated.json");
const P4INFO: &str = include_str!("programs/translated.p4info.txtpb");

const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 5];

fn translated() -> P4Info {
    static PARSED: OnceLock<P4Info> = OnceLock::new();
    PARSED
        .get_or_init(|| p4info::from_text(P4INFO).unwrap())
        .clone()
}

/// Returns the P4Info id of the object with this alias.
fn id(alias: &str) -> u32 {
    let info = translated();
    let tables = info.tables.iter().map(|o| &o.preamble);
    let mut preambles = tables
        .chain(info.actions.iter().map(|o| &o.preamble))
        .chain(info.registers.iter().map(|o| &o.preamble))
        .chain(info.digests.iter().map(|o| &o.preamble))
        .flatten();
    preambles.find(|p| p.alias == alias).unwrap().id
}

fn config() -> ForwardingPipelineConfig {
    ForwardingPipelineConfig {
        p4info: Some(translated()),
        p4_device_config: JSON.into(),
        cookie: None,
    }
}

async fn start_translated() -> (Fixture, Client) {
    let fixture = start().await;
    let mut primary = fixture.primary().await;
    let loaded = primary.set_pipeline(PipelineAction::VerifyAndCommit, Some(config()));
    loaded.await.unwrap();
    (fixture, primary)
}

fn act(name: &str, params: &[&str]) -> Option<TableAction> {
    let param = |(index, value): (usize, &&str)| action::Param {
        param_id: index as u32 + 1,
        value: value.as_bytes().to_vec(),
    };
    let action = Action {
        action_id: id(name),
        params: params.iter().enumerate().map(param).collect(),
    };
    Some(TableAction {
        r#type: Some(table_action::Type::Action(action)),
    })
}

fn by_name(name: &str, action: Option<TableAction>) -> TableEntry {
    TableEntry {
        table_id: id("by_name"),
        r#match: vec![exact_bytes(1, name.as_bytes())],
        action,
        ..TableEntry::default()
    }
}

/// Returns an entry of `by_port` that matches a ternary port and, if given, an optional name.
fn by_port(port: (&str, &[u8]), name: Option<&str>) -> TableEntry {
    let mut matches = vec![FieldMatch {
        field_id: 1,
        field_match_type: Some(field_match::FieldMatchType::Ternary(field_match::Ternary {
            value: port.0.as_bytes().to_vec(),
            mask: port.1.to_vec(),
        })),
    }];
    matches.extend(name.map(|name| {
        let value = name.as_bytes().to_vec();
        let optional = field_match::Optional { value };
        FieldMatch {
            field_id: 2,
            field_match_type: Some(field_match::FieldMatchType::Optional(optional)),
        }
    }));
    TableEntry {
        table_id: id("by_port"),
        r#match: matches,
        action: act("forward", &["6"]),
        priority: 1,
        ..TableEntry::default()
    }
}

/// Returns a default entry of `by_name`.
fn otherwise(action: Option<TableAction>) -> TableEntry {
    TableEntry {
        table_id: id("by_name"),
        action,
        is_default_action: true,
        ..TableEntry::default()
    }
}

fn metadata(values: &[&[u8]]) -> Vec<PacketMetadata> {
    let one = |(index, value): (usize, &&[u8])| PacketMetadata {
        metadata_id: index as u32 + 1,
        value: value.to_vec(),
    };
    values.iter().enumerate().map(one).collect()
}

fn frame_from(source: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9];
    frame.extend_from_slice(&source);
    frame.extend_from_slice(&[0x12, 0x34]);
    frame.extend_from_slice(&[0x55; 46]);
    frame
}

/// Sends a frame to port 3. Returns the packet-in that the action `punt` makes of it.
async fn packet_in(fixture: &Fixture, client: &mut Client) -> PacketIn {
    assert!(fixture.wires[3].send(&frame_from(SOURCE)));
    match client.next().await.unwrap() {
        Response::Packet(packet) => packet,
        other => panic!("{other:?}"),
    }
}

fn punt(name: &str, wide: &[u8]) -> Option<TableAction> {
    let mut action = act("punt", &[name, ""]);
    if let Some(table_action::Type::Action(action)) = action.as_mut().unwrap().r#type.as_mut() {
        action.params[1].value = wide.to_vec();
    }
    action
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_in_has_the_strings_that_were_written() {
    let (fixture, mut client) = start_translated().await;
    for name in ["gold", "", "uplink Zürich", "17"] {
        let entry = otherwise(punt(name, &[0xa, 0xbc]));
        assert_eq!(client.modify(entry).await, Code::Ok);
        let packet = packet_in(&fixture, &mut client).await;
        let expected: [&[u8]; 5] = [b"3", &[0], name.as_bytes(), &[0xa, 0xbc], &[0]];
        assert_eq!(packet.metadata, metadata(&expected));
        assert_eq!(packet.payload, frame_from(SOURCE));
    }
    // The type has 32 bits for clients, but 12 bits in packets.
    let too_wide = otherwise(punt("gold", &[0x1a, 0xbc]));
    assert_eq!(client.modify(too_wide).await, Code::OutOfRange);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_out_is_sent_by_a_port_that_is_a_string() {
    let (fixture, mut client) = start_translated().await;
    let send = |port: &str, name: &str| {
        Request::Packet(PacketOut {
            payload: frame_from(SOURCE).into(),
            metadata: metadata(&[&[0], port.as_bytes(), name.as_bytes()]),
        })
    };
    for (name, source) in [("gold", 7u8), ("", 0), ("9", 9)] {
        client.send(send("6", name)).await;
        let sent = tokio::task::block_in_place(|| fixture.wires[6].receive(DEADLINE));
        assert_eq!(sent.unwrap(), frame_from([0, 0, 0, 0, 0, source]));
    }
    for (port, name) in [
        ("512", "9"),
        ("eth0", "9"),
        ("6", "nobody has written this"),
    ] {
        client.send(send(port, name)).await;
        let Response::Error(error) = client.next().await.unwrap() else {
            panic!("there is no error")
        };
        assert_eq!(Code::from(error.canonical_code), Code::InvalidArgument);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_match_and_read_back_strings() {
    let (fixture, mut client) = start_translated().await;
    let number = SOURCE
        .iter()
        .fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    let entry = by_name(&number.to_string(), act("forward", &["4"]));
    assert_eq!(client.insert(entry.clone()).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame_from(SOURCE)), [4]);
    assert_eq!(fixture.forward(0, &frame_from([2; 6])), NOWHERE);
    let gold = by_name("gold", act("forward", &["5"]));
    assert_eq!(client.insert(gold.clone()).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame_from([0, 0, 0, 0, 0, 7])), [5]);
    let word = by_name("a word", act("forward", &["6"]));
    assert_eq!(client.insert(word.clone()).await, Code::Ok);
    let all = TableEntry {
        table_id: id("by_name"),
        ..TableEntry::default()
    };
    let read = client.read_entries(all).await;
    assert_eq!(read.len(), 3);
    for entry in [&entry, &gold, &word] {
        assert!(read.contains(entry), "{entry:?} is not in {read:?}");
        let filter = TableEntry {
            action: None,
            ..entry.clone()
        };
        assert_eq!(
            client.read_entries(filter).await,
            std::slice::from_ref(entry)
        );
    }
    let unknown = by_name("no entry has this", None);
    assert_eq!(client.read_entries(unknown).await, []);
    assert_eq!(client.delete(word).await, Code::Ok);
    assert_eq!(client.insert(gold).await, Code::AlreadyExists);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_string_is_matched_as_a_whole_or_not_at_all() {
    let (fixture, mut client) = start_translated().await;
    assert_eq!(client.modify(otherwise(act("learn", &[]))).await, Code::Ok);
    let whole = by_port(("2", &[1, 0xff]), Some("gold"));
    assert_eq!(client.insert(whole.clone()).await, Code::Ok);
    let part = by_port(("2", &[0xff]), None);
    assert_eq!(client.insert(part).await, Code::InvalidArgument);
    let source = [0, 0, 0, 0, 0, 7];
    assert_eq!(fixture.forward(2, &frame_from(source)), [6]);
    assert_eq!(fixture.forward(1, &frame_from(source)), [0]);
    assert_eq!(fixture.forward(2, &frame_from(SOURCE)), [0]);
    let all = TableEntry {
        table_id: id("by_port"),
        ..TableEntry::default()
    };
    assert_eq!(client.read_entries(all).await, [whole]);
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_and_registers_hold_strings() {
    let (fixture, mut client) = start_translated().await;
    let digest = DigestEntry {
        digest_id: id("learned_t"),
        config: Some(digest_entry::Config {
            max_timeout_ns: 0,
            max_list_size: 1,
            ack_timeout_ns: 0,
        }),
    };
    assert_eq!(client.insert(digest).await, Code::Ok);
    assert_eq!(client.modify(otherwise(act("learn", &[]))).await, Code::Ok);
    fixture.forward(3, &frame_from([0, 0, 0, 0, 0, 7]));
    let Response::Digest(list) = client.next().await.unwrap() else {
        panic!("there is no digest")
    };
    let bits = |value: &[u8]| P4Data {
        data: Some(p4_data::Data::Bitstring(value.to_vec())),
    };
    let members = vec![bits(b"gold"), bits(b"3"), bits(&[0])];
    let expected = P4Data {
        data: Some(p4_data::Data::Struct(P4StructLike { members })),
    };
    assert_eq!(list.data, [expected]);

    let cell = |index, value: Option<&[u8]>| RegisterEntry {
        register_id: id("seen"),
        index: Some(Index { index }),
        data: value.map(bits),
    };
    let gold = cell(0, Some(b"gold"));
    let read = client.read(cell(0, None)).await;
    assert_eq!(read, [entity::Entity::RegisterEntry(gold)]);
    let word = cell(1, Some(b"a word"));
    assert_eq!(client.modify(word.clone()).await, Code::Ok);
    let read = client.read(cell(1, None)).await;
    assert_eq!(read, [entity::Entity::RegisterEntry(word)]);
}

/// Removes the type of ports from all parameters or from all match fields, and removes the packet headers.
fn untyped(info: &mut P4Info, parameters: bool) {
    if parameters {
        let params = info
            .actions
            .iter_mut()
            .flat_map(|action| &mut action.params);
        for param in params.filter(|param| param.name == "port") {
            (param.type_name, param.bitwidth) = (None, 9);
        }
    } else {
        let fields = info
            .tables
            .iter_mut()
            .flat_map(|table| &mut table.match_fields);
        for field in fields.filter(|field| field.name == "port") {
            (field.type_name, field.bitwidth) = (None, 9);
        }
    }
    info.controller_packet_metadata.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_have_the_type_of_a_key_or_a_parameter_that_is_a_port() {
    for parameters in [true, false] {
        let fixture = start().await;
        let mut client = fixture.primary().await;
        let mut config = config();
        untyped(config.p4info.as_mut().unwrap(), parameters);
        let loaded = client.set_pipeline(PipelineAction::VerifyAndCommit, Some(config));
        loaded.await.unwrap();
        let replica = Replica {
            port_kind: Some(replica::PortKind::Port(b"4".to_vec())),
            instance: 1,
            backup_replicas: vec![],
        };
        let group = MulticastGroupEntry {
            multicast_group_id: 1,
            replicas: vec![replica],
            metadata: vec![],
        };
        let group = packet_replication_engine_entry::Type::MulticastGroupEntry(group);
        let entry = PacketReplicationEngineEntry {
            r#type: Some(group),
        };
        assert_eq!(client.insert(entry.clone()).await, Code::Ok);
        let store = fixture.device.store().unwrap();
        let groups = tokio::task::block_in_place(|| store.view().multicast_groups());
        assert_eq!(groups[0].1.replicas[0].port, 4);
        let read = client.read(entry.clone()).await;
        assert_eq!(read, [entity::Entity::PacketReplicationEngineEntry(entry)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strings_survive_a_pipeline_that_is_reconciled() {
    let (_fixture, mut client) = start_translated().await;
    let words = ["one", "two", "three"].map(|word| by_name(word, act("forward", &["1"])));
    for entry in &words {
        assert_eq!(client.insert(entry.clone()).await, Code::Ok);
    }
    let again = client.set_pipeline(PipelineAction::ReconcileAndCommit, Some(config()));
    again.await.unwrap();
    for entry in words {
        let filter = TableEntry {
            action: None,
            ..entry.clone()
        };
        assert_eq!(client.read_entries(filter).await, [entry]);
    }
}
