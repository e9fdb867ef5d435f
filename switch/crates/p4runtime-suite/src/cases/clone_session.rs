// SPDX-License-Identifier: Apache-2.0
//! Tests clone sessions.

use super::prelude::*;

fn all() -> PacketReplicationEngineEntry {
    session(0, vec![], 0)
}

section! { "CloneSessionEntry";

async fn a_session_makes_a_clone_beside_the_packet(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(510, 3)], 0), OK).await?;
    let mut seen = c.walks(Walk::Clone, Frame::default()).await?;
    seen.sort_by_key(|seen| seen.is_clone);
    same(seen.iter().map(|seen| seen.is_clone).collect(), vec![false, true], "copies")?;
    same(seen[1].instance, 3, "the clone's instance")?;
}

async fn without_a_session_there_is_no_clone(t) {
    let mut c = t.primary().await?;
    let seen = c.walk(Walk::Clone, Frame::default()).await?;
    holds(!seen.is_clone, "the packet is a clone")?;
}

async fn a_deleted_session_clones_no_more(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(510, 3)], 0), OK).await?;
    c.delete(session(7, vec![], 0), OK).await?;
    c.walk(Walk::Clone, Frame::default()).await?;
}

async fn a_session_of_several_replicas_makes_several_clones(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(510, 3), replica(510, 4)], 0), OK).await?;
    same(c.walks(Walk::Clone, Frame::default()).await?.len(), 3, "packets")?;
}

async fn a_clone_is_cut_to_the_packet_length(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(510, 3)], 24), OK).await?;
    let seen = c.walks(Walk::Clone, Frame::default()).await?;
    let clone = seen.iter().find(|seen| seen.is_clone);
    let whole = Frame::default().bytes().len();
    let length = clone.map_or(0, |clone| clone.payload.len());
    holds(length > 0 && length < whole, format!("the clone has {length} of {whole} bytes"))?;
}

async fn a_session_id_of_zero_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(session(0, vec![replica(1, 1)], 0), INVALID).await?;
    c.delete(session(0, vec![], 0), INVALID).await?;
}

async fn a_session_that_exists_is_not_inserted(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(1, 1)], 0), OK).await?;
    c.insert(session(7, vec![replica(1, 2)], 0), EXISTS).await?;
}

async fn a_session_that_is_absent_is_not_modified_or_deleted(t) {
    let mut c = t.primary().await?;
    c.modify(session(7, vec![replica(1, 1)], 0), NOT_FOUND).await?;
    c.delete(session(7, vec![], 0), NOT_FOUND).await?;
}

async fn a_modified_session_reads_back(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(1, 1)], 0), OK).await?;
    c.modify(session(7, vec![replica(2, 5)], 100), OK).await?;
    c.reads_back(all(), session(7, vec![replica(2, 5)], 100)).await?;
}

async fn the_same_port_and_instance_twice_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(1, 1), replica(1, 1)], 0), INVALID).await?;
}

async fn an_instance_beyond_the_targets_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(1, 0x1_0000)], 0), INVALID).await?;
}

async fn a_negative_packet_length_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(1, 1)], -1), INVALID).await?;
}

async fn a_session_is_read_by_its_id_alone(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(1, 1)], 0), OK).await?;
    c.insert(session(8, vec![replica(2, 1)], 0), OK).await?;
    c.reads_back(session(8, vec![replica(9, 9)], 5), session(8, vec![replica(2, 1)], 0)).await?;
    same(c.read(all()).await?.len(), 2, "sessions")?;
}

async fn sessions_and_groups_have_ids_apart(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(1, 1)], 0), OK).await?;
    c.insert(multicast(7, vec![replica(1, 1)]), OK).await?;
    c.reads_back(all(), session(7, vec![replica(1, 1)], 0)).await?;
}

async fn an_entry_of_no_type_reads_groups_and_sessions(t) {
    let mut c = t.primary().await?;
    c.insert(session(7, vec![replica(1, 1)], 0), OK).await?;
    c.insert(multicast(7, vec![replica(1, 1)]), OK).await?;
    // The specification does not say whether the server must support such a read. If it does, the read returns
    // multicast groups and clone sessions.
    let wanted = PacketReplicationEngineEntry { r#type: None }.into_entity();
    let (read, status) = c.try_read(vec![wanted]).await;
    holds(status.is_err() || read.len() == 2, format!("{read:?}"))?;
}

}
