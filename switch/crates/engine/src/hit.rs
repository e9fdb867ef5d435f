// SPDX-License-Identifier: Apache-2.0
//! Updates the state of a table entry when a packet hits the entry: counter, time of the last hit, and meter.

use sluice_program::{MeterId, MeterUnit, Program, Table};
use sluice_tables::{Color, EntryState, Meter};

use crate::number::Number;
use crate::packet::Packet;

/// Updates counter, time of the last hit and meter of the entry that a packet hits, as far as the table has them.
/// `now_us` is the current time in microseconds. Stores the meter's color in the packet and returns it. In a `dry_run`
/// no state changes, and each meter is green.
#[inline]
pub fn record(
    program: &Program,
    table: &Table,
    (packet, now_us): (&mut Packet, u64),
    dry_run: bool,
    state: &EntryState,
    meter: Option<&Meter>,
) -> Option<(MeterId, Color)> {
    let bytes = packet.ingress_length;
    if (table.with_counters || table.support_timeout) && !dry_run {
        state.hit(bytes, now_us);
    }
    let ((id, target), meter) = table.meter.zip(meter)?;
    let amount = match program.meter(id).unit {
        MeterUnit::Packets => 1,
        MeterUnit::Bytes => bytes,
    };
    let color = if dry_run {
        Color::Green
    } else {
        meter.execute(amount, bytes, now_us)
    };
    (color as i64).store(&mut packet.phv.bytes, target);
    Some((id, color))
}
