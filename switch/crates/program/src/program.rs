// SPDX-License-Identifier: Apache-2.0
//! Defines the loaded program.

use crate::action::Action;
use crate::control::{Conditional, Pipeline, Profile, Table};
use crate::externs::{
    Calculation, Checksum, Counter, Digest, FieldList, Meter, Register, ValueSet,
};
use crate::ids::*;
use crate::layout::{FieldSlot, Header, HeaderType, Stack, Union, UnionStack};
use crate::parser::{Deparser, Parser, State};

/// The fields of `standard_metadata` that the architecture reads or writes. A field is optional if a program may lack
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandardMetadata {
    /// Port on which the packet arrived.
    pub ingress_port: FieldSlot,
    /// Destination port, chosen by ingress.
    pub egress_spec: FieldSlot,
    /// Egress port, set before egress runs.
    pub egress_port: FieldSlot,
    /// Length of the packet in bytes.
    pub packet_length: FieldSlot,
    /// How the packet came here: received, cloned, recirculated, ...
    pub instance_type: FieldSlot,
    /// Multicast group.
    pub mcast_grp: Option<FieldSlot>,
    /// Replication id (`rid`) of a multicast or clone replica.
    pub egress_rid: Option<FieldSlot>,
    /// Error with which parsing ended.
    pub parser_error: Option<FieldSlot>,
    /// Whether a checksum was wrong.
    pub checksum_error: Option<FieldSlot>,
    /// Time of ingress, in microseconds since the switch started.
    pub ingress_global_timestamp: Option<FieldSlot>,
    /// Time of egress, in microseconds since the switch started.
    pub egress_global_timestamp: Option<FieldSlot>,
    /// Time of enqueueing, in microseconds.
    pub enq_timestamp: Option<FieldSlot>,
    /// Queue length at enqueueing.
    pub enq_qdepth: Option<FieldSlot>,
    /// Time that the packet spent in the queue, in microseconds.
    pub deq_timedelta: Option<FieldSlot>,
    /// Queue length at dequeueing.
    pub deq_qdepth: Option<FieldSlot>,
    /// Number of the queue in which the packet waited.
    pub qid: Option<FieldSlot>,
    /// Priority that selects the queue. `None` also if the program never writes the field, because the priority is then
    /// always 0.
    pub priority: Option<FieldSlot>,
}

/// Numbers of the core library's parser errors in this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreErrors {
    /// `error.NoError`
    pub no_error: u32,
    /// `error.PacketTooShort`
    pub packet_too_short: u32,
    /// `error.NoMatch`
    pub no_match: u32,
    /// `error.StackOutOfBounds`
    pub stack_out_of_bounds: u32,
    /// `error.HeaderTooShort`
    pub header_too_short: u32,
    /// `error.ParserTimeout`
    pub parser_timeout: u32,
    /// `error.ParserInvalidArgument`
    pub parser_invalid_argument: u32,
}

/// A program that can be run. Invariant: every id in a program is a valid index into the vector of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Name of the file that p4c compiled, for log and error messages.
    pub name: String,
    /// Header types.
    pub header_types: Vec<HeaderType>,
    /// Header and metadata instances.
    pub headers: Vec<Header>,
    /// Header stacks.
    pub stacks: Vec<Stack>,
    /// Header unions.
    pub unions: Vec<Union>,
    /// Header union stacks.
    pub union_stacks: Vec<UnionStack>,
    /// Size of the PHV in bytes, including [`crate::layout::SLACK`].
    pub phv_bytes: usize,
    /// Number of bytes at the start of the PHV that hold metadata.
    pub metadata_bytes: usize,
    /// Every error that the program declares, with its number.
    pub errors: Vec<(String, u32)>,
    /// Values of the core library's errors.
    pub core_errors: CoreErrors,
    /// The first parser of the file, which is the parser that runs.
    pub parser: Parser,
    /// Parser states.
    pub states: Vec<State>,
    /// Parser value sets.
    pub value_sets: Vec<ValueSet>,
    /// The deparser.
    pub deparser: Deparser,
    /// Actions.
    pub actions: Vec<Action>,
    /// The ingress pipeline.
    pub ingress: Pipeline,
    /// The egress pipeline.
    pub egress: Pipeline,
    /// Tables of both pipelines.
    pub tables: Vec<Table>,
    /// Conditions of both pipelines.
    pub conditionals: Vec<Conditional>,
    /// Action profiles and selectors.
    pub profiles: Vec<Profile>,
    /// Counter arrays, including direct ones.
    pub counters: Vec<Counter>,
    /// Meter arrays, including direct ones.
    pub meters: Vec<Meter>,
    /// Register arrays.
    pub registers: Vec<Register>,
    /// Named calculations.
    pub calculations: Vec<Calculation>,
    /// Checksums, in the order in which they are verified and updated.
    pub checksums: Vec<Checksum>,
    /// Digests.
    pub digests: Vec<Digest>,
    /// Field lists.
    pub field_lists: Vec<FieldList>,
    /// Fields of the standard metadata that the architecture uses.
    pub standard_metadata: StandardMetadata,
}

