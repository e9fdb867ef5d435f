// SPDX-License-Identifier: Apache-2.0
//! Implements the device, which starts and stops workers, attaches ports, and swaps programs.

pub(crate) mod queues;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use sluice_engine::{EngineKind, Profile, ProfiledPoint};
use sluice_ports::link_monitor::{Link, LinkMonitor};
use sluice_ports::memory::{self, MemoryHandle};
use sluice_ports::privilege;
use sluice_ports::{PortId, PortStatistics};
use sluice_program::Program;
use sluice_tables::{Limits, Store};

use crate::attach::Port;
use crate::clock::Clock;
use crate::control::{Control, Links, PortState, hand_out, port_status};
use crate::counters::{DeviceCounters, DeviceStatistics, add, count};
use crate::handler::Handler;
use crate::levels::{PortLevels, QueueSetting};
use crate::mailbox::{Command, Mailbox};
use crate::outputs::Shared;
use crate::priority::go_first;
use crate::running::Engines;
use crate::sweeper::Sweeper;
use crate::trace::{Filter, PacketTrace, TraceHandle, TraceSink};
use crate::worker::Worker;

/// Maximum number of packets from the control plane that wait for a worker.
const PACKET_OUT_QUEUE: usize = 1024;

/// Configuration of a device.
#[derive(Debug, Clone)]
pub struct Config {
    /// Number of threads that process packets, at least 1.
    pub workers: usize,
    /// The port for packets to and from the control plane, if there is one.
    pub cpu_port: Option<PortId>,
    /// Value of `egress_spec` that drops a packet.
    pub drop_port: u32,
    /// The engine that runs programs.
    pub engine: EngineKind,
    /// Limits for the size of a program's state, if the program sets none.
    pub limits: Limits,
    /// Number of queues of each port, at least 1. Packets whose priority is this number or higher are dropped.
    pub queues: u32,
    /// Niceness of the threads that process packets, from -20 to 19. 0 keeps the niceness that a thread starts with.
    pub worker_nice: i32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: 1,
            cpu_port: None,
            drop_port: 511,
            engine: EngineKind::default(),
            limits: Limits::default(),
            queues: 1,
            worker_nice: 0,
        }
    }
}

/// Reason why the device refused a request.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The port number is already in use.
    #[error("port {0} exists already")]
    PortExists(PortId),
    /// The port number belongs to the control plane, or is the number that drops packets.
    #[error("port {0} is the CPU port or the drop port")]
    PortReserved(PortId),
    /// The interface is already a port.
    #[error("interface {name} is port {port} already")]
    InterfaceInUse {
        /// Name of the interface.
        name: String,
        /// Number of the port that has the interface.
        port: PortId,
    },
    /// No port has this number.
    #[error("there is no port {0}")]
    NoSuchPort(PortId),
    /// The port has no queue of this priority.
    #[error("there is no priority {0}: each port has {1} queues (--priority-queues)")]
    NoSuchQueue(u32, u32),
    /// No program is loaded.
    #[error("no program is loaded")]
    NoProgram,
    /// The operating system returned an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// State of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortInfo {
    /// Number of the port.
    pub number: PortId,
    /// Name of the port.
    pub name: String,
    /// Whether the port's link is up.
    pub up: bool,
    /// Kind of the interface's qdisc, if frames pass through it. `None` if frames bypass the qdisc, as they do for the
    /// kernel's default qdisc.
    pub qdisc: Option<String>,
    /// Counters of the port.
    pub statistics: PortStatistics,
}

/// Profile of the processing time of packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileReport {
    /// The engine that was measured.
    pub engine: EngineKind,
    /// Number of packets that were measured.
    pub packets: u64,
    /// Parts of the program with the time spent in each, longest first.
    pub rows: Vec<ProfiledPoint>,
}

/// A running switch. Dropping this stops the workers and releases the interfaces.
pub struct Device {
    config: Config,
    shared: Arc<Shared>,
    packet_out: Option<MemoryHandle>,
    control: Arc<Mutex<Control>>,
    mailboxes: Arc<[Arc<Mailbox>]>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    sweeper: Sweeper,
    links: Mutex<Option<LinkMonitor>>,
    /// Lock held while a profile is taken.
    profiling: Mutex<()>,
}

