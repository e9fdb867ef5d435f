// SPDX-License-Identifier: Apache-2.0
//! Provides the foundation of code generation: the function under construction, and constants that live as long as the
//! code. Also generates access to bit fields in the packet header vector, the packet and the frame.

mod validity;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I8X16, I16, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, InstBuilder, InstructionData, MemFlagsData, Opcode, SigRef, Signature, StackSlot,
    StackSlotData, StackSlotKind, Type, Value,
};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::FunctionBuilder;
use sluice_engine::{Config, ProgramPoint};
use sluice_program::layout::FieldSlot;
use sluice_program::{HeaderId, Program};

use crate::analysis::field_usage::FieldUsage;
use crate::analysis::known::{Flow, Known};
use crate::runtime::calls;
use crate::runtime::frame::{Frame, MIDDLE};

/// Constant words to which the code refers by address. The words live as long as the code.
#[derive(Debug, Default)]
pub(crate) struct Statics(Vec<Box<[u64]>>);

impl Statics {
    /// Stores words and returns their address.
    pub(crate) fn words(&mut self, words: Vec<u64>) -> i64 {
        let words = words.into_boxed_slice();
        let address = words.as_ptr() as i64;
        self.0.push(words);
        address
    }

    /// Stores bytes and returns their address.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> i64 {
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        self.words(words.collect())
    }
}

/// A set of headers that are valid together after parsing, and its estimated likelihood.
#[derive(Clone, Debug)]
pub(crate) struct ValidHeaders {
    pub(crate) weight: f64,
    pub(crate) valid: BTreeSet<HeaderId>,
}

/// The address to which a slot's offset is relative: the start of the header vector, or the start of a header that is
/// selected at run time.
pub(crate) type Base = Value;

/// A function under construction. Invariant: the builder is in a block that has not ended. The methods that end the
/// block say so in their comments.
pub(crate) struct Lower<'a> {
    pub(crate) program: &'a Program,
    pub(crate) config: &'a Config,
    pub(crate) facts: &'a FieldUsage,
    pub(crate) statics: &'a mut Statics,
    /// Descriptions of constructs that could not be compiled.
    pub(crate) not_compiled: &'a mut Vec<String>,
    pub(crate) b: FunctionBuilder<'a>,
    /// Facts that are certain at the builder's current point.
    pub(crate) known: Known,
    pub(crate) flow: Flow,
    call_conv: CallConv,
    signatures: Vec<(usize, usize, SigRef)>,
    /// Values in which only the low bits can be set, with the number of these bits.
    narrow: BTreeMap<Value, u32>,
    scratch: Option<StackSlot>,
    /// The address [`MIDDLE`] bytes after the frame's start.
    frame: Value,
    pub(crate) phv: Base,
    /// Sets of headers that may be valid together when the parser ends.
    pub(crate) together: Vec<ValidHeaders>,
    /// The address of the table handles, while it is in a register.
    pub(crate) tables: Option<Value>,
}

