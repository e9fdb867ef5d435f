// SPDX-License-Identifier: Apache-2.0
//! Defines names of entities. A name identifies an entity and leaves out its content.

use sluice_p4runtime::proto::v1::entity::Entity as EntityKind;
use sluice_p4runtime::proto::v1::*;

use super::canonical::bytes;

/// Name of an entity, by the entity's kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Entry(u32, Vec<FieldName>, i32),
    Default(u32),
    Member(u32, u32),
    Group(u32, u32),
    Multicast(u32),
    Clone(u32),
    ValueSet(u32),
    Counter(u32, i64),
    Meter(u32, i64),
    Register(u32, i64),
    Digest(u32),
    Nothing,
}

/// A match field of a key: its id, its values and its prefix length.
pub(super) type FieldName = (u32, Vec<u8>, Vec<u8>, i32);

impl Name {
    /// Returns the name of an entity.
    pub(super) fn of(kind: &EntityKind) -> Self {
        let index = |index: &Option<Index>| index.as_ref().map_or(-1, |index| index.index);
        match kind {
            EntityKind::TableEntry(entry) => Self::of_entry(entry),
            EntityKind::ActionProfileMember(m) => Self::Member(m.action_profile_id, m.member_id),
            EntityKind::ActionProfileGroup(g) => Self::Group(g.action_profile_id, g.group_id),
            EntityKind::PacketReplicationEngineEntry(entry) => match &entry.r#type {
                Some(packet_replication_engine_entry::Type::MulticastGroupEntry(group)) => {
                    Self::Multicast(group.multicast_group_id)
                }
                Some(packet_replication_engine_entry::Type::CloneSessionEntry(session)) => {
                    Self::Clone(session.session_id)
                }
                None => Self::Nothing,
            },
            EntityKind::ValueSetEntry(set) => Self::ValueSet(set.value_set_id),
            EntityKind::CounterEntry(entry) => Self::Counter(entry.counter_id, index(&entry.index)),
            EntityKind::MeterEntry(entry) => Self::Meter(entry.meter_id, index(&entry.index)),
            EntityKind::RegisterEntry(entry) => {
                Self::Register(entry.register_id, index(&entry.index))
            }
            EntityKind::DigestEntry(entry) => Self::Digest(entry.digest_id),
            EntityKind::DirectCounterEntry(DirectCounterEntry { table_entry, .. })
            | EntityKind::DirectMeterEntry(DirectMeterEntry { table_entry, .. }) => {
                table_entry.as_ref().map_or(Self::Nothing, Self::of_entry)
            }
            EntityKind::ExternEntry(_) => Self::Nothing,
        }
    }

    fn of_entry(entry: &TableEntry) -> Self {
        if entry.is_default_action {
            return Self::Default(entry.table_id);
        }
        Self::Entry(entry.table_id, field_names(&entry.r#match), entry.priority)
    }

    /// Returns whether both names have the same kind and belong to the same object, such as entries of one table or
    /// members of one profile.
    pub(super) fn is_kin_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Entry(a, ..), Self::Entry(b, ..))
            | (Self::Member(a, _), Self::Member(b, _))
            | (Self::Group(a, _), Self::Group(b, _)) => a == b,
            _ => false,
        }
    }
}

/// Returns a key in a form that does not depend on the order and padding of its fields.
pub(super) fn field_names(key: &[FieldMatch]) -> Vec<FieldName> {
    let mut names: Vec<_> = key.iter().map(field_name).collect();
    names.sort();
    names
}

fn field_name(field: &FieldMatch) -> FieldName {
    use field_match::FieldMatchType;
    let (one, two, length) = match &field.field_match_type {
        Some(FieldMatchType::Exact(m)) => (bytes(&m.value), Vec::new(), 0),
        Some(FieldMatchType::Optional(m)) => (bytes(&m.value), Vec::new(), 0),
        Some(FieldMatchType::Ternary(m)) => (bytes(&m.value), bytes(&m.mask), 0),
        Some(FieldMatchType::Range(m)) => (bytes(&m.low), bytes(&m.high), 0),
        Some(FieldMatchType::Lpm(m)) => (bytes(&m.value), Vec::new(), m.prefix_len),
        _ => (Vec::new(), Vec::new(), 0),
    };
    (field.field_id, one, two, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_in_other_words_is_the_same_name() {
        let entry = |fields: &[(u32, &[u8])]| {
            let field = |(id, value): &(u32, &[u8])| FieldMatch {
                field_id: *id,
                field_match_type: Some(field_match::FieldMatchType::Exact(field_match::Exact {
                    value: value.to_vec(),
                })),
            };
            Name::of(&EntityKind::TableEntry(TableEntry {
                r#match: fields.iter().map(field).collect(),
                ..TableEntry::default()
            }))
        };
        assert_eq!(
            entry(&[(1, &[0, 7]), (2, &[0])]),
            entry(&[(2, &[0, 0]), (1, &[7])])
        );
    }
}
