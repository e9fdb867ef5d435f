// SPDX-License-Identifier: Apache-2.0
//! Generates code for action profiles: resolves the row of a table with a profile to the action of a member.
//!
//! To choose the member of a group, machine code first computes the selector's hash, mostly from fields in registers.
//! Then it makes three loads (see [`GroupHandle`]). The first load depends on the table's lookup, and each further load
//! depends on the previous one. So the packet waits for the whole chain.
//!
//! The first word of a row, its *head*, identifies the row's member or group. To shorten the chain, a table with a
//! profile and few keys has the heads of all rows in a separate array ([`TableHandle::HEADS`]).
//!
//! A [`GroupHandle`] does not cover one-shot groups (which belong to one entry), very large groups, groups that watch
//! ports, and buckets that several members share. In these cases the runtime chooses the member, by the same hash.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I16, I32, I64};
use cranelift_codegen::ir::{Block, InstBuilder, Value};
use cranelift_frontend::Variable;
use sluice_engine::hash;
use sluice_program::{HashAlgorithm, ProfileId, Table, TableId};
use sluice_tables::{
    GroupHandle, KIND_ACTION, KIND_GROUP, KIND_MEMBER, ROW_KIND, RowShape, TableHandle,
};

use crate::analysis::calculation_input::{Input, pieces};
use crate::codegen::lower::Lower;
use crate::runtime::lookups;

/// A chosen member: its action and the address of the action's parameters.
#[derive(Clone, Copy)]
struct Chosen {
    action: Variable,
    params: Variable,
}

