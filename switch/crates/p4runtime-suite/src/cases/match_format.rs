// SPDX-License-Identifier: Apache-2.0
//! Tests the checks of an entry's match fields. Each field must belong to the table, must not be given twice, must
//! have the declared match kind, and must be in canonical form.

use super::prelude::*;

fn exact_with(matches: Vec<FieldMatch>) -> TableEntry {
    TableEntry {
        r#match: matches,
        ..exact_entry(1, 5)
    }
}

fn ternary_with(matches: Vec<FieldMatch>) -> TableEntry {
    ranked("ternary_table", matches, 1, mark(5))
}

section! { "Match Format";

async fn an_unknown_field_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(exact_with(vec![exact(1, 1), exact(2, 0), exact(3, 0)]), INVALID).await?;
    c.insert(exact_with(vec![exact(1, 1), exact(77, 0)]), INVALID).await?;
}

async fn a_field_id_of_zero_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(exact_with(vec![exact(0, 1), exact(2, 0)]), INVALID).await?;
}

async fn a_field_given_twice_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(exact_with(vec![exact(1, 1), exact(2, 0), exact(1, 1)]), INVALID).await?;
}

async fn an_exact_field_cannot_be_left_out(t) {
    let mut c = t.primary().await?;
    c.insert(exact_with(vec![exact(1, 1)]), INVALID).await?;
    c.insert(exact_with(vec![]), INVALID).await?;
}

async fn the_order_of_fields_does_not_matter(t) {
    let mut c = t.primary().await?;
    c.insert(exact_with(vec![exact(2, 3), exact(1, 1)]), OK).await?;
    c.marks(Walk::Exact, Frame { a: 1, c: 3, ..Frame::default() }, 5).await?;
    c.insert(exact_with(vec![exact(1, 1), exact(2, 3)]), EXISTS).await?;
}

async fn a_field_without_match_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(exact_with(vec![no_match(1), exact(2, 0)]), INVALID).await?;
}

async fn a_ternary_match_of_an_exact_field_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(exact_with(vec![ternary(1, 1, 0xffff_ffff), exact(2, 0)]), INVALID).await?;
}

async fn an_exact_match_of_a_ternary_field_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(ternary_with(vec![exact(1, 1)]), INVALID).await?;
}

async fn a_ternary_match_of_a_prefix_field_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(entry("lpm_table", vec![ternary(1, 1 << 24, 0xff << 24)], mark(5)), INVALID).await?;
}

async fn an_exact_match_of_a_range_field_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("range_table", vec![exact(1, 1)], 1, mark(5)), INVALID).await?;
}

async fn an_exact_match_of_an_optional_field_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("optional_table", vec![exact(1, 1)], 1, mark(5)), INVALID).await?;
}

async fn a_prefix_left_out_matches_everything(t) {
    let mut c = t.primary().await?;
    c.insert(entry("lpm_table", vec![], mark(7)), OK).await?;
    c.marks(Walk::Lpm, Frame { a: 0xdead_beef, ..Frame::default() }, 7).await?;
    c.reads_back(all_of("lpm_table"), entry("lpm_table", vec![], mark(7))).await?;
}

async fn a_prefix_of_length_zero_must_be_left_out(t) {
    let mut c = t.primary().await?;
    c.insert(lpm_entry(0, 0, 5), INVALID).await?;
}

async fn too_long_a_prefix_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(lpm_entry(1, 33, 5), INVALID).await?;
}

async fn a_negative_prefix_length_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(lpm_entry(1, -1, 5), INVALID).await?;
}

async fn bits_beyond_the_prefix_must_be_zero(t) {
    let mut c = t.primary().await?;
    c.insert(lpm_entry(0x0a00_0001, 24, 5), INVALID).await?;
    c.insert(lpm_entry(0x0a00_0180, 24, 5), INVALID).await?;
}

async fn a_prefix_of_the_whole_width_is_a_host(t) {
    let mut c = t.primary().await?;
    c.insert(lpm_entry(0x0a00_0001, 32, 5), OK).await?;
    c.marks(Walk::Lpm, Frame { a: 0x0a00_0001, ..Frame::default() }, 5).await?;
    c.marks(Walk::Lpm, Frame { a: 0x0a00_0000, ..Frame::default() }, 0).await?;
}

