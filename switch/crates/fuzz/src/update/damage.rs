// SPDX-License-Identifier: Apache-2.0
//! Damages parts of entities without using P4Info. Each function returns `None` if the update has no part that the
//! function can damage.

use prost::Message;
use sluice_p4runtime::proto::v1::*;
use tonic::Code;

use super::mutation_kind::{BAD_VALUE, Damage, INVALID, Mutation, NO_SUCH_REFERENCE, UNKNOWN_ID};
use crate::choices::Choices;

pub(super) fn group_damage(
    choices: &mut Choices<'_>,
    mutation: Mutation,
    group: &mut ActionProfileGroup,
) -> Option<Damage> {
    if mutation == Mutation::ZeroId {
        group.group_id = 0;
        return Some(INVALID);
    }
    let member = group.members.first_mut()?;
    match mutation {
        Mutation::SelectorWeight => member.weight = [0, -1, i32::MIN][choices.below(3)],
        Mutation::ReferredMember => {
            member.member_id = NO_SUCH_REFERENCE;
            return Some(Damage::Refused(&[Code::NotFound, Code::InvalidArgument]));
        }
        Mutation::Port => {
            let port = action_profile_group::member::WatchKind::WatchPort(vec![2, 0]);
            member.watch_kind = Some(port);
            return Some(UNKNOWN_ID);
        }
        _ => return None,
    }
    Some(INVALID)
}

pub(super) fn replication(
    mutation: Mutation,
    entry: &mut PacketReplicationEngineEntry,
) -> Option<Damage> {
    use packet_replication_engine_entry::Type;
    let replicas = match (mutation, entry.r#type.as_mut()?) {
        (Mutation::ZeroId, Type::MulticastGroupEntry(group)) => {
            group.multicast_group_id = 0;
            return Some(INVALID);
        }
        (Mutation::ZeroId, Type::CloneSessionEntry(session)) => {
            session.session_id = 0;
            return Some(INVALID);
        }
        (Mutation::QosQueue, Type::CloneSessionEntry(session)) => {
            session.class_of_service = 9;
            return Some(Damage::Refused(&[
                Code::InvalidArgument,
                Code::OutOfRange,
                Code::Unimplemented,
            ]));
        }
        (_, Type::MulticastGroupEntry(group)) => &mut group.replicas,
        (_, Type::CloneSessionEntry(session)) => &mut session.replicas,
    };
    let first = replicas.first_mut()?;
    match mutation {
        Mutation::Port => {
            first.port_kind = Some(replica::PortKind::Port(vec![1, 0, 0, 0, 0]));
            Some(BAD_VALUE)
        }
        Mutation::DuplicateMatchField => {
            let again = first.clone();
            replicas.push(again);
            Some(INVALID)
        }
        Mutation::MissingMatchField => {
            first.port_kind = None;
            Some(INVALID)
        }
        _ => None,
    }
}

pub(super) fn index(choices: &mut Choices<'_>, index: &mut Option<Index>) -> Option<Damage> {
    let wrong = [-1, 1 << 20, i64::MIN, i64::MAX][choices.below(4)];
    *index = Some(Index { index: wrong });
    Some(BAD_VALUE)
}

pub(super) fn meter(config: &mut MeterConfig) -> Option<Damage> {
    config.cir = config.pir + 1;
    Some(INVALID)
}

pub(super) fn other_type(given: &field_match::FieldMatchType) -> field_match::FieldMatchType {
    use field_match::{Exact, FieldMatchType, Range};
    let value = vec![1];
    match given {
        FieldMatchType::Exact(_) => FieldMatchType::Range(Range {
            low: value.clone(),
            high: value,
        }),
        _ => FieldMatchType::Exact(Exact { value }),
    }
}

pub(super) fn set_value(given: &mut field_match::FieldMatchType, value: Vec<u8>) {
    use field_match::FieldMatchType;
    match given {
        FieldMatchType::Exact(m) => m.value = value,
        FieldMatchType::Optional(m) => m.value = value,
        FieldMatchType::Ternary(m) => m.value = value,
        FieldMatchType::Lpm(m) => m.value = value,
        FieldMatchType::Range(m) => m.high = value,
        FieldMatchType::Other(_) => {}
    }
}

pub(super) fn bits_outside(given: &mut field_match::FieldMatchType) -> Option<()> {
    use field_match::FieldMatchType;
    match given {
        FieldMatchType::Ternary(m) => {
            (m.value, m.mask) = (vec![1], vec![2]);
            Some(())
        }
        FieldMatchType::Lpm(m) if m.prefix_len > 0 => {
            (m.value, m.prefix_len) = (vec![1], 1);
            Some(())
        }
        _ => None,
    }
}

/// Changes a few bytes of the encoded update.
pub(super) fn damage_bytes(choices: &mut Choices<'_>, update: &mut Update) -> Option<Damage> {
    let mut bytes = update.encode_to_vec();
    for _ in 0..=choices.below(3) {
        let at = choices.below(bytes.len());
        match choices.below(4) {
            0 => bytes[at] ^= 1 << choices.below(8),
            1 => bytes[at] = choices.byte(),
            2 if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => bytes.insert(at, choices.byte()),
        }
    }
    *update = Update::decode(bytes.as_slice()).ok()?;
    Some(Damage::Any)
}
