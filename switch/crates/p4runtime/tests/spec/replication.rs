// SPDX-License-Identifier: Apache-2.0
//! "PacketReplicationEngineEntry": multicast groups and clone sessions.

use sluice_p4runtime::proto::v1::packet_replication_engine_entry::Type;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use crate::support::*;

fn replica(port: u8, instance: u32) -> Replica {
    let port_kind = Some(replica::PortKind::Port(vec![port]));
    Replica {
        port_kind,
        instance,
        backup_replicas: vec![],
    }
}

fn group(id: u32, replicas: Vec<Replica>) -> PacketReplicationEngineEntry {
    let group = MulticastGroupEntry {
        multicast_group_id: id,
        replicas,
        metadata: vec![],
    };
    PacketReplicationEngineEntry {
        r#type: Some(Type::MulticastGroupEntry(group)),
    }
}

fn session(
    id: u32,
    replicas: Vec<Replica>,
    packet_length_bytes: i32,
) -> PacketReplicationEngineEntry {
    let session = CloneSessionEntry {
        session_id: id,
        replicas,
        class_of_service: 0,
        packet_length_bytes,
    };
    PacketReplicationEngineEntry {
        r#type: Some(Type::CloneSessionEntry(session)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multicast_group_replicates_to_its_ports() {
    let (fixture, mut client) = start_loaded().await;
    client
        .insert(lpm_entry(&[], 0, direct("multicast", &[&[9]])))
        .await;
    let packet = frame([0, 0, 0, 1], 0);
    assert_eq!(
        fixture.forward(0, &packet),
        NOWHERE,
        "a group that is not programmed drops"
    );
    assert_eq!(
        client
            .insert(group(9, vec![replica(1, 1), replica(2, 0)]))
            .await,
        Code::Ok
    );
    assert_eq!(fixture.forward(0, &packet), [1, 2]);
    assert_eq!(
        client
            .modify(group(9, vec![replica(3, 1), replica(3, 2)]))
            .await,
        Code::Ok
    );
    assert_eq!(fixture.forward(0, &packet), [3, 3]);
    assert_eq!(client.delete(group(9, vec![])).await, Code::Ok);
    assert_eq!(fixture.forward(0, &packet), NOWHERE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_session_copies_and_truncates() {
    let (fixture, mut client) = start_loaded().await;
    client
        .insert(lpm_entry(&[], 0, direct("mirror", &[&[1]])))
        .await;
    let packet = frame([0, 0, 0, 1], 0);
    assert_eq!(
        fixture.forward(0, &packet),
        [1],
        "a session that is not programmed clones nothing"
    );
    assert_eq!(
        client.insert(session(7, vec![replica(4, 1)], 20)).await,
        Code::Ok
    );
    assert!(fixture.wires[0].send(&packet));
    assert_eq!(fixture.wires[1].receive(DEADLINE).unwrap(), packet);
    assert_eq!(fixture.wires[4].receive(DEADLINE).unwrap().len(), 20);
    assert_eq!(client.delete(session(7, vec![], 0)).await, Code::Ok);
    assert_eq!(fixture.forward(0, &packet), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn replication_entries_must_be_well_formed() {
    let (_fixture, mut client) = start_loaded().await;
    let portless = Replica {
        port_kind: None,
        ..replica(1, 1)
    };
    for (entry, code) in [
        (group(0, vec![]), Code::InvalidArgument),
        (session(0, vec![], 0), Code::InvalidArgument),
        (
            group(1, vec![replica(1, 1), replica(1, 1)]),
            Code::InvalidArgument,
        ),
        (group(1, vec![replica(1, 65536)]), Code::InvalidArgument),
        (group(1, vec![portless]), Code::InvalidArgument),
        (
            group(1, vec![backed(replica(1, 1), &[(1, 2)])]),
            Code::InvalidArgument,
        ),
        (
            group(1, vec![backed(replica(1, 1), &[(2, 1)]), replica(2, 1)]),
            Code::InvalidArgument,
        ),
        (session(1, vec![], -1), Code::InvalidArgument),
        (
            PacketReplicationEngineEntry { r#type: None },
            Code::InvalidArgument,
        ),
    ] {
        let told = format!("{entry:?}");
        assert_eq!(client.insert(entry).await, code, "{told}");
    }
    assert_eq!(client.modify(group(1, vec![])).await, Code::NotFound);
    assert_eq!(client.delete(session(1, vec![], 0)).await, Code::NotFound);
    assert_eq!(client.insert(group(1, vec![])).await, Code::Ok);
    assert_eq!(client.insert(group(1, vec![])).await, Code::AlreadyExists);
}

fn backed(replica: Replica, backups: &[(u8, u32)]) -> Replica {
    let backup = |&(port, instance): &(u8, u32)| BackupReplica {
        port: vec![port],
        instance,
    };
    Replica {
        backup_replicas: backups.iter().map(backup).collect(),
        ..replica
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_replicas_stand_in_while_ports_are_down() {
    let (fixture, mut client) = start_loaded().await;
    let multicast = lpm_entry(&[0], 0, direct("multicast", &[&[9]]));
    assert_eq!(client.insert(multicast).await, Code::Ok);
    let replicas = vec![
        backed(replica(1, 1), &[(2, 1), (3, 1)]),
        backed(replica(4, 1), &[(5, 1)]),
    ];
    let mut entry = group(9, replicas);
    if let Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)) =
        &mut entry.r#type
    {
        group.metadata = b"opaque".to_vec();
    }
    assert_eq!(client.insert(entry.clone()).await, Code::Ok);
    let read = client.read(entry.clone()).await;
    assert_eq!(read, [entity::Entity::PacketReplicationEngineEntry(entry)]);
    let packet = frame([0, 0, 0, 1], 0);
    assert_eq!(fixture.forward(0, &packet), [1, 4]);
    for (port, up, expected) in [
        (1, false, [2, 4]),
        (2, false, [3, 4]),
        (4, false, [3, 5]),
        (2, true, [2, 5]),
        (1, true, [1, 5]),
    ] {
        fixture.device.set_port_status(port, up);
        assert_eq!(fixture.forward(0, &packet), expected, "port {port}: {up}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_by_its_deprecated_field_reads_back_by_the_new_one() {
    let (_fixture, mut client) = start_loaded().await;
    #[allow(deprecated)]
    let old = Replica {
        port_kind: Some(replica::PortKind::EgressPort(4)),
        ..replica(0, 1)
    };
    client.insert(group(1, vec![old])).await;
    let all = client
        .read(PacketReplicationEngineEntry { r#type: None })
        .await;
    let expected = group(1, vec![replica(4, 1)]);
    assert_eq!(
        all,
        [entity::Entity::PacketReplicationEngineEntry(expected)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_by_id_and_by_wildcard() {
    let (_fixture, mut client) = start_loaded().await;
    client.insert(group(1, vec![replica(1, 1)])).await;
    client.insert(group(2, vec![replica(2, 1)])).await;
    client.insert(session(3, vec![replica(3, 1)], 0)).await;
    let read = client.read(group(2, vec![])).await;
    let expected = group(2, vec![replica(2, 1)]);
    assert_eq!(
        read,
        [entity::Entity::PacketReplicationEngineEntry(expected)]
    );
    assert_eq!(client.read(group(0, vec![])).await.len(), 2);
    assert_eq!(client.read(session(0, vec![], 0)).await.len(), 1);
    assert_eq!(client.read(session(4, vec![], 0)).await, []);
}
