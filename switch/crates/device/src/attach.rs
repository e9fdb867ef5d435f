// SPDX-License-Identifier: Apache-2.0
//! Creates ports with the halves that a device needs: a receiver for one worker, and a transmitter for each worker.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_ports::af_packet::{self, BatchTransmitter, RingReceiver, SendPath};
use sluice_ports::files::{self, FileTransmitter};
use sluice_ports::interface::SilentInterface;
use sluice_ports::recorder::{Capture, RecordedReceiver, RecordedTransmitter};
use sluice_ports::{PortCounters, PortId, Receiver, Transmitter, memory, qdisc, replay};

/// A port to attach to a device.
pub struct Port {
    /// Number of the port.
    pub number: PortId,
    /// Name of the port, equal to the name of its interface.
    pub name: String,
    /// Counters of the port.
    pub counters: Arc<PortCounters>,
    /// Receiver of the port's frames. `None` if the receiver of another port also delivers this port's frames, as for
    /// ports on pcap files.
    pub receiver: Option<Box<dyn Receiver>>,
    /// Transmitters of the port, one for each worker.
    pub transmitters: Vec<Box<dyn Transmitter>>,
    /// The port's Linux interface, if the port has one. Detaching the port releases the interface.
    pub(crate) attachment: Option<Attachment>,
}

impl Port {
    /// Creates a port without a Linux interface from a receiver and one transmitter for each worker.
    pub fn new(
        number: PortId,
        name: String,
        counters: Arc<PortCounters>,
        receiver: Box<dyn Receiver>,
        transmitters: Vec<Box<dyn Transmitter>>,
    ) -> Self {
        Self {
            number,
            name,
            counters,
            receiver: Some(receiver),
            transmitters,
            attachment: None,
        }
    }
}

/// Options for attaching a Linux interface.
#[derive(Debug, Clone)]
pub struct InterfaceOptions {
    /// Size of the receive ring in frames.
    pub ring_frames: usize,
    /// Directory for pcap files of received and sent frames; `None` to record nothing.
    pub capture: Option<PathBuf>,
}

impl Default for InterfaceOptions {
    fn default() -> Self {
        Self {
            ring_frames: af_packet::DEFAULT_RING_FRAMES,
            capture: None,
        }
    }
}

/// A port's Linux interface. When the interface disappears and comes back, the port's receiver and transmitters are
/// opened again.
pub(crate) struct Attachment {
    name: String,
    ring_frames: usize,
    /// Capture files for received and sent frames.
    captures: Option<(Capture, Capture)>,
    counters: Arc<PortCounters>,
    /// The send path of each transmitter.
    paths: Vec<SendPath>,
    /// Kind of the qdisc that frames pass through; `None` if frames bypass the qdisc.
    pub(crate) qdisc: Option<String>,
    /// The interface, released when this is dropped.
    pub(crate) interface: SilentInterface,
}

/// The receiving half and the sending halves of a port.
pub(crate) struct Halves {
    pub(crate) receiver: Box<dyn Receiver>,
    pub(crate) transmitters: Vec<Box<dyn Transmitter>>,
}

impl Attachment {
    /// Opens the receiver of the interface, and one transmitter for each of the `workers`.
    fn open(&mut self, number: PortId, workers: usize) -> io::Result<Halves> {
        let mut transmitters: Vec<Box<dyn Transmitter>> = Vec::with_capacity(workers);
        self.paths.clear();
        self.qdisc = None;
        for _ in 0..workers {
            let transmitter = BatchTransmitter::open(&self.name, self.counters.clone())?;
            self.paths.push(transmitter.path());
            transmitters.push(Box::new(transmitter.holding()));
        }
        self.follow_qdisc()?;
        let counters = self.counters.clone();
        let receiver = RingReceiver::open(&self.name, number, self.ring_frames, counters)?;
        let mut receiver: Box<dyn Receiver> = Box::new(receiver);
        if let Some((received, sent)) = &self.captures {
            receiver = Box::new(RecordedReceiver::new(receiver, received.clone()));
            let record = |inner| Box::new(RecordedTransmitter::new(inner, sent.clone())) as Box<_>;
            transmitters = transmitters.into_iter().map(record).collect();
        }
        Ok(Halves {
            receiver,
            transmitters,
        })
    }

    /// Selects the send path. If a user has set a qdisc for the interface, frames pass through it. Otherwise they
    /// bypass the qdisc. Returns whether the path has changed.
    pub(crate) fn follow_qdisc(&mut self) -> io::Result<bool> {
        let there = qdisc::of(self.interface.index())?;
        if there == self.qdisc {
            return Ok(false);
        }
        for path in &self.paths {
            path.honour_qdisc(there.is_some())?;
        }
        self.qdisc = there;
        Ok(true)
    }

    /// Takes over a new interface in place of the previous one, which is gone. Both have the same name.
    pub(crate) fn reopen(&mut self, number: PortId, workers: usize) -> io::Result<Halves> {
        self.interface.release();
        let interface = SilentInterface::take(&self.name)?;
        std::mem::replace(&mut self.interface, interface).abandon();
        self.open(number, workers)
    }
}

