// SPDX-License-Identifier: Apache-2.0
//! Tests the checks of an entry's action. The table must allow the action in entries, and each parameter must be
//! given exactly once.

use super::prelude::*;

fn with(action: Option<TableAction>) -> TableEntry {
    TableEntry {
        action,
        ..exact_entry(1, 5)
    }
}

fn acting(action: Action) -> TableEntry {
    with(Some(TableAction {
        r#type: Some(table_action::Type::Action(action)),
    }))
}

section! { "Action Specification";

async fn an_insert_needs_an_action(t) {
    let mut c = t.primary().await?;
    c.insert(with(None), INVALID).await?;
}

async fn a_modify_without_action_keeps_the_action(t) {
    let mut c = t.primary().await?;
    c.insert(exact_entry(1, 5), OK).await?;
    c.modify(TableEntry { metadata: b"new".to_vec(), ..with(None) }, OK).await?;
    c.reads_back(all_of("exact_table"), TableEntry { metadata: b"new".to_vec(), ..exact_entry(1, 5) }).await?;
}

async fn an_action_of_no_type_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(with(Some(TableAction { r#type: None })), INVALID).await?;
}

async fn an_action_of_another_table_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(with(does("drop", &[])), INVALID).await?;
}

async fn an_unknown_action_is_refused(t) {
    let mut c = t.primary().await?;
    let unknown = Action { action_id: 0x01ff_fff1, params: vec![] };
    c.insert(acting(unknown), [INVALID, NOT_FOUND]).await?;
}

async fn a_table_action_id_of_another_kind_is_refused(t) {
    let mut c = t.primary().await?;
    c.insert(acting(Action { action_id: id("exact_table"), params: vec![] }), [INVALID, NOT_FOUND]).await?;
}

async fn a_default_only_action_in_an_entry_is_denied(t) {
    let mut c = t.primary().await?;
    c.insert(with(does("NoAction", &[])), DENIED).await?;
}

async fn a_table_only_action_as_default_is_denied(t) {
    let mut c = t.primary().await?;
    c.modify(default_of("exact_table", does("only_entries", &[1])), DENIED).await?;
    c.insert(with(does("only_entries", &[1])), OK).await?;
}

async fn a_missing_parameter_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(with(does("mark_direct", &[])), INVALID).await?;
}

async fn an_extra_parameter_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(with(does("mark_direct", &[1, 2])), INVALID).await?;
}

async fn a_parameter_given_twice_is_invalid(t) {
    let mut c = t.primary().await?;
    let mut action = call("mark_other", &[1, 2]);
    action.params[1].param_id = 1;
    let action = Some(TableAction { r#type: Some(table_action::Type::Action(action)) });
    c.insert(entry("lpm_table", vec![lpm(1, 1 << 24, 8)], action), INVALID).await?;
}

async fn an_unknown_parameter_is_invalid(t) {
    let mut c = t.primary().await?;
    let mut action = call("mark_direct", &[1]);
    action.params[0].param_id = 9;
    c.insert(acting(action), INVALID).await?;
}

async fn the_order_of_parameters_does_not_matter(t) {
    let mut c = t.primary().await?;
    let mut action = call("mark_other", &[0x100, 3]);
    action.params.reverse();
    let action = Some(TableAction { r#type: Some(table_action::Type::Action(action)) });
    c.insert(entry("lpm_table", vec![lpm(1, 1 << 24, 8)], action), OK).await?;
    c.marks(Walk::Lpm, Frame { a: 1 << 24, ..Frame::default() }, 0x103).await?;
}

async fn a_member_in_a_direct_table_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(with(to_member(1)), INVALID).await?;
}

async fn a_group_in_a_direct_table_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(with(to_group(1)), INVALID).await?;
}

async fn a_group_in_a_table_without_selector_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(entry("profile_table", vec![exact(1, 1)], to_group(1)), INVALID).await?;
}

async fn a_set_of_actions_in_a_direct_table_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(with(to_set(&[(1, 1)])), INVALID).await?;
}

async fn a_direct_action_in_an_indirect_table_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(entry("profile_table", vec![exact(1, 1)], mark(1)), INVALID).await?;
}

async fn a_member_that_does_not_exist_is_not_found(t) {
    let mut c = t.primary().await?;
    c.insert(entry("profile_table", vec![exact(1, 1)], to_member(9)), NOT_FOUND).await?;
}

async fn a_group_that_does_not_exist_is_not_found(t) {
    let mut c = t.primary().await?;
    c.insert(entry("selector_table", vec![exact(1, 1)], to_group(9)), NOT_FOUND).await?;
}

async fn an_action_that_drops_drops(t) {
    let mut c = t.primary().await?;
    c.insert(entry("lpm_table", vec![lpm(1, 1 << 24, 8)], does("drop", &[])), OK).await?;
    let seen = c.walks(Walk::Lpm, Frame { a: 1 << 24, ..Frame::default() }).await?;
    same(seen, vec![], "the packets that came back")?;
}

}
