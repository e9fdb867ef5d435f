// SPDX-License-Identifier: Apache-2.0
//! Tests one-shot action sets: a group and its members as part of an entry.

use super::prelude::*;

fn shot(action: Option<TableAction>) -> TableEntry {
    entry("selector_table", vec![exact(1, 1)], action)
}

/// Returns an entry with a one-shot action set. The set is valid, except for what
/// `change` changes.
fn altered(change: impl FnOnce(&mut ActionProfileActionSet)) -> TableEntry {
    let mut action = to_set(&[(5, 1)]);
    if let Some(table_action::Type::ActionProfileActionSet(set)) =
        action.as_mut().and_then(|a| a.r#type.as_mut())
    {
        change(set);
    }
    shot(action)
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

section! { "One Shot Action Selector Programming";

async fn a_set_of_one_action_is_done(t) {
    let mut c = t.primary().await?;
    c.insert(shot(to_set(&[(5, 1)])), OK).await?;
    c.marks(Walk::Selector, ONE, 5).await?;
}

async fn a_set_of_two_actions_is_shared_out(t) {
    let mut c = t.primary().await?;
    c.insert(shot(to_set(&[(5, 1), (6, 1)])), OK).await?;
    let mut marks = std::collections::BTreeSet::new();
    for src in 0..64 {
        marks.insert(c.walk(Walk::Selector, Frame { src: 0x0200_0000_0000 + src * 257, ..ONE }).await?.mark);
    }
    same(marks.into_iter().collect(), vec![5, 6], "marks of 64 flows")?;
}

async fn a_modified_set_is_seen_by_packets(t) {
    let mut c = t.primary().await?;
    c.insert(shot(to_set(&[(5, 1)])), OK).await?;
    c.modify(shot(to_set(&[(6, 2), (6, 1)])), OK).await?;
    c.marks(Walk::Selector, ONE, 6).await?;
    c.reads_back(all_of("selector_table"), shot(to_set(&[(6, 2), (6, 1)]))).await?;
}

async fn a_deleted_entry_frees_its_set(t) {
    let mut c = t.primary().await?;
    for _ in 0..20 {
        c.insert(shot(to_set(&[(5, 1), (6, 1), (7, 1), (8, 1)])), OK).await?;
        c.delete(shot(None), OK).await?;
    }
}

async fn a_weight_of_zero_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(shot(to_set(&[(5, 0)])), INVALID).await?;
}

async fn a_negative_weight_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(shot(to_set(&[(5, -1)])), INVALID).await?;
}

async fn weights_beyond_max_group_size_are_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(shot(to_set(&[(5, 5), (6, 4)])), INVALID).await?;
    c.insert(shot(to_set(&[(5, 5), (6, 3)])), OK).await?;
}

async fn a_set_member_without_action_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(altered(|set| set.action_profile_actions[0].action = None), INVALID).await?;
}

async fn an_action_of_another_table_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(altered(|set| set.action_profile_actions[0].action = Some(call("drop", &[]))), INVALID).await?;
}

async fn a_watch_port_that_does_not_exist_is_invalid(t) {
    let mut c = t.primary().await?;
    let watch = action_profile_action::WatchKind::WatchPort(number(499));
    c.insert(altered(|set| set.action_profile_actions[0].watch_kind = Some(watch)), INVALID).await?;
}

async fn a_set_in_a_table_without_selector_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(entry("profile_table", vec![exact(1, 1)], to_set(&[(5, 1)])), INVALID).await?;
}

async fn the_selectors_own_mode_and_size_may_be_named(t) {
    let mut c = t.primary().await?;
    let entry = altered(|set| {
        set.action_selection_mode = action_profile_action_set::ActionSelectionMode::Hash.into();
        set.size_semantics = action_profile_action_set::SizeSemantics::SumOfWeights.into();
    });
    c.insert(entry, OK).await?;
    c.marks(Walk::Selector, ONE, 5).await?;
}

async fn another_mode_is_done_or_refused(t) {
    let mut c = t.primary().await?;
    let mode = action_profile_action_set::ActionSelectionMode::Random.into();
    c.insert(altered(|set| set.action_selection_mode = mode), [OK, INVALID, UNIMPLEMENTED]).await?;
}

async fn a_set_beside_members_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(entry("selector_table", vec![exact(1, 2)], to_member(1)), OK).await?;
    c.insert(shot(to_set(&[(5, 1)])), INVALID).await?;
}

async fn members_beside_a_set_are_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(shot(to_set(&[(5, 1)])), OK).await?;
    let codes = c.codes(vec![insert(member("paths", 1, 5))]).await?;
    if codes == [OK] {
        // The server may delay the refusal until an entry refers to the member.
        c.insert(entry("selector_table", vec![exact(1, 2)], to_member(1)), INVALID).await?;
    } else {
        same(codes, vec![INVALID], "codes")?;
    }
}

async fn when_the_sets_are_gone_members_can_come(t) {
    let mut c = t.primary().await?;
    c.insert(shot(to_set(&[(5, 1)])), OK).await?;
    c.delete(shot(None), OK).await?;
    c.insert(member("paths", 1, 5), OK).await?;
    c.insert(shot(to_member(1)), OK).await?;
}

}
