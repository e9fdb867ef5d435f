// SPDX-License-Identifier: Apache-2.0
//! A worker: one thread that takes packets from its receivers, has them processed and sends what comes of them.
//!
//! The loop alternates between its receivers in batches and waits only when none has anything. Commands (a program, a
//! port more or less) are carried out between batches.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluice_engine::{Engine, Interpreter, PacketIn, Sink, Switch};
use sluice_ports::poller::Waker;
use sluice_ports::{PortId, Receiver, Transmitter};
use sluice_program::DigestId;
use sluice_tables::{Reader, Side, Store};

use crate::Handler;
use crate::clock::Clock;
use crate::counters::{DeviceCounters, count};
use crate::inputs::{Input, Inputs};
use crate::trace::{KnownPorts, Recorder, Tracing, Watcher, who_wants};

/// Packets taken from one receiver before the next has its turn, on one version of the tables.
const BATCH: usize = 64;

/// How long a failing poll is paused: it fails for want of kernel memory, and must not spin meanwhile.
const PAUSE: Duration = Duration::from_millis(10);

/// A program as one worker runs it.
pub(crate) struct Running {
    pub(crate) store: Arc<Store>,
    pub(crate) reader: Reader,
    pub(crate) switch: Switch<Interpreter>,
    /// For packets that somebody watches; made when the first one comes.
    pub(crate) watched: Option<Box<Switch<Interpreter<Recorder>>>>,
}

impl Running {
    /// Adds what both interpreters have counted.
    fn report(&mut self, report: &mut EngineCounters) {
        let mut add = |counters: &sluice_engine::Counters| {
            for (name, value) in counters.named() {
                *report.entry(name).or_default() += value;
            }
        };
        add(self.switch.counters());
        if let Some(watched) = &mut self.watched {
            add(watched.counters());
        }
    }
}

/// What engines have counted, by name.
pub(crate) type EngineCounters = BTreeMap<&'static str, u64>;

/// What a worker can be told to do between two batches.
pub(crate) enum Command {
    /// Run this program, or none.
    Load(Option<Box<Running>>),
    /// Take over the halves of a port.
    AddPort(PortId, Option<Box<dyn Receiver>>, Box<dyn Transmitter>),
    /// Drop the halves of a port.
    RemovePort(PortId),
    /// Add what the running program's engine has counted to this list.
    Report(Arc<Mutex<EngineCounters>>),
    /// End the thread.
    Stop,
}

/// The way to a worker.
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
    pending: AtomicBool,
    done: Condvar,
    waker: Waker,
}

#[derive(Default)]
struct MailboxState {
    commands: VecDeque<Command>,
    sent: u64,
    done: u64,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let waker = Waker::new()?;
        let (state, pending) = (Mutex::default(), AtomicBool::default());
        Ok(Arc::new(Self {
            state,
            pending,
            done: Condvar::new(),
            waker,
        }))
    }

    /// Sends a command; its number is for [`Self::wait`].
    pub(crate) fn send(&self, command: Command) -> u64 {
        let mut state = self.state.lock();
        state.commands.push_back(command);
        state.sent += 1;
        self.pending.store(true, Ordering::Release);
        let number = state.sent;
        drop(state);
        self.waker.wake();
        number
    }

    /// Waits until a command has been carried out, or never will be because the worker has ended.
    pub(crate) fn wait(&self, number: u64) {
        let mut state = self.state.lock();
        while state.done < number && !state.closed {
            self.done.wait(&mut state);
        }
    }

    /// Whether commands wait.
    fn pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<Command> {
        let mut state = self.state.lock();
        let command = state.commands.pop_front();
        self.pending
            .store(!state.commands.is_empty(), Ordering::Release);
        command
    }

    fn finish(&self) {
        self.state.lock().done += 1;
        self.done.notify_all();
    }
}

/// Marks the mailbox as dead whatever ends the thread, so that nobody waits for it.
struct CloseOnDrop(Arc<Mailbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.done.notify_all();
    }
}

/// What workers share.
pub(crate) struct Shared {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) counters: DeviceCounters,
    pub(crate) clock: Clock,
    pub(crate) cpu_port: Option<u32>,
    pub(crate) tracing: Arc<Tracing>,
}

/// Where processed packets go.
struct Outputs {
    shared: Arc<Shared>,
    /// By port number.
    transmitters: Vec<Option<Box<dyn Transmitter>>>,
    /// Ports with frames that have not been flushed.
    dirty: Vec<PortId>,
}

impl Outputs {
    fn known_ports(&self) -> KnownPorts {
        let ports = self.transmitters.iter().enumerate();
        KnownPorts {
            attached: ports
                .filter(|(_, port)| port.is_some())
                .map(|(number, _)| number as u32)
                .collect(),
            cpu: self.shared.cpu_port,
        }
    }

    fn flush(&mut self) {
        for port in self.dirty.drain(..) {
            if let Some(Some(transmitter)) = self.transmitters.get_mut(usize::from(port)) {
                transmitter.flush();
            }
        }
    }
}

impl Sink for Outputs {
    fn transmit(&mut self, port: u32, data: &[u8]) {
        let shared = &self.shared;
        if shared.cpu_port == Some(port) {
            count(&shared.counters.packet_in);
            if !shared.handler.packet_in(data) {
                count(&shared.counters.packet_in_dropped);
            }
            return;
        }
        match self.transmitters.get_mut(port as usize) {
            Some(Some(transmitter)) => {
                transmitter.push(data);
                let port = port as PortId;
                if !self.dirty.contains(&port) {
                    self.dirty.push(port);
                }
            }
            _ => count(&shared.counters.no_such_port),
        }
    }

