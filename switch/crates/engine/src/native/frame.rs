// SPDX-License-Identifier: Apache-2.0
//! Frame: the argument of each call of machine code. It holds the addresses of the packet's parts, and the state that
//! runtime functions need.

use sluice_program::Program;
use sluice_tables::{CounterCell, Externs, Side, TableHandles};

use super::Waiting;
use crate::config::Config;
use crate::counters::Counters;
use crate::machine::{Context, Machine, Work};
use crate::packet::{Packet, Sink};
use crate::profile::Profile;
use crate::trace::NoTrace;

/// Argument of one call. Machine code reads the fields by their offsets. Invariant: the targets of all pointers outlive
/// the call, and the packet and the worker's buffers belong to the caller alone.
#[repr(C)]
pub(super) struct Frame<'a> {
    /// The packet header vector: `phv_bytes` bytes, then one validity byte for each header, 0 or 1.
    pub(super) phv: *mut u8,
    /// Number of elements in each stack, then in each union stack.
    pub(super) filled: *mut u32,
    /// Number of bits in the `varbit` field of each header.
    pub(super) varbit: *mut u32,
    /// Set to 1 before the writes that [`crate::phv::Phv::touch`] is for.
    pub(super) touched: *mut u8,
    /// The packet as it entered the parser.
    pub(super) data: *const u8,
    /// Length of `data` in bytes.
    pub(super) data_len: usize,
    /// Number of bytes of `data` that the parser has consumed.
    pub(super) parsed: *mut usize,
    /// Nonzero if the traffic manager must continue after the current pipeline.
    pub(super) asked: *const u8,
    /// Packet length in bytes for `packet_length`.
    pub(super) length: *mut u64,
    /// Output of the deparser. Has room for all headers at once.
    pub(super) out: *mut u8,
    /// The worker's counters.
    pub(super) counters: *mut Counters,
    /// Table handles, one for each table.
    pub(super) tables: TableHandles<'a>,
    /// The cells of all indirect counters.
    pub(super) cells: *const CounterCell,
    /// Current time in microseconds.
    pub(super) now_us: u64,
    /// Packet length in bytes for counters.
    pub(super) ingress_length: u64,
    /// Port on which the packet arrived.
    pub(super) ingress_port: u64,
    /// Nonzero if the header vector still holds the values of an earlier packet.
    pub(super) fresh: u64,
    /// Nonzero if no other thread updates counters at the same time, so that updates need not be atomic.
    pub(super) alone: u64,
    /// Least number of table entries for which lookups yield while memory is fetched.
    pub(super) far: u64,
    packet: *mut Packet,
    work: *mut Work,
    sink: *mut (dyn Sink + 'a),
    program: &'a Program,
    config: &'a Config,
    context: Context<'a>,
}

/// Offset into a frame of the address that machine code receives. From there, the offsets of all fields fit in a signed
/// byte.
pub(super) const MIDDLE: usize = 128;
const _: () = assert!(size_of::<Frame<'static>>() >= MIDDLE);

impl<'a> Frame<'a> {
    /// Creates the frame of a packet. Inlined because most of its inputs are in registers at the call.
    #[inline(always)]
    pub(super) fn new(
        program: &'a Program,
        config: &'a Config,
        work: &'a mut Work,
        context: Context<'a>,
        packet: &'a mut Packet,
        sink: &'a mut (dyn Sink + 'a),
    ) -> Self {
        let data: *const [u8] = packet.data(context.input);
        let packet: *mut Packet = packet;
        let work: *mut Work = work;
        // SAFETY: both come from exclusive references that live as long as the frame. Only addresses of their parts are
        // taken here. Machine code and runtime functions use them one at a time: neither runs while the other does.
        unsafe {
            let phv = (*packet).phv.parts();
            Self {
                phv: phv.bytes,
                filled: phv.filled,
                varbit: phv.varbit_bits,
                touched: phv.touched,
                data: data.cast(),
                data_len: data.len(),
                parsed: &raw mut (*packet).parsed,
                asked: (&raw const (*packet).requested).cast(),
                length: &raw mut (*packet).length,
                out: std::ptr::null_mut(),
                counters: &raw mut (*work).counters,
                tables: context.side.handles(),
                cells: context.externs.all_counters().as_ptr(),
                now_us: context.now_us,
                ingress_length: (*packet).ingress_length,
                ingress_port: (*packet).ingress_port.into(),
                fresh: (*packet).fresh.into(),
                alone: (!context.side.is_shared()).into(),
                far: (*work).waiting.as_ref().map_or(u64::MAX, Waiting::far),
                packet,
                work,
                sink,
                program,
                config,
                context,
            }
        }
    }

    /// Returns the tables that this packet uses.
    #[inline]
    pub(super) fn side(&self) -> &'a Side {
        self.context.side
    }

    /// Returns counters, meters and registers.
    #[inline]
    pub(super) fn externs(&self) -> &'a Externs {
        self.context.externs
    }

    /// Returns the program.
    #[inline]
    pub(super) fn program(&self) -> &'a Program {
        self.program
    }

    /// Returns the packet as received.
    #[inline]
    pub(super) fn input(&self) -> &'a [u8] {
        self.context.input
    }

    /// Returns the current time in microseconds.
    #[inline]
    pub(super) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Returns the handle by which the packet yields, if it runs in a lane.
    #[inline]
    pub(super) fn waiting(&self) -> Option<Waiting> {
        // SAFETY: the frame was made from an exclusive reference to it, which lives as long.
        unsafe { (*self.work).waiting }
    }

    /// Yields until earlier packets have finished, and with them their updates of registers and meters.
    #[inline]
    pub(super) fn turn(&self) {
        if let Some(waiting) = self.waiting() {
            waiting.turn();
        }
    }

    /// Returns the profile that the packet's time is added to, if there is one.
    #[inline]
    pub(super) fn profile(&mut self) -> Option<&mut Profile> {
        // SAFETY: the frame was made from an exclusive reference to it, which lives as long.
        unsafe { (*self.work).profile.as_deref_mut() }
    }

    /// Returns the packet.
    #[inline]
    pub(super) fn packet(&mut self) -> &mut Packet {
        // SAFETY: the frame was made from an exclusive reference to it, which lives as long.
        unsafe { &mut *self.packet }
    }

    /// Returns the interpreter's view of the packet and the worker's buffers.
    #[inline]
    pub(super) fn machine(&mut self) -> Machine<'_, NoTrace> {
        // SAFETY: the frame was made from exclusive references to these, which live as long. The borrow of the frame
        // prevents a second machine. `NoTrace` has no bytes.
        unsafe {
            (*self.packet).phv.touch();
            Machine {
                program: self.program,
                config: self.config,
                context: self.context,
                packet: &mut *self.packet,
                work: &mut *self.work,
                sink: &mut *self.sink,
                trace: std::ptr::NonNull::dangling().as_mut(),
            }
        }
    }
}
