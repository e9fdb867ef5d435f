// SPDX-License-Identifier: Apache-2.0
//! Runs the program on one worker, with its tables, an engine, and a second engine for traced packets.
//!
//! The engine is selected once for each batch. The code that processes the batch is specialized for this engine.

use std::num::NonZeroU32;
use std::sync::Arc;

use sluice_engine::{
    Config, Congestion, Engine, EngineKind, PacketIn, Profile, Profiled, TrafficManager,
};
use sluice_interpreter::{Clocked, Interpreter};
use sluice_native::{Code, Lanes, Native, NativeProfiled};
use sluice_ports::{Deliver, Frame, PortId, Receiver};
use sluice_program::Program;
use sluice_tables::{Externs, Reader, Store, TableReplica};

use crate::counters::EngineCounters;
use crate::dry_run::DryRun;
use crate::outputs::{NoMorePorts, Outputs};
use crate::trace::{KnownPorts, Recorder, Tracing, Watchers, who_wants};

/// Maximum number of packets that a batch takes from one receiver. All packets of a batch see one version of the
/// tables.
pub(crate) const BATCH: usize = 256;

/// The engine for packets that are neither traced nor measured.
pub(crate) enum PlainEngine {
    Interpreter(TrafficManager<Interpreter>),
    /// Machine code. If tables are larger than the CPU caches, lanes (coroutines) process several packets at a time.
    Native(TrafficManager<Native>, Option<Box<Lanes>>),
}

/// The program on one worker; see the module's documentation.
pub(crate) struct Running {
    store: Arc<Store>,
    reader: Reader,
    plain: PlainEngine,
    config: Config,
    /// The engine for traced packets, created for the first of them.
    watched: Option<Box<TrafficManager<Interpreter<Recorder>>>>,
    /// The engine for measured packets.
    measured: Option<Box<MeasuredEngine>>,
}

/// An engine that measures the processing time of packets. Interpreter or machine code, like the engine for other
/// packets.
enum ClockedEngine {
    Interpreter(TrafficManager<Interpreter<Clocked>>),
    Native(TrafficManager<NativeProfiled>),
}

/// The engine for measured packets, and the choice of the packets to measure. The engine is kept after profiling,
/// because its counters are still needed.
struct MeasuredEngine {
    clock: ClockedEngine,
    /// `None` while no packets are measured.
    sampling: Option<Sampling>,
}

impl MeasuredEngine {
    fn profile(&mut self) -> &mut Profile {
        match &mut self.clock {
            ClockedEngine::Interpreter(switch) => switch.engine().profile(),
            ClockedEngine::Native(switch) => switch.engine().profile(),
        }
    }

    fn counters(&mut self) -> &sluice_engine::Counters {
        match &mut self.clock {
            ClockedEngine::Interpreter(switch) => switch.counters(),
            ClockedEngine::Native(switch) => switch.counters(),
        }
    }

    fn process(
        &mut self,
        tables: &TableReplica,
        externs: &Externs,
        packet: PacketIn<'_>,
        outputs: &mut Outputs,
    ) {
        self.profile().begin();
        match &mut self.clock {
            ClockedEngine::Interpreter(switch) => switch.process(tables, externs, packet, outputs),
            ClockedEngine::Native(switch) => switch.process(tables, externs, packet, outputs),
        }
        self.profile().end();
    }
}

/// Selects one packet in N.
struct Sampling {
    every: NonZeroU32,
    /// Number of packets until the next selected one.
    until: u32,
}

impl Sampling {
    fn takes_next(&mut self) -> bool {
        self.until -= 1;
        let takes = self.until == 0;
        if takes {
            self.until = self.every.get();
        }
        takes
    }
}

/// Creates the program's instance for each worker.
pub(crate) struct Engines {
    store: Arc<Store>,
    config: Config,
    /// Machine code for the native engine; `None` for the interpreter.
    code: Option<Arc<Code>>,
}

