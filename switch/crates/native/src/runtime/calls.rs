// SPDX-License-Identifier: Apache-2.0
//! Provides functions that machine code calls: externs, and operations on headers that are selected at run time. Each
//! function does one operation, for any program. No function interprets the program's operations.
//!
//! All arguments and results, including ids, are 64 bits wide. [`NONE`] stands for "no header".

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::Zero;
use sluice_engine::{CloneRequest, calculation};
use sluice_program::action::LogPart;
use sluice_program::{
    ActionId, CalculationId, DigestId, FieldListId, HashAlgorithm, HeaderId, MeterId, MeterUnit,
    RegisterId, StackId, UnionId, UnionStackId, ValueSetId,
};
use sluice_random::Random;

use crate::runtime::frame::Frame;

/// Id that stands for no header, no union or no action.
pub(crate) const NONE: u64 = u32::MAX as u64;

/// Returns whether a key of `bytes` bytes is in a value set. `mask` is null or as long as the key.
///
/// # Safety
/// `key`, and `mask` unless it is null, point to `bytes` bytes.
pub(crate) unsafe extern "C" fn value_set(
    frame: &mut Frame<'_>,
    set: u64,
    key: *const u8,
    bytes: u64,
    mask: *const u8,
) -> u64 {
    // SAFETY: the caller guarantees this (# Safety).
    let slice = |start| unsafe { std::slice::from_raw_parts(start, bytes as usize) };
    let mask = (!mask.is_null()).then(|| slice(mask));
    let set = ValueSetId(set as u32);
    frame
        .tables()
        .value_set_contains(set, slice(key), mask)
        .into()
}

/// Copies a header with its validity.
pub(crate) extern "C" fn copy_header(frame: &mut Frame<'_>, to: u64, from: u64) {
    let program = frame.program();
    let phv = &mut frame.packet().phv;
    phv.copy_header(program, header(to), header(from));
}

/// Fills a valid header from the packet. The caller has checked that the packet has `bytes` bytes from `start` on.
pub(crate) extern "C" fn extract(
    frame: &mut Frame<'_>,
    to: u64,
    start: u64,
    bytes: u64,
    varbit_bits: u64,
) {
    let program = frame.program();
    let input = frame.input();
    let (phv, data) = frame.packet().parts(input);
    let data = &data[start as usize..(start + bytes) as usize];
    phv.extract(program, header(to), varbit_bits as u32, data);
}

/// Writes a header with a `varbit` field to the deparser's output, and returns its length in bytes.
///
/// # Safety
/// `out` has room for the header.
pub(crate) unsafe extern "C" fn emit(frame: &mut Frame<'_>, id: u64, out: *mut u8) -> u64 {
    let program = frame.program();
    let (packet, worker) = frame.packet_and_worker();
    let scratch = &mut worker.hash_input;
    scratch.clear();
    packet.phv.emit(program, header(id), scratch);
    // SAFETY: the caller promises the room. The two buffers do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(scratch.as_ptr(), out, scratch.len()) };
    scratch.len() as u64
}

/// Executes `setValid` on a header whose id is known only at run time.
pub(crate) extern "C" fn add_header(frame: &mut Frame<'_>, id: u64) {
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet.add_header(program, header(id));
}

/// Executes `setInvalid` on a header whose id is known only at run time.
pub(crate) extern "C" fn remove_header(frame: &mut Frame<'_>, id: u64) {
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet.remove_header(program, header(id));
}

/// Copies a `varbit` field with its length.
pub(crate) extern "C" fn assign_varbit(frame: &mut Frame<'_>, to: u64, from: u64) {
    let (to, from) = (header(to), header(from));
    let program = frame.program();
    let (packet, worker) = frame.packet_and_worker();
    packet.assign_varbit(program, to, from, &mut worker.hash_input);
}

/// Copies a union.
pub(crate) extern "C" fn assign_union(frame: &mut Frame<'_>, to: u64, from: u64) {
    let (to, from) = (UnionId(to as u32), UnionId(from as u32));
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet.phv.assign_union(program, to, from);
}

