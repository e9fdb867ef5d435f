// SPDX-License-Identifier: Apache-2.0
//! Provides lookups that machine code calls. Some functions find the row for a key. Other functions resolve a row to
//! its action, in the cases that the generated code does not handle. Each function is specific to a kind of key, but
//! not to a program.
//!
//! As in [`calls`](crate::runtime::calls), arguments and results are 64 bits wide.

use sluice_engine::calculation::select;
use sluice_engine::hit;
use sluice_program::{ProfileId, TableId};
use sluice_tables::{Lookup, Row};

use crate::runtime::calls::NONE;
use crate::runtime::frame::Frame;

/// Flag in [`FoundAction::action`]: the lookup hit an entry.
pub(crate) const HIT: u64 = 1 << 32;

/// An action and its parameters, returned in two registers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundAction {
    /// Parameter words of the action.
    params: *const u64,
    /// The action, or [`NONE`], combined with the flag [`HIT`].
    action: u64,
}

/// Two versions of a lookup. `at_once` never yields. `waiting` yields to other packets while memory is fetched. Both
/// take the same arguments, first the table's number. The functions below list the other arguments.
#[derive(Clone, Copy)]
pub(crate) struct LookUp {
    pub(crate) at_once: *const (),
    pub(crate) waiting: *const (),
}

/// Returns the functions that look up a key of any size in a table with any match kind. The arguments are the key's
/// address and the key's length in bytes.
pub(crate) fn bytes() -> LookUp {
    LookUp {
        at_once: row as *const (),
        waiting: row_waiting as *const (),
    }
}

/// Returns the functions that look up a key of one to eight 64-bit words in an exact-match table. The last word of a
/// key may be incomplete. The arguments are the same as for [`bytes`]. Returns `None` for a longer key.
pub(crate) fn exact(key_bytes: usize) -> Option<LookUp> {
    fn of<const WORDS: usize>() -> LookUp {
        LookUp {
            at_once: row_exact::<WORDS> as *const (),
            waiting: row_exact_waiting::<WORDS> as *const (),
        }
    }
    Some(match key_bytes.div_ceil(size_of::<u64>()) {
        1 => of::<1>(),
        2 => of::<2>(),
        3 => of::<3>(),
        4 => of::<4>(),
        5 => of::<5>(),
        6 => of::<6>(),
        7 => of::<7>(),
        8 => of::<8>(),
        _ => return None,
    })
}

/// Returns the functions that look up an address of at most 32 bits in a longest-prefix-match table. The arguments are
/// the exact-match fields of the key as one number, and the address, left-aligned.
pub(crate) fn narrow() -> LookUp {
    LookUp {
        at_once: row_narrow as *const (),
        waiting: row_narrow_waiting as *const (),
    }
}

/// Returns the functions that look up an address of at most 128 bits in a longest-prefix-match table. The arguments are
/// the same as for [`narrow`], with the address in two words, most significant first.
pub(crate) fn wide() -> LookUp {
    LookUp {
        at_once: row_wide as *const (),
        waiting: row_wide_waiting as *const (),
    }
}

/// See [`bytes`].
///
/// # Safety
/// `key` points to `bytes` bytes.
unsafe extern "C" fn row<'a>(frame: &Frame<'a>, table: u64, key: *const u8, bytes: u64) -> Row<'a> {
    // SAFETY: the caller guarantees this (# Safety).
    let key = unsafe { std::slice::from_raw_parts(key, bytes as usize) };
    frame.tables().row(TableId(table as u32), key)
}

/// Like [`row`], for a packet in a lane.
///
/// # Safety
/// The same as for [`row`].
unsafe extern "C" fn row_waiting<'a>(
    frame: &Frame<'a>,
    table: u64,
    key: *const u8,
    bytes: u64,
) -> Row<'a> {
    // SAFETY: the caller guarantees this (# Safety).
    let key = unsafe { std::slice::from_raw_parts(key, bytes as usize) };
    let (tables, table) = (frame.tables(), TableId(table as u32));
    match frame.yielder() {
        Some(yielder) => tables.row_waiting(table, key, &yielder),
        None => tables.row(table, key),
    }
}

/// See [`exact`].
///
/// # Safety
/// The same as for [`row`]. In memory the key takes `WORDS` whole words, and the last word is padded with zeros.
unsafe extern "C" fn row_exact<'a, const WORDS: usize>(
    frame: &Frame<'a>,
    table: u64,
    key: *const u8,
    _bytes: u64,
) -> Row<'a> {
    let table = TableId(table as u32);
    if WORDS == 1 {
        // SAFETY: the caller promises that there is a whole word.
        let word = unsafe { key.cast::<u64>().read_unaligned() };
        if let Some(row) = frame.tables().row_of_few(table, word) {
            return row;
        }
    }
    // SAFETY: the caller guarantees that there are whole words (# Safety).
    let words = unsafe { &*key.cast::<[[u8; 8]; WORDS]>() };
    row_exact_of_many(frame, table, words)
}

/// Like [`row_exact`], for a table with more than a few entries. Not inlined, so that [`row_exact`] itself needs few
/// registers.
#[inline(never)]
fn row_exact_of_many<'a, const WORDS: usize>(
    frame: &Frame<'a>,
    table: TableId,
    words: &[[u8; 8]; WORDS],
) -> Row<'a> {
    frame.tables().row_stored(table, words)
}

