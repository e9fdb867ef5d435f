// SPDX-License-Identifier: Apache-2.0
//! Checks that a read returns the entities that were written.

use super::prelude::*;

section! { "Read-Write Symmetry";

async fn an_entry_with_all_its_attributes(t) {
    let mut c = t.primary().await?;
    let written = TableEntry {
        metadata: b"\x00opaque\xff".to_vec(),
        controller_metadata: u64::MAX,
        ..lpm_entry(10 << 24, 8, 5)
    };
    c.insert(written.clone(), OK).await?;
    c.reads_back(all_of("lpm_table"), written).await?;
}

async fn a_ternary_entry_with_fields_left_out(t) {
    let mut c = t.primary().await?;
    let written = ranked("ternary_table", vec![ternary(2, 0x0a0, 0x0f0)], i32::MAX, mark(5));
    c.insert(written.clone(), OK).await?;
    c.reads_back(all_of("ternary_table"), written).await?;
}

async fn a_range_entry(t) {
    let mut c = t.primary().await?;
    let written = ranked("range_table", vec![range(1, 5, 0x1234)], 7, mark(5));
    c.insert(written.clone(), OK).await?;
    c.reads_back(all_of("range_table"), written).await?;
}

async fn an_optional_entry_reads_as_optional(t) {
    let mut c = t.primary().await?;
    let written = ranked("optional_table", vec![optional(1, 5)], 7, mark(5));
    c.insert(written.clone(), OK).await?;
    c.reads_back(all_of("optional_table"), written).await?;
}

async fn a_member_and_a_group(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(member("paths", 2, 6), OK).await?;
    c.insert(group(9, &[(1, 2), (2, 1)]), OK).await?;
    let members = vec![member("paths", 1, 5).into_entity(), member("paths", 2, 6).into_entity()];
    c.reads(ActionProfileMember::default(), members).await?;
    c.reads_back(ActionProfileGroup::default(), group(9, &[(1, 2), (2, 1)])).await?;
}

async fn a_one_shot_entry_is_not_taken_apart(t) {
    let mut c = t.primary().await?;
    let written = entry("selector_table", vec![exact(1, 5)], to_set(&[(1, 1), (2, 3), (1, 1)]));
    c.insert(written.clone(), OK).await?;
    c.reads_back(all_of("selector_table"), written).await?;
    c.reads(ActionProfileMember::default(), vec![]).await?;
    c.reads(ActionProfileGroup::default(), vec![]).await?;
}

async fn a_meters_configuration(t) {
    let mut c = t.primary().await?;
    let written = meter("two_rates", Some(1), Some(rates(100, 10, 200, 20)));
    c.modify(written, OK).await?;
    c.reads_back(meter("two_rates", Some(1), None), written).await?;
}

async fn a_counters_value(t) {
    let mut c = t.primary().await?;
    let written = counter("cells_counter", Some(2), Some(counted(i64::MAX, 1)));
    c.modify(written, OK).await?;
    c.reads_back(counter("cells_counter", Some(2), None), written).await?;
}

async fn a_registers_value(t) {
    let mut c = t.primary().await?;
    let written = register("small_register", Some(2), Some(0x12_3456_789a));
    c.modify(written.clone(), Optional(OK)).await?;
    c.reads_back(register("small_register", Some(2), None), written).await?;
}

async fn a_value_set(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[0x1234, 0x4321]), Optional(OK)).await?;
    c.reads_back(kinds(&[]), kinds(&[0x1234, 0x4321])).await?;
}

async fn a_multicast_group_with_metadata(t) {
    let mut c = t.primary().await?;
    let written = multicast_with(3, vec![replica(1, 7), replica(2, 0)], b"opaque");
    c.insert(written.clone(), OK).await?;
    c.reads_back(multicast(0, vec![]), written).await?;
}

async fn a_clone_session(t) {
    let mut c = t.primary().await?;
    let written = session(7, vec![replica(510, 1)], 64);
    c.insert(written.clone(), OK).await?;
    c.reads_back(session(0, vec![], 0), written).await?;
}

async fn a_digests_settings(t) {
    let mut c = t.primary().await?;
    let written = digest(1_000_000, 16, 2_000_000);
    c.insert(written, OK).await?;
    c.reads_back(DigestEntry { digest_id: id("learned_t"), config: None }, written).await?;
}

async fn a_default_entry_with_metadata(t) {
    let mut c = t.primary().await?;
    let written = TableEntry {
        metadata: b"opaque".to_vec(),
        controller_metadata: 42,
        ..default_of("lpm_table", mark(5))
    };
    c.modify(written.clone(), OK).await?;
    c.reads_back(default_of("lpm_table", None), written).await?;
}

}