impl<'a> Lower<'a> {
    /// Begins a function whose argument is the address of a frame.
    pub(crate) fn new(
        program: &'a Program,
        config: &'a Config,
        facts: &'a FieldUsage,
        statics: &'a mut Statics,
        not_compiled: &'a mut Vec<String>,
        mut b: FunctionBuilder<'a>,
        call_conv: CallConv,
    ) -> Self {
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        b.seal_block(entry);
        let frame = b.block_params(entry)[0];
        // The whole function uses the address of the header vector, so it is loaded here, once.
        let flags = MemFlagsData::trusted();
        let phv = b.ins().load(
            I64,
            flags,
            frame,
            offset_of!(Frame<'static>, phv) as i32 - MIDDLE as i32,
        );
        Self {
            program,
            config,
            facts,
            statics,
            not_compiled,
            b,
            known: Known::of_all(),
            flow: Flow::default(),
            call_conv,
            signatures: Vec::new(),
            narrow: BTreeMap::new(),
            scratch: None,
            frame,
            phv,
            together: Vec::new(),
            tables: None,
        }
    }

    /// Loads a field of the frame. Each use loads the field again. If the value stayed in a register until the next
    /// use, the compiler would mostly have to spill this value or another one.
    pub(crate) fn frame_field(&mut self, offset: usize) -> Value {
        let flags = MemFlagsData::new().with_notrap();
        let offset = offset as i32 - MIDDLE as i32;
        self.b.ins().load(I64, flags, self.frame, offset)
    }

    /// Ends the function with this result.
    pub(crate) fn finish(&mut self, result: u64) {
        let result = self.int(result);
        self.b.ins().return_(&[result]);
    }

    pub(crate) fn int(&mut self, value: u64) -> Value {
        self.b.ins().iconst(I64, value as i64)
    }

    pub(crate) fn byte(&mut self, value: bool) -> Value {
        self.b.ins().iconst(I8, i64::from(value))
    }

    /// Returns a value's number if the value is a constant in the code, else `None`.
    pub(crate) fn constant(&self, value: Value) -> Option<u64> {
        match self.definition(value)? {
            InstructionData::UnaryImm {
                opcode: Opcode::Iconst,
                imm,
            } => Some(imm.bits() as u64),
            _ => None,
        }
    }

    fn definition(&self, value: Value) -> Option<InstructionData> {
        let dfg = &self.b.func.dfg;
        let value = dfg.resolve_aliases(value);
        dfg.value_def(value).inst().map(|inst| dfg.insts[inst])
    }

    /// Returns an upper bound of a value's width: only that many low bits may be set. Derives the bound from the
    /// instruction that defines the value.
    fn bits(&self, value: Value) -> u32 {
        match self.definition(value) {
            Some(InstructionData::UnaryImm {
                opcode: Opcode::Iconst,
                imm,
            }) => 64 - imm.bits().leading_zeros(),
            Some(InstructionData::Unary {
                opcode: Opcode::Uextend,
                arg,
            }) => self.b.func.dfg.value_type(arg).bits(),
            _ => self.narrow.get(&value).copied().unwrap_or(64),
        }
    }

    /// Records that only the low `bits` bits of a word can be set.
    pub(crate) fn note_bits(&mut self, value: Value, bits: u32) {
        if bits < 64 {
            self.narrow.insert(value, bits);
        }
    }

    pub(crate) fn and(&mut self, value: Value, mask: u64) -> Value {
        if let Some(constant) = self.constant(value) {
            return self.int(constant & mask);
        }
        if mask.trailing_ones() >= self.bits(value) {
            return value;
        }
        let mask = self.int(mask);
        self.b.ins().band(value, mask)
    }

    pub(crate) fn shl(&mut self, value: Value, count: u32) -> Value {
        match (count, self.constant(value)) {
            (0, _) => value,
            (64.., _) => self.int(0),
            (_, Some(constant)) => self.int(constant << count),
            _ => self.b.ins().ishl_imm_u(value, i64::from(count)),
        }
    }

    pub(crate) fn shr(&mut self, value: Value, count: u32) -> Value {
        match (count, self.constant(value)) {
            (0, _) => value,
            (64.., _) => self.int(0),
            (_, Some(constant)) => self.int(constant >> count),
            _ => self.b.ins().ushr_imm_u(value, i64::from(count)),
        }
    }

    pub(crate) fn sar(&mut self, value: Value, count: u32) -> Value {
        match count {
            0 => value,
            _ => self.b.ins().sshr_imm_u(value, i64::from(count.min(63))),
        }
    }

    /// Sign-extends the low `width` bits.
    pub(crate) fn sign_extend(&mut self, value: Value, width: u32) -> Value {
        let unused = 64 - width;
        let up = self.shl(value, unused);
        self.sar(up, unused)
    }

    /// Generates code that reports to the profile that the packet reaches this point of the program. Generates no code
    /// if there is no profile.
    pub(crate) fn mark(&mut self, place: ProgramPoint) {
        if self.config.profile {
            let index = self.int(place.index(self.program) as u64);
            self.call(calls::mark as *const (), &[index], 0);
        }
    }

    /// Generates a call of a runtime function with the frame and these arguments.
    pub(crate) fn call(
        &mut self,
        function: *const (),
        args: &[Value],
        results: usize,
    ) -> Vec<Value> {
        let function = self.int(function as usize as u64);
        self.call_by(function, args, results)
    }

    /// Like [`Self::call`], for a function whose address is known only at run time.
    pub(crate) fn call_by(
        &mut self,
        function: Value,
        args: &[Value],
        results: usize,
    ) -> Vec<Value> {
        let start = self.b.ins().iadd_imm_s(self.frame, -(MIDDLE as i64));
        let mut all = vec![start];
        all.extend_from_slice(args);
        self.call_address(function, &all, results)
    }

    /// Generates a call of a runtime function that takes no frame.
    pub(crate) fn call_bare(
        &mut self,
        function: *const (),
        args: &[Value],
        results: usize,
    ) -> Vec<Value> {
        let function = self.int(function as usize as u64);
        self.call_address(function, args, results)
    }

    fn call_address(&mut self, function: Value, args: &[Value], results: usize) -> Vec<Value> {
        // Forgets which fields are in registers. If their values were used after the call, the compiler would spill
        // them to the stack. Instead, the next use loads the field from the header vector.
        self.known.forget_words();
        let known = self
            .signatures
            .iter()
            .find(|(a, r, _)| (*a, *r) == (args.len(), results))
            .map(|(_, _, signature)| *signature);
        let signature = known.unwrap_or_else(|| {
            let mut signature = Signature::new(self.call_conv);
            signature.params = vec![AbiParam::new(I64); args.len()];
            signature.returns = vec![AbiParam::new(I64); results];
            let signature = self.b.import_signature(signature);
            self.signatures.push((args.len(), results, signature));
            signature
        });
        let call = self.b.ins().call_indirect(signature, function, args);
        self.b.inst_results(call).to_vec()
    }

    /// Returns the address of `bytes` bytes of stack for arguments or results of the next call. All calls share these
    /// bytes.
    pub(crate) fn stack(&mut self, bytes: usize) -> Value {
        let bytes = u32::try_from(bytes.max(1)).expect("no key or number is this long");
        let slot = *self.scratch.get_or_insert_with(|| {
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 3);
            self.b.create_sized_stack_slot(data)
        });
        let data = &mut self.b.func.sized_stack_slots[slot];
        data.size = data.size.max(bytes);
        self.b.ins().stack_addr(I64, slot, 0)
    }