impl Engines {
    /// Prepares engines of this kind. If compilation to machine code fails, logs an error and uses the interpreter.
    pub(crate) fn new(store: &Arc<Store>, kind: EngineKind, config: Config) -> Self {
        let code = match kind {
            EngineKind::Native => compile(store.shared_program(), &config),
            EngineKind::Interpreter => None,
        };
        let engines = Self {
            store: Arc::clone(store),
            config,
            code,
        };
        let (program, engine) = (&store.program().name, engines.kind());
        tracing::info!(program, %engine, "program loaded");
        engines
    }

    /// Compiles machine code with instrumentation for profiling. Returns None if the interpreter runs the program.
    pub(crate) fn profiled(&self) -> Option<Arc<Code>> {
        self.code.as_ref()?;
        let config = Config {
            profile: true,
            ..self.config.clone()
        };
        compile(self.store.shared_program(), &config)
    }

    /// Returns the kind of engine.
    pub(crate) fn kind(&self) -> EngineKind {
        match self.code {
            Some(_) => EngineKind::Native,
            None => EngineKind::Interpreter,
        }
    }

    /// Creates a dry run of a packet, to be run by a worker.
    pub(crate) fn dry_run(&self, port: u32, packet: Vec<u8>, now_us: u64) -> DryRun {
        let config = Config {
            dry_run: true,
            ..self.config.clone()
        };
        DryRun::new(self.store.shared_program(), config, port, packet, now_us)
    }

    /// Creates a worker's instance of the program, in its initial state. `congestion` tells the engine whether packets
    /// may have to wait.
    pub(crate) fn running(&self, congestion: &Congestion) -> Running {
        let store = Arc::clone(&self.store);
        let config = Config {
            congestion: congestion.clone(),
            ..self.config.clone()
        };
        let program = Arc::clone(store.shared_program());
        let plain = match &self.code {
            Some(code) => {
                let native = Native::new(Arc::clone(code), config.clone());
                let lanes = Lanes::new(code, &config, Lanes::FAR).unwrap_or_else(|error| {
                    tracing::error!(%error, "there are no lanes, so packets are processed one after the other");
                    None
                });
                PlainEngine::Native(TrafficManager::new(native), lanes.map(Box::new))
            }
            None => {
                let interpreter = Interpreter::new(program, config.clone());
                PlainEngine::Interpreter(TrafficManager::new(interpreter))
            }
        };
        Running {
            reader: store.reader(),
            plain,
            store,
            config,
            watched: None,
            measured: None,
        }
    }
}

/// Compiles a program to machine code, and logs the outcome.
fn compile(program: &Arc<Program>, config: &Config) -> Option<Arc<Code>> {
    let (code, report) = match Code::compile(program, config) {
        Ok(compiled) => compiled,
        Err(error) => {
            tracing::error!(%error, "the program cannot be compiled: the interpreter runs it");
            return None;
        }
    };
    let (milliseconds, bytes) = (report.time.as_secs_f64() * 1e3, report.code_bytes);
    tracing::info!(milliseconds, bytes, "program compiled");
    for construct in &report.not_compiled {
        tracing::error!(
            construct,
            "a construct has no machine code and runs slower: please report it"
        );
    }
    Some(code)
}

impl Running {
    /// Adds the counters of all engines of this worker.
    pub(crate) fn report(&mut self, report: &mut EngineCounters) {
        let mut add = |counters: &sluice_engine::Counters| {
            for (name, value) in counters.named() {
                *report.entry(name).or_default() += value;
            }
        };
        match &mut self.plain {
            PlainEngine::Interpreter(switch) => add(switch.counters()),
            PlainEngine::Native(switch, lanes) => {
                add(switch.counters());
                if let Some(lanes) = lanes {
                    add(&lanes.counters());
                }
            }
        }
        if let Some(watched) = &mut self.watched {
            add(watched.counters());
        }
        if let Some(measured) = &mut self.measured {
            add(measured.counters());
        }
    }

