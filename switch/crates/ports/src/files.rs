// SPDX-License-Identifier: Apache-2.0
//! Implements ports on pcap files (`--use-files SECONDS`). Interface NAME reads `NAME_in.pcap` and writes
//! `NAME_out.pcap`.
//!
//! As in BMv2, reading starts after the given delay. The frames of all files are merged in the order of their
//! timestamps, but are delivered without pauses. Named pipes deliver each frame when it is written, regardless of its
//! timestamp, so the writer controls the timing. Outputs are flushed with every batch.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::memory::{FrameQueue, MemoryReceiver};
use crate::pcap::{Reader, Record, Writer};
use crate::poller::Poller;
use crate::{MAX_FRAME, PortCounters, PortId, SendDrop, Transmitter};

/// An input file, and the port that receives its frames.
#[derive(Debug, Clone)]
pub struct Input {
    /// The port.
    pub port: PortId,
    /// Path without `_in.pcap`.
    pub base: PathBuf,
    /// Counters of the port.
    pub counters: Arc<PortCounters>,
}

fn with_suffix(base: &Path, suffix: &str) -> PathBuf {
    let mut path = base.to_path_buf().into_os_string();
    path.push(suffix);
    path.into()
}

/// An input, and the next record that it will deliver.
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

/// Starts reading. One receiver delivers the frames of all inputs. It delivers frames of files in the order of their
/// timestamps, and frames with equal timestamps in the order of the inputs. It delivers frames of pipes when they are
/// written. It is finished when all inputs have ended.
pub fn read(inputs: Vec<Input>, delay: Duration) -> io::Result<MemoryReceiver> {
    let queue = FrameQueue::new(1024)?;
    let receiver = MemoryReceiver::new(queue.clone(), None);
    thread::Builder::new()
        .name("pcap-files".into())
        .spawn(move || {
            thread::sleep(delay);
            let (pipes, files) = inputs.into_iter().partition(is_pipe);
            thread::scope(|scope| {
                scope.spawn(|| merge(files, &queue));
                if let Err(error) = follow(pipes, &queue) {
                    tracing::warn!(%error, "the input pipes cannot be read");
                }
            });
            queue.close();
        })?;
    Ok(receiver)
}

fn is_pipe(input: &Input) -> bool {
    std::fs::metadata(with_suffix(&input.base, "_in.pcap"))
        .is_ok_and(|metadata| metadata.file_type().is_fifo())
}

fn merge(inputs: Vec<Input>, queue: &FrameQueue) {
    let mut heads = Vec::new();
    for input in inputs {
        match Head::open(input) {
            Ok(head) => heads.push(head),
            Err(error) => tracing::warn!(%error, "the input file cannot be read"),
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

/// A named pipe, opened without waiting for a writer. If a read finds only part of a record, it waits for the rest,
/// so it always returns a whole record.
struct Pipe {
    input: Input,
    file: File,
    reader: Option<Reader<Waiting>>,
}

/// Reads from a non-blocking descriptor, but waits until the bytes have arrived.
struct Waiting {
    file: File,
    poller: Poller,
}

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.poller.wait(None)?.for_each(drop);
                }
                result => return result,
            }
        }
    }
}

impl Pipe {
    fn open(input: Input) -> io::Result<Self> {
        let path = with_suffix(&input.base, "_in.pcap");
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        Ok(Self {
            input,
            file,
            reader: None,
        })
    }

    /// Reads the next part of a readable pipe: first the file header, then one record at a time. Returns false at the
    /// end.
    fn advance(&mut self, queue: &FrameQueue) -> io::Result<bool> {
        let Some(reader) = self.reader.as_mut() else {
            let file = self.file.try_clone()?;
            let poller = Poller::new()?;
            poller.add(file.as_fd(), 0)?;
            self.reader = Some(Reader::new(Waiting { file, poller })?);
            return Ok(true);
        };
        let Some(record) = reader.next_record()? else {
            return Ok(false);
        };
        let length = record.data.len() as u64;
        self.input.counters.received(1, length);
        Ok(queue.put(self.input.port, record.data))
    }
}

