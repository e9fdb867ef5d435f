// SPDX-License-Identifier: Apache-2.0
//! Tests digests: settings, lists and acknowledgements.

use super::prelude::*;
use crate::bench::Client;
use crate::outcome::Outcome;

const SECOND: i64 = 1_000_000_000;

fn list(message: Response) -> Option<DigestList> {
    match message {
        Response::Digest(list) => Some(list),
        _ => None,
    }
}

/// Makes the program send a digest message of this source address.
async fn learn(c: &Client, src: u64) -> Outcome {
    c.packet_out(
        Frame {
            src,
            b: 7,
            ..Frame::default()
        }
        .out(Walk::Learn),
    )
    .await
}

fn unset() -> DigestEntry {
    DigestEntry {
        digest_id: id("learned_t"),
        config: None,
    }
}

/// Returns the source address in a message.
fn source(data: &P4Data) -> Option<u128> {
    let Some(p4_data::Data::Struct(members)) = &data.data else {
        return None;
    };
    let Some(p4_data::Data::Bitstring(bytes)) = &members.members.first()?.data else {
        return None;
    };
    Some(
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u128::from(*byte)),
    )
}

section! { "DigestEntry";

async fn a_message_comes_as_the_programs_struct(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 0), OK).await?;
    learn(&c, 0x0200_0000_0042).await?;
    let list = c.next_of(list).await?;
    same(list.digest_id, id("learned_t"), "the digest")?;
    same(list.data.iter().map(source).collect(), vec![Some(0x0200_0000_0042)], "sources")?;
    holds(list.timestamp != 0, "there is no timestamp")?;
}

async fn members_are_in_their_shortest_form(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 0), OK).await?;
    learn(&c, 0x42).await?;
    let list = c.next_of(list).await?;
    let expected = [0x42, 7].map(|n| P4Data { data: Some(p4_data::Data::Bitstring(number(n))) });
    let expected = P4Data { data: Some(p4_data::Data::Struct(sluice_p4runtime::proto::v1::P4StructLike { members: expected.to_vec() })) };
    same(list.data, vec![expected], "data")?;
}

async fn without_settings_there_are_no_lists(t) {
    let mut c = t.primary().await?;
    c.needs_packets()?;
    c.walks(Walk::Learn, Frame::default()).await?;
    c.is_quiet().await?;
}

async fn deleted_settings_end_lists(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 0), OK).await?;
    c.delete(unset(), OK).await?;
    c.walks(Walk::Learn, Frame::default()).await?;
    c.is_quiet().await?;
}

async fn a_message_is_not_repeated_before_its_acknowledgement(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 60 * SECOND), OK).await?;
    learn(&c, 1).await?;
    c.next_of(list).await?;
    learn(&c, 1).await?;
    learn(&c, 2).await?;
    let second = c.next_of(list).await?;
    same(second.data.iter().map(source).collect(), vec![Some(2)], "sources")?;
}

async fn a_message_is_repeated_after_its_acknowledgement(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 60 * SECOND), OK).await?;
    learn(&c, 1).await?;
    let first = c.next_of(list).await?;
    let ack = DigestListAck { digest_id: first.digest_id, list_id: first.list_id };
    c.send(Some(Request::DigestAck(ack))).await?;
    // The answer to a later message proves that the server has received the
    // acknowledgement.
    c.walks(Walk::Keyless, Frame::default()).await?;
    learn(&c, 1).await?;
    let again = c.next_of(list).await?;
    same(again.data.iter().map(source).collect(), vec![Some(1)], "sources")?;
    holds(again.list_id != first.list_id, "two lists have one id")?;
}

async fn a_message_is_repeated_when_the_ack_timeout_is_over(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, SECOND / 5), OK).await?;
    learn(&c, 1).await?;
    c.next_of(list).await?;
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    learn(&c, 1).await?;
    c.next_of(list).await?;
}

async fn an_ack_timeout_of_zero_keeps_no_cache(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 0), OK).await?;
    for _ in 0..3 {
        learn(&c, 1).await?;
        c.next_of(list).await?;
    }
}

async fn messages_are_listed_together_until_the_list_is_full(t) {
    let mut c = t.primary().await?;
    c.insert(digest(60 * SECOND, 3, 60 * SECOND), OK).await?;
    for src in [1, 2, 2, 1, 3] {
        learn(&c, src).await?;
    }
    let list = c.next_of(list).await?;
    same(list.data.iter().map(source).collect(), vec![Some(1), Some(2), Some(3)], "sources")?;
}

async fn a_list_that_is_not_full_comes_after_the_timeout(t) {
    let mut c = t.primary().await?;
    c.insert(digest(SECOND / 5, 100, 60 * SECOND), OK).await?;
    learn(&c, 1).await?;
    learn(&c, 2).await?;
    let list = c.next_of(list).await?;
    same(list.data.iter().map(source).collect(), vec![Some(1), Some(2)], "sources")?;
}

async fn settings_that_exist_are_not_inserted(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 0), OK).await?;
    c.insert(digest(0, 2, 0), EXISTS).await?;
}

async fn an_insert_without_settings_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(unset(), INVALID).await?;
}

async fn settings_that_are_absent_are_not_modified_or_deleted(t) {
    let mut c = t.primary().await?;
    c.modify(digest(0, 1, 0), NOT_FOUND).await?;
    c.delete(unset(), NOT_FOUND).await?;
}

async fn modified_settings_read_back(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 0), OK).await?;
    c.modify(digest(5, 6, 7), OK).await?;
    c.reads_back(unset(), digest(5, 6, 7)).await?;
}

async fn negative_settings_are_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(digest(-1, 1, 0), INVALID).await?;
    c.insert(digest(0, -1, 0), INVALID).await?;
    c.insert(digest(0, 1, -1), INVALID).await?;
}

async fn an_unknown_digest_is_refused(t) {
    let mut c = t.primary().await?;
    c.insert(DigestEntry { digest_id: 0x17ff_fff1, ..digest(0, 1, 0) }, [INVALID, NOT_FOUND]).await?;
}

async fn digest_id_zero_reads_all_settings(t) {
    let mut c = t.primary().await?;
    c.insert(digest(0, 1, 0), OK).await?;
    c.reads_back(DigestEntry::default(), digest(0, 1, 0)).await?;
}

async fn lists_go_to_the_primary_alone(t) {
    let mut c = t.primary().await?;
    let mut backup = t.client().await?;
    backup.is_told(1, EXISTS).await?;
    c.insert(digest(0, 1, 0), OK).await?;
    learn(&c, 1).await?;
    c.next_of(list).await?;
    backup.is_quiet().await?;
}

}