    /// Starts measuring one packet in `every`, with the instrumented machine code if it is given.
    pub(crate) fn begin_profile(&mut self, every: NonZeroU32, code: Option<Arc<Code>>) {
        let program = self.store.shared_program();
        let profile = Profile::new(program);
        let config = self.config.clone();
        let measured = self.measured.get_or_insert_with(|| {
            let clock = match code {
                Some(code) => {
                    ClockedEngine::Native(TrafficManager::new(NativeProfiled::new(code, config)))
                }
                None => {
                    let clocked = Clocked::new(program);
                    let engine = Interpreter::traced(Arc::clone(program), config, clocked);
                    ClockedEngine::Interpreter(TrafficManager::new(engine))
                }
            };
            let sampling = None;
            Box::new(MeasuredEngine { clock, sampling })
        });
        *measured.profile() = profile;
        measured.sampling = Some(Sampling {
            every,
            until: every.get(),
        });
    }

    /// Stops measuring, and adds the results to `report`.
    pub(crate) fn end_profile(&mut self, report: &mut Option<Profile>) {
        let Some(measured) = &mut self.measured else {
            return;
        };
        measured.sampling = None;
        match report {
            Some(sum) => sum.add(measured.profile()),
            None => *report = Some(measured.profile().clone()),
        }
    }

    /// Runs a packet without side effects.
    pub(crate) fn dry_run(&mut self, dry_run: &mut DryRun, ports: KnownPorts) {
        let tables = self.reader.pin();
        dry_run.run(&self.store, &tables, ports);
    }

    /// Processes a batch from each receiver, all with one version of the tables. Returns the number of packets.
    pub(crate) fn serve<'a>(
        &mut self,
        receivers: impl Iterator<Item = &'a mut Box<dyn Receiver>>,
        outputs: &mut Outputs,
    ) -> usize {
        let tracing = Arc::clone(&outputs.shared.tracing);
        let tables = self.reader.pin();
        let mut batch = Batch {
            store: &self.store,
            tables: &tables,
            config: &self.config,
            watched: &mut self.watched,
            measured: self.measured.as_deref_mut(),
            watchers: Watchers::default(),
            tracing: &tracing,
            now_us: outputs.shared.clock.now_us(),
        };
        match &mut self.plain {
            PlainEngine::Interpreter(switch) => batch.serve(switch, receivers, outputs),
            PlainEngine::Native(_, Some(lanes))
                if lanes.are_worthwhile(&tables) && !batch.is_looked_at() =>
            {
                batch.serve_in_lanes(lanes, receivers, outputs)
            }
            PlainEngine::Native(switch, _) => batch.serve(switch, receivers, outputs),
        }
    }

    /// Sends at most one batch of packets from the queues of ports that accept frames. The congested ports take turns.
    /// Each packet is sent before the next one is chosen, so that a packet of higher priority can come first.
    pub(crate) fn drain(&mut self, outputs: &mut Outputs) {
        outputs.try_again();
        let tables = self.reader.pin();
        let externs = self.store.externs();
        let (mut place, mut found) = (0, false);
        for _ in 0..BATCH {
            let leaving = match outputs.next_of(place) {
                Ok(leaving) => leaving,
                Err(NoMorePorts) if found => {
                    (place, found) = (0, false);
                    continue;
                }
                Err(NoMorePorts) => break,
            };
            place += 1;
            let Some(mut leaving) = leaving else {
                continue;
            };
            found = true;
            let now_us = outputs.shared.clock.now_us();
            let (queued, depth) = (&mut leaving.queued, leaving.depth);
            match &mut self.plain {
                PlainEngine::Interpreter(switch) => {
                    switch.leave_queue(&tables, externs, now_us, queued, depth, outputs);
                }
                PlainEngine::Native(switch, _) => {
                    switch.leave_queue(&tables, externs, now_us, queued, depth, outputs);
                }
            }
            outputs.flush();
            outputs.take_back(leaving.queued);
        }
        outputs.settle();
    }
}

/// State shared by all packets of a batch.
struct Batch<'a> {
    store: &'a Store,
    tables: &'a TableReplica,
    config: &'a Config,
    watched: &'a mut Option<Box<TrafficManager<Interpreter<Recorder>>>>,
    measured: Option<&'a mut MeasuredEngine>,
    /// Copy of the worker's list of watchers. Dropped with the batch, so that a removed watcher is freed.
    watchers: Watchers,
    tracing: &'a Tracing,
    now_us: u64,
}

