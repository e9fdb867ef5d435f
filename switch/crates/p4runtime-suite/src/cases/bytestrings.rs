// SPDX-License-Identifier: Apache-2.0
//! Tests numbers as bytestrings. The server must accept any zero padding, and return the shortest form. It must
//! refuse a value that does not fit with OUT_OF_RANGE.

use super::prelude::*;

fn a_is(bytes: &[u8]) -> TableEntry {
    let mut entry = exact_entry(0, 1);
    entry.r#match[0] = exact_bytes(1, bytes);
    entry
}

/// Returns an entry that matches these bytes in field `c`, which has 12 bits.
fn c_is(bytes: &[u8]) -> TableEntry {
    let mut entry = exact_entry(0, 1);
    entry.r#match[1] = exact_bytes(2, bytes);
    entry
}

fn value_is(bytes: &[u8]) -> TableEntry {
    let mut entry = exact_entry(0, 1);
    if let Some(table_action::Type::Action(action)) =
        entry.action.as_mut().and_then(|a| a.r#type.as_mut())
    {
        action.params[0].value = bytes.to_vec();
    }
    entry
}

section! { "Bytestrings";

async fn a_shorter_value_than_the_field_is_taken(t) {
    let mut c = t.primary().await?;
    c.insert(a_is(&[7]), OK).await?;
    c.marks(Walk::Exact, Frame { a: 7, ..Frame::default() }, 1).await?;
}

async fn a_value_padded_to_the_fields_width_is_taken(t) {
    let mut c = t.primary().await?;
    c.insert(a_is(&[0, 0, 0, 7]), OK).await?;
    c.reads_back(all_of("exact_table"), exact_entry(7, 1)).await?;
}

async fn a_value_padded_beyond_the_fields_width_is_taken(t) {
    let mut c = t.primary().await?;
    c.insert(a_is(&[0, 0, 0, 0, 0, 0, 7]), OK).await?;
    c.reads_back(all_of("exact_table"), exact_entry(7, 1)).await?;
}

async fn differently_padded_values_are_the_same_key(t) {
    let mut c = t.primary().await?;
    c.insert(a_is(&[7]), OK).await?;
    c.insert(a_is(&[0, 7]), EXISTS).await?;
    c.delete(a_is(&[0, 0, 7]), OK).await?;
}

async fn zero_is_one_byte(t) {
    let mut c = t.primary().await?;
    c.insert(a_is(&[0, 0, 0, 0]), OK).await?;
    c.reads_back(all_of("exact_table"), exact_entry(0, 1)).await?;
}

async fn an_empty_value_of_a_field_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.insert(a_is(&[]), RANGE).await?;
}

async fn too_wide_a_value_of_a_field_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.insert(a_is(&[1, 0, 0, 0, 0]), RANGE).await?;
}

async fn one_bit_too_many_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.insert(c_is(&[0x0f, 0xff]), OK).await?;
    c.insert(c_is(&[0x10, 0x00]), RANGE).await?;
}

async fn an_empty_parameter_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.insert(value_is(&[]), RANGE).await?;
}

async fn too_wide_a_parameter_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.insert(value_is(&[1, 0, 0]), RANGE).await?;
}

async fn a_padded_parameter_is_given_in_its_shortest_form(t) {
    let mut c = t.primary().await?;
    c.insert(value_is(&[0, 0, 0, 9]), OK).await?;
    c.reads_back(all_of("exact_table"), exact_entry(0, 9)).await?;
}

async fn the_largest_value_of_an_odd_width_fits(t) {
    let mut c = t.primary().await?;
    let entry = |small| entry("lpm_table", vec![lpm(1, 1 << 24, 8)], does("mark_other", &[1, small]));
    c.insert(entry(16), RANGE).await?;
    c.insert(entry(15), OK).await?;
    c.marks(Walk::Lpm, Frame { a: 1 << 24, ..Frame::default() }, 16).await?;
}

async fn a_value_of_128_bits_fits(t) {
    let mut c = t.primary().await?;
    let host = u128::MAX - 1;
    c.insert(entry("wide_table", vec![lpm(1, host, 128)], mark(3)), OK).await?;
    c.marks(Walk::Lpm, Frame { wide: host, ..Frame::default() }, 3).await?;
}

async fn a_register_that_does_not_fit_is_refused(t) {
    let mut c = t.primary().await?;
    c.modify(register("small_register", Some(0), Some(1 << 40)), Optional(RANGE)).await?;
}

async fn a_mask_that_does_not_fit_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.insert(ranked("ternary_table", vec![ternary(2, 1, 0x1001)], 1, mark(1)), RANGE).await?;
}

}