/// Like [`row_exact`], for a packet in a lane.
///
/// # Safety
/// The same as for [`row_exact`].
unsafe extern "C" fn row_exact_waiting<'a, const WORDS: usize>(
    frame: &Frame<'a>,
    table: u64,
    key: *const u8,
    _bytes: u64,
) -> Row<'a> {
    // SAFETY: the caller guarantees that there are whole words (# Safety).
    let words = unsafe { &*key.cast::<[[u8; 8]; WORDS]>() };
    let (tables, table) = (frame.tables(), TableId(table as u32));
    match frame.yielder() {
        Some(yielder) => tables.row_stored_waiting(table, words, &yielder),
        None => tables.row_stored(table, words),
    }
}

/// See [`narrow`].
extern "C" fn row_narrow<'a>(frame: &Frame<'a>, table: u64, exact: u64, address: u64) -> Row<'a> {
    let table = TableId(table as u32);
    frame.tables().row_narrow(table, exact, address as u32)
}

/// Like [`row_narrow`], for a packet in a lane.
extern "C" fn row_narrow_waiting<'a>(
    frame: &Frame<'a>,
    table: u64,
    exact: u64,
    address: u64,
) -> Row<'a> {
    let (tables, table) = (frame.tables(), TableId(table as u32));
    match frame.yielder() {
        Some(yielder) => tables.row_narrow_waiting(table, exact, address as u32, &yielder),
        None => tables.row_narrow(table, exact, address as u32),
    }
}

/// See [`wide`].
extern "C" fn row_wide<'a>(
    frame: &Frame<'a>,
    table: u64,
    exact: u64,
    high: u64,
    low: u64,
) -> Row<'a> {
    let table = TableId(table as u32);
    frame.tables().row_wide(table, exact, joined(high, low))
}

/// Like [`row_wide`], for a packet in a lane.
extern "C" fn row_wide_waiting<'a>(
    frame: &Frame<'a>,
    table: u64,
    exact: u64,
    high: u64,
    low: u64,
) -> Row<'a> {
    let (tables, table) = (frame.tables(), TableId(table as u32));
    let address = joined(high, low);
    match frame.yielder() {
        Some(yielder) => tables.row_wide_waiting(table, exact, address, &yielder),
        None => tables.row_wide(table, exact, address),
    }
}

fn joined(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Resolves a row to its action. Works for any table: with or without a selector, direct counters or direct meters.
/// Counts and meters the packet.
///
/// # Safety
/// A lookup in this table for this packet returned `row`.
pub(crate) unsafe extern "C" fn behind<'a>(
    frame: &mut Frame<'a>,
    table: u64,
    row: Row<'a>,
) -> FoundAction {
    let id = TableId(table as u32);
    let program = frame.program();
    let tables = frame.tables();
    let came_in = frame.input();
    let table = program.table(id);
    let (packet, worker) = frame.packet_and_worker();
    let selector = || {
        let profile = table.profile.map(|profile| program.profile(profile));
        let selector = profile.and_then(|profile| profile.selector.as_ref());
        selector.map_or(0, |selector| {
            let (scratch, random) = (&mut worker.hash_input, &mut worker.random);
            let packet = (&*packet, came_in);
            select(program, packet, selector, scratch, random)
        })
    };
    let found = tables.lookup_at_row(id, row, selector);
    leave_and_tell(frame, id, found)
}

/// Like [`behind`], with a selector hash that is already computed.
///
/// # Safety
/// The same as for [`behind`].
pub(crate) unsafe extern "C" fn behind_by_hash<'a>(
    frame: &mut Frame<'a>,
    table: u64,
    row: Row<'a>,
    hash: u64,
) -> FoundAction {
    let id = TableId(table as u32);
    let found = frame.tables().lookup_at_row(id, row, || hash);
    leave_and_tell(frame, id, found)
}

/// Returns the hash that the selector of a profile uses to choose a member, or 0 if the profile has no selector.
pub(crate) extern "C" fn select_hash(frame: &mut Frame<'_>, profile: u64) -> u64 {
    let program = frame.program();
    let came_in = frame.input();
    let (packet, worker) = frame.packet_and_worker();
    let packet = (&*packet, came_in);
    let selector = &program.profile(ProfileId(profile as u32)).selector;
    selector.as_ref().map_or(0, |selector| {
        let (scratch, random) = (&mut worker.hash_input, &mut worker.random);
        select(program, packet, selector, scratch, random)
    })
}

/// Counts and meters the packet at the entry that the lookup found. Returns the entry's action.
fn leave_and_tell(frame: &mut Frame<'_>, id: TableId, found: Lookup<'_>) -> FoundAction {
    let table = frame.program().table(id);
    if found.meter.is_some() {
        frame.turn();
    }
    if let Some(state) = found.state {
        let (program, now_us, dry_run) = (frame.program(), frame.now_us(), frame.config().dry_run);
        let (packet, _) = frame.packet_and_worker();
        hit::record(
            program,
            table,
            (packet, now_us),
            dry_run,
            state,
            found.meter,
        );
    }
    let (action, params) = match found.action {
        Some(entry) => (u64::from(entry.action.0), entry.params.as_ptr()),
        None => (NONE, std::ptr::null()),
    };
    FoundAction {
        params,
        action: action | u64::from(found.hit) << 32,
    }
}