    fn digest(&mut self, digest: DigestId, fields: &[u8]) {
        if !self.shared.handler.digest(digest, fields) {
            count(&self.shared.counters.digest_dropped);
        }
    }

    fn log(&mut self, message: &str) {
        tracing::info!("{message}");
    }
}

/// A batch while somebody watches.
struct Watch<'a> {
    tracing: &'a Tracing,
    watchers: Vec<Arc<Watcher>>,
    store: &'a Store,
    side: &'a Side,
    watched: &'a mut Option<Box<Switch<Interpreter<Recorder>>>>,
    plain: &'a mut Switch<Interpreter>,
}

impl Watch<'_> {
    /// Processes a packet, recording its steps if somebody wants them.
    fn process(&mut self, packet: PacketIn<'_>, outputs: &mut Outputs) {
        let externs = self.store.externs();
        let wanted = who_wants(&self.watchers, packet.port, packet.data);
        if wanted.is_empty() {
            return self.plain.process(self.side, externs, packet, outputs);
        }
        let config = self.plain.engine().config().clone();
        let switch = self.watched.get_or_insert_with(|| {
            let program = self.store.shared_program();
            let recorder = Recorder::new(Arc::clone(program));
            Box::new(Switch::new(Interpreter::traced(
                Arc::clone(program),
                config,
                recorder,
            )))
        });
        let ports = outputs.known_ports();
        switch
            .engine()
            .trace()
            .begin(packet.port, packet.data, ports);
        switch.process(self.side, externs, packet, outputs);
        let trace = switch
            .engine()
            .trace()
            .end(self.tracing.next_packet(), packet.now_us);
        self.tracing.deliver(&wanted, &Arc::new(trace));
    }
}

/// The state of a worker's thread.
pub(crate) struct Worker {
    mailbox: Arc<Mailbox>,
    inputs: Inputs,
    outputs: Outputs,
    running: Option<Box<Running>>,
}

impl Worker {
    pub(crate) fn new(mailbox: Arc<Mailbox>, shared: Arc<Shared>) -> io::Result<Self> {
        let inputs = Inputs::new(&mailbox.waker)?;
        let outputs = Outputs {
            shared,
            transmitters: Vec::new(),
            dirty: Vec::new(),
        };
        Ok(Self {
            mailbox,
            inputs,
            outputs,
            running: None,
        })
    }

    /// Works until told to stop.
    pub(crate) fn run(mut self) {
        let _close = CloseOnDrop(self.mailbox.clone());
        // The first look is at commands that came before the thread did.
        let mut commands = true;
        loop {
            if commands {
                self.mailbox.waker.reset();
                while let Some(command) = self.mailbox.take() {
                    let go_on = self.obey(command);
                    self.mailbox.finish();
                    if !go_on {
                        return;
                    }
                }
            }
            // Loaded: look at the mailbox without a system call, so that commands are not kept waiting.
            commands = if self.serve() > 0 {
                self.mailbox.pending()
            } else {
                self.poll()
            };
        }
    }

    /// Processes a batch from each receiver, all on one version of the tables; returns how many packets there were.
    fn serve(&mut self) -> usize {
        let outputs = &mut self.outputs;
        let inputs = self.inputs.iter_mut();
        let Some(running) = &mut self.running else {
            let counters = &outputs.shared.counters;
            let drop_all = |input: &mut Input| {
                input
                    .receiver
                    .receive(BATCH, &mut |_, _| count(&counters.no_program))
            };
            return inputs.map(drop_all).sum();
        };
        let Running {
            store,
            reader,
            switch,
            watched,
        } = &mut **running;
        let now_us = outputs.shared.clock.now_us();
        let side = reader.pin();
        let tracing = Arc::clone(&outputs.shared.tracing);
        let mut packets = 0;
        if tracing.active() {
            let mut watch = Watch {
                watchers: tracing.watchers(),
                tracing: &tracing,
                store,
                side: &side,
                watched,
                plain: switch,
            };
            for input in inputs {
                packets += input.receiver.receive(BATCH, &mut |port, data| {
                    let port = u32::from(port);
                    watch.process(PacketIn { data, port, now_us }, outputs);
                });
            }
        } else {
            for input in inputs {
                packets += input.receiver.receive(BATCH, &mut |port, data| {
                    let port = u32::from(port);
                    let packet = PacketIn { data, port, now_us };
                    switch.process(&side, store.externs(), packet, outputs);
                });
            }
        }
        drop(side);
        outputs.flush();
        packets
    }

    /// Waits for packets or commands; true if there are commands.
    fn poll(&mut self) -> bool {
        self.inputs.wait().unwrap_or_else(|error| {
            tracing::error!(%error, "waiting for packets failed");
            std::thread::sleep(PAUSE);
            true
        })
    }

    /// Carries out a command; false to stop.
    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Load(running) => self.running = running,
            Command::AddPort(port, receiver, transmitter) => {
                // An interface that came back: the old one's halves are of no use.
                self.inputs.remove(port);
                if let Some(receiver) = receiver {
                    self.inputs.add(port, receiver);
                }
                let index = usize::from(port);
                if self.outputs.transmitters.len() <= index {
                    self.outputs.transmitters.resize_with(index + 1, || None);
                }
                self.outputs.transmitters[index] = Some(transmitter);
            }
            Command::RemovePort(port) => {
                self.inputs.remove(port);
                if let Some(transmitter) = self.outputs.transmitters.get_mut(usize::from(port)) {
                    *transmitter = None;
                }
            }
            Command::Report(report) => {
                if let Some(running) = &mut self.running {
                    running.report(&mut report.lock());
                }
            }
            Command::Stop => return false,
        }
        true
    }
}