impl Lower<'_> {
    /// Loads the head of the row that a key selects, or of the default row. The table must have [`TableHandle::HEADS`].
    pub(crate) fn head_of(&mut self, id: TableId, key: Value) -> Value {
        let heads = self.handle(id, TableHandle::HEADS);
        let offset = self.shl(key, size_of::<u64>().ilog2());
        let place = self.b.ins().iadd(heads, offset);
        let entry = self.load(I64, place, 0);
        let head = self.b.declare_var(I64);
        self.b.def_var(head, entry);
        let none = self.not_set(entry);
        self.when(none, |lower| {
            let row = lower.handle(id, TableHandle::DEFAULT);
            let default = lower.load(I64, row, 0);
            lower.b.def_var(head, default);
        });
        self.b.use_var(head)
    }

    /// Returns whether a word is 0.
    fn not_set(&mut self, word: Value) -> Value {
        let zero = self.int(0);
        self.compare(IntCC::Equal, word, zero)
    }

    /// Resolves a row to an action and the address of the action's parameters, given the row's head. The table must
    /// have a profile and no meter. `row` generates code that computes the row's address. `count` generates code that
    /// counts the packet. It is called only on paths without a call of the runtime, because the runtime counts the
    /// packet itself.
    pub(crate) fn choose_action(
        &mut self,
        id: TableId,
        row: impl Fn(&mut Self) -> Value,
        head: Value,
        count: impl FnOnce(&mut Self),
    ) -> (Value, Value) {
        let table: &Table = self.program.table(id);
        let Some(profile) = table.profile else {
            unreachable!("table {} has no profile", table.name);
        };
        let shape = RowShape::of(self.program, table);
        let chosen = Chosen {
            action: self.b.declare_var(I32),
            params: self.b.declare_var(I64),
        };
        let [found, elsewhere, done] = [(); 3].map(|()| self.b.create_block());
        self.b.set_cold_block(elsewhere);
        let selector = self.program.profile(profile).selector.as_ref();
        let kind = self.shr(head, ROW_KIND);
        let kind = self.and(kind, 3);
        let number = self.and(head, u32::MAX.into());
        if selector.is_some_and(|selector| selector.algorithm != HashAlgorithm::Random) {
            let [group, other] = [(); 2].map(|()| self.b.create_block());
            self.is_kind(kind, KIND_GROUP, group, other);
            self.enter(group);
            let member = self.member_of(id, profile, number, elsewhere);
            self.member_row(id, member, shape.member_stride, chosen);
            self.jump(found);
            self.enter(other);
        }
        let [member, other, action] = [(); 3].map(|()| self.b.create_block());
        self.is_kind(kind, KIND_MEMBER, member, other);
        self.enter(member);
        let plain = self.b.create_block();
        let rows = self.handle_count(id, TableHandle::MEMBER_COUNT);
        let has_row = self.compare(IntCC::UnsignedLessThan, number, rows);
        self.branch(has_row, plain, elsewhere);
        self.enter(plain);
        self.member_row(id, number, shape.member_stride, chosen);
        self.jump(found);
        self.enter(other);
        self.is_kind(kind, KIND_ACTION, action, elsewhere);
        self.enter(action);
        let own = self.b.ins().ireduce(I32, head);
        self.b.def_var(chosen.action, own);
        let own = row(self);
        let params = self.b.ins().iadd_imm_s(own, shape.params as i64);
        self.b.def_var(chosen.params, params);
        self.jump(found);
        self.enter(found);
        count(self);
        self.jump(done);
        self.enter(elsewhere);
        let row = row(self);
        self.chosen_elsewhere(id, profile, row, chosen);
        self.jump(done);
        self.enter(done);
        (self.b.use_var(chosen.action), self.b.use_var(chosen.params))
    }

    fn is_kind(&mut self, kind: Value, which: u64, yes: Block, no: Block) {
        let which = self.int(which);
        let same = self.compare(IntCC::Equal, kind, which);
        self.branch(same, yes, no);
    }

    /// Loads a 32-bit number from a table's handle.
    fn handle_count(&mut self, id: TableId, field: usize) -> Value {
        let number = self.handle_of(I32, id, field);
        self.b.ins().uextend(I64, number)
    }

    /// Returns the id of the group member that the packet's hash selects. Branches to `elsewhere` if the group's handle
    /// does not have enough information.
    fn member_of(
        &mut self,
        id: TableId,
        profile: ProfileId,
        number: Value,
        elsewhere: Block,
    ) -> Value {
        let [exists, plain] = [(); 2].map(|()| self.b.create_block());
        let groups = self.handle_count(id, TableHandle::GROUP_COUNT);
        let known = self.compare(IntCC::UnsignedLessThan, number, groups);
        self.branch(known, exists, elsewhere);
        self.enter(exists);
        let offset = self.shl(number, size_of::<GroupHandle>().ilog2());
        let groups = self.handle(id, TableHandle::GROUPS);
        let group = self.b.ins().iadd(groups, offset);
        let buckets = self.load(I64, group, GroupHandle::BUCKETS as u32);
        self.branch(buckets, plain, elsewhere);
        self.enter(plain);
        let hash = self.selector_hash(profile);
        let hash = self.fold(hash, GroupHandle::SPREAD);
        let count = self.load(I64, group, GroupHandle::COUNT as u32);
        let bucket = self.b.ins().umulhi(hash, count);
        let offset = self.shl(bucket, size_of::<u16>().ilog2());
        let place = self.b.ins().iadd(buckets, offset);
        let member = self.load(I16, place, 0);
        let member = self.b.ins().uextend(I64, member);
        // A bucket is rarely shared by several members. So the CPU predicts this branch well, and starts the next load
        // without waiting for the comparison.
        let alone = self.b.create_block();
        let divided = self.int(GroupHandle::DIVIDED.into());
        let divided = self.compare(IntCC::Equal, member, divided);
        self.branch(divided, elsewhere, alone);
        self.enter(alone);
        member
    }

    /// Loads the action of a member, given its id. The member's row exists as long as a group contains the member.
    fn member_row(&mut self, id: TableId, member: Value, stride: usize, chosen: Chosen) {
        let rows = self.handle(id, TableHandle::MEMBERS);
        let offset = self.shl(member, stride.ilog2());
        let row = self.b.ins().iadd(rows, offset);
        let action = self.load(I32, row, 0);
        self.b.def_var(chosen.action, action);
        let params = self.b.ins().iadd_imm_s(row, size_of::<u64>() as i64);
        self.b.def_var(chosen.params, params);
    }

    /// Calls the runtime to resolve a row. The runtime also counts the packet.
    fn chosen_elsewhere(&mut self, id: TableId, profile: ProfileId, row: Value, chosen: Chosen) {
        let number = self.int(id.0.into());
        let selector = self.program.profile(profile).selector.as_ref();
        let by_hash = selector.is_some_and(|selector| selector.algorithm != HashAlgorithm::Random);
        let found = if by_hash {
            let hash = self.selector_hash(profile);
            let arguments = [number, row, hash];
            self.call(lookups::behind_by_hash as *const (), &arguments, 2)
        } else {
            // Passes no hash. If the selector is random, the runtime draws a random number, but only for a group with
            // several members.
            self.call(lookups::behind as *const (), &[number, row], 2)
        };
        let action = self.b.ins().ireduce(I32, found[1]);
        self.b.def_var(chosen.action, action);
        self.b.def_var(chosen.params, found[0]);
    }

    /// Computes the hash of a profile's selector, with the same result as [`hash::selector`]. The hash is 0 if the
    /// profile has no selector. The selector must not use random numbers.
    fn selector_hash(&mut self, profile: ProfileId) -> Value {
        let Some(selector) = &self.program.profile(profile).selector else {
            return self.int(0);
        };
        let result = self.b.declare_var(I64);
        let by_runtime = |lower: &mut Self| {
            let profile = lower.int(profile.0.into());
            let hash = lower.call(lookups::select_hash as *const (), &[profile], 1)[0];
            lower.b.def_var(result, hash);
        };
        match pieces(self.program, &selector.input) {
            Some(input) if selector.algorithm.only_spreads() => {
                let valid = self.all_valid(&input.headers);
                self.either(
                    valid,
                    |lower| {
                        let hash = lower.spread(&input);
                        lower.b.def_var(result, hash);
                    },
                    by_runtime,
                );
            }
            _ => by_runtime(self),
        }
        self.b.use_var(result)
    }

    /// Computes [`hash::spread`] of an input.
    fn spread(&mut self, input: &Input) -> Value {
        let mut words = self.input_words(input, 0).into_iter();
        let Some(first) = words.next() else {
            return self.int(0);
        };
        words.fold(first, |hash, word| {
            let mixed = self.fold(hash, hash::MULTIPLIER);
            self.b.ins().bxor(mixed, word)
        })
    }

    /// Returns the exclusive or of both halves of the 128-bit product of `value` and `by`.
    pub(crate) fn fold(&mut self, value: Value, by: u64) -> Value {
        let by = self.int(by);
        let low = self.b.ins().imul(value, by);
        let high = self.b.ins().umulhi(value, by);
        self.b.ins().bxor(low, high)
    }
}