/// Delivers the frames from pipes until all pipes have ended.
fn follow(inputs: Vec<Input>, queue: &FrameQueue) -> io::Result<()> {
    let mut poller = Poller::new()?;
    let mut pipes = Vec::new();
    for input in inputs {
        let pipe = Pipe::open(input)?;
        poller.add(pipe.file.as_fd(), pipes.len() as u64)?;
        pipes.push(Some(pipe));
    }
    while pipes.iter().any(Option::is_some) {
        let ready: Vec<usize> = poller
            .wait(None)?
            .map(|event| event.token as usize)
            .collect();
        for at in ready {
            let Some(pipe) = pipes[at].as_mut() else {
                continue;
            };
            let open = pipe.advance(queue).unwrap_or_else(|error| {
                let file = pipe.input.base.display();
                tracing::warn!(%file, %error, "input pipe ends early");
                false
            });
            if !open {
                pipes[at] = None;
            }
        }
    }
    Ok(())
}

/// Writes frames to `NAME_out.pcap`.
#[derive(Debug)]
pub struct FileTransmitter {
    writer: Writer<BufWriter<File>>,
    counters: Arc<PortCounters>,
}

impl FileTransmitter {
    /// Creates the file. `base` is the file's path without `_out.pcap`.
    pub fn create(base: &Path, counters: Arc<PortCounters>) -> io::Result<Self> {
        let file = File::create(with_suffix(base, "_out.pcap"))?;
        Ok(Self {
            writer: Writer::new(BufWriter::new(file))?,
            counters,
        })
    }
}

impl Transmitter for FileTransmitter {
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let bytes = headers.len() + payload.len();
        if bytes > MAX_FRAME {
            self.counters.send_dropped(SendDrop::Length, 1);
        } else if self.writer.write_parts(headers, payload).is_ok() {
            self.counters.sent(1, bytes as u64);
        } else {
            self.counters.send_dropped(SendDrop::LinkDown, 1);
        }
        true
    }

    fn flush(&mut self) -> bool {
        if let Err(error) = self.writer.flush() {
            tracing::warn!(%error, "the output file cannot be written");
        }
        true
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

    /// Creates a named pipe and a writer to it. Opens the writer also for reading, because otherwise opening would
    /// block until a reader appears.
    fn pipe(base: &Path) -> Writer<File> {
        let path = with_suffix(base, "_in.pcap");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the name is a live C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        Writer::new(File::options().read(true).write(true).open(path).unwrap()).unwrap()
    }

    #[test]
    fn pipes_deliver_as_frames_come_and_do_not_wait_for_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let bases = ["a", "b"].map(|name| directory.path().join(name));
        let mut writers = bases.each_ref().map(|base| Some(pipe(base)));
        let input = |at: usize| Input {
            port: at as PortId,
            base: bases[at].clone(),
            counters: Arc::default(),
        };
        let mut receiver = read(vec![input(0), input(1)], Duration::ZERO).unwrap();
        let mut poller = Poller::new().unwrap();
        poller.add(receiver.readiness().unwrap(), 0).unwrap();
        // The last frame has the earliest timestamp.
        for (port, second) in [(1, 5), (0, 6), (0, 7), (1, 1)] {
            let writer = writers[port].as_mut().unwrap();
            writer
                .write_at(Duration::from_secs(second), &[second as u8])
                .unwrap();
            let mut seen = None;
            while seen.is_none() {
                let wait = poller.wait(Some(Duration::from_secs(10))).unwrap();
                assert_eq!(wait.count(), 1, "no frame arrived");
                receiver.receive(8, &mut |from, frame| seen = Some((from, frame[0])));
            }
            assert_eq!(seen, Some((port as PortId, second as u8)));
        }
        writers = [None, None];
        while !receiver.finished() {
            let wait = poller.wait(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(wait.count(), 1, "no end arrived");
            receiver.receive(8, &mut |_, _| panic!("another frame"));
        }
        drop(writers);
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
