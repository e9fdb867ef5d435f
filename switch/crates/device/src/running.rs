// SPDX-License-Identifier: Apache-2.0
//! A program as one worker runs it: tables, an engine, and a second one for packets that somebody watches.
//!
//! Which engine it is, is asked once for each batch; within a batch the code is that engine's alone.

use std::sync::Arc;

use sluice_engine::{Config, Engine, EngineKind, Interpreter, PacketIn, Switch};
use sluice_ports::{PortId, Receiver};
use sluice_tables::{Externs, Reader, Side, Store};

use crate::mailbox::EngineCounters;
use crate::outputs::Outputs;
use crate::trace::{Recorder, Tracing, Watchers, who_wants};

/// Packets taken from one receiver before the next has its turn, on one version of the tables.
pub(crate) const BATCH: usize = 64;

/// The engine that runs packets nobody watches.
pub(crate) enum Plain {
    Interpreter(Switch<Interpreter>),
}

/// See the module.
pub(crate) struct Running {
    store: Arc<Store>,
    reader: Reader,
    plain: Plain,
    config: Config,
    /// For packets that somebody watches; made when the first one comes.
    watched: Option<Box<Switch<Interpreter<Recorder>>>>,
}

/// Makes what each worker runs.
pub(crate) struct Engines {
    store: Arc<Store>,
    config: Config,
}

impl Engines {
    /// Of the kind that is asked for.
    pub(crate) fn new(store: &Arc<Store>, kind: EngineKind, config: Config) -> Self {
        let program = store.program();
        if kind == EngineKind::Native {
            tracing::error!("there is no native engine in this build: the interpreter runs");
        }
        tracing::info!(program = program.name, engine = %kind, "program loaded");
        Self {
            store: Arc::clone(store),
            config,
        }
    }

    /// A program that has seen no packet.
    pub(crate) fn running(&self) -> Running {
        let (store, config) = (Arc::clone(&self.store), self.config.clone());
        let program = Arc::clone(store.shared_program());
        Running {
            reader: store.reader(),
            plain: Plain::Interpreter(Switch::new(Interpreter::new(program, config.clone()))),
            store,
            config,
            watched: None,
        }
    }
}

impl Running {
    /// Adds what both engines have counted.
    pub(crate) fn report(&mut self, report: &mut EngineCounters) {
        let mut add = |counters: &sluice_engine::Counters| {
            for (name, value) in counters.named() {
                *report.entry(name).or_default() += value;
            }
        };
        match &mut self.plain {
            Plain::Interpreter(switch) => add(switch.counters()),
        }
        if let Some(watched) = &mut self.watched {
            add(watched.counters());
        }
    }

    /// Processes a batch from each receiver, all on one version of the tables; returns how many packets there were.
    pub(crate) fn serve<'a>(
        &mut self,
        receivers: impl Iterator<Item = &'a mut Box<dyn Receiver>>,
        outputs: &mut Outputs,
    ) -> usize {
        let tracing = Arc::clone(&outputs.shared.tracing);
        let side = self.reader.pin();
        let mut batch = Batch {
            store: &self.store,
            side: &side,
            config: &self.config,
            watched: &mut self.watched,
            watchers: Watchers::default(),
            tracing: &tracing,
            now_us: outputs.shared.clock.now_us(),
        };
        match &mut self.plain {
            Plain::Interpreter(switch) => batch.serve(switch, receivers, outputs),
        }
    }
}

/// What is the same for all packets of a batch.
struct Batch<'a> {
    store: &'a Store,
    side: &'a Side,
    config: &'a Config,
    watched: &'a mut Option<Box<Switch<Interpreter<Recorder>>>>,
    /// Given back with the batch, so that who watches no more is not held on to.
    watchers: Watchers,
    tracing: &'a Tracing,
    now_us: u64,
}

impl Batch<'_> {
    fn serve<'a, E: Engine>(
        &mut self,
        switch: &mut Switch<E>,
        receivers: impl Iterator<Item = &'a mut Box<dyn Receiver>>,
        outputs: &mut Outputs,
    ) -> usize {
        let externs: &Externs = self.store.externs();
        receive(receivers, &mut |port, data| {
            let packet = self.packet(port, data);
            if self.tracing.active() {
                self.watch(switch, packet, outputs);
            } else {
                switch.process(self.side, externs, packet, outputs);
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

    /// Processes a packet while somebody watches, recording its steps if somebody wants them.
    fn watch<E: Engine>(
        &mut self,
        plain: &mut Switch<E>,
        packet: PacketIn<'_>,
        outputs: &mut Outputs,
    ) {
        let externs = self.store.externs();
        self.tracing.refresh(&mut self.watchers);
        let wanted = who_wants(&self.watchers.list, packet.port, packet.data);
        if wanted.is_empty() {
            return plain.process(self.side, externs, packet, outputs);
        }
        let switch = self.watched.get_or_insert_with(|| {
            let program = self.store.shared_program();
            let recorder = Recorder::new(Arc::clone(program));
            let config = self.config.clone();
            let interpreter = Interpreter::traced(Arc::clone(program), config, recorder);
            Box::new(Switch::new(interpreter))
        });
        let ports = outputs.known_ports();
        let recorder = switch.engine().trace();
        recorder.begin(packet.port, packet.data, ports);
        switch.process(self.side, externs, packet, outputs);
        let recorder = switch.engine().trace();
        let trace = recorder.end(self.tracing.next_packet(), packet.now_us);
        self.tracing.deliver(&wanted, &Arc::new(trace));
    }
}

/// Up to [`BATCH`] frames from each receiver; how many there were.
fn receive<'a>(
    receivers: impl Iterator<Item = &'a mut Box<dyn Receiver>>,
    deliver: &mut dyn FnMut(PortId, &[u8]),
) -> usize {
    receivers
        .map(|receiver| receiver.receive(BATCH, deliver))
        .sum()
}