    pub(crate) fn load(&mut self, ty: Type, base: Value, offset: u32) -> Value {
        let flags = MemFlagsData::new().with_notrap();
        self.b.ins().load(ty, flags, base, offset as i32)
    }

    /// Loads an integer and extends it to 64 bits, in one instruction.
    pub(crate) fn load_wide(&mut self, ty: Type, base: Value, offset: u32) -> Value {
        let flags = MemFlagsData::new().with_notrap();
        let (ins, offset) = (self.b.ins(), offset as i32);
        let word = match ty {
            I8 => ins.uload8(I64, flags, base, offset),
            I16 => ins.uload16(I64, flags, base, offset),
            I32 => ins.uload32(flags, base, offset),
            _ => return ins.load(ty, flags, base, offset),
        };
        self.note_bits(word, ty.bits());
        word
    }

    pub(crate) fn store(&mut self, value: Value, base: Value, offset: u32) {
        let flags = MemFlagsData::new().with_notrap();
        self.b.ins().store(flags, value, base, offset as i32);
    }

    /// Loads the element at an index of a table of 64-bit constants.
    pub(crate) fn constant_at(&mut self, address: i64, index: Value) -> Value {
        let base = self.b.ins().iconst(I64, address);
        let offset = self.shl(index, 3);
        let place = self.b.ins().iadd(base, offset);
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        self.b.ins().load(I64, flags, place, 0)
    }

    /// Loads the element at an index of a table of constant bytes.
    pub(crate) fn constant_byte_at(&mut self, address: i64, index: Value) -> Value {
        let base = self.b.ins().iconst(I64, address);
        let place = self.b.ins().iadd(base, index);
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        let byte = self.b.ins().uload8(I64, flags, place, 0);
        self.note_bits(byte, 8);
        byte
    }

    // Access to bytes in wire order.

    /// Loads `bytes` (1 to 8) bytes as a big-endian number. If `exact`, reads no other bytes. Else reads up to 8 bytes.
    fn load_bytes(&mut self, base: Value, offset: u32, bytes: u32, exact: bool) -> Value {
        let whole = if exact {
            1 << bytes.ilog2()
        } else {
            bytes.next_power_of_two()
        };
        let ty = Type::int(whole as u16 * 8).expect("1, 2, 4 or 8 bytes");
        let value = if ty == I8 {
            self.load_wide(ty, base, offset)
        } else {
            let raw = self.load(ty, base, offset);
            self.swap(raw, ty)
        };
        if whole < bytes {
            let rest = self.load_bytes(base, offset + whole, bytes - whole, true);
            let high = self.shl(value, (bytes - whole) * 8);
            self.b.ins().bor(high, rest)
        } else {
            self.shr(value, (whole - bytes) * 8)
        }
    }

