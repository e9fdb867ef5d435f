// SPDX-License-Identifier: Apache-2.0
//! What machine code is given with each call: where the packet's parts lie, and what runtime functions
//! need.

use sluice_program::Program;
use sluice_tables::{CounterCell, Externs, Side, TableHandle};

use super::Waiting;
use crate::config::Config;
use crate::counters::Counters;
use crate::machine::{Context, Machine, Work};
use crate::packet::{Packet, Sink};
use crate::profile::Profile;
use crate::trace::NoTrace;

/// One call's surroundings. Machine code reads the fields by their offsets; all point to what the
/// caller has for itself as long as the call lasts.
#[repr(C)]
pub(super) struct Frame<'a> {
    /// Bytes of the packet header vector, `phv_bytes` of them, and one for each header: 0 or 1.
    pub(super) phv: *mut u8,
    /// Elements in each stack, then in each union stack.
    pub(super) filled: *mut u32,
    /// Bits in the `varbit` field of each header.
    pub(super) varbit: *mut u32,
    /// Set to 1 before what [`crate::phv::Phv::touch`] is for.
    pub(super) touched: *mut u8,
    /// The packet as it entered the parser.
    pub(super) data: *const u8,
    /// Its bytes.
    pub(super) data_len: usize,
    /// Bytes of it that the parser took.
    pub(super) parsed: *mut usize,
    /// Not 0 where the traffic manager goes on after the pipeline that ends.
    pub(super) asked: *const u8,
    /// Length as `packet_length` shows it.
    pub(super) length: *mut u64,
    /// Where the deparser writes; has room for all headers at once.
    pub(super) out: *mut u8,
    /// The worker's counters.
    pub(super) counters: *mut Counters,
    /// One for each table.
    pub(super) tables: *const TableHandle,
    /// The cells of all indirect counters.
    pub(super) cells: *const CounterCell,
    /// Now, in microseconds.
    pub(super) now_us: u64,
    /// What counters count of the packet.
    pub(super) ingress_length: u64,
    /// Where the packet came in.
    pub(super) ingress_port: u64,
    /// Not 0 where the header vector is still what an earlier packet left.
    pub(super) fresh: u64,
    /// Not 0 where nobody else counts packets at the same time.
    pub(super) alone: u64,
    /// Look-ups in tables of so many entries wait for memory.
    pub(super) far: u64,
    packet: *mut Packet,
    work: *mut Work,
    sink: *mut (dyn Sink + 'a),
    program: &'a Program,
    config: &'a Config,
    context: Context<'a>,
}

/// Machine code is given the address so many bytes into a frame: the distances to all fields fit in a signed byte.
pub(super) const MIDDLE: usize = 128;
const _: () = assert!(size_of::<Frame<'static>>() >= MIDDLE);

impl<'a> Frame<'a> {
    /// In place: most of what it is made of is in registers where a packet is processed.
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
        // SAFETY: both come from exclusive references that live as long as the frame; what is taken
        // here are addresses of their parts, of which one is used at a time: the machine code does
        // not run while a runtime function does.
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

    /// The tables that this packet sees.
    #[inline]
    pub(super) fn side(&self) -> &'a Side {
        self.context.side
    }

    /// Counters, meters and registers.
    #[inline]
    pub(super) fn externs(&self) -> &'a Externs {
        self.context.externs
    }

    /// The program.
    #[inline]
    pub(super) fn program(&self) -> &'a Program {
        self.program
    }

    /// The packet as it came in.
    #[inline]
    pub(super) fn input(&self) -> &'a [u8] {
        self.context.input
    }

    /// Now, in microseconds.
    #[inline]
    pub(super) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// How the packet waits, if it runs in a lane.
    #[inline]
    pub(super) fn waiting(&self) -> Option<Waiting> {
        // SAFETY: the frame was made from an exclusive reference to it, which lives as long.
        unsafe { (*self.work).waiting }
    }

    /// Waits until what earlier packets do to registers and meters is done.
    #[inline]
    pub(super) fn turn(&self) {
        if let Some(waiting) = self.waiting() {
            waiting.turn();
        }
    }

    /// Where the packet's time is added up, if it is.
    #[inline]
    pub(super) fn profile(&mut self) -> Option<&mut Profile> {
        // SAFETY: the frame was made from an exclusive reference to it, which lives as long.
        unsafe { (*self.work).profile.as_deref_mut() }
    }

    /// The packet.
    #[inline]
    pub(super) fn packet(&mut self) -> &mut Packet {
        // SAFETY: the frame was made from an exclusive reference to it, which lives as long.
        unsafe { &mut *self.packet }
    }

    /// The packet and the worker's buffers, the scalar way to what the interpreter also has.
    #[inline]
    pub(super) fn machine(&mut self) -> Machine<'_, NoTrace> {
        // SAFETY: the frame was made from exclusive references to these, which live as long; the
        // borrow of the frame keeps a second machine from existing. `NoTrace` has no bytes.
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