/// Copies a stack.
pub(crate) extern "C" fn assign_stack(frame: &mut Frame<'_>, to: u64, from: u64) {
    let (to, from) = (StackId(to as u32), StackId(from as u32));
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet.phv.assign_stack(program, to, from);
}

/// Copies a union stack.
pub(crate) extern "C" fn assign_union_stack(frame: &mut Frame<'_>, to: u64, from: u64) {
    let (to, from) = (UnionStackId(to as u32), UnionStackId(from as u32));
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet.phv.assign_union_stack(program, to, from);
}

/// Executes `push_front` on a header stack.
pub(crate) extern "C" fn push(frame: &mut Frame<'_>, stack: u64, count: u64) {
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet.phv.push(program, StackId(stack as u32), count);
}

/// Executes `pop_front` on a header stack.
pub(crate) extern "C" fn pop(frame: &mut Frame<'_>, stack: u64, count: u64) {
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet.phv.pop(program, StackId(stack as u32), count);
}

/// Executes `push_front` on a stack of unions.
pub(crate) extern "C" fn push_union(frame: &mut Frame<'_>, stack: u64, count: u64) {
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet
        .phv
        .push_union(program, UnionStackId(stack as u32), count);
}

/// Executes `pop_front` on a stack of unions.
pub(crate) extern "C" fn pop_union(frame: &mut Frame<'_>, stack: u64, count: u64) {
    let program = frame.program();
    let (packet, _) = frame.packet_and_worker();
    packet
        .phv
        .pop_union(program, UnionStackId(stack as u32), count);
}

fn header(id: u64) -> HeaderId {
    HeaderId(id as u32)
}

fn known(id: u64) -> Option<HeaderId> {
    (id != NONE).then(|| header(id))
}

/// Returns whether two headers, each of which may be [`NONE`], are equal.
pub(crate) extern "C" fn headers_equal(frame: &mut Frame<'_>, left: u64, right: u64) -> u64 {
    let program = frame.program();
    let phv = &frame.packet().phv;
    let equal = match (known(left), known(right)) {
        (Some(left), Some(right)) => phv.headers_equal(program, left, right),
        (Some(one), None) | (None, Some(one)) => !phv.is_valid(one),
        (None, None) => true,
    };
    equal.into()
}

/// Returns a union's valid member, if there is one: the member's position in the union, and its header id.
fn valid_member(frame: &mut Frame<'_>, union: u64) -> Option<(usize, HeaderId)> {
    if union == NONE {
        return None;
    }
    let program = frame.program();
    let phv = &frame.packet().phv;
    let mut members = program.union(UnionId(union as u32)).headers.iter().copied();
    members
        .position(|id| phv.is_valid(id))
        .map(|index| (index, program.union(UnionId(union as u32)).headers[index]))
}

/// Returns whether a union, which may be [`NONE`], has a valid member.
pub(crate) extern "C" fn valid_union(frame: &mut Frame<'_>, union: u64) -> u64 {
    valid_member(frame, union).is_some().into()
}

/// Returns whether two unions, each of which may be [`NONE`], are equal.
pub(crate) extern "C" fn unions_equal(frame: &mut Frame<'_>, left: u64, right: u64) -> u64 {
    let equal = match (valid_member(frame, left), valid_member(frame, right)) {
        (Some((i, left)), Some((j, right))) => {
            let program = frame.program();
            i == j && frame.packet().phv.headers_equal(program, left, right)
        }
        (None, None) => true,
        _ => false,
    };
    equal.into()
}

/// Returns whether the `varbit` fields of two headers are equal.
pub(crate) extern "C" fn varbits_equal(frame: &mut Frame<'_>, left: u64, right: u64) -> u64 {
    let program = frame.program();
    let (left, right) = (header(left), header(right));
    frame
        .packet()
        .phv
        .varbits_equal(program, left, right)
        .into()
}