    /// Swaps the bytes of a number of 2, 4 or 8 bytes, and extends it to 64 bits.
    fn swap(&mut self, raw: Value, ty: Type) -> Value {
        let value = self.b.ins().bswap(raw);
        if ty == I64 {
            value
        } else {
            self.b.ins().uextend(I64, value)
        }
    }

    /// Writes the low `bytes` bytes of a number, big-endian. Writes no other bytes.
    fn store_bytes(&mut self, base: Value, offset: u32, bytes: u32, value: Value) {
        let whole = 1 << bytes.ilog2();
        let rest = bytes - whole;
        let high = self.shr(value, rest * 8);
        let ty = Type::int(whole as u16 * 8).expect("1, 2, 4 or 8 bytes");
        let narrow = if ty == I64 {
            high
        } else {
            self.b.ins().ireduce(ty, high)
        };
        let raw = if ty == I8 {
            narrow
        } else {
            self.b.ins().bswap(narrow)
        };
        self.store(raw, base, offset);
        if rest > 0 {
            self.store_bytes(base, offset + whole, rest, value);
        }
    }

    // Access to bit fields.

    /// Loads a slot of up to 64 bits as an unsigned number. Unless `exact` is set, bytes after the slot may be read
    /// too.
    fn load_bits(&mut self, base: Value, slot: FieldSlot, exact: bool) -> Value {
        let (lead, width) = (u32::from(slot.lead), u32::from(slot.width));
        let bits = lead + width;
        if bits > 64 {
            let first = self.load_bytes(base, slot.byte, 8, exact);
            let last = self.load_bytes(base, slot.byte + 8, 1, exact);
            let high = self.shl(first, lead);
            let low = self.shr(last, 8 - lead);
            let all = self.b.ins().bor(high, low);
            return self.shr(all, 64 - width);
        }
        let bytes = bits.div_ceil(8);
        let value = self.load_bytes(base, slot.byte, bytes, exact);
        let value = self.shr(value, bytes * 8 - bits);
        if lead == 0 {
            value
        } else {
            self.and(value, u64::MAX >> (64 - width))
        }
    }

    /// Writes the low bits of a number to a slot of up to 64 bits.
    fn store_bits(&mut self, base: Value, slot: FieldSlot, value: Value) {
        let (lead, width) = (u32::from(slot.lead), u32::from(slot.width));
        let bits = lead + width;
        if bits > 64 {
            let low = slot.slice(0, 32).expect("the slot is wider than 56 bits");
            let high = slot
                .slice(32, width - 32)
                .expect("the slot is wider than 56 bits");
            let upper = self.shr(value, 32);
            self.store_bits(base, high, upper);
            return self.store_bits(base, low, value);
        }
        let bytes = bits.div_ceil(8);
        let spare = bytes * 8 - bits;
        if lead == 0 && spare == 0 {
            return self.store_bytes(base, slot.byte, bytes, value);
        }
        let mask = u64::MAX >> (64 - width);
        let value = self.and(value, mask);
        let placed = self.shl(value, spare);
        if base == self.phv && self.facts.is_field(slot) {
            return self.store_bytes(base, slot.byte, bytes, placed);
        }
        let old = self.load_bytes(base, slot.byte, bytes, true);
        let kept = self.and(old, !(mask << spare));
        let new = self.b.ins().bor(kept, placed);
        self.store_bytes(base, slot.byte, bytes, new);
    }

    /// Returns the 64-bit pieces of a slot, least significant first.
    fn pieces(slot: FieldSlot) -> impl Iterator<Item = FieldSlot> {
        let width = u32::from(slot.width);
        (0..width.div_ceil(64)).map(move |word| {
            let low = word * 64;
            let piece = slot.slice(low, (width - low).min(64));
            piece.expect("the piece lies in the slot")
        })
    }

    /// Loads a slot's value as 64-bit words, least significant first.
    pub(crate) fn load_slot(&mut self, base: Base, slot: FieldSlot) -> Vec<Value> {
        if base == self.phv
            && let Some(value) = self.load_kept(slot)
        {
            return value;
        }
        self.load_memory(base, slot)
    }

    /// Like [`Self::load_slot`], but always loads from memory.
    pub(crate) fn load_memory(&mut self, base: Base, slot: FieldSlot) -> Vec<Value> {
        if base == self.phv {
            self.note_read(slot);
        }
        self.load_guarded(base, slot)
    }

