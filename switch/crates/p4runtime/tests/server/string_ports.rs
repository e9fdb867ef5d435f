// SPDX-License-Identifier: Apache-2.0
//! Tests "Translation of Port Numbers" for the ports of replicas and watch ports. If the program's type of ports is a
//! string for clients, these ports are strings too.

use sluice_p4runtime::proto::config::v1::p4_new_type_spec::Representation;
use sluice_p4runtime::proto::config::v1::p4_new_type_translation::{SdnString, SdnType};
use sluice_p4runtime::proto::config::v1::{
    P4Info, P4NamedType, P4NewTypeSpec, P4NewTypeTranslation,
};
use sluice_p4runtime::proto::v1::action_profile_action::WatchKind as OneShotWatch;
use sluice_p4runtime::proto::v1::action_profile_group::{Member, member::WatchKind};
use sluice_p4runtime::proto::v1::set_forwarding_pipeline_config_request::Action as PipelineAction;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

/// The part of P4Info that declares ports as strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    ByParameters,
    ByPacketIn,
}

/// Returns the P4Info of `surface.p4` with ports of a string type, in which "uplink" is port 6.
fn with_strings(said: Said) -> P4Info {
    let mut info = p4info();
    let translated = P4NewTypeTranslation {
        uri: "sluice.test/port".into(),
        sdn_type: Some(SdnType::SdnString(SdnString {})),
    };
    let port = P4NewTypeSpec {
        representation: Some(Representation::TranslatedType(translated)),
        annotations: vec![r#"@p4runtime_translation_mappings({ { "uplink" , 6 } })"#.into()],
        ..P4NewTypeSpec::default()
    };
    let types = info.type_info.get_or_insert_default();
    types.new_types.insert("port_t".into(), port);
    let named = Some(P4NamedType {
        name: "port_t".into(),
    });
    match said {
        Said::ByParameters => {
            let params = info
                .actions
                .iter_mut()
                .flat_map(|action| &mut action.params);
            for param in params.filter(|param| param.name == "port") {
                param.bitwidth = 0;
                param.type_name = named.clone();
            }
        }
        Said::ByPacketIn => {
            let headers = info.controller_packet_metadata.iter_mut();
            let mut fields = headers.flat_map(|header| &mut header.metadata);
            let field = fields.find(|field| field.name == "ingress_port").unwrap();
            field.bitwidth = 0;
            field.type_name = named;
        }
    }
    info
}

async fn start_with_strings(said: Said) -> (Fixture, Client) {
    let fixture = start().await;
    let mut primary = fixture.primary().await;
    let config = config_with_strings(said);
    let loaded = primary.set_pipeline(PipelineAction::VerifyAndCommit, Some(config));
    loaded.await.unwrap();
    (fixture, primary)
}

fn config_with_strings(said: Said) -> ForwardingPipelineConfig {
    ForwardingPipelineConfig {
        p4info: Some(with_strings(said)),
        ..pipeline_config()
    }
}

fn named_replica(port: &str, backups: &[&str]) -> Replica {
    let backup = |port: &&str| BackupReplica {
        port: port.as_bytes().to_vec(),
        instance: 1,
    };
    Replica {
        port_kind: Some(replica::PortKind::Port(port.as_bytes().to_vec())),
        instance: 1,
        backup_replicas: backups.iter().map(backup).collect(),
    }
}

fn forward(port: &str) -> Action {
    call("forward", &[port.as_bytes()])
}

fn watching(ports: &[(u32, &str)]) -> ActionProfileGroup {
    let member = |(member_id, watch): &(u32, &str)| Member {
        member_id: *member_id,
        weight: 1,
        watch_kind: Some(WatchKind::WatchPort(watch.as_bytes().to_vec())),
    };
    ActionProfileGroup {
        action_profile_id: id("paths"),
        group_id: 1,
        members: ports.iter().map(member).collect(),
        max_size: 8,
    }
}

fn one_shot(actions: &[(&str, &str)]) -> table_action::Type {
    let action = |(port, watch): &(&str, &str)| ActionProfileAction {
        action: Some(forward(port)),
        weight: 1,
        watch_kind: Some(OneShotWatch::WatchPort(watch.as_bytes().to_vec())),
    };
    table_action::Type::ActionProfileActionSet(ActionProfileActionSet {
        action_profile_actions: actions.iter().map(action).collect(),
        ..ActionProfileActionSet::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_go_to_ports_that_are_strings_and_read_back_so() {
    for said in [Said::ByParameters, Said::ByPacketIn] {
        let (fixture, mut client) = start_with_strings(said).await;
        let to_group = lpm_entry(0, 0, direct("multicast", &[&[9]]));
        assert_eq!(client.insert(to_group).await, Code::Ok);
        let group = multicast(
            9,
            vec![
                named_replica("uplink", &["2", "3"]),
                named_replica("1", &[]),
            ],
        );
        assert_eq!(client.insert(group.clone()).await, Code::Ok, "{said:?}");
        let packet = frame([0, 0, 0, 1], 0);
        assert_eq!(fixture.forward(0, &packet), [1, 6]);
        fixture.device.set_port_status(6, false);
        assert_eq!(fixture.forward(0, &packet), [1, 2]);
        let read = client.read(group.clone()).await;
        assert_eq!(read, [entity::Entity::PacketReplicationEngineEntry(group)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clones_go_to_ports_that_are_strings_and_read_back_so() {
    let (fixture, mut client) = start_with_strings(Said::ByParameters).await;
    let to_session = lpm_entry(0, 0, direct("mirror", &[b"1"]));
    assert_eq!(client.insert(to_session).await, Code::Ok);
    let clones = session(7, vec![named_replica("uplink", &[])], 0);
    assert_eq!(client.insert(clones.clone()).await, Code::Ok);
    assert_eq!(fixture.forward(0, &frame([0, 0, 0, 1], 0)), [1, 6]);
    let again = client.set_pipeline(
        PipelineAction::ReconcileAndCommit,
        Some(config_with_strings(Said::ByParameters)),
    );
    again.await.unwrap();
    let read = client.read(clones.clone()).await;
    assert_eq!(read, [entity::Entity::PacketReplicationEngineEntry(clones)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_watch_ports_that_are_strings_and_read_back_so() {
    let (fixture, mut client) = start_with_strings(Said::ByParameters).await;
    for (member_id, port) in [(1, "1"), (2, "2")] {
        let member = ActionProfileMember {
            action_profile_id: id("paths"),
            member_id,
            action: Some(forward(port)),
        };
        assert_eq!(client.insert(member).await, Code::Ok);
    }
    let group = watching(&[(1, "uplink"), (2, "7")]);
    assert_eq!(client.insert(group.clone()).await, Code::Ok);
    let by_group = selector_entry(table_action::Type::ActionProfileGroupId(1));
    assert_eq!(client.insert(by_group).await, Code::Ok);
    one_path_is_left(&fixture, [(6, 2), (7, 1)]);
    let read = client.read(ActionProfileGroup::default()).await;
    assert_eq!(read, [entity::Entity::ActionProfileGroup(group)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_shot_actions_watch_ports_that_are_strings_and_read_back_so() {
    let (fixture, mut client) = start_with_strings(Said::ByParameters).await;
    let set = selector_entry(one_shot(&[("3", "uplink"), ("4", "7")]));
    assert_eq!(client.insert(set.clone()).await, Code::Ok);
    one_path_is_left(&fixture, [(6, 4), (7, 3)]);
    let filter = TableEntry {
        action: None,
        ..set.clone()
    };
    assert_eq!(client.read_entries(filter).await, [set]);
}

/// For each pair of ports, checks that packets leave by the second port while the first one is down.
fn one_path_is_left(fixture: &Fixture, pairs: [(u16, usize); 2]) {
    for (down, left) in pairs {
        fixture.device.set_port_status(down, false);
        let packet = frame([9, 9, 9, 9], 1);
        assert_eq!(fixture.forward(0, &packet), [left], "port {down} is down");
        fixture.device.set_port_status(down, true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_string_that_is_no_port_is_refused() {
    let (_fixture, mut client) = start_with_strings(Said::ByParameters).await;
    for (port, code) in [
        ("eth0", Code::InvalidArgument),
        ("", Code::InvalidArgument),
        ("\u{1}", Code::InvalidArgument),
        ("01", Code::InvalidArgument),
        // Port 6 has the string "uplink", so "6" is invalid.
        ("6", Code::InvalidArgument),
        ("512", Code::OutOfRange),
    ] {
        let group = multicast(9, vec![named_replica(port, &[])]);
        assert_eq!(client.insert(group).await, code, "{port:?}");
        let backed = multicast(9, vec![named_replica("1", &[port])]);
        assert_eq!(client.insert(backed).await, code, "{port:?}");
        let clones = session(7, vec![named_replica(port, &[])], 0);
        assert_eq!(client.insert(clones).await, code, "{port:?}");
        if !port.is_empty() {
            let set = selector_entry(one_shot(&[("3", port)]));
            assert_eq!(client.insert(set).await, code, "{port:?}");
        }
    }
    let absent = selector_entry(one_shot(&[("3", "8")]));
    assert_eq!(client.insert(absent).await, Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_stay_numbers_where_the_type_of_ports_has_no_strings() {
    let (_fixture, mut client) = start_loaded().await;
    let group = multicast(9, vec![named_replica("1", &[])]);
    assert_eq!(client.insert(group).await, Code::Ok);
    let read = client.read(multicast(9, vec![])).await;
    let Some(entity::Entity::PacketReplicationEngineEntry(entry)) = read.first() else {
        panic!("{read:?}")
    };
    // The string "1" is the single byte 0x31, not the number 1.
    assert_eq!(entry, &multicast(9, vec![named_replica("1", &[])]));
    let two_bytes = multicast(9, vec![named_replica("\0\u{1}", &[])]);
    assert_eq!(client.modify(two_bytes).await, Code::Ok);
    let shortest = multicast(9, vec![named_replica("\u{1}", &[])]);
    let read = client.read(multicast(9, vec![])).await;
    assert_eq!(
        read,
        [entity::Entity::PacketReplicationEngineEntry(shortest)]
    );
}