/// Executes a cell of a meter. Returns the colour, or [`NONE`] if the index is beyond the end of the array.
pub(crate) extern "C" fn execute_meter(frame: &mut Frame<'_>, meter: u64, index: u64) -> u64 {
    frame.turn();
    let id = MeterId(meter as u32);
    let bytes = frame.packet().ingress_length;
    let amount = match frame.program().meter(id).unit {
        MeterUnit::Packets => 1,
        MeterUnit::Bytes => bytes,
    };
    match frame.externs().meter(id, index as usize) {
        Some(cell) => cell.execute(amount, bytes, frame.now_us()) as u64,
        None => NONE,
    }
}

/// Returns the address of the first word of a register cell, or null if the index is beyond the end of the array. The
/// caller may read and write the cell's words. The address stays valid while the packet is processed.
pub(crate) extern "C" fn register(frame: &mut Frame<'_>, id: u64, index: u64) -> *const u64 {
    frame.turn();
    let externs = frame.externs();
    match externs.register(RegisterId(id as u32), index as usize) {
        Some(words) => words.as_ptr().cast(),
        None => std::ptr::null(),
    }
}

/// Locks the registers that an action uses.
pub(crate) extern "C" fn hold_registers(frame: &mut Frame<'_>, action: u64) {
    frame.turn();
    let ids = &frame.program().action(ActionId(action as u32)).registers;
    std::mem::forget(frame.externs().hold_registers(ids));
}

/// Releases the registers that [`hold_registers`] locked.
///
/// # Safety
/// [`hold_registers`] was called for the same action, and this function was not called since then.
pub(crate) unsafe extern "C" fn release_registers(frame: &mut Frame<'_>, action: u64) {
    let ids = &frame.program().action(ActionId(action as u32)).registers;
    // SAFETY: the caller guarantees this (# Safety).
    unsafe { frame.externs().release_registers(ids) };
}

/// Returns the value of a calculation.
pub(crate) extern "C" fn calculate(frame: &mut Frame<'_>, id: u64) -> u64 {
    let (program, input) = (frame.program(), frame.input());
    let (packet, worker) = frame.packet_and_worker();
    calculation::calculate(
        program,
        (packet, input),
        program.calculation(CalculationId(id as u32)),
        &mut worker.hash_input,
        &mut worker.random,
    )
}

/// Returns the hash of some bytes by any algorithm except the random one.
///
/// # Safety
/// `algorithm` belongs to the program, and `data` points to `bytes` bytes.
pub(crate) unsafe extern "C" fn hash(
    algorithm: *const HashAlgorithm,
    data: *const u8,
    bytes: u64,
) -> u64 {
    // SAFETY: the caller guarantees this (# Safety).
    let (algorithm, data) =
        unsafe { (*algorithm, std::slice::from_raw_parts(data, bytes as usize)) };
    sluice_engine::hash::hash(algorithm, data, &mut Random::new(0))
}

/// Draws a random number between two bounds. `low` must not be above `high`.
pub(crate) extern "C" fn random(frame: &mut Frame<'_>, low: u64, high: u64) -> u64 {
    frame.worker().random.between(low, high)
}

/// Requests a digest.
pub(crate) extern "C" fn digest(frame: &mut Frame<'_>, id: u64) {
    frame.packet().request().digest = Some(DigestId(id as u32));
}

fn field_list(id: u64) -> Option<FieldListId> {
    (id != NONE).then_some(FieldListId(id as u32))
}

/// Requests a clone.
pub(crate) extern "C" fn clone(frame: &mut Frame<'_>, session: u64, preserve: u64) {
    frame.packet().request().clone = Some(CloneRequest {
        session: (session & 0x7fff) as u32,
        preserve: field_list(preserve),
    });
}

/// Requests a resubmission.
pub(crate) extern "C" fn resubmit(frame: &mut Frame<'_>, list: u64) {
    frame.packet().request().resubmit = Some(field_list(list));
}