impl Device {
    /// Starts a device without ports and program.
    pub fn start(config: Config, handler: Arc<dyn Handler>) -> io::Result<Self> {
        let clock = Clock::start();
        let control = Control {
            queues: vec![QueueSetting::default(); config.queues.max(1) as usize],
            ..Control::default()
        };
        let shared = Arc::new(Shared {
            handler: handler.clone(),
            counters: DeviceCounters::default(),
            clock,
            cpu_port: config.cpu_port.map(u32::from),
            tracing: Arc::default(),
        });
        let mut mailboxes = Vec::with_capacity(config.workers);
        let mut threads = Vec::with_capacity(config.workers);
        for number in 0..config.workers.max(1) {
            let mailbox = Mailbox::new()?;
            let worker = Worker::new(mailbox.clone(), shared.clone())?;
            let name = format!("worker-{number}");
            let nice = config.worker_nice;
            let run = move || {
                go_first(nice);
                privilege::renounce();
                worker.run();
            };
            threads.push(thread::Builder::new().name(name).spawn(run)?);
            mailboxes.push(mailbox);
        }
        let packet_out = match config.cpu_port {
            Some(port) => Some(Self::packet_out_queue(port, &mailboxes[0])?),
            None => None,
        };
        Ok(Self {
            config,
            shared,
            packet_out,
            control: Arc::new(Mutex::new(control)),
            mailboxes: mailboxes.into(),
            threads: Mutex::new(threads),
            sweeper: Sweeper::start(handler, clock)?,
            links: Mutex::new(None),
            profiling: Mutex::default(),
        })
    }

    /// Creates the CPU port. Packets from the control plane enter through this port, on the first worker.
    fn packet_out_queue(port: PortId, mailbox: &Mailbox) -> io::Result<MemoryHandle> {
        let memory = memory::port(port, PACKET_OUT_QUEUE, &Arc::default())?;
        let receiver = Some(Box::new(memory.receiver) as Box<_>);
        mailbox.send(Command::AddPort(
            port,
            receiver,
            Box::new(memory.transmitter),
            Arc::new(PortLevels::new(&[])),
        ));
        Ok(memory.handle)
    }

    /// Returns the configuration of the device.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the switch's clock.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Creates a store for a program, in the program's initial state and with this device's clock.
    pub fn new_store(&self, program: Program) -> Arc<Store> {
        let (epoch, limits) = (self.shared.clock.epoch(), self.config.limits);
        Arc::new(Store::with_limits(Arc::new(program), epoch, limits))
    }

    /// Returns the kind of engine that runs the program, if a program is loaded. The kind is the interpreter if
    /// compilation to machine code failed.
    pub fn engine(&self) -> Option<EngineKind> {
        self.control.lock().engines.as_ref().map(Engines::kind)
    }

    /// Returns the store of the running program.
    pub fn store(&self) -> Option<Arc<Store>> {
        self.control.lock().store.clone()
    }

    /// Runs the program of this store on all workers. With `None`, runs no program. When this method returns, the old
    /// program processes no packet any more. Each packet is processed entirely by one of the two programs.
    pub fn load(&self, store: Option<Arc<Store>>) {
        let mut control = self.control.lock();
        if let Some(store) = &store {
            for (port, state) in &control.ports {
                store.port_status(u32::from(*port), state.up);
            }
        }
        let engines = store.as_ref().map(|store| self.engines(store));
        let commands = self.mailboxes.iter().map(|mailbox| {
            let running = |engines: &Engines| Box::new(engines.running(&mailbox.congestion));
            let running = engines.as_ref().map(running);
            (mailbox, mailbox.send(Command::Load(running)))
        });
        let sent: Vec<_> = commands.collect();
        for (mailbox, number) in sent {
            mailbox.wait(number);
        }
        self.sweeper.watch(store.as_ref());
        control.store = store;
        control.engines = engines;
    }

    /// Returns the factory that creates an engine for each worker, for the program of a store.
    fn engines(&self, store: &Arc<Store>) -> Engines {
        let config = sluice_engine::Config {
            drop_port: self.config.drop_port,
            queues: self.config.queues.max(1),
            ..sluice_engine::Config::default()
        };
        Engines::new(store, self.config.engine, config)
    }

    /// Checks whether a port with this number and name could be attached.
    ///
    /// # Errors
    /// The errors of [`add_port`](Self::add_port).
    pub fn check_port(&self, number: PortId, name: &str) -> Result<(), DeviceError> {
        self.check(&self.control.lock(), number, name)
    }

    fn check(&self, control: &Control, number: PortId, name: &str) -> Result<(), DeviceError> {
        if self.config.cpu_port == Some(number) || self.config.drop_port == u32::from(number) {
            return Err(DeviceError::PortReserved(number));
        }
        if control.ports.contains_key(&number) {
            return Err(DeviceError::PortExists(number));
        }
        let same = control.ports.iter().find(|(_, state)| state.name == name);
        same.map_or(Ok(()), |(port, _)| {
            let (name, port) = (name.to_owned(), *port);
            Err(DeviceError::InterfaceInUse { name, port })
        })
    }

