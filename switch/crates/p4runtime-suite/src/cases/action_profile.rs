// SPDX-License-Identifier: Apache-2.0
//! Tests members and groups of action profiles.

use super::prelude::*;

fn to(table: &str, action: Option<TableAction>) -> TableEntry {
    entry(table, vec![exact(1, 1)], action)
}

const ONE: Frame = Frame {
    src: 0x0200_0000_0001,
    kind: 0x88b5,
    a: 0,
    b: 1,
    c: 0,
    d: 0,
    wide: 0,
    port: 0,
    index: 0,
};

fn watching(group_id: u32, member_id: u32, watch_port: &[u8]) -> ActionProfileGroup {
    let mut group = group(group_id, &[(member_id, 1)]);
    group.members[0].watch_kind = Some(action_profile_group::member::WatchKind::WatchPort(
        watch_port.to_vec(),
    ));
    group
}

section! { "ActionProfileMember & ActionProfileGroup";

async fn an_entry_does_what_its_member_does(t) {
    let mut c = t.primary().await?;
    c.insert(member("profile", 1, 5), OK).await?;
    c.insert(to("profile_table", to_member(1)), OK).await?;
    c.marks(Walk::Profile, ONE, 5).await?;
}

async fn a_modified_member_is_seen_by_packets(t) {
    let mut c = t.primary().await?;
    c.insert(member("profile", 1, 5), OK).await?;
    c.insert(to("profile_table", to_member(1)), OK).await?;
    c.modify(member("profile", 1, 6), OK).await?;
    c.marks(Walk::Profile, ONE, 6).await?;
}

async fn a_member_that_exists_is_not_inserted(t) {
    let mut c = t.primary().await?;
    c.insert(member("profile", 1, 5), OK).await?;
    c.insert(member("profile", 1, 6), EXISTS).await?;
}

async fn a_member_that_is_absent_is_not_modified_or_deleted(t) {
    let mut c = t.primary().await?;
    c.modify(member("profile", 1, 6), NOT_FOUND).await?;
    c.delete(member("profile", 1, 6), NOT_FOUND).await?;
}

async fn a_member_id_of_zero_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(member("profile", 0, 5), INVALID).await?;
}

async fn a_member_needs_an_action(t) {
    let mut c = t.primary().await?;
    c.insert(ActionProfileMember { action: None, ..member("profile", 1, 5) }, INVALID).await?;
    c.insert(member("profile", 1, 5), OK).await?;
    c.modify(ActionProfileMember { action: None, ..member("profile", 1, 5) }, INVALID).await?;
}

async fn a_members_action_must_be_the_tables(t) {
    let mut c = t.primary().await?;
    let wrong = ActionProfileMember { action: Some(call("drop", &[])), ..member("profile", 1, 5) };
    c.insert(wrong, INVALID).await?;
}

async fn an_unknown_profile_is_refused(t) {
    let mut c = t.primary().await?;
    let unknown = ActionProfileMember { action_profile_id: 0x11ff_fff1, ..member("profile", 1, 5) };
    c.insert(unknown, [INVALID, NOT_FOUND]).await?;
}

async fn a_member_that_an_entry_uses_is_not_deleted(t) {
    let mut c = t.primary().await?;
    c.insert(member("profile", 1, 5), OK).await?;
    c.insert(to("profile_table", to_member(1)), OK).await?;
    c.delete(member("profile", 1, 5), PRECONDITION).await?;
    c.delete(to("profile_table", None), OK).await?;
    c.delete(member("profile", 1, 5), OK).await?;
}

async fn a_member_that_a_group_uses_is_not_deleted(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(group(1, &[(1, 1)]), OK).await?;
    c.delete(member("paths", 1, 5), PRECONDITION).await?;
    c.modify(group(1, &[]), OK).await?;
    c.delete(member("paths", 1, 5), OK).await?;
}

async fn delete_of_a_member_looks_at_its_ids_alone(t) {
    let mut c = t.primary().await?;
    c.insert(member("profile", 1, 5), OK).await?;
    c.delete(ActionProfileMember { action: Some(call("drop", &[1])), ..member("profile", 1, 5) }, OK).await?;
}

async fn a_full_profile_is_resource_exhausted(t) {
    let mut c = t.primary().await?;
    for n in 1..=8 {
        c.insert(member("profile", n, 5), OK).await?;
    }
    c.insert(member("profile", 9, 5), FULL).await?;
    c.delete(member("profile", 3, 5), OK).await?;
    c.insert(member("profile", 9, 5), OK).await?;
}

async fn profiles_have_members_of_their_own(t) {
    let mut c = t.primary().await?;
    c.insert(member("profile", 1, 5), OK).await?;
    c.insert(member("paths", 1, 6), OK).await?;
    let wanted = ActionProfileMember { action_profile_id: id("paths"), ..Default::default() };
    c.reads_back(wanted, member("paths", 1, 6)).await?;
}

async fn members_are_read_by_id(t) {
    let mut c = t.primary().await?;
    c.insert(member("profile", 1, 5), OK).await?;
    c.insert(member("profile", 2, 6), OK).await?;
    let wanted = |member_id| ActionProfileMember { action_profile_id: id("profile"), member_id, action: None };
    c.reads_back(wanted(2), member("profile", 2, 6)).await?;
    same(c.read(wanted(0)).await?.len(), 2, "members")?;
}

