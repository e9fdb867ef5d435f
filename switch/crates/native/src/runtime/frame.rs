// SPDX-License-Identifier: Apache-2.0
//! Defines the frame, which is the argument of each call of machine code. The frame holds the addresses of the packet's
//! parts, and the state that runtime functions need.

use sluice_engine::{Config, Context, Counters, Packet, Profile, Sink};
use sluice_program::Program;
use sluice_random::Random;
use sluice_tables::{CounterCell, Externs, TableHandles, TableReplica};

use crate::scheduling::scheduler::Yielder;

/// Buffers and state of a worker that are kept between packets, to avoid allocation per packet.
#[derive(Debug, Default)]
pub(crate) struct WorkerState {
    pub(crate) hash_input: Vec<u8>,
    pub(crate) random: Random,
    pub(crate) counters: Counters,
    /// The profile, for code that was compiled for profiling.
    pub(crate) profile: Option<Box<Profile>>,
    /// Handle that a packet uses to yield, if packets run in a lane.
    pub(crate) yielder: Option<Yielder>,
}

/// Argument of one call of machine code, which reads the fields at constant offsets. Invariants: all pointers are valid
/// until the call ends. Only the caller has references to the packet and the worker's buffers.
#[repr(C)]
pub(crate) struct Frame<'a> {
    /// The packet header vector: `phv_bytes` bytes, then one validity byte for each header, 0 or 1.
    pub(crate) phv: *mut u8,
    /// Number of elements in each stack, then in each union stack.
    pub(crate) filled: *mut u32,
    /// Number of bits in the `varbit` field of each header.
    pub(crate) varbit: *mut u32,
    /// The flag that [`sluice_engine::phv::Phv::touch`] sets. Machine code sets the flag to 1 before each write for
    /// which Rust code must call that function.
    pub(crate) touched: *mut u8,
    /// The bytes of the packet as it entered the parser.
    pub(crate) data: *const u8,
    /// Length of `data` in bytes.
    pub(crate) data_len: usize,
    /// Number of bytes of `data` that the parser has consumed.
    pub(crate) parsed: *mut usize,
    /// Nonzero if the traffic manager must continue after the current pipeline.
    pub(crate) requested: *const u8,
    /// The packet's length in bytes, for the metadata field `packet_length`. Machine code changes it when it adds or
    /// removes headers.
    pub(crate) length: *mut u64,
    /// Output of the deparser. Has room for all headers at once.
    pub(crate) out: *mut u8,
    /// The worker's counters.
    pub(crate) counters: *mut Counters,
    /// Table handles, one for each table.
    pub(crate) tables: TableHandles<'a>,
    /// The cells of all indirect counters.
    pub(crate) cells: *const CounterCell,
    /// Current time in microseconds.
    pub(crate) now_us: u64,
    /// Packet length in bytes that counters and meters use.
    pub(crate) ingress_length: u64,
    /// Port on which the packet arrived.
    pub(crate) ingress_port: u64,
    /// Nonzero if the header vector still holds the values of an earlier packet.
    pub(crate) fresh: u64,
    /// Nonzero if no other thread updates counters at the same time. Updates then need not be atomic.
    pub(crate) alone: u64,
    /// Lookups yield while memory is fetched in tables with at least this number of entries.
    pub(crate) far: u64,
    packet: *mut Packet,
    worker: *mut WorkerState,
    sink: *mut (dyn Sink + 'a),
    program: &'a Program,
    config: &'a Config,
    context: Context<'a>,
}

