// SPDX-License-Identifier: Apache-2.0
//! Look-ups that machine code calls: from a key to a row, and from a row to what it leads to where that takes more
//! than machine code does itself. Each function knows its table's shape of key and no program.
//!
//! As in [`runtime`](super::runtime), arguments and results are 64 bits wide.

use sluice_program::{ProfileId, TableId};
use sluice_tables::{Lookup, Side};

use super::Waiting;
use super::frame::Frame;
use super::runtime::NONE;
use crate::checksum::select;

/// In [`Found`]: an entry was hit.
pub(super) const HIT: u64 = 1 << 32;

/// An action with its parameters, in two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Parameter words of the action.
    params: *const u64,
    /// The action, [`NONE`] for none, and [`HIT`].
    action: u64,
}

/// Looks a key of `bytes` bytes up; the row that it leads to.
///
/// # Safety
/// `key` points to as many bytes.
pub(super) unsafe extern "C" fn row(
    frame: &Frame<'_>,
    table: u64,
    key: *const u8,
    bytes: u64,
) -> *const u64 {
    // SAFETY: the caller's promise.
    let key = unsafe { std::slice::from_raw_parts(key, bytes as usize) };
    let (side, table) = (frame.side(), TableId(table as u32));
    match frame.waiting() {
        Some(waiting) if waiting.is_far(side.entries(table)) => {
            side.row_waiting(table, key, &waiting)
        }
        _ => side.row(table, key),
    }
}

