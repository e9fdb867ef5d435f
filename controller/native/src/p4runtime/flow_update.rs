// SPDX-License-Identifier: Apache-2.0
//! Encodes the update of a flow's table entry, whose exact-match fields differ from flow to flow.
//!
//! Python encodes the parts that many flows share, and this module inserts the match fields between them. The shared
//! parts are `head` (table id and the other match fields) and the action.

use prost::encoding::{encode_varint, encoded_len_varint};

/// Protobuf keys (field number and wire type) of `WriteRequest.updates`, `Update`, `Entity.table_entry` and
/// `TableEntry.match`.
const UPDATES: u8 = 4 << 3 | 2;
const TYPE: u8 = 1 << 3;
const ENTITY: u8 = 2 << 3 | 2;
const TABLE_ENTRY: u8 = 2 << 3 | 2;
const MATCH: u8 = 2 << 3 | 2;
/// Protobuf keys of `FieldMatch.field_id`, `FieldMatch.exact` and `Exact.value`.
const FIELD_ID: u8 = 1 << 3;
const EXACT: u8 = 2 << 3 | 2;
const VALUE: u8 = 1 << 3 | 2;

/// Encodes an update as the field `updates` of a WriteRequest. Each match has a field id below 128, and a big-endian
/// value of at most 64 octets. Returns `None` for other matches.
pub fn encode(kind: u8, head: &[u8], matches: &[(u8, &[u8])], action: &[u8]) -> Option<Vec<u8>> {
    let mut fields = Vec::with_capacity(matches.len() * 24);
    for &(id, value) in matches {
        let zeros = value.iter().take_while(|octet| **octet == 0).count();
        let value = match &value[zeros..] {
            [] => &[0][..],
            significant => significant,
        };
        if id >= 128 || value.len() > 64 {
            return None;
        }
        let length = value.len() as u8;
        fields.extend([
            MATCH,
            length + 6,
            FIELD_ID,
            id,
            EXACT,
            length + 2,
            VALUE,
            length,
        ]);
        fields.extend_from_slice(value);
    }
    let entry = head.len() + fields.len() + action.len();
    let entity = 1 + encoded_len_varint(entry as u64) + entry;
    let update = 3 + encoded_len_varint(entity as u64) + entity;
    let mut message = Vec::with_capacity(1 + encoded_len_varint(update as u64) + update);
    message.push(UPDATES);
    encode_varint(update as u64, &mut message);
    message.extend([TYPE, kind, ENTITY]);
    encode_varint(entity as u64, &mut message);
    message.push(TABLE_ENTRY);
    encode_varint(entry as u64, &mut message);
    message.extend_from_slice(head);
    message.extend_from_slice(&fields);
    message.extend_from_slice(action);
    Some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_their_shortest_form() {
        let found = encode(1, &[8, 5], &[(3, &[0, 0, 7]), (4, &[0])], b"a");
        let expected = [
            0x22, 27, 8, 1, 0x12, 23, 0x12, 21, 8, 5, //
            0x12, 7, 8, 3, 0x12, 3, 0x0a, 1, 7, //
            0x12, 7, 8, 4, 0x12, 3, 0x0a, 1, 0, b'a',
        ];
        assert_eq!(found, Some(expected.to_vec()));
    }

    #[test]
    fn other_matches_are_refused() {
        assert_eq!(encode(1, b"", &[(128, &[1])], b""), None);
        assert_eq!(encode(1, b"", &[(1, &[1; 65])], b""), None);
    }
}