/// Offset, from the start of a frame, of the address that machine code receives. Because this address is in the middle,
/// all fields are at offsets that fit in a signed byte.
pub(crate) const MIDDLE: usize = 128;
const _: () = assert!(size_of::<Frame<'static>>() >= MIDDLE);

impl<'a> Frame<'a> {
    /// Creates the frame of a packet. Inlined because most of its inputs are in registers at the call.
    #[inline(always)]
    pub(crate) fn new(
        program: &'a Program,
        config: &'a Config,
        worker: &'a mut WorkerState,
        context: Context<'a>,
        packet: &'a mut Packet,
        sink: &'a mut (dyn Sink + 'a),
    ) -> Self {
        let data: *const [u8] = packet.data(context.input);
        let packet: *mut Packet = packet;
        let worker: *mut WorkerState = worker;
        // SAFETY: both pointers come from exclusive references that live as long as the frame. Only addresses of parts
        // are taken here. Machine code and runtime functions never use the parts at the same time: machine code waits
        // while a runtime function runs.
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
                requested: (&raw const (*packet).requested).cast(),
                length: &raw mut (*packet).length,
                out: std::ptr::null_mut(),
                counters: &raw mut (*worker).counters,
                tables: context.tables.handles(),
                cells: context.externs.all_counters().as_ptr(),
                now_us: context.now_us,
                ingress_length: (*packet).ingress_length,
                ingress_port: (*packet).ingress_port.into(),
                fresh: (*packet).fresh.into(),
                alone: (!context.tables.is_shared()).into(),
                far: (*worker).yielder.as_ref().map_or(u64::MAX, Yielder::far),
                packet,
                worker,
                sink,
                program,
                config,
                context,
            }
        }
    }

    /// Returns the tables that this packet uses.
    #[inline]
    pub(crate) fn tables(&self) -> &'a TableReplica {
        self.context.tables
    }

    /// Returns counters, meters and registers.
    #[inline]
    pub(crate) fn externs(&self) -> &'a Externs {
        self.context.externs
    }

    /// Returns the program.
    #[inline]
    pub(crate) fn program(&self) -> &'a Program {
        self.program
    }

    /// Returns the engine's configuration.
    #[inline]
    pub(crate) fn config(&self) -> &'a Config {
        self.config
    }

    /// Returns the packet as received.
    #[inline]
    pub(crate) fn input(&self) -> &'a [u8] {
        self.context.input
    }

    /// Returns the current time in microseconds.
    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Returns the handle that the packet uses to yield, if the packet runs in a lane.
    #[inline]
    pub(crate) fn yielder(&self) -> Option<Yielder> {
        // SAFETY: the frame was created from an exclusive reference to this value, which lives as long as the frame.
        unsafe { (*self.worker).yielder }
    }

    /// Yields until all earlier packets have finished their processing, including their updates of registers and
    /// meters.
    #[inline]
    pub(crate) fn turn(&self) {
        if let Some(yielder) = self.yielder() {
            yielder.turn();
        }
    }

    /// Returns the profile to which the packet's time is added. Returns `None` without a profile.
    #[inline]
    pub(crate) fn profile(&mut self) -> Option<&mut Profile> {
        // SAFETY: the frame was created from an exclusive reference to this value, which lives as long as the frame.
        unsafe { (*self.worker).profile.as_deref_mut() }
    }

    /// Returns the packet.
    #[inline]
    pub(crate) fn packet(&mut self) -> &mut Packet {
        // SAFETY: the frame was created from an exclusive reference to this value, which lives as long as the frame.
        unsafe { &mut *self.packet }
    }

    /// Returns the worker's buffers and state.
    #[inline]
    pub(crate) fn worker(&mut self) -> &mut WorkerState {
        // SAFETY: the frame was created from an exclusive reference to this value, which lives as long as the frame.
        unsafe { &mut *self.worker }
    }

    /// Returns the packet and the worker's buffers.
    #[inline]
    pub(crate) fn packet_and_worker(&mut self) -> (&mut Packet, &mut WorkerState) {
        // SAFETY: the frame was created from exclusive references to packet and buffers, which live as long as the
        // frame. The borrow of the frame prevents further references.
        unsafe {
            (*self.packet).phv.touch();
            (&mut *self.packet, &mut *self.worker)
        }
    }

    /// Returns the sink.
    #[inline]
    pub(crate) fn sink(&mut self) -> &mut (dyn Sink + 'a) {
        // SAFETY: the frame was created from an exclusive reference to this value, which lives as long as the frame.
        unsafe { &mut *self.sink }
    }
}
