// SPDX-License-Identifier: Apache-2.0
//! Ports as the device takes them: a receiving half for one worker, a sending half for each.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sluice_ports::af_packet::{self, BatchTransmitter, RingReceiver};
use sluice_ports::files::{self, FileTransmitter};
use sluice_ports::interface::SilentInterface;
use sluice_ports::recorder::{Capture, RecordedReceiver, RecordedTransmitter};
use sluice_ports::{PortCounters, PortId, Receiver, Transmitter, memory};

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
    /// The interface is given back when the port is detached.
    pub(crate) interface: Option<SilentInterface>,
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

/// Takes a Linux interface over as a port for a device with so many workers.
pub fn interface_port(
    number: PortId,
    name: &str,
    workers: usize,
    options: &InterfaceOptions,
) -> io::Result<Port> {
    let counters = Arc::new(PortCounters::default());
    let interface = Some(SilentInterface::take(name)?);
    let open = || BatchTransmitter::open(name, counters.clone());
    let mut transmitters: Vec<Box<dyn Transmitter>> = Vec::with_capacity(workers);
    for _ in 0..workers {
        transmitters.push(Box::new(open()?));
    }
    let receiver = RingReceiver::open(name, number, options.ring_frames, counters.clone())?;
    let mut receiver: Box<dyn Receiver> = Box::new(receiver);
    if let Some(directory) = &options.capture {
        let received = Capture::create(directory, name, "in")?;
        let sent = Capture::create(directory, name, "out")?;
        receiver = Box::new(RecordedReceiver::new(receiver, received));
        let record = |inner| Box::new(RecordedTransmitter::new(inner, sent.clone())) as Box<_>;
        transmitters = transmitters.into_iter().map(record).collect();
    }
    let name = name.into();
    Ok(Port {
        number,
        name,
        counters,
        receiver: Some(receiver),
        transmitters,
        interface,
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
            interface: None,
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
        interface: None,
    };
    Ok((port, memory.handle))
}
