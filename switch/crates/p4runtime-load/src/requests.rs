// SPDX-License-Identifier: Apache-2.0
//! Cuts encoded updates into encoded Write requests. The fields of a protobuf message may be in any order. So a request
//! is a head, which has all fields except the updates, followed by a piece of the file.

use anyhow::{Context, bail};
use bytes::{Buf, Bytes};
use prost::Message;
use sluice_p4runtime::proto::v1::{Uint128, WriteRequest};

/// Tag of `WriteRequest.updates`: field 4, length-delimited.
const UPDATES: u64 = 4 << 3 | 2;

/// Requests that differ only in their updates.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Device and election id.
    pub(crate) head: Bytes,
    /// The updates of each request, encoded, and their number.
    pub(crate) pieces: Vec<(Bytes, usize)>,
}

/// Cuts the updates into requests of at most `batch` updates.
///
/// # Errors
/// The bytes are not encoded updates.
pub(crate) fn cut(
    mut updates: Bytes,
    device_id: u64,
    election_id: u64,
    batch: usize,
) -> anyhow::Result<Requests> {
    let head = WriteRequest {
        device_id,
        election_id: Some(Uint128 {
            high: 0,
            low: election_id,
        }),
        ..WriteRequest::default()
    };
    let mut pieces = Vec::new();
    while !updates.is_empty() {
        let mut rest = &updates[..];
        let mut count = 0;
        while count < batch && !rest.is_empty() {
            skip_update(&mut rest)
                .with_context(|| format!("update {}", pieces.len() * batch + count))?;
            count += 1;
        }
        let length = updates.len() - rest.len();
        pieces.push((updates.split_to(length), count));
    }
    Ok(Requests {
        head: head.encode_to_vec().into(),
        pieces,
    })
}

fn skip_update(rest: &mut &[u8]) -> anyhow::Result<()> {
    let key = prost::encoding::decode_varint(rest)?;
    if key != UPDATES {
        bail!("the file has field key {key:#x}, which is not that of updates");
    }
    let length = prost::encoding::decode_varint(rest)? as usize;
    if length > rest.len() {
        bail!("an update ends beyond the end of the file");
    }
    rest.advance(length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_p4runtime::proto::v1::Update;

    fn updates(count: i32) -> WriteRequest {
        let update = |r#type| Update {
            r#type,
            entity: None,
        };
        WriteRequest {
            updates: (0..count).map(update).collect(),
            ..WriteRequest::default()
        }
    }

    #[test]
    fn requests_have_all_updates_in_order() {
        let all = updates(7);
        let requests = cut(all.encode_to_vec().into(), 3, 9, 3).unwrap();
        let counts: Vec<_> = requests.pieces.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [3, 3, 1]);
        let mut found = Vec::new();
        for (piece, _) in &requests.pieces {
            let request = WriteRequest::decode(requests.head.clone().chain(piece.clone())).unwrap();
            assert_eq!(request.device_id, 3);
            assert_eq!(request.election_id.unwrap().low, 9);
            found.extend(request.updates);
        }
        assert_eq!(found, all.updates);
    }

    #[test]
    fn what_is_no_update_is_refused_by_its_number() {
        let mut bytes = updates(2).encode_to_vec();
        bytes.extend([0x22, 0x7f, 0]);
        let error = cut(bytes.into(), 1, 1, 10).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "update 2: an update ends beyond the end of the file"
        );
    }
}