/// Requests a recirculation.
pub(crate) extern "C" fn recirculate(frame: &mut Frame<'_>, list: u64) {
    frame.packet().request().recirculate = Some(field_list(list));
}

/// Limits the packet's length.
pub(crate) extern "C" fn truncate(frame: &mut Frame<'_>, length: u64) {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let packet = frame.packet();
    packet.truncate = packet.truncate.min(length);
}

/// Logs a message. `values` holds the arguments one after the other, `count` words in total. Each argument is its
/// number of words, followed by these words in two's complement.
///
/// # Safety
/// `parts` belongs to the program, and `values` points to `count` words.
pub(crate) unsafe extern "C" fn log(
    frame: &mut Frame<'_>,
    parts: *const Vec<LogPart>,
    values: *const u64,
    count: u64,
) {
    // SAFETY: the caller guarantees this (# Safety).
    let (parts, mut rest) = unsafe {
        let values = std::slice::from_raw_parts(values, count as usize);
        (&*parts, values)
    };
    let mut arguments = Vec::new();
    while let Some((words, after)) = rest.split_first() {
        let (value, after) = after.split_at((*words as usize).min(after.len()));
        arguments.push(signed(value).to_string());
        rest = after;
    }
    let message: String = parts
        .iter()
        .map(|part| match part {
            LogPart::Text(text) => text.as_str(),
            LogPart::Argument(index) => arguments.get(*index).map_or("", String::as_str),
        })
        .collect();
    if !message.is_empty() {
        frame.sink().log(&message);
    }
}

/// Counts and logs an `assert` that did not hold.
pub(crate) extern "C" fn assertion_failed(frame: &mut Frame<'_>) {
    frame.worker().counters.assertions_failed += 1;
    frame.sink().log("an assertion failed");
}

/// Operation of [`wide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WideOp {
    /// Product.
    Mul = 0,
    /// Quotient, truncated toward 0; 0 if the divisor is 0.
    Div = 1,
    /// Remainder; 0 if the divisor is 0.
    Mod = 2,
    /// Left shift by the second operand's first word.
    Shl = 3,
    /// Arithmetic right shift by the second operand's first word.
    Shr = 4,
}

/// Computes with two's complement numbers of `words` 64-bit words, least significant first. In memory the second
/// operand follows the first operand. The result replaces the first operand.
///
/// # Safety
/// `operands` points to `2 * words` words.
pub(crate) unsafe extern "C" fn wide(what: u64, operands: *mut u64, words: u64) {
    let words = words as usize;
    // SAFETY: the caller guarantees this (# Safety).
    let all = unsafe { std::slice::from_raw_parts_mut(operands, 2 * words) };
    let (result, right) = all.split_at_mut(words);
    let count = right[0].min(words as u64 * 64) as usize;
    let (a, b) = (signed(result), signed(right));
    let value = match what {
        _ if what == WideOp::Mul as u64 => a * b,
        _ if what == WideOp::Shl as u64 => a << count,
        _ if what == WideOp::Shr as u64 => a >> count,
        _ if Zero::is_zero(&b) => BigInt::zero(),
        _ if what == WideOp::Div as u64 => a.div_rem(&b).0,
        _ => a.div_rem(&b).1,
    };
    let modulus = BigInt::from(1) << (words * 64);
    let digits = value.mod_floor(&modulus).to_u64_digits().1;
    result.fill(0);
    result[..digits.len()].copy_from_slice(&digits);
}

/// Returns the value of a two's complement number, least significant word first.
fn signed(words: &[u64]) -> BigInt {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let value = BigInt::from_bytes_le(Sign::Plus, &bytes);
    match words.last() {
        Some(top) if top >> 63 == 1 => value - (BigInt::from(1) << (words.len() * 64)),
        _ => value,
    }
}

/// Reports to the profile that the packet reaches the program point with this number.
pub(crate) extern "C" fn mark(frame: &mut Frame<'_>, place: u64) {
    if let Some(profile) = frame.profile() {
        profile.enter(place as usize);
    }
}
