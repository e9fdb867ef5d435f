// SPDX-License-Identifier: Apache-2.0
//! Tests multicast groups, with backup replicas.

use super::prelude::*;

fn all() -> PacketReplicationEngineEntry {
    multicast(0, vec![])
}

section! { "MulticastGroupEntry";

async fn a_group_makes_a_copy_for_each_replica(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![replica(510, 1), replica(510, 2), replica(510, 3)]), OK).await?;
    let seen = c.walks(Walk::Multicast, Frame { index: 5, ..Frame::default() }).await?;
    let mut instances: Vec<_> = seen.iter().map(|seen| seen.instance).collect();
    instances.sort_unstable();
    same(instances, vec![1, 2, 3], "instances")?;
}

async fn a_modified_group_is_seen_by_packets(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![replica(510, 1), replica(510, 2)]), OK).await?;
    c.modify(multicast(5, vec![replica(510, 9)]), OK).await?;
    let seen = c.walk(Walk::Multicast, Frame { index: 5, ..Frame::default() }).await?;
    same(seen.instance, 9, "the instance")?;
}

async fn a_deleted_group_drops_packets(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![replica(510, 1)]), OK).await?;
    c.delete(multicast(5, vec![]), OK).await?;
    same(c.walks(Walk::Multicast, Frame { index: 5, ..Frame::default() }).await?, vec![], "copies")?;
}

async fn a_group_that_is_not_there_drops_packets(t) {
    let mut c = t.primary().await?;
    same(c.walks(Walk::Multicast, Frame { index: 6, ..Frame::default() }).await?, vec![], "copies")?;
}

async fn a_group_id_of_zero_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(0, vec![replica(1, 1)]), INVALID).await?;
}

async fn a_group_that_exists_is_not_inserted(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![replica(1, 1)]), OK).await?;
    c.insert(multicast(5, vec![replica(1, 2)]), EXISTS).await?;
    c.reads_back(all(), multicast(5, vec![replica(1, 1)])).await?;
}

async fn a_group_that_is_absent_is_not_modified_or_deleted(t) {
    let mut c = t.primary().await?;
    c.modify(multicast(5, vec![replica(1, 1)]), NOT_FOUND).await?;
    c.delete(multicast(5, vec![]), NOT_FOUND).await?;
}

async fn the_same_port_and_instance_twice_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![replica(1, 1), replica(1, 1)]), INVALID).await?;
    c.insert(multicast(5, vec![replica(1, 1), replica(1, 2), replica(2, 1)]), OK).await?;
}

async fn an_instance_beyond_the_targets_is_invalid(t) {
    let mut c = t.primary().await?;
    // An instance must fit in the metadata field `egress_rid`, which has 16
    // bits.
    c.insert(multicast(5, vec![replica(1, 0x1_0000)]), INVALID).await?;
    c.insert(multicast(5, vec![replica(1, 0xffff), replica(2, 0)]), OK).await?;
}

async fn a_group_may_be_empty(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![]), OK).await?;
    c.reads_back(all(), multicast(5, vec![])).await?;
}

async fn a_replica_without_port_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![Replica { port_kind: None, ..replica(1, 1) }]), INVALID).await?;
}

async fn a_replica_by_the_deprecated_field_is_taken(t) {
    let mut c = t.primary().await?;
    let old = Replica { port_kind: Some(replica::PortKind::EgressPort(510)), ..replica(1, 3) };
    c.insert(multicast(5, vec![old]), OK).await?;
    same(c.walk(Walk::Multicast, Frame { index: 5, ..Frame::default() }).await?.instance, 3, "the instance")?;
}

async fn modify_replaces_the_metadata(t) {
    let mut c = t.primary().await?;
    c.insert(multicast_with(5, vec![replica(1, 1)], b"one"), OK).await?;
    c.modify(multicast_with(5, vec![replica(1, 1)], b"two"), OK).await?;
    c.reads_back(all(), multicast_with(5, vec![replica(1, 1)], b"two")).await?;
}

async fn delete_looks_at_the_id_alone(t) {
    let mut c = t.primary().await?;
    c.insert(multicast_with(5, vec![replica(1, 1)], b"one"), OK).await?;
    c.delete(multicast_with(5, vec![replica(9, 9)], b"two"), OK).await?;
}

async fn a_group_is_read_by_its_id_alone(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![replica(1, 1)]), OK).await?;
    c.insert(multicast(6, vec![replica(2, 1)]), OK).await?;
    c.reads_back(multicast_with(6, vec![replica(9, 9)], b"x"), multicast(6, vec![replica(2, 1)])).await?;
}

async fn group_id_zero_reads_all_groups(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![replica(1, 1)]), OK).await?;
    c.insert(multicast(6, vec![replica(2, 1)]), OK).await?;
    same(c.read(all()).await?.len(), 2, "groups")?;
}

async fn an_entry_of_no_type_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(PacketReplicationEngineEntry { r#type: None }, INVALID).await?;
}

async fn backup_replicas_read_back_in_order(t) {
    let mut c = t.primary().await?;
    let written = multicast(5, vec![backed(1, 1, &[(4, 2), (3, 1), (2, 1)]), backed(6, 1, &[(7, 1)])]);
    c.insert(written.clone(), Optional(OK)).await?;
    c.reads_back(all(), written).await?;
}

async fn a_replica_whose_port_is_up_is_used_before_its_backup(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![backed(510, 1, &[(9, 2)])]), Optional(OK)).await?;
    let seen = c.walk(Walk::Multicast, Frame { index: 5, ..Frame::default() }).await?;
    same(seen.instance, 1, "the instance")?;
}

async fn a_backup_on_its_replicas_port_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![backed(1, 1, &[(1, 2)])]), Optional(INVALID)).await?;
}

async fn a_backup_that_is_a_replica_of_the_group_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(multicast(5, vec![backed(1, 1, &[(2, 1)]), replica(2, 1)]), Optional(INVALID)).await?;
    c.insert(multicast(5, vec![backed(1, 1, &[(3, 1)]), backed(2, 1, &[(3, 1)])]), Optional(INVALID)).await?;
}

}
