// SPDX-License-Identifier: Apache-2.0
//! Entries, members, groups and replication as the control plane writes and reads them.

use sluice_program::ActionId;

/// A big-endian byte string. Written with any zero padding; read in the shortest form.
pub type Value = Vec<u8>;

/// What an entry wants of one key field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyField {
    /// Equal.
    Exact(Value),
    /// The first `prefix_len` bits equal; the other bits of `value` must be 0.
    Lpm {
        /// The prefix.
        value: Value,
        /// Its length in bits, not 0 (a field that may be anything is [`KeyField::DontCare`]).
        prefix_len: u32,
    },
    /// Equal where the mask is 1; the other bits of `value` must be 0.
    Ternary {
        /// The value.
        value: Value,
        /// The mask, not 0.
        mask: Value,
    },
    /// Between both bounds, inclusive.
    Range {
        /// Lower bound.
        low: Value,
        /// Upper bound, not below `low`.
        high: Value,
    },
    /// Equal; for a field that need not be given.
    Optional(Value),
    /// Anything. For every kind but exact.
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
    /// What it does.
    pub call: ActionCall,
    /// Its share, at least 1.
    pub weight: u32,
    /// Left out while this port is down.
    pub watch_port: Option<u32>,
}

/// What an entry does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryAction {
    /// Runs this action.
    Direct(ActionCall),
    /// Runs the action of this member of the table's profile.
    Member(u32),
    /// Runs the action of a member of this group, chosen by the selector.
    Group(u32),
    /// A group that belongs to the entry.
    OneShot(Vec<OneShotMember>),
}

/// A table entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySpec {
    /// One element for each key field of the table, in order.
    pub key: Vec<KeyField>,
    /// Higher wins. Not 0 exactly when the table has a ternary, range or optional field.
    pub priority: i32,
    /// What it does.
    pub action: EntryAction,
    /// Time without a hit after which it is reported, in nanoseconds; 0 for never.
    pub idle_timeout_ns: u64,
    /// Kept for the controller.
    pub controller_metadata: u64,
    /// Kept for the controller.
    pub metadata: Vec<u8>,
}

/// A member of an action profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec {
    /// Chosen by the control plane.
    pub id: u32,
    /// What it does.
    pub call: ActionCall,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The member's id.
    pub member: u32,
    /// Its share, at least 1.
    pub weight: u32,
    /// Left out while this port is down.
    pub watch_port: Option<u32>,
}

/// A group of an action selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSpec {
    /// Chosen by the control plane.
    pub id: u32,
    /// Largest sum of weights; 0 for no limit of its own.
    pub max_size: u32,
    /// Its members.
    pub members: Vec<GroupMember>,
}

/// A copy that replication makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Where it goes.
    pub port: u32,
    /// Told to the egress pipeline as `egress_rid`.
    pub instance: u16,
}

/// A clone session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneSession {
    /// The copies.
    pub replicas: Vec<Replica>,
    /// Kept for the controller: this switch has one class.
    pub class_of_service: u32,
    /// Bytes that the copy keeps; 0 for all.
    pub packet_length: u32,
}
