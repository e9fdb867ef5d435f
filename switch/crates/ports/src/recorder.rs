// SPDX-License-Identifier: Apache-2.0
//! Wraps the halves of a port, and writes the port's received and sent frames into pcap files (`--pcap DIR`).
//!
//! As in BMv2, interface NAME is recorded in `NAME_in.pcap` and `NAME_out.pcap`. The recorder flushes the files with
//! every batch, so a program that reads a file while it grows sees only whole records. If a file cannot be written,
//! the recorder logs a warning and records nothing more into it.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pcap::Writer;
use crate::{Deliver, Receiver, Retry, Transmitter};

/// A capture file, shared by the workers that write to it.
#[derive(Debug, Clone)]
pub struct Capture(Arc<Mutex<Option<Writer<BufWriter<File>>>>>);

impl Capture {
    /// Creates `DIRECTORY/NAME_SUFFIX.pcap`.
    pub fn create(directory: &Path, name: &str, suffix: &str) -> io::Result<Self> {
        let path = directory.join(format!("{name}_{suffix}.pcap"));
        let writer = Writer::new(BufWriter::new(File::create(path)?))?;
        Ok(Self(Arc::new(Mutex::new(Some(writer)))))
    }

    fn with(&self, action: impl FnOnce(&mut Writer<BufWriter<File>>) -> io::Result<()>) {
        let mut writer = self.0.lock();
        if let Some(Err(error)) = writer.as_mut().map(action) {
            tracing::warn!(%error, "recording ends, because the pcap file cannot be written");
            *writer = None;
        }
    }

    fn write(&self, headers: &[u8], payload: &[u8]) {
        self.with(|writer| writer.write_parts(headers, payload));
    }

    fn flush(&self) {
        self.with(Writer::flush);
    }
}

/// Records the frames that a receiver delivers.
pub struct RecordedReceiver {
    inner: Box<dyn Receiver>,
    capture: Capture,
}

impl RecordedReceiver {
    /// Wraps `inner` in a recorder.
    pub fn new(inner: Box<dyn Receiver>, capture: Capture) -> Self {
        Self { inner, capture }
    }
}

impl Receiver for RecordedReceiver {
    fn receive<'b>(&'b mut self, budget: usize, deliver: &mut Deliver<'_, 'b>) -> usize {
        let Self { inner, capture } = self;
        let count = inner.receive(budget, &mut |port, frame| {
            capture.write(&frame, &[]);
            deliver(port, frame);
        });
        if count > 0 {
            capture.flush();
        }
        count
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }

    fn clear_error(&mut self) {
        self.inner.clear_error();
    }

    fn finished(&self) -> bool {
        self.inner.finished()
    }
}

/// Records the frames that are pushed to a transmitter.
pub struct RecordedTransmitter {
    inner: Box<dyn Transmitter>,
    capture: Capture,
}

impl RecordedTransmitter {
    /// Wraps `inner` in a recorder.
    pub fn new(inner: Box<dyn Transmitter>, capture: Capture) -> Self {
        Self { inner, capture }
    }
}

impl Transmitter for RecordedTransmitter {
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        self.capture.write(headers, payload);
        self.inner.push_parts(headers, payload)
    }

    fn flush(&mut self) -> bool {
        self.capture.flush();
        self.inner.flush()
    }

    fn retry(&self) -> Option<Retry<'_>> {
        self.inner.retry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::Reader;
    use crate::{PortCounters, memory};

    #[test]
    fn both_directions_go_to_files_of_their_own() {
        let directory = tempfile::tempdir().unwrap();
        let counters = Arc::new(PortCounters::default());
        let port = memory::port(1, 4, &counters).unwrap();
        let capture = |suffix| Capture::create(directory.path(), "eth1", suffix).unwrap();
        let mut receiver = RecordedReceiver::new(Box::new(port.receiver), capture("in"));
        let mut transmitter = RecordedTransmitter::new(Box::new(port.transmitter), capture("out"));
        port.handle.send(b"question");
        receiver.receive(1, &mut |_, _| {});
        transmitter.push(b"answer");
        transmitter.flush();
        for (name, content) in [
            ("eth1_in.pcap", &b"question"[..]),
            ("eth1_out.pcap", b"answer"),
        ] {
            let mut reader = Reader::new(File::open(directory.path().join(name)).unwrap()).unwrap();
            assert_eq!(reader.next_record().unwrap().unwrap().data, content);
        }
    }
}
