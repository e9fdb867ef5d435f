// SPDX-License-Identifier: Apache-2.0
//! Tests reads and writes of registers.

use super::prelude::*;

section! { "RegisterEntry";

async fn cells_begin_at_zero(t) {
    let mut c = t.primary().await?;
    c.read_refused(register("small_register", Some(0), None), Optional(OK)).await?;
    c.reads_back(register("small_register", Some(0), None), register("small_register", Some(0), Some(0))).await?;
}

async fn packets_see_what_was_written(t) {
    let mut c = t.primary().await?;
    c.modify(register("small_register", Some(1), Some(0x1234)), Optional(OK)).await?;
    c.marks(Walk::Cells, Frame { index: 1, ..Frame::default() }, 0x1234).await?;
}

async fn what_packets_write_is_read(t) {
    let mut c = t.primary().await?;
    c.read_refused(register("small_register", Some(2), None), Optional(OK)).await?;
    c.walk(Walk::Cells, Frame { index: 2, src: 0x02aa_bbcc_ddee, ..Frame::default() }).await?;
    let expected = register("small_register", Some(2), Some(0xaa_bbcc_ddee));
    c.reads_back(register("small_register", Some(2), None), expected).await?;
}

async fn a_cell_of_128_bits_is_written_and_read(t) {
    let mut c = t.primary().await?;
    let written = register("wide_register", Some(1), Some(u128::MAX - 2));
    c.modify(written.clone(), Optional(OK)).await?;
    c.reads_back(register("wide_register", Some(1), None), written).await?;
}

async fn a_cell_of_128_bits_is_written_by_packets(t) {
    let mut c = t.primary().await?;
    c.read_refused(register("wide_register", Some(0), None), Optional(OK)).await?;
    let wide = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
    c.walk(Walk::Cells, Frame { wide, port: 1, ..Frame::default() }).await?;
    c.reads_back(register("wide_register", Some(0), None), register("wide_register", Some(0), Some(wide))).await?;
}

async fn without_index_all_cells_are_written(t) {
    let mut c = t.primary().await?;
    c.modify(register("small_register", None, Some(9)), Optional(OK)).await?;
    let all = (0..4).map(|index| register("small_register", Some(index), Some(9)).into_entity()).collect();
    c.reads(register("small_register", None, None), all).await?;
}

async fn insert_and_delete_are_invalid(t) {
    let mut c = t.primary().await?;
    c.insert(register("small_register", Some(1), Some(1)), Optional(INVALID)).await?;
    c.delete(register("small_register", Some(1), None), INVALID).await?;
}

async fn a_negative_index_is_invalid(t) {
    let mut c = t.primary().await?;
    c.modify(register("small_register", Some(-1), Some(1)), Optional(INVALID)).await?;
    c.read_refused(register("small_register", Some(-1), None), INVALID).await?;
}

async fn an_index_beyond_the_array_is_out_of_range(t) {
    let mut c = t.primary().await?;
    c.modify(register("small_register", Some(4), Some(1)), Optional(RANGE)).await?;
    c.read_refused(register("small_register", Some(4), None), RANGE).await?;
}

async fn data_of_another_type_is_invalid(t) {
    let mut c = t.primary().await?;
    let data = Some(P4Data { data: Some(p4_data::Data::Bool(true)) });
    c.modify(RegisterEntry { data, ..register("small_register", Some(1), None) }, Optional(INVALID)).await?;
}

async fn an_unknown_register_is_refused(t) {
    let mut c = t.primary().await?;
    c.read_refused(register("small_register", Some(0), None), Optional(OK)).await?;
    let unknown = RegisterEntry { register_id: 0x15ff_fff1, ..register("small_register", Some(0), Some(1)) };
    c.modify(unknown, [INVALID, NOT_FOUND]).await?;
}

async fn register_id_zero_reads_all_registers(t) {
    let mut c = t.primary().await?;
    c.read_refused(RegisterEntry::default(), Optional(OK)).await?;
    same(c.read(RegisterEntry::default()).await?.len(), 4 + 2, "cells")?;
}

}