    /// Like [`Self::load_memory`], for a value that is used only if the slot's header is valid. Therefore the load is
    /// not recorded as a read of the header.
    pub(crate) fn load_guarded(&mut self, base: Base, slot: FieldSlot) -> Vec<Value> {
        Self::pieces(slot)
            .map(|piece| self.load_bits(base, piece, false))
            .collect()
    }

    /// Loads `width` bits outside of the header vector as 64-bit words, least significant first. Reads only the bytes
    /// that contain these bits.
    pub(crate) fn load_outside(&mut self, base: Value, bit: usize, width: u32) -> Vec<Value> {
        let slot = FieldSlot::at(bit, width as u16, false);
        Self::pieces(slot)
            .map(|piece| self.load_bits(base, piece, true))
            .collect()
    }

    /// Writes words to a slot. `words` must have at least the slot's number of words.
    pub(crate) fn store_slot(&mut self, base: Base, slot: FieldSlot, words: &[Value]) {
        if base != self.phv || !self.store_kept(slot, words) {
            self.store_memory(base, slot, words);
        }
    }

    /// Like [`Self::store_slot`], but always stores to memory.
    pub(crate) fn store_memory(&mut self, base: Base, slot: FieldSlot, words: &[Value]) {
        if base != self.phv || self.facts.is_beside_varbit(slot) {
            self.touch();
        }
        for (piece, word) in Self::pieces(slot).zip(words) {
            // A field shares no byte with another field. But two pieces of this field may share a byte, so each piece
            // is stored without changing the bits around it.
            self.store_bits(base, piece, *word);
        }
    }

    /// Writes a constant to a slot.
    pub(crate) fn store_constant(&mut self, slot: FieldSlot, value: u64) {
        let mut words = vec![self.int(value)];
        while words.len() * 64 < usize::from(slot.width) {
            words.push(self.int(0));
        }
        self.store_slot(self.phv, slot, &words);
    }

    /// Copies bytes. Source and target must be identical or must not overlap.
    pub(crate) fn copy(&mut self, to: (Value, u32), from: (Value, u32), bytes: u32) {
        let mut values = Vec::new();
        for (ty, offset) in chunks(bytes) {
            values.push((self.load(ty, from.0, from.1 + offset), offset));
        }
        for (value, offset) in values {
            self.store(value, to.0, to.1 + offset);
        }
    }

    /// Fills bytes with 0.
    pub(crate) fn clear(&mut self, base: Value, offset: u32, bytes: u32) {
        for (ty, at) in chunks(bytes) {
            let zero = if ty == I8X16 {
                let zero = self.b.ins().iconst(I8, 0);
                self.b.ins().splat(I8X16, zero)
            } else {
                self.b.ins().iconst(ty, 0)
            };
            self.store(zero, base, offset + at);
        }
    }

    // Computation with flags.

    /// Returns whether both flags are 1.
    pub(crate) fn both(&mut self, left: Value, right: Value) -> Value {
        match (self.constant(left), self.constant(right)) {
            (Some(0), _) | (_, Some(1)) => left,
            (_, Some(0)) | (Some(1), _) => right,
            _ => self.b.ins().band(left, right),
        }
    }

    pub(crate) fn compare(&mut self, how: IntCC, left: Value, right: Value) -> Value {
        match (how, self.constant(left), self.constant(right)) {
            (IntCC::Equal, Some(left), Some(right)) => self.byte(left == right),
            (IntCC::NotEqual, Some(left), Some(right)) => self.byte(left != right),
            _ => self.b.ins().icmp(how, left, right),
        }
    }

    pub(crate) fn select(&mut self, condition: Value, yes: Value, no: Value) -> Value {
        match self.constant(condition) {
            Some(0) => no,
            Some(_) => yes,
            None => self.b.ins().select(condition, yes, no),
        }
    }

    /// Extends a byte that is 0 or 1 to a number.
    pub(crate) fn widen(&mut self, flag: Value) -> Value {
        match self.constant(flag) {
            Some(constant) => self.int(constant),
            None => self.b.ins().uextend(I64, flag),
        }
    }
}

/// Splits `bytes` bytes into runs of 16, 8, 4, 2 and 1 bytes, each with its offset.
pub(crate) fn chunks(bytes: u32) -> Vec<(Type, u32)> {
    let mut chunks = Vec::new();
    let mut offset = 0;
    for (ty, size) in [(I8X16, 16), (I64, 8), (I32, 4), (I16, 2), (I8, 1)] {
        while bytes - offset >= size {
            chunks.push((ty, offset));
            offset += size;
        }
    }
    chunks
}