macro_rules! accessors {
    ($($get:ident, $by_name:ident, $vec:ident, $id:ident, $ty:ty;)*) => {$(
        /// Returns the object with this id.
        #[inline]
        pub fn $get(&self, id: $id) -> &$ty {
            &self.$vec[id.index()]
        }

        /// Returns the id of the object with this name.
        pub fn $by_name(&self, name: &str) -> Option<$id> {
            self.$vec.iter().position(|object| object.name == name).map($id::new)
        }
    )*};
}

impl Program {
    accessors! {
        header_type, header_type_by_name, header_types, HeaderTypeId, HeaderType;
        header, header_by_name, headers, HeaderId, Header;
        stack, stack_by_name, stacks, StackId, Stack;
        union, union_by_name, unions, UnionId, Union;
        union_stack, union_stack_by_name, union_stacks, UnionStackId, UnionStack;
        state, state_by_name, states, StateId, State;
        value_set, value_set_by_name, value_sets, ValueSetId, ValueSet;
        action, action_by_name, actions, ActionId, Action;
        table, table_by_name, tables, TableId, Table;
        conditional, conditional_by_name, conditionals, ConditionalId, Conditional;
        profile, profile_by_name, profiles, ProfileId, Profile;
        counter, counter_by_name, counters, CounterId, Counter;
        meter, meter_by_name, meters, MeterId, Meter;
        register, register_by_name, registers, RegisterId, Register;
        calculation, calculation_by_name, calculations, CalculationId, Calculation;
        digest, digest_by_name, digests, DigestId, Digest;
        field_list, field_list_by_name, field_lists, FieldListId, FieldList;
    }

    /// Returns the table's own copy of an action. p4c makes a copy, with the same name, for each table that uses the
    /// action, and `action` may be the copy of another table. Returns `None` if the table has no such action.
    pub fn action_for(&self, table: &Table, action: ActionId) -> Option<ActionId> {
        if table.actions.contains(&action) {
            return Some(action);
        }
        let name = &self.actions.get(action.index())?.name;
        table
            .actions
            .iter()
            .copied()
            .find(|own| self.action(*own).name == *name)
    }

    /// Returns the absolute slot of a field in a header or metadata instance.
    pub fn slot(&self, header: HeaderId, field: usize) -> FieldSlot {
        let header = self.header(header);
        let relative = match header.metadata_slots.get(field) {
            Some(slot) => *slot,
            None => self.header_type(header.ty).fields[field].slot,
        };
        relative.moved(header.offset)
    }

    /// Returns the absolute slot of a field, given the names of its instance and of the field.
    pub fn slot_by_name(&self, header: &str, field: &str) -> Option<FieldSlot> {
        let id = self.header_by_name(header)?;
        let ty = self.header_type(self.header(id).ty);
        let index = ty
            .fields
            .iter()
            .position(|candidate| candidate.name == field)?;
        Some(self.slot(id, index))
    }
}