impl Batch<'_> {
    /// Returns whether profiling is active.
    fn is_measured(&self) -> bool {
        matches!(&self.measured, Some(measured) if measured.sampling.is_some())
    }

    /// Returns whether packets are measured or traced.
    fn is_looked_at(&self) -> bool {
        self.is_measured() || self.tracing.active()
    }

    /// Processes packets that are neither measured nor traced, several at a time.
    fn serve_in_lanes<'a>(
        &self,
        lanes: &mut Lanes,
        receivers: impl Iterator<Item = &'a mut Box<dyn Receiver>>,
        outputs: &mut Outputs,
    ) -> usize {
        lanes.batch(self.tables, self.store.externs(), outputs, |lanes| {
            receive(receivers, &mut |port, frame| match frame {
                Frame::Kept(data) => lanes.process(self.packet(port, data)),
                Frame::Passing(data) => lanes.process_copy(self.packet(port, data)),
            })
        })
    }

    fn serve<'a, E: Engine>(
        &mut self,
        switch: &mut TrafficManager<E>,
        receivers: impl Iterator<Item = &'a mut Box<dyn Receiver>>,
        outputs: &mut Outputs,
    ) -> usize {
        if self.is_measured() {
            return receive(receivers, &mut |port, frame| {
                let packet = self.packet(port, &frame);
                self.measure(switch, packet, outputs);
            });
        }
        let externs: &Externs = self.store.externs();
        receive(receivers, &mut |port, frame| {
            let packet = self.packet(port, &frame);
            if self.tracing.active() {
                self.watch(switch, packet, outputs);
            } else {
                switch.process(self.tables, externs, packet, outputs);
            }
        })
    }

    fn packet<'p>(&self, port: PortId, data: &'p [u8]) -> PacketIn<'p> {
        PacketIn {
            data,
            port: u32::from(port),
            now_us: self.now_us,
        }
    }

    /// Processes a packet during profiling. Measures the packet if it is selected.
    fn measure<E: Engine>(
        &mut self,
        plain: &mut TrafficManager<E>,
        packet: PacketIn<'_>,
        outputs: &mut Outputs,
    ) {
        let externs = self.store.externs();
        if let Some(measured) = &mut self.measured
            && measured.sampling.as_mut().is_some_and(Sampling::takes_next)
        {
            measured.process(self.tables, externs, packet, outputs);
        } else {
            plain.process(self.tables, externs, packet, outputs);
        }
    }

    /// Processes a packet while watchers exist. Records the packet's steps if a watcher wants the packet.
    fn watch<E: Engine>(
        &mut self,
        plain: &mut TrafficManager<E>,
        packet: PacketIn<'_>,
        outputs: &mut Outputs,
    ) {
        let externs = self.store.externs();
        self.tracing.refresh(&mut self.watchers);
        let wanted = who_wants(&self.watchers.list, packet.port, packet.data);
        if wanted.is_empty() {
            return plain.process(self.tables, externs, packet, outputs);
        }
        let switch = self.watched.get_or_insert_with(|| {
            let program = self.store.shared_program();
            let recorder = Recorder::new(Arc::clone(program));
            let config = self.config.clone();
            let interpreter = Interpreter::traced(Arc::clone(program), config, recorder);
            Box::new(TrafficManager::new(interpreter))
        });
        let ports = outputs.known_ports();
        let recorder = switch.engine().trace();
        recorder.begin(packet.port, packet.data, ports);
        switch.process(self.tables, externs, packet, outputs);
        let recorder = switch.engine().trace();
        let trace = recorder.end(self.tracing.next_packet(), packet.now_us);
        self.tracing.deliver(&wanted, &Arc::new(trace));
    }
}

/// Receives up to [`BATCH`] frames from each receiver. Returns how many frames were received.
fn receive<'a>(
    receivers: impl Iterator<Item = &'a mut Box<dyn Receiver>>,
    deliver: &mut Deliver<'_, 'a>,
) -> usize {
    receivers
        .map(|receiver| receiver.receive(BATCH, deliver))
        .sum()
}