async fn a_prefix_that_ends_within_a_byte(t) {
    let mut c = t.primary().await?;
    c.insert(lpm_entry(0x0a40_0000, 10, 5), OK).await?;
    c.marks(Walk::Lpm, Frame { a: 0x0a7f_ffff, ..Frame::default() }, 5).await?;
    c.marks(Walk::Lpm, Frame { a: 0x0a80_0000, ..Frame::default() }, 0).await?;
}

async fn a_ternary_field_left_out_matches_everything(t) {
    let mut c = t.primary().await?;
    c.insert(ternary_with(vec![]), OK).await?;
    c.marks(Walk::Ternary, Frame { a: 77, c: 7, ..Frame::default() }, 5).await?;
}

async fn a_mask_of_zero_must_be_left_out(t) {
    let mut c = t.primary().await?;
    c.insert(ternary_with(vec![ternary(1, 0, 0)]), INVALID).await?;
}

async fn bits_outside_the_mask_must_be_zero(t) {
    let mut c = t.primary().await?;
    c.insert(ternary_with(vec![ternary(1, 0x0f, 0xf0)]), INVALID).await?;
    c.insert(ternary_with(vec![ternary(1, 0x100, 0xff)]), INVALID).await?;
}

async fn a_mask_with_holes_is_a_mask(t) {
    let mut c = t.primary().await?;
    c.insert(ternary_with(vec![ternary(1, 0x1000_0001, 0xf000_000f)]), OK).await?;
    c.marks(Walk::Ternary, Frame { a: 0x1abc_def1, ..Frame::default() }, 5).await?;
    c.marks(Walk::Ternary, Frame { a: 0x1abc_def2, ..Frame::default() }, 0).await?;
}

async fn two_ternary_fields_both_have_to_match(t) {
    let mut c = t.primary().await?;
    c.insert(ternary_with(vec![ternary(1, 1, 0xff), ternary(2, 2, 0xfff)]), OK).await?;
    c.marks(Walk::Ternary, Frame { a: 1, c: 2, ..Frame::default() }, 5).await?;
    c.marks(Walk::Ternary, Frame { a: 1, c: 3, ..Frame::default() }, 0).await?;
}

async fn the_bounds_of_a_range_are_inclusive(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("range_table", vec![range(1, 5, 9)], 1, mark(5)), OK).await?;
    for (b, value) in [(4, 0), (5, 5), (9, 5), (10, 0)] {
        c.marks(Walk::Range, Frame { b, ..Frame::default() }, value).await?;
    }
}

async fn a_range_of_one_value_is_a_range(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("range_table", vec![range(1, 5, 5)], 1, mark(5)), OK).await?;
    c.marks(Walk::Range, Frame { b: 5, ..Frame::default() }, 5).await?;
}

async fn a_low_bound_above_the_high_one_is_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("range_table", vec![range(1, 0x100, 0xff)], 1, mark(5)), INVALID).await?;
}

async fn the_whole_range_must_be_left_out(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("range_table", vec![range(1, 0, 0xffff)], 1, mark(5)), INVALID).await?;
    c.insert(ranked("range_table", vec![], 1, mark(5)), OK).await?;
    c.marks(Walk::Range, Frame { b: 0xffff, ..Frame::default() }, 5).await?;
}

async fn a_bound_that_does_not_fit_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("range_table", vec![range(1, 0, 0x1_0000)], 1, mark(5)), RANGE).await?;
}

async fn an_optional_field_left_out_matches_everything(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("optional_table", vec![optional(1, 5)], 1, mark(5)), OK).await?;
    c.marks(Walk::Optional, Frame { b: 5, d: 9, ..Frame::default() }, 5).await?;
    c.marks(Walk::Optional, Frame { b: 6, d: 9, ..Frame::default() }, 0).await?;
}

async fn an_optional_field_given_must_be_equal(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("optional_table", vec![optional(1, 5), optional(2, 1)], 1, mark(5)), OK).await?;
    c.marks(Walk::Optional, Frame { b: 5, d: 1, ..Frame::default() }, 5).await?;
    c.marks(Walk::Optional, Frame { b: 5, d: 2, ..Frame::default() }, 0).await?;
}

}