/// Takes over a Linux interface as a port for a device with this number of workers.
fn interface_port(
    number: PortId,
    name: &str,
    workers: usize,
    options: &InterfaceOptions,
) -> io::Result<Port> {
    let interface = SilentInterface::take(name)?;
    let capture = |directory: &PathBuf| -> io::Result<_> {
        let received = Capture::create(directory, name, "in")?;
        Ok((received, Capture::create(directory, name, "out")?))
    };
    let mut attachment = Attachment {
        name: name.into(),
        ring_frames: options.ring_frames,
        captures: options.capture.as_ref().map(capture).transpose()?,
        counters: Arc::default(),
        paths: Vec::new(),
        qdisc: None,
        interface,
    };
    let halves = attachment.open(number, workers)?;
    Ok(Port {
        number,
        name: name.into(),
        counters: attachment.counters.clone(),
        receiver: Some(halves.receiver),
        transmitters: halves.transmitters,
        attachment: Some(attachment),
    })
}

/// Creates ports on pcap files, for a device with one worker: NAME reads `NAME_in.pcap` and writes `NAME_out.pcap`.
pub fn file_ports(names: &[(PortId, String)], delay: Duration) -> io::Result<Vec<Port>> {
    let mut ports = Vec::with_capacity(names.len());
    let mut inputs = Vec::with_capacity(names.len());
    for (number, name) in names {
        let counters = Arc::new(PortCounters::default());
        let base = Path::new(name);
        let transmitter = FileTransmitter::create(base, counters.clone())?;
        inputs.push(files::Input {
            port: *number,
            base: base.into(),
            counters: counters.clone(),
        });
        ports.push(Port {
            number: *number,
            name: name.clone(),
            counters,
            receiver: None,
            transmitters: vec![Box::new(transmitter)],
            attachment: None,
        });
    }
    // One receiver delivers the frames of all files in the order of their timestamps. It belongs to the last port. So
    // all ports exist when the first frame arrives.
    if let Some(last) = ports.last_mut() {
        last.receiver = Some(Box::new(files::read(inputs, delay)?));
    }
    Ok(ports)
}

/// Creates a port in memory for a device with this number of workers. Also returns the far end of its link.
pub fn memory_port(number: PortId, workers: usize) -> io::Result<(Port, memory::MemoryHandle)> {
    let counters = Arc::new(PortCounters::default());
    let memory = memory::port(number, 1024, &counters)?;
    let transmitter = || Box::new(memory.transmitter.clone()) as Box<dyn Transmitter>;
    let port = Port {
        number,
        name: format!("memory{number}"),
        counters,
        receiver: Some(Box::new(memory.receiver)),
        transmitters: (0..workers).map(|_| transmitter()).collect(),
        attachment: None,
    };
    Ok((port, memory.handle))
}

/// Prefixes that mark the names of ports without an interface. The colon prevents collisions, because no interface name
/// can contain a colon.
const REPLAY: &str = "replay:";
const DISCARD: &str = "discard:";

/// Creates a port from its name:
/// - `replay:FILE` receives the frames of a pcap file from memory, in a loop and as fast as they are processed.
///   Discards sent frames.
/// - `discard:NAME` receives nothing. Discards sent frames.
/// - Any other name is the name of an interface.
///
/// # Errors
/// Errors of reading the file, or of taking over the interface.
pub fn named_port(
    number: PortId,
    name: &str,
    workers: usize,
    options: &InterfaceOptions,
) -> io::Result<Port> {
    if let Some(file) = name.strip_prefix(REPLAY) {
        let (port, handle) = replay_port(number, name, workers, Arc::new(replay::read(file)?))?;
        handle.offer(u64::MAX / 2);
        return Ok(port);
    }
    if name.starts_with(DISCARD) {
        return Ok(discarding(number, name, workers, None, Arc::default()));
    }
    interface_port(number, name, workers, options)
}

/// Creates a port that receives frames from memory. The returned handle controls the number of frames. Sent frames are
/// counted and discarded.
pub fn replay_port(
    number: PortId,
    name: &str,
    workers: usize,
    frames: Arc<replay::Frames>,
) -> io::Result<(Port, replay::ReplayHandle)> {
    let counters = Arc::new(PortCounters::default());
    let (receiver, handle) = replay::ReplayReceiver::new(number, frames, counters.clone())?;
    let receiver = Some(Box::new(receiver) as Box<dyn Receiver>);
    let port = discarding(number, name, workers, receiver, counters);
    Ok((port, handle))
}

fn discarding(
    number: PortId,
    name: &str,
    workers: usize,
    receiver: Option<Box<dyn Receiver>>,
    counters: Arc<PortCounters>,
) -> Port {
    let transmitter = || Box::new(replay::DiscardTransmitter::new(counters.clone())) as Box<_>;
    Port {
        number,
        name: name.to_owned(),
        receiver,
        transmitters: (0..workers).map(|_| transmitter()).collect(),
        counters: counters.clone(),
        attachment: None,
    }
}