async fn an_entry_does_what_a_member_of_its_group_does(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(member("paths", 2, 6), OK).await?;
    c.insert(group(1, &[(1, 1), (2, 1)]), OK).await?;
    c.insert(to("selector_table", to_group(1)), OK).await?;
    let mut marks = std::collections::BTreeSet::new();
    for src in 0..64 {
        marks.insert(c.walk(Walk::Selector, Frame { src: 0x0200_0000_0000 + src * 257, ..ONE }).await?.mark);
    }
    same(marks.into_iter().collect(), vec![5, 6], "marks of 64 flows")?;
}

async fn a_flow_stays_with_its_member(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(member("paths", 2, 6), OK).await?;
    c.insert(group(1, &[(1, 1), (2, 1)]), OK).await?;
    c.insert(to("selector_table", to_group(1)), OK).await?;
    let first = c.walk(Walk::Selector, ONE).await?.mark;
    for _ in 0..8 {
        c.marks(Walk::Selector, ONE, first).await?;
    }
}

async fn a_modified_group_is_seen_by_packets(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(member("paths", 2, 6), OK).await?;
    c.insert(group(1, &[(1, 1)]), OK).await?;
    c.insert(to("selector_table", to_group(1)), OK).await?;
    c.marks(Walk::Selector, ONE, 5).await?;
    c.modify(group(1, &[(2, 1)]), OK).await?;
    c.marks(Walk::Selector, ONE, 6).await?;
}

async fn an_entry_of_a_selector_may_name_a_member(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(to("selector_table", to_member(1)), OK).await?;
    c.marks(Walk::Selector, ONE, 5).await?;
}

async fn a_group_that_exists_is_not_inserted(t) {
    let mut c = t.primary().await?;
    c.insert(group(1, &[]), OK).await?;
    c.insert(group(1, &[]), EXISTS).await?;
}

async fn a_group_that_is_absent_is_not_modified_or_deleted(t) {
    let mut c = t.primary().await?;
    c.modify(group(1, &[]), NOT_FOUND).await?;
    c.delete(group(1, &[]), NOT_FOUND).await?;
}

async fn a_group_id_of_zero_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(group(0, &[]), INVALID).await?;
}

async fn a_group_of_a_profile_without_selector_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(ActionProfileGroup { action_profile_id: id("profile"), ..group(1, &[]) }, INVALID).await?;
}

async fn a_group_with_an_absent_member_is_not_found(t) {
    let mut c = t.primary().await?;
    c.insert(group(1, &[(9, 1)]), NOT_FOUND).await?;
    c.insert(group(1, &[]), OK).await?;
    c.modify(group(1, &[(9, 1)]), NOT_FOUND).await?;
}

async fn a_member_twice_in_a_group_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(group(1, &[(1, 1), (1, 2)]), INVALID).await?;
}

async fn a_weight_of_zero_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(group(1, &[(1, 0)]), INVALID).await?;
}

async fn a_negative_weight_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(group(1, &[(1, -1)]), INVALID).await?;
}

async fn a_max_size_above_max_group_size_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(ActionProfileGroup { max_size: 9, ..group(1, &[]) }, INVALID).await?;
}

async fn a_negative_max_size_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(ActionProfileGroup { max_size: -1, ..group(1, &[]) }, INVALID).await?;
}

async fn weights_beyond_max_size_are_refused(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(group(1, &[(1, 9)]), [INVALID, FULL]).await?;
}

async fn max_size_cannot_be_changed(t) {
    let mut c = t.primary().await?;
    c.insert(group(1, &[]), OK).await?;
    c.modify(ActionProfileGroup { max_size: 4, ..group(1, &[]) }, INVALID).await?;
}

async fn a_group_that_an_entry_uses_is_not_deleted(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(group(1, &[(1, 1)]), OK).await?;
    c.insert(to("selector_table", to_group(1)), OK).await?;
    c.delete(group(1, &[]), PRECONDITION).await?;
    c.delete(to("selector_table", None), OK).await?;
    c.delete(group(1, &[]), OK).await?;
}

async fn members_and_groups_have_ids_apart(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 5, 5), OK).await?;
    c.insert(group(5, &[(5, 1)]), OK).await?;
}

async fn a_member_may_be_in_several_groups(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(group(1, &[(1, 1)]), OK).await?;
    c.insert(group(2, &[(1, 2)]), OK).await?;
}

async fn a_watch_port_that_does_not_exist_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(watching(1, 1, &number(499)), INVALID).await?;
}

async fn an_empty_watch_port_watches_nothing(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(watching(1, 1, b""), OK).await?;
    c.insert(to("selector_table", to_group(1)), OK).await?;
    c.marks(Walk::Selector, ONE, 5).await?;
}

async fn groups_are_read_by_id(t) {
    let mut c = t.primary().await?;
    c.insert(group(1, &[]), OK).await?;
    c.insert(group(2, &[]), OK).await?;
    let wanted = |group_id| ActionProfileGroup { action_profile_id: id("paths"), group_id, ..Default::default() };
    c.reads_back(wanted(2), group(2, &[])).await?;
    same(c.read(wanted(0)).await?.len(), 2, "groups")?;
}

}
