// SPDX-License-Identifier: Apache-2.0
//! Tests requests for externs of other architectures, of which the suite's program has none. The server must
//! refuse a request for one such extern. It must return no entries for a read of all of them.

use super::prelude::*;

section! { "ExternEntry";

async fn an_unknown_extern_is_refused(t) {
    let mut c = t.primary().await?;
    let unknown = ExternEntry { extern_type_id: 0x81, extern_id: 0x8100_0001, entry: None };
    c.insert(unknown.clone(), [INVALID, NOT_FOUND, UNIMPLEMENTED]).await?;
    c.read_refused(unknown, [INVALID, NOT_FOUND, UNIMPLEMENTED]).await?;
}

async fn extern_type_id_zero_reads_all_there_are(t) {
    let mut c = t.primary().await?;
    c.read_refused(ExternEntry::default(), Optional(OK)).await?;
    c.reads(ExternEntry::default(), vec![]).await?;
}

}
