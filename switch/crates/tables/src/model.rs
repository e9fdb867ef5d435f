// SPDX-License-Identifier: Apache-2.0
//! Entries, members, groups and packet replicas, in the form in which the control plane writes and reads them.

use sluice_program::ActionId;

/// A big-endian byte string. Writes accept any zero padding, reads return the shortest form.
pub type Value = Vec<u8>;

/// Match of an entry on one key field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyField {
    /// The field equals the value.
    Exact(Value),
    /// The first `prefix_len` bits are equal to those of the value. The other bits of `value` must be 0.
    Lpm {
        /// The prefix.
        value: Value,
        /// Prefix length in bits, not 0 (for any value use [`KeyField::DontCare`]).
        prefix_len: u32,
    },
    /// The bits whose mask bit is 1 are equal to those of the value. The other bits of `value` must be 0.
    Ternary {
        /// The value.
        value: Value,
        /// The mask, not 0.
        mask: Value,
    },
    /// The field is between both bounds, inclusive.
    Range {
        /// Lower bound.
        low: Value,
        /// Upper bound, not below `low`.
        high: Value,
    },
    /// The field equals the value, in a field of match kind `optional`.
    Optional(Value),
    /// Any value matches. Allowed for every match kind except exact.
    DontCare,
}

/// An action with values for its parameters, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCall {
    /// The action.
    pub action: ActionId,
    /// One value for each parameter.
    pub params: Vec<Value>,
}

/// A member of a one-shot group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneShotMember {
    /// Action of the member.
    pub call: ActionCall,
    /// Weight, at least 1.
    pub weight: u32,
    /// Port that the member watches. The member is skipped while this port is down.
    pub watch_port: Option<u32>,
}

/// What an entry runs on a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryAction {
    /// Runs this action.
    Direct(ActionCall),
    /// Runs the action of this member of the table's profile.
    Member(u32),
    /// Runs the action of a member of this group, chosen by the selector.
    Group(u32),
    /// Runs the action of a member of a group that belongs to this entry only, chosen by the selector.
    OneShot(Vec<OneShotMember>),
}

/// A table entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySpec {
    /// One element for each key field of the table, in order.
    pub key: Vec<KeyField>,
    /// Priority; the matching entry with the highest priority wins. At least 1 if the table has a ternary, range or
    /// optional field, else 0.
    pub priority: i32,
    /// Action of the entry.
    pub action: EntryAction,
    /// Time without a hit after which the entry is reported idle, in nanoseconds; 0 for never.
    pub idle_timeout_ns: u64,
    /// A number that the controller chooses. The switch only stores it.
    pub controller_metadata: u64,
    /// Bytes that the controller chooses. The switch only stores them.
    pub metadata: Vec<u8>,
}

/// A member of an action profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    /// Id, which the control plane chooses.
    pub id: u32,
    /// Action of the member.
    pub call: ActionCall,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The member's id.
    pub member: u32,
    /// Weight, at least 1.
    pub weight: u32,
    /// Port that the member watches. The member is skipped while this port is down.
    pub watch_port: Option<u32>,
}

/// A group of an action selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Id, which the control plane chooses.
    pub id: u32,
    /// Maximum sum of the weights; 0 if the group declares no limit.
    pub max_size: u32,
    /// Members of the group.
    pub members: Vec<GroupMember>,
}

/// Default entry: a table's action on a miss, and the controller's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultSpec {
    /// The action.
    pub action: EntryAction,
    /// A number that the controller chooses. The switch only stores it.
    pub controller_metadata: u64,
    /// Bytes that the controller chooses. The switch only stores them.
    pub metadata: Vec<u8>,
}

impl From<EntryAction> for DefaultSpec {
    fn from(action: EntryAction) -> Self {
        Self {
            action,
            controller_metadata: 0,
            metadata: Vec::new(),
        }
    }
}

/// A copy of a packet made by replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Egress port.
    pub port: u32,
    /// Instance, which the egress pipeline reads as `egress_rid`.
    pub instance: u16,
    /// Fallbacks while `port` is down. The first fallback whose port is up is used.
    pub backups: Vec<BackupReplica>,
}

impl Replica {
    /// Creates a replica without backups.
    pub fn new(port: u32, instance: u16) -> Self {
        Self {
            port,
            instance,
            backups: Vec::new(),
        }
    }

    /// Returns every pair of port and instance that the replica may use, in order of preference.
    pub fn destinations(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        let backups = self.backups.iter();
        std::iter::once((self.port, self.instance))
            .chain(backups.map(|backup| (backup.port, backup.instance)))
    }
}

/// Returns the total number of replicas and backups.
pub(crate) fn count_destinations(replicas: &[Replica]) -> usize {
    replicas
        .iter()
        .map(|replica| 1 + replica.backups.len())
        .sum()
}

/// A fallback of a replica whose port is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReplica {
    /// Egress port.
    pub port: u32,
    /// Instance, which the egress pipeline reads as `egress_rid`.
    pub instance: u16,
}

/// A multicast group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastGroup {
    /// The replicas, one for each copy of a packet.
    pub replicas: Vec<Replica>,
    /// Bytes that the controller chooses. The switch only stores them.
    pub metadata: Vec<u8>,
}

impl From<Vec<Replica>> for MulticastGroup {
    fn from(replicas: Vec<Replica>) -> Self {
        Self {
            replicas,
            metadata: Vec::new(),
        }
    }
}

/// Limits of a store for objects whose number the program does not limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of multicast groups.
    pub multicast_groups: usize,
    /// Maximum number of clone sessions.
    pub clone_sessions: usize,
    /// Maximum number of replicas of all groups and sessions together.
    pub replicas: usize,
}

impl Default for Limits {
    /// Allows as many groups and sessions as v1model can number, and 2^20 replicas.
    fn default() -> Self {
        Self {
            multicast_groups: 0xffff,
            clone_sessions: 0x7fff,
            replicas: 1 << 20,
        }
    }
}

/// A clone session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneSession {
    /// The replicas, one for each copy of a packet.
    pub replicas: Vec<Replica>,
    /// Stored for the controller, but not used: this switch has only one class of service.
    pub class_of_service: u32,
    /// Number of bytes that a copy keeps; 0 for all bytes.
    pub packet_length: u32,
}
