// SPDX-License-Identifier: Apache-2.0
//! Ports that are pcap files (`--use-files SECONDS`): interface NAME reads `NAME_in.pcap` and writes `NAME_out.pcap`.
//!
//! As in BMv2, frames of all inputs are merged in the order of their stamps, without keeping the time between them,
//! beginning after the given delay. Inputs may be pipes. Outputs are flushed with every batch.

use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::memory::{FrameQueue, MemoryReceiver};
use crate::pcap::{Reader, Record, Writer};
use crate::{MAX_FRAME, PortCounters, PortId, Transmitter};

/// An input file and the port that its frames come in by.
#[derive(Debug, Clone)]
pub struct Input {
    /// The port.
    pub port: PortId,
    /// Path without `_in.pcap`.
    pub base: PathBuf,
    /// Where its frames are counted.
    pub counters: Arc<PortCounters>,
}

fn with_suffix(base: &Path, suffix: &str) -> PathBuf {
    let mut path = base.to_path_buf().into_os_string();
    path.push(suffix);
    path.into()
}

/// An input with the record that comes next in it.
struct Head {
    input: Input,
    reader: Reader<BufReader<File>>,
    next: Option<Record>,
}

impl Head {
    fn open(input: Input) -> io::Result<Self> {
        let path = with_suffix(&input.base, "_in.pcap");
        let in_path =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = File::open(&path).map_err(in_path)?;
        let mut reader = Reader::new(BufReader::new(file)).map_err(in_path)?;
        let next = reader.next_record().map_err(in_path)?;
        Ok(Self {
            input,
            reader,
            next,
        })
    }

    fn advance(&mut self) -> Option<Record> {
        let record = self.next.take();
        self.next = self.reader.next_record().unwrap_or_else(|error| {
            let file = self.input.base.display();
            tracing::warn!(%file, %error, "input file ends early");
            None
        });
        record
    }
}

/// Starts reading. One receiver delivers the frames of all inputs in the order of their stamps (files in the given
/// order where stamps are equal), and is finished when all files are.
pub fn read(inputs: Vec<Input>, delay: Duration) -> io::Result<MemoryReceiver> {
    let queue = FrameQueue::new(1024)?;
    let receiver = MemoryReceiver::new(queue.clone(), None);
    thread::Builder::new()
        .name("pcap-files".into())
        .spawn(move || {
            thread::sleep(delay);
            merge(inputs, &queue);
            queue.close();
        })?;
    Ok(receiver)
}

fn merge(inputs: Vec<Input>, queue: &FrameQueue) {
    let mut heads = Vec::new();
    for input in inputs {
        match Head::open(input) {
            Ok(head) => heads.push(head),
            Err(error) => tracing::warn!(%error, "input file not read"),
        }
    }
    let earliest = |heads: &[Head]| {
        let waiting = heads.iter().enumerate();
        let waiting = waiting.filter_map(|(at, head)| Some((head.next.as_ref()?.time, at)));
        waiting.min().map(|(_, at)| at)
    };
    while let Some(at) = earliest(&heads) {
        let head = &mut heads[at];
        let Some(record) = head.advance() else {
            continue;
        };
        head.input.counters.received(1, record.data.len() as u64);
        if !queue.put(head.input.port, record.data) {
            return;
        }
    }
}

/// Writes `NAME_out.pcap`.
#[derive(Debug)]
pub struct FileTransmitter {
    writer: Writer<BufWriter<File>>,
    counters: Arc<PortCounters>,
}

impl FileTransmitter {
    /// Creates the file; `base` is its path without `_out.pcap`.
    pub fn create(base: &Path, counters: Arc<PortCounters>) -> io::Result<Self> {
        let file = File::create(with_suffix(base, "_out.pcap"))?;
        Ok(Self {
            writer: Writer::new(BufWriter::new(file))?,
            counters,
        })
    }
}

impl Transmitter for FileTransmitter {
    fn push(&mut self, frame: &[u8]) {
        if frame.len() <= MAX_FRAME && self.writer.write(frame).is_ok() {
            self.counters.sent(1, frame.len() as u64);
        } else {
            self.counters.send_dropped(1);
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.writer.flush() {
            tracing::warn!(%error, "output file not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Receiver;
    use crate::poller::Poller;

    #[test]
    fn inputs_are_merged_by_time_and_then_finished() {
        let directory = tempfile::tempdir().unwrap();
        let base = |name: &str| directory.path().join(name);
        for (name, seconds) in [("a", [1, 4]), ("b", [2, 3])] {
            let file = File::create(base(&format!("{name}_in.pcap"))).unwrap();
            let mut writer = Writer::new(file).unwrap();
            for second in seconds {
                writer
                    .write_at(Duration::from_secs(second), &[second as u8])
                    .unwrap();
            }
        }
        let counters = Arc::new(PortCounters::default());
        let input = |port, name| Input {
            port,
            base: base(name),
            counters: counters.clone(),
        };
        let mut receiver = read(vec![input(0, "a"), input(1, "b")], Duration::ZERO).unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(receiver.readiness().unwrap(), 0).unwrap();
        let mut seen = Vec::new();
        while !receiver.finished() {
            poller
                .wait(Some(Duration::from_secs(10)))
                .unwrap()
                .for_each(drop);
            receiver.receive(8, &mut |port, frame| seen.push((port, frame[0])));
        }
        assert_eq!(seen, [(0, 1), (1, 2), (1, 3), (0, 4)]);
        assert_eq!(counters.read().rx_packets, 4);
    }

    #[test]
    fn an_absent_input_is_an_empty_one() {
        let input = Input {
            port: 0,
            base: "/nonexistent/x".into(),
            counters: Arc::default(),
        };
        let receiver = read(vec![input], Duration::ZERO).unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(receiver.readiness().unwrap(), 0).unwrap();
        poller
            .wait(Some(Duration::from_secs(10)))
            .unwrap()
            .for_each(drop);
        assert!(receiver.finished());
    }
}
