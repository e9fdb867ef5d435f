// SPDX-License-Identifier: Apache-2.0
//! Control-plane state of a program, and the lookup structures that packets use.
//!
//! A [`Store`] holds three copies of the same information. The *authoritative copy* is for the control plane, which
//! reads it and validates writes against it. The two *replicas* are the lookup structures; packets use one of them. A
//! [`Transaction`] changes the authoritative copy and the replica that no packet uses. Then it switches the readers to
//! the changed replica, waits until the last reader has left the old replica, and repeats the changes there. This
//! guarantees:
//!
//! * a packet sees one version of all tables from start to end;
//! * a transaction becomes visible as a whole;
//! * after a commit no packet uses the old version.
//!
//! Entries are stored once, in slabs (`slab`). All other structures refer to entries by number.
//!
//! * [`Store`], [`Transaction`], [`View`]: the control plane's interface;
//! * [`TableReplica`]: the packet's interface ([`Store::reader`], [`Reader::pin`]);
//! * [`TableHandle`], [`Access`], [`RowShape`]: the packet's interface for machine code;
//! * [`EntrySpec`] and its parts: entries as the control plane writes and reads them;
//! * [`Externs`]: counters, meters and registers, shared by both replicas.
//!
//! Modules import only from modules below them. From bottom to top:
//!
//! * the control plane's model and its encodings: `model`, `value`, `key`, `action`, `group`, `binding`;
//! * cells and state that packets write: `counter`, `meter`, `externs`, `entry_state`, `default_entry`;
//! * the storage of entries: `row`, `slab`, `entry`;
//! * the lookup structures: `lookup`, `profile`, `handle`, `table_lookup`;
//! * the copies of the state, to which a `change` is applied: `table_replica`, `expiry`, `authoritative`;
//! * the lookups of packets: `packet_lookup`;
//! * the operations: `control`, `transaction`, `view`, `store`, `fibs`.
//!
//! Depends on `program`, `fib`, `exact` and `classifier`. Invariants: lookups by packets take no lock and allocate no
//! memory. An operation that returns an error has changed nothing.

mod action;
mod authoritative;
mod binding;
mod by_id;
mod change;
mod control;
mod counter;
mod default_entry;
mod entry;
mod entry_state;
mod error;
mod expiry;
mod externs;
mod fibs;
mod group;
mod handle;
mod key;
mod left_right;
mod lookup;
mod meter;
mod model;
mod packet_lookup;
mod packing;
mod ports;
mod profile;
mod row;
mod shared_table;
mod slab;
mod staggered;
mod store;
mod table_lookup;
mod table_replica;
mod transaction;
mod value;
mod value_set;
mod view;
mod wait;

pub use action::{ActionEntry, ActionRef};
pub use binding::Binding;
pub use counter::CounterCell;
pub use default_entry::DefaultEntry;
pub use entry::{CompiledEntry, Entry};
pub use entry_state::EntryState;
pub use error::TableError;
pub use expiry::Expired;
pub use externs::{Externs, HeldRegisters};
pub use fibs::FibInfo;
pub use group::Group;
pub use handle::{Access, RowShape, TableHandle, TableHandles};
pub use left_right::Pinned;
pub use lookup::FibDetail;
pub use meter::{Color, Meter, MeterConfig};
pub use model::{
    ActionCall, BackupReplica, CloneSession, DefaultSpec, EntryAction, EntrySpec, GroupMember,
    GroupSpec, KeyField, Limits, MemberSpec, MulticastGroup, OneShotMember, Replica, Value,
};
pub use packet_lookup::{Lookup, Match, MatchTarget};
pub use ports::PortStatus;
pub use profile::GroupHandle;
pub use row::{
    KIND_ACTION, KIND_GROUP, KIND_MEMBER, NO_ACTION, ROW_HIT, ROW_HOLDER, ROW_KIND, Row,
};
pub use sluice_fib::Trial;
pub use store::{Reader, Store, constant_rows};
pub use table_replica::TableReplica;
pub use transaction::{AHEAD, Savepoint, Transaction};
pub use value::canonical;
pub use view::View;
pub use wait::Wait;