/// As [`row`], in a table that is matched exactly.
pub(super) type RowExact = unsafe extern "C" fn(&Frame<'_>, u64, *const u8, u64) -> *const u64;

/// For keys of one 64-bit word, of two, and so on; the last may be incomplete.
pub(super) const ROW_EXACT: [RowExact; 8] = [
    row_exact::<1>,
    row_exact::<2>,
    row_exact::<3>,
    row_exact::<4>,
    row_exact::<5>,
    row_exact::<6>,
    row_exact::<7>,
    row_exact::<8>,
];

/// See [`ROW_EXACT`].
///
/// # Safety
/// As for [`row`], and the key has `WORDS` words; in the last one zeros are behind it.
unsafe extern "C" fn row_exact<const WORDS: usize>(
    frame: &Frame<'_>,
    table: u64,
    key: *const u8,
    bytes: u64,
) -> *const u64 {
    let table = TableId(table as u32);
    if WORDS == 1 {
        // SAFETY: the caller's promise: there is a whole word.
        let word = unsafe { key.cast::<u64>().read_unaligned() };
        if let Some(row) = frame.side().row_of_few(table, word) {
            return row;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { row_exact_of_many::<WORDS>(frame, table, key, bytes) }
}

/// As [`row_exact`], in a table with more than a few entries: apart from it, which then needs few registers.
///
/// # Safety
/// As for [`row_exact`].
#[inline(never)]
unsafe fn row_exact_of_many<const WORDS: usize>(
    frame: &Frame<'_>,
    table: TableId,
    key: *const u8,
    bytes: u64,
) -> *const u64 {
    let side = frame.side();
    // SAFETY: the caller's promise.
    let key = unsafe { key_of::<WORDS>(key, bytes as usize) };
    match frame.waiting() {
        // SAFETY: the caller's promise.
        Some(waiting) if waiting.is_far(side.entries(table)) => unsafe {
            row_exact_far::<WORDS>(waiting, side, table, key.as_ptr(), key.len())
        },
        _ => side.row_exact(table, key),
    }
}

/// As [`row_exact_of_many`], where memory is waited for.
///
/// # Safety
/// As for [`row_exact`].
#[inline(never)]
unsafe fn row_exact_far<const WORDS: usize>(
    waiting: Waiting,
    side: &Side,
    table: TableId,
    key: *const u8,
    bytes: usize,
) -> *const u64 {
    // SAFETY: the caller's promise.
    let key = unsafe { key_of::<WORDS>(key, bytes) };
    side.row_exact_waiting(table, key, &waiting)
}

/// A key of so many words.
///
/// # Safety
/// There are as many bytes.
#[inline(always)]
unsafe fn key_of<'a, const WORDS: usize>(key: *const u8, bytes: usize) -> &'a [u8] {
    // SAFETY: the caller's promise. Code for keys of all other sizes goes.
    unsafe {
        std::hint::assert_unchecked(bytes <= WORDS * 8);
        std::hint::assert_unchecked(bytes > (WORDS - 1) * 8);
        std::slice::from_raw_parts(key, bytes)
    }
}

/// Looks an address of at most 32 bits up, left-aligned, under exact fields that make one number.
pub(super) extern "C" fn row_narrow(
    frame: &Frame<'_>,
    table: u64,
    exact: u64,
    address: u64,
) -> *const u64 {
    let (side, table) = (frame.side(), TableId(table as u32));
    match frame.waiting() {
        Some(waiting) if waiting.is_far(side.entries(table)) => {
            side.row_narrow_waiting(table, exact, address as u32, &waiting)
        }
        _ => side.row_narrow(table, exact, address as u32),
    }
}

/// Looks an address of at most 128 bits up likewise.
pub(super) extern "C" fn row_wide(
    frame: &Frame<'_>,
    table: u64,
    exact: u64,
    high: u64,
    low: u64,
) -> *const u64 {
    let address = u128::from(high) << 64 | u128::from(low);
    let (side, table) = (frame.side(), TableId(table as u32));
    match frame.waiting() {
        Some(waiting) if waiting.is_far(side.entries(table)) => {
            side.row_wide_waiting(table, exact, address, &waiting)
        }
        _ => side.row_wide(table, exact, address),
    }
}

/// What a row leads to, whatever the table has: a selector, a direct counter, a direct meter. Counts
/// and meters the packet.
///
/// # Safety
/// `row` came of a look-up in this table for this packet.
pub(super) unsafe extern "C" fn behind(
    frame: &mut Frame<'_>,
    table: u64,
    row: *const u64,
) -> Found {
    let id = TableId(table as u32);
    let program = frame.program();
    let side = frame.side();
    let machine = frame.machine();
    let table = program.table(id);
    let (packet, work) = (machine.packet, machine.work);
    let came_in = machine.context.input;
    let selector = || {
        let profile = table.profile.map(|profile| program.profile(profile));
        let selector = profile.and_then(|profile| profile.selector.as_ref());
        selector.map_or(0, |selector| {
            let (scratch, random) = (&mut work.hash_input, &mut work.random);
            let packet = (&*packet, came_in);
            select(program, packet, selector, scratch, random)
        })
    };
    // SAFETY: the caller's promise; the side is held as long as the packet is processed.
    let found = unsafe { side.behind(id, row, selector) };
    leave_and_tell(frame, id, found)
}

/// As [`behind`], where the selector's hash is known.
///
/// # Safety
/// As for [`behind`].
pub(super) unsafe extern "C" fn behind_by_hash(
    frame: &mut Frame<'_>,
    table: u64,
    row: *const u64,
    hash: u64,
) -> Found {
    let id = TableId(table as u32);
    // SAFETY: the caller's promise; the side is held as long as the packet is processed.
    let found = unsafe { frame.side().behind(id, row, || hash) };
    leave_and_tell(frame, id, found)
}

/// What the selector of a table's profile chooses by.
pub(super) extern "C" fn select_hash(frame: &mut Frame<'_>, profile: u64) -> u64 {
    let program = frame.program();
    let machine = frame.machine();
    let (packet, work) = (machine.packet, machine.work);
    let packet = (&*packet, machine.context.input);
    let selector = &program.profile(ProfileId(profile as u32)).selector;
    selector.as_ref().map_or(0, |selector| {
        let (scratch, random) = (&mut work.hash_input, &mut work.random);
        select(program, packet, selector, scratch, random)
    })
}

/// Counts and meters the packet at what it found.
fn leave_and_tell(frame: &mut Frame<'_>, id: TableId, found: Lookup<'_>) -> Found {
    let table = frame.program().table(id);
    if found.meter.is_some() {
        frame.turn();
    }
    if let Some(state) = found.state {
        frame.machine().leave_behind(table, state, found.meter);
    }
    let (action, params) = match found.action {
        Some(entry) => (u64::from(entry.action.0), entry.params.as_ptr()),
        None => (NONE, std::ptr::null()),
    };
    Found {
        params,
        action: action | u64::from(found.hit) << 32,
    }
}
