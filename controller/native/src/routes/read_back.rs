// SPDX-License-Identifier: Apache-2.0
//! Decodes routes from an encoded ReadResponse, which Python reads back from the switch. A response
//! can have a million entities, which differ mostly in their prefix.
//!
//! The TableEntry of a route has three parts: a *head* (table and VRF), the LPM match, and a *tail*
//! (the action). There are few different heads and tails. Python decodes one entity for each
//! combination of head and tail, and teaches it to this module. This module then decodes all other
//! entities with the same head and tail. Python decodes all remaining entities.

use std::collections::HashMap;

use super::slot::RouteSlot;

/// Maximum number of known tails. When it is reached, all heads and tails are forgotten.
const TAILS: usize = 65_536;

// Tags of the protobuf fields, in their usual order.
const ENTITIES: u8 = 0x0A; // ReadResponse.entities
const TABLE_ENTRY: u8 = 0x12; // Entity.table_entry
const MATCH: u8 = 0x12; // TableEntry.match
const FIELD_ID: u8 = 0x08; // FieldMatch.field_id
const LPM: u8 = 0x22; // FieldMatch.lpm
const VALUE: u8 = 0x0A; // FieldMatch.LPM.value
const LENGTH: u8 = 0x10; // FieldMatch.LPM.prefix_len
/// Smallest first octet of a varint that has more than one octet.
const LONG: u8 = 0x80;

/// Offset of the TableEntry in an Entity, if the Entity's length fits in one octet.
const ENTRY: usize = 2;

/// A head: the encoding of a table and a VRF, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryHead {
    /// The encoded fields of a TableEntry before the LPM match.
    pub encoded: Box<[u8]>,
    /// Id of the match field with the prefix.
    pub field: u8,
    /// Size of an address in octets.
    pub size: usize,
    /// VRF of the routes.
    pub vrf: u32,
}

impl EntryHead {
    /// Returns the prefix and the tail of an entity with this head. Returns `None` if the encoding
    /// is unusual.
    fn cut<'a>(&self, entity: &'a [u8]) -> Option<(RouteSlot, &'a [u8])> {
        let entry = entity.get(ENTRY..)?;
        let [TABLE_ENTRY, length, ..] = *entity else {
            return None;
        };
        if length >= LONG || usize::from(length) != entry.len() {
            return None;
        }
        let rest = entry.strip_prefix(&*self.encoded)?;
        let [
            MATCH,
            of_match,
            FIELD_ID,
            field,
            LPM,
            of_lpm,
            VALUE,
            width,
            rest @ ..,
        ] = rest
        else {
            return None;
        };
        let octets = usize::from(*width);
        let lengths = usize::from(*of_match) == octets + 8 && usize::from(*of_lpm) == octets + 4;
        if !lengths || *field != self.field || octets == 0 || octets > self.size {
            return None;
        }
        let (value, rest) = rest.split_at_checked(octets)?;
        let [LENGTH, length, tail @ ..] = rest else {
            return None;
        };
        let mut address = [0; 16];
        let address = address.get_mut(..self.size)?;
        address[self.size - octets..].copy_from_slice(value);
        (*length < LONG)
            .then(|| RouteSlot::new(self.vrf, address, *length))?
            .map(|slot| (slot, tail))
    }
}

/// The known heads and tails. Maps each encoded tail to the number of its target.
type Tails = HashMap<Box<[u8]>, u32>;

/// The known heads and tails.
#[derive(Debug, Default)]
pub struct Forms {
    heads: Vec<(EntryHead, Tails)>,
    tails: usize,
}

impl Forms {
    /// Learns the head and the tail of `entity`, which is the route of `slot` to `target`. Later
    /// entities with the same head and tail are routes to the same target. Ignores an entity with
    /// an unusual encoding.
    pub fn learn(&mut self, head: EntryHead, entity: &[u8], slot: &RouteSlot, target: u32) {
        let Some((_, tail)) = head.cut(entity).filter(|(found, _)| found == slot) else {
            return;
        };
        if self.tails >= TAILS {
            *self = Self::default();
        }
        let at = self.heads.iter().position(|(known, _)| *known == head);
        let at = at.unwrap_or_else(|| {
            self.heads.push((head, Tails::new()));
            self.heads.len() - 1
        });
        let before = self.heads[at].1.insert(tail.into(), target);
        self.tails += usize::from(before.is_none());
    }

    /// Decodes routes of a ReadResponse, starting with the entity at offset `start`. Stops at the
    /// first entity with an unknown head or tail, or after `limit` routes. Returns the routes and
    /// the offset of the next entity.
    pub fn read(
        &self,
        response: &[u8],
        start: usize,
        limit: usize,
    ) -> (Vec<(RouteSlot, u32)>, usize) {
        let (mut found, mut at) = (Vec::new(), start);
        while found.len() < limit {
            let Some(entity) = entity_at(response, at) else {
                break;
            };
            let Some(route) = self.route(entity) else {
                break;
            };
            found.push(route);
            at += ENTRY + entity.len();
        }
        (found, at)
    }

