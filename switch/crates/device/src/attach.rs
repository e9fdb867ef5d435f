// SPDX-License-Identifier: Apache-2.0
//! Ports as the device takes them: a receiving half for one worker, a sending half for each.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_ports::af_packet::{self, BatchTransmitter, RingReceiver, SendPath};
use sluice_ports::files::{self, FileTransmitter};
use sluice_ports::interface::SilentInterface;
use sluice_ports::recorder::{Capture, RecordedReceiver, RecordedTransmitter};
use sluice_ports::{PortCounters, PortId, Receiver, Transmitter, memory, qdisc, replay};

/// A port to be attached to a device.
pub struct Port {
    /// Its number.
    pub number: PortId,
    /// What it is called: the interface's name.
    pub name: String,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    /// Frames that come in, if they do not come by another port's receiver (pcap files share one).
    pub receiver: Option<Box<dyn Receiver>>,
    /// One for each worker.
    pub transmitters: Vec<Box<dyn Transmitter>>,
    /// How it hangs on a Linux interface, which is given back when the port is detached.
    pub(crate) attachment: Option<Attachment>,
}

impl Port {
    /// A port that is no Linux interface, of halves that are made elsewhere: a receiver, and a transmitter for each worker.
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

/// How to attach a Linux interface.
#[derive(Debug, Clone)]
pub struct InterfaceOptions {
    /// Frames that may wait to be received.
    pub ring_frames: usize,
    /// Record frames into pcap files in this directory.
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

/// What a port on a Linux interface is made of, again and again if its interface goes and comes back.
pub(crate) struct Attachment {
    name: String,
    ring_frames: usize,
    /// What is received and what is sent.
    captures: Option<(Capture, Capture)>,
    counters: Arc<PortCounters>,
    /// How each transmitter's frames go.
    paths: Vec<SendPath>,
    /// The qdisc that they go through; none if they go round it.
    pub(crate) qdisc: Option<String>,
    /// The interface, given back when this is dropped.
    pub(crate) interface: SilentInterface,
}

/// The halves of a port.
pub(crate) struct Halves {
    pub(crate) receiver: Box<dyn Receiver>,
    pub(crate) transmitters: Vec<Box<dyn Transmitter>>,
}

impl Attachment {
    /// Opens the interface for a device with so many workers.
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

    /// Sends through the interface's qdisc where somebody has put one there, round it where not. Returns whether that
    /// changed.
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

    /// Takes over the interface that has the name of the one that is gone.
    pub(crate) fn reopen(&mut self, number: PortId, workers: usize) -> io::Result<Halves> {
        self.interface.release();
        let interface = SilentInterface::take(&self.name)?;
        std::mem::replace(&mut self.interface, interface).abandon();
        self.open(number, workers)
    }
}

/// Takes a Linux interface over as a port for a device with so many workers.
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

/// Makes pcap files ports of a device with one worker: NAME reads `NAME_in.pcap` and writes `NAME_out.pcap`.
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
    // Frames of all files come in the order of their stamps: by one receiver, which goes with the last port, so that
    // all are there when the first frame comes.
    if let Some(last) = ports.last_mut() {
        last.receiver = Some(Box::new(files::read(inputs, delay)?));
    }
    Ok(ports)
}

/// A port in memory for a device with so many workers, with the other end of its wire.
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

/// Names of ports that are no interfaces begin with these: no interface has a colon in its name.
const REPLAY: &str = "replay:";
const DISCARD: &str = "discard:";

/// A port by its name: `replay:FILE` receives the frames of a pcap file, from memory, again and again and as fast as
/// they are processed; `discard:NAME` receives nothing; both forget what they send. Any other name is an interface's.
///
/// # Errors
/// As the file or the interface has them.
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

/// A port whose frames lie in memory, with what says how many of them come in; what leaves by it is counted and
/// forgotten.
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
