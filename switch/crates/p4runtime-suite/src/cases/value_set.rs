// SPDX-License-Identifier: Apache-2.0
//! Tests parser value sets, which always exist and are replaced as a whole.

use super::prelude::*;

const LISTED: Frame = Frame {
    src: 0x0200_0000_0001,
    kind: 0x1234,
    a: 0,
    b: 0,
    c: 0,
    d: 0,
    wide: 0,
    port: 0,
    index: 0,
};

section! { "ValueSetEntry";

async fn it_is_empty_at_first(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[]), Optional(OK)).await?;
    c.reads_back(kinds(&[]), kinds(&[])).await?;
    c.marks(Walk::ValueSet, LISTED, 0).await?;
}

async fn a_members_value_is_matched(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[0x1111, 0x1234]), Optional(OK)).await?;
    c.marks(Walk::ValueSet, LISTED, 1).await?;
    c.marks(Walk::ValueSet, Frame { kind: 0x1235, ..LISTED }, 0).await?;
}

async fn modify_replaces_all_members(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[0x1234, 0x2222]), Optional(OK)).await?;
    c.modify(kinds(&[0x3333]), OK).await?;
    c.marks(Walk::ValueSet, LISTED, 0).await?;
    c.reads_back(kinds(&[]), kinds(&[0x3333])).await?;
}

async fn without_members_it_is_emptied(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[0x1234]), Optional(OK)).await?;
    c.modify(kinds(&[]), OK).await?;
    c.marks(Walk::ValueSet, LISTED, 0).await?;
}

async fn insert_and_delete_are_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(kinds(&[0x1234]), Optional(INVALID)).await?;
    c.delete(kinds(&[0x1234]), INVALID).await?;
}

async fn more_members_than_its_size_are_resource_exhausted(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[1, 2, 3, 4]), Optional(OK)).await?;
    c.modify(kinds(&[1, 2, 3, 4, 5]), FULL).await?;
    c.reads_back(kinds(&[]), kinds(&[1, 2, 3, 4])).await?;
}

async fn the_same_member_twice_already_exists(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[1, 1]), Optional(EXISTS)).await?;
}

async fn a_value_that_does_not_fit_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[0x1_0000]), Optional(RANGE)).await?;
}

async fn a_member_with_an_unknown_field_is_invalid(t) {
    let mut c = t.primary().await?;
    let mut wrong = kinds(&[1]);
    wrong.members[0].r#match[0].field_id = 9;
    c.modify(wrong, Optional(INVALID)).await?;
}

async fn an_unknown_value_set_is_refused(t) {
    let mut c = t.primary().await?;
    c.modify(ValueSetEntry { value_set_id: 0x03ff_fff1, ..kinds(&[1]) }, [INVALID, NOT_FOUND]).await?;
}

async fn value_set_id_zero_reads_all_sets(t) {
    let mut c = t.primary().await?;
    c.modify(kinds(&[7]), Optional(OK)).await?;
    c.reads_back(ValueSetEntry::default(), kinds(&[7])).await?;
}

}