    /// Attaches a port. Its link is assumed to be up until the monitor reports another state.
    pub fn add_port(&self, port: Port) -> Result<(), DeviceError> {
        let number = port.number;
        let mut control = self.control.lock();
        self.check(&control, number, &port.name)?;
        let state = PortState {
            name: port.name,
            up: true,
            counters: port.counters,
            attachment: port.attachment,
            receiving: control.least_busy(self.mailboxes.len()),
            levels: Arc::new(PortLevels::new(&control.queues)),
        };
        let receiving = state.receiving;
        hand_out(
            &self.mailboxes,
            number,
            receiving,
            port.receiver,
            port.transmitters,
            &state.levels,
        );
        control.ports.insert(number, state);
        if let Some(store) = &control.store {
            store.port_status(u32::from(number), true);
        }
        drop(control);
        self.watch_links()?;
        Ok(())
    }

    /// Detaches a port and releases its interface.
    pub fn remove_port(&self, number: PortId) -> Result<(), DeviceError> {
        let mut control = self.control.lock();
        let state = control
            .ports
            .remove(&number)
            .ok_or(DeviceError::NoSuchPort(number))?;
        // Order: first the groups stop selecting the port, then the port is removed.
        if let Some(store) = &control.store {
            store.port_status(u32::from(number), false);
        }
        let sent = self
            .mailboxes
            .iter()
            .map(|m| (m, m.send(Command::RemovePort(number))));
        for (mailbox, number) in sent.collect::<Vec<_>>() {
            mailbox.wait(number);
        }
        drop(control);
        drop(state);
        self.watch_links()?;
        Ok(())
    }

    /// Starts to monitor the links of all ports that are interfaces.
    fn watch_links(&self) -> io::Result<()> {
        let mut links = self.links.lock();
        // Order: the old monitor stops first. So its last report precedes the first report of the new monitor.
        *links = None;
        let watched = |(port, state): (&PortId, &PortState)| {
            let attachment = state.attachment.as_ref()?;
            Some(Link {
                port: *port,
                name: state.name.clone(),
                index: attachment.interface.index(),
            })
        };
        let interfaces: Vec<_> = self
            .control
            .lock()
            .ports
            .iter()
            .filter_map(watched)
            .collect();
        if !interfaces.is_empty() {
            let observer = Links {
                control: Arc::downgrade(&self.control),
                shared: self.shared.clone(),
                mailboxes: self.mailboxes.clone(),
            };
            *links = Some(LinkMonitor::start(interfaces, observer)?);
        }
        Ok(())
    }

    /// Reports that the link of a port went up or down.
    pub fn set_port_status(&self, port: PortId, up: bool) {
        port_status(&self.control, port, None, up);
    }

    /// Records that the link of a port is down, unless the number now belongs to another port.
    pub fn port_ended(&self, port: PortId, name: &str) {
        port_status(&self.control, port, Some(name), false);
    }

    /// Sends a packet from the control plane into the pipeline, through the CPU port. Returns false if the packet was
    /// dropped because the queue is full or there is no CPU port.
    pub fn packet_out(&self, packet: &[u8]) -> bool {
        count(&self.shared.counters.packet_out);
        let sent = self
            .packet_out
            .as_ref()
            .is_some_and(|queue| queue.send(packet));
        if !sent {
            count(&self.shared.counters.packet_out_dropped);
        }
        sent
    }

    /// Sends several packets as [`Self::packet_out`] does, but wakes the worker only once. Returns the number of
    /// packets sent. The other packets were dropped.
    pub fn packet_outs(&self, packets: Vec<Vec<u8>>) -> usize {
        let given = packets.len();
        let queue = self.packet_out.as_ref();
        let sent = queue.map_or(0, |queue| queue.send_all(packets));
        add(&self.shared.counters.packet_out, given);
        add(&self.shared.counters.packet_out_dropped, given - sent);
        sent
    }

    /// Returns whether a port with this number exists.
    pub fn has_port(&self, port: u32) -> bool {
        let port = PortId::try_from(port);
        port.is_ok_and(|port| self.control.lock().ports.contains_key(&port))
    }

