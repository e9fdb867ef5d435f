// SPDX-License-Identifier: Apache-2.0
//! Tests the Read RPC as a whole: batches, wildcards and errors.

use super::prelude::*;

section! { "Read RPC";

async fn it_needs_neither_stream_nor_election_id(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    let request = ReadRequest {
        device_id: t.device_id(),
        entities: vec![all_of("exact_table").into_entity()],
        ..Default::default()
    };
    let mut stream = t.rpc().await?.read(request).await?.into_inner();
    let response = stream.message().await?.unwrap_or_default();
    same(response.entities.len(), 1, "entities")?;
}

async fn a_backup_may_read(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    let mut backup = t.client().await?;
    backup.is_told(1, EXISTS).await?;
    same(backup.entries(all_of("exact_table")).await?.len(), 1, "entries")?;
}

async fn an_unknown_device_is_not_found(t) {
    let mut c = t.primary().await?;
    c.device_id += 1;
    let (_, status) = c.try_read(vec![all_of("exact_table").into_entity()]).await;
    same(status.err().map(|status| status.code()), Some(NOT_FOUND), "the status")?;
}

async fn an_empty_request_reads_nothing(t) {
    let mut c = t.primary().await?;
    let (read, status) = c.try_read(vec![]).await;
    holds(status.is_ok() && read.is_empty(), format!("{read:?}, {status:?}"))?;
}

async fn an_empty_entity_is_invalid(t) {
    let mut c = t.primary().await?;
    c.read_refused(Entity { entity: None }, INVALID).await?;
}

async fn each_request_of_a_batch_is_answered(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    c.insert(lpm_entry(1 << 24, 8, 1), OK).await?;
    let wanted = vec![all_of("exact_table").into_entity(), all_of("lpm_table").into_entity()];
    let (read, status) = c.try_read(wanted).await;
    holds(status.is_ok() && read.len() == 2, format!("{read:?}, {status:?}"))?;
}

async fn a_request_may_be_repeated(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    let wanted = all_of("exact_table").into_entity();
    let (read, status) = c.try_read(vec![wanted.clone(), wanted]).await;
    // A server may merge the two requests or not.
    holds(status.is_ok() && (1..=2).contains(&read.len()), format!("{read:?}, {status:?}"))?;
}

async fn good_requests_of_a_batch_are_answered_beside_bad_ones(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    let bad = TableEntry { table_id: UNKNOWN_ID, ..Default::default() }.into_entity();
    let (read, status) = c.try_read(vec![all_of("exact_table").into_entity(), bad]).await;
    same(read.len(), 1, "entities")?;
    same(status.err().map(|status| status.code()), Some(Code::Unknown), "the status")?;
}

async fn errors_of_a_batch_are_in_its_order(t) {
    use prost::Message;
    let mut c = t.primary().await?;
    let bad = TableEntry { table_id: UNKNOWN_ID, ..Default::default() }.into_entity();
    let good = all_of("exact_table").into_entity();
    let (_, status) = c.try_read(vec![good.clone(), bad, good]).await;
    let Err(status) = status else {
        return Err(Failure::Failed("the read succeeded".into()));
    };
    let inner = sluice_p4runtime::proto::rpc::Status::decode(status.details()).unwrap_or_default();
    let ok: Vec<_> = inner.details.iter()
        .map(|any| Error::decode(any.value.as_slice()).is_ok_and(|error| error.canonical_code == 0))
        .collect();
    same(ok, vec![true, false, true], "which of the requests were valid")?;
}

async fn the_whole_forwarding_state_is_read_by_wildcards(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    c.insert(member("profile", 1, 1), OK).await?;
    c.insert(multicast(1, vec![replica(1, 1)]), OK).await?;
    let wanted = vec![
        TableEntry::default().into_entity(),
        ActionProfileMember::default().into_entity(),
        ActionProfileGroup::default().into_entity(),
        CounterEntry::default().into_entity(),
        MeterEntry::default().into_entity(),
        multicast(0, vec![]).into_entity(),
        session(0, vec![], 0).into_entity(),
        DigestEntry::default().into_entity(),
    ];
    let (read, status) = c.try_read(wanted).await;
    holds(status.is_ok(), format!("{status:?}"))?;
    // An entry, two constant entries, a member, 12 cells of counters, 12 cells of meters, and a group.
    same(read.len(), 3 + 1 + 12 + 12 + 1, "entities")?;
}

async fn direct_counters_of_all_tables_are_read_by_a_wildcard(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    let all = DirectCounterEntry { table_entry: Some(TableEntry::default()), data: None };
    same(c.read(all).await?.len(), 1, "direct counters")?;
}

async fn direct_meters_of_all_tables_are_read_by_a_wildcard(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 1), OK).await?;
    let all = DirectMeterEntry { table_entry: Some(TableEntry::default()), ..Default::default() };
    same(c.read(all).await?.len(), 1, "direct meters")?;
}

async fn an_unknown_profile_is_refused(t) {
    let mut c = t.primary().await?;
    let unknown = ActionProfileMember { action_profile_id: 0x11ff_fff1, ..Default::default() };
    c.read_refused(unknown, [INVALID, NOT_FOUND]).await?;
}

async fn reads_at_the_same_time_all_answer(t) {
    let mut c = t.primary().await?;
    same(c.codes((0..32).map(|a| insert(exact_entry(a, 1))).collect()).await?, vec![OK; 32], "codes")?;
    let mut tasks = Vec::new();
    for _ in 0..16 {
        let mut client = t.client().await?;
        tasks.push(tokio::spawn(async move { client.entries(all_of("exact_table")).await }));
    }
    for task in tasks {
        let read = task.await.map_err(|error| Failure::Failed(error.to_string()))??;
        same(read.len(), 32, "entries")?;
    }
}

async fn a_read_sees_a_write_whole_or_not_at_all(t) {
    let mut c = t.primary().await?;
    let mut reader = t.client().await?;
    let writer = tokio::spawn(async move {
        for _ in 0..20 {
            c.codes((0..8).map(|a| insert(exact_entry(a, 1))).collect()).await?;
            c.codes((0..8).map(|a| delete(exact_entry(a, 1))).collect()).await?;
        }
        Ok::<_, Failure>(())
    });
    while !writer.is_finished() {
        let count = reader.entries(all_of("exact_table")).await?.len();
        holds(count == 0 || count == 8, format!("{count} of 8 entries"))?;
    }
    writer.await.map_err(|error| Failure::Failed(error.to_string()))??;
}

}