    fn route(&self, entity: &[u8]) -> Option<(RouteSlot, u32)> {
        let entry = entity.get(ENTRY..)?;
        let mut heads = self.heads.iter();
        let (head, tails) = heads.find(|(head, _)| entry.starts_with(&head.encoded))?;
        let (slot, tail) = head.cut(entity)?;
        tails.get(tail).map(|target| (slot, *target))
    }
}

/// Returns the entity at offset `at` of a ReadResponse, if the entity's length fits in one octet.
fn entity_at(response: &[u8], at: usize) -> Option<&[u8]> {
    let [ENTITIES, length, rest @ ..] = response.get(at..)? else {
        return None;
    };
    (*length < LONG).then(|| rest.get(..usize::from(*length)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &[u8] = &[0x1A, 2, 8, 9];

    fn head() -> EntryHead {
        EntryHead {
            encoded: Box::new([0x08, 5, MATCH, 3, 1, 2, 3]),
            field: 2,
            size: 4,
            vrf: 7,
        }
    }

    fn entity(value: &[u8], length: u8, tail: &[u8]) -> Vec<u8> {
        let width = value.len() as u8;
        let mut entry = head().encoded.to_vec();
        entry.extend([MATCH, width + 8, FIELD_ID, 2, LPM, width + 4, VALUE, width]);
        entry.extend(value);
        entry.extend([LENGTH, length]);
        entry.extend(tail);
        let mut entity = vec![TABLE_ENTRY, entry.len() as u8];
        entity.extend(entry);
        entity
    }

    fn response(entities: &[Vec<u8>]) -> Vec<u8> {
        let each = entities.iter();
        each.flat_map(|one| [&[ENTITIES, one.len() as u8][..], one].concat())
            .collect()
    }

    fn slot(address: [u8; 4], length: u8) -> RouteSlot {
        RouteSlot::new(7, &address, length).unwrap_or_else(|| unreachable!("a prefix"))
    }

    fn learnt() -> Forms {
        let mut forms = Forms::default();
        let one = entity(&[10, 0, 0, 0], 8, TAIL);
        forms.learn(head(), &one, &slot([10, 0, 0, 0], 8), 3);
        forms
    }

    #[test]
    fn other_prefixes_of_a_known_form_are_read() {
        let part = response(&[
            entity(&[20, 1, 0, 0], 16, TAIL),
            entity(&[0], 0, TAIL),
            entity(&[1, 2], 32, TAIL),
        ]);
        let expected = vec![
            (slot([20, 1, 0, 0], 16), 3),
            (slot([0; 4], 0), 3),
            (slot([0, 0, 1, 2], 32), 3),
        ];
        assert_eq!(learnt().read(&part, 0, 9), (expected.clone(), part.len()));
        let (found, next) = learnt().read(&part, 0, 2);
        assert_eq!(found, expected[..2]);
        assert_eq!(
            learnt().read(&part, next, 9),
            (expected[2..].to_vec(), part.len())
        );
    }

    #[test]
    fn what_is_not_known_ends_it() {
        let known = entity(&[20, 1, 0, 0], 16, TAIL);
        for other in [
            entity(&[20, 1, 0, 0], 33, TAIL),
            entity(&[20, 1, 0, 0], 0x80, TAIL),
            entity(&[20, 1, 0, 0], 16, &[0x1A, 2, 8, 8]),
            entity(&[20, 1, 0, 0], 16, &[]),
            entity(&[], 16, TAIL),
            entity(&[0, 20, 1, 0, 0], 16, TAIL),
            vec![],
            vec![TABLE_ENTRY],
        ] {
            let part = response(&[known.clone(), other]);
            let (found, next) = learnt().read(&part, 0, 9);
            assert_eq!((found.len(), next), (1, 2 + known.len()));
        }
        assert_eq!(
            Forms::default().read(&response(&[known]), 0, 9),
            (vec![], 0)
        );
        assert_eq!(learnt().read(&[], 0, 9), (vec![], 0));
        assert_eq!(learnt().read(&[], 5, 9), (vec![], 5));
    }

    #[test]
    fn no_bytes_are_read_beyond_an_entity() {
        let whole = response(&[entity(&[20, 1, 0, 0], 16, TAIL)]);
        for end in 0..whole.len() {
            assert_eq!(learnt().read(&whole[..end], 0, 9), (vec![], 0));
            for byte in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut damaged = whole.clone();
                damaged[end] = byte;
                let _ = learnt().read(&damaged, 0, 9);
            }
        }
    }

    #[test]
    fn nothing_is_learnt_of_another_prefix() {
        let mut forms = Forms::default();
        let one = entity(&[10, 0, 0, 0], 8, TAIL);
        forms.learn(head(), &one, &slot([11, 0, 0, 0], 8), 3);
        assert_eq!(forms.read(&response(&[one]), 0, 9), (vec![], 0));
    }

    #[test]
    fn too_many_tails_are_learnt_anew() {
        let mut forms = Forms::default();
        let route = slot([10, 0, 0, 0], 8);
        for number in 0..=TAILS as u32 {
            let tail = [&[0x1A, 4][..], &number.to_be_bytes()].concat();
            forms.learn(head(), &entity(&[10, 0, 0, 0], 8, &tail), &route, number);
        }
        assert_eq!(forms.tails, 1);
    }
}