    /// Returns all ports, in the order of their numbers.
    pub fn ports(&self) -> Vec<PortInfo> {
        let control = self.control.lock();
        let info = |(number, state): (&PortId, &PortState)| PortInfo {
            number: *number,
            name: state.name.clone(),
            up: state.up,
            qdisc: state
                .attachment
                .as_ref()
                .and_then(|found| found.qdisc.clone()),
            statistics: state.counters.read(),
        };
        control.ports.iter().map(info).collect()
    }

    /// Sends a command to all workers and waits until they have carried it out.
    fn tell_all(&self, command: impl Fn() -> Command) {
        let tell = |mailbox: &Arc<Mailbox>| mailbox.send(command());
        let sent: Vec<_> = self.mailboxes.iter().map(tell).collect();
        for (mailbox, number) in self.mailboxes.iter().zip(sent) {
            mailbox.wait(number);
        }
    }

    /// Returns the counters of the engines that run the program, by name, summed over all workers.
    pub fn engine_counters(&self) -> BTreeMap<&'static str, u64> {
        let report = Arc::default();
        self.tell_all(|| Command::Report(Arc::clone(&report)));
        std::mem::take(&mut *report.lock())
    }

    /// Waits until every worker has finished its current batch and answered. Returns false if a worker has ended.
    pub fn workers_answer(&self) -> bool {
        drop(self.engine_counters());
        !self.mailboxes.iter().any(|mailbox| mailbox.closed())
    }

    /// Profiles one packet in `every` on each worker for the given time. Concurrent calls run one after another.
    ///
    /// # Errors
    /// [`DeviceError::NoProgram`], also if the program was replaced during the measurement.
    pub fn profile(&self, every: NonZeroU32, time: Duration) -> Result<ProfileReport, DeviceError> {
        let _one = self.profiling.lock();
        let (store, code) = {
            let control = self.control.lock();
            let store = control.store.clone().ok_or(DeviceError::NoProgram)?;
            let code = control.engines.as_ref().and_then(Engines::profiled);
            self.tell_all(|| Command::BeginProfile(every, code.clone()));
            (store, code)
        };
        thread::sleep(time);
        let report: Arc<Mutex<Option<Profile>>> = Arc::default();
        self.tell_all(|| Command::EndProfile(Arc::clone(&report)));
        let profile = report.lock().take().ok_or(DeviceError::NoProgram)?;
        Ok(ProfileReport {
            engine: code.map_or(EngineKind::Interpreter, |_| EngineKind::Native),
            packets: profile.packets(),
            rows: profile.rows(store.program()),
        })
    }

    /// Returns the trace that this packet would have if it arrived on this port now. The packet is not sent and changes
    /// no state: counters do not count it, meters return green, and writes to registers are discarded. The first worker
    /// runs the packet in the interpreter, between two batches.
    ///
    /// # Errors
    /// [`DeviceError::NoProgram`].
    pub fn dry_run(&self, port: PortId, packet: Vec<u8>) -> Result<PacketTrace, DeviceError> {
        let dry_run = {
            let control = self.control.lock();
            let engines = control.engines.as_ref().ok_or(DeviceError::NoProgram)?;
            let now_us = self.shared.clock.now_us();
            let dry_run = engines.dry_run(u32::from(port), packet, now_us);
            let dry_run = Arc::new(Mutex::new(dry_run));
            let mailbox = &self.mailboxes[0];
            // Order: `control` stays locked until the worker has answered, so that no other program is loaded
            // meanwhile.
            let number = mailbox.send(Command::DryRun(Arc::clone(&dry_run)));
            mailbox.wait(number);
            dry_run
        };
        let trace = dry_run.lock().take();
        trace.ok_or(DeviceError::NoProgram)
    }

    /// Sends traces of the packets that match the filter to `sink`. Ends when `sink` has accepted `count` traces, or
    /// when the handle is dropped.
    pub fn trace(
        &self,
        filter: Filter,
        count: Option<u64>,
        sink: Arc<dyn TraceSink>,
    ) -> TraceHandle {
        self.shared.tracing.watch(filter, count, sink)
    }

    /// Returns the counters of the device as a whole. Ports and the program have their own counters.
    pub fn statistics(&self) -> DeviceStatistics {
        self.shared.counters.read()
    }
}

impl Device {
    /// Stops the workers, detaches all ports and releases their interfaces. Idempotent.
    pub fn stop(&self) {
        *self.links.lock() = None;
        for mailbox in self.mailboxes.iter() {
            mailbox.send(Command::Stop);
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker had panicked");
            }
        }
        self.sweeper.watch(None);
        let ports = std::mem::take(&mut self.control.lock().ports);
        drop(ports);
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.stop();
    }
}
