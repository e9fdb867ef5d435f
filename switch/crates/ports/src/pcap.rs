// SPDX-License-Identifier: Apache-2.0
//! Reads and writes the classic pcap file format of libpcap: both byte orders, microsecond and nanosecond timestamps.

use std::io::{self, Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::MAX_FRAME;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const ETHERNET: u32 = 1;

/// One record of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Time since the Unix epoch.
    pub time: Duration,
    /// The captured bytes.
    pub data: Vec<u8>,
}

/// Reads a file from start to end. Also works with pipes.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    big_endian: bool,
    nanoseconds: bool,
    /// Number of records read.
    records: u64,
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

impl<R: Read> Reader<R> {
    /// Reads and checks the file header.
    pub fn new(mut input: R) -> io::Result<Self> {
        let mut header = [0; 24];
        input.read_exact(&mut header)?;
        let magic = [header[0], header[1], header[2], header[3]];
        let (big_endian, nanoseconds) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic))
        {
            (MICROSECONDS, _) => (false, false),
            (NANOSECONDS, _) => (false, true),
            (_, MICROSECONDS) => (true, false),
            (_, NANOSECONDS) => (true, true),
            _ => {
                return Err(invalid(format!(
                    "this is not a pcap file: it starts with {magic:02x?}"
                )));
            }
        };
        Ok(Self {
            input,
            big_endian,
            nanoseconds,
            records: 0,
        })
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        }
    }

    /// Returns the next record, or `None` at the end of the file.
    ///
    /// # Errors
    /// The input fails, or a record is truncated or longer than any frame. The error names the record by its number,
    /// counted from 1.
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        let number = self.records + 1;
        let in_record = |error: io::Error| {
            let text = match error.kind() {
                io::ErrorKind::UnexpectedEof => "the file ends within the record".into(),
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("record {number}: {text}"))
        };
        let record = self.read_record().map_err(in_record)?;
        self.records += u64::from(record.is_some());
        Ok(record)
    }

    fn read_record(&mut self) -> io::Result<Option<Record>> {
        let mut header = [0; 16];
        let mut filled = 0;
        while filled < header.len() {
            match self.input.read(&mut header[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let length = self.word(&header, 8) as usize;
        if length > MAX_FRAME {
            return Err(invalid(format!(
                "the record has {length} bytes, more than any frame"
            )));
        }
        let fraction = u64::from(self.word(&header, 4));
        let fraction = if self.nanoseconds {
            fraction
        } else {
            fraction * 1000
        };
        let time =
            Duration::from_secs(u64::from(self.word(&header, 0))) + Duration::from_nanos(fraction);
        let mut data = vec![0; length];
        self.input.read_exact(&mut data)?;
        Ok(Some(Record { time, data }))
    }
}

/// Writes a capture of Ethernet frames. Its timestamps are in microseconds, which every reader of pcap files supports.
#[derive(Debug)]
pub struct Writer<W: Write> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the file header.
    pub fn new(mut output: W) -> io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend_from_slice(&MICROSECONDS.to_le_bytes());
        header.extend_from_slice(&2u16.to_le_bytes());
        header.extend_from_slice(&4u16.to_le_bytes());
        header.extend_from_slice(&[0; 8]);
        header.extend_from_slice(&(MAX_FRAME as u32).to_le_bytes());
        header.extend_from_slice(&ETHERNET.to_le_bytes());
        output.write_all(&header)?;
        output.flush()?;
        Ok(Self { output })
    }

    /// Writes one frame with the current time.
    pub fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.write_parts(frame, &[])
    }

    /// Writes one frame, given in two parts, with the current time.
    pub fn write_parts(&mut self, headers: &[u8], payload: &[u8]) -> io::Result<()> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.write_record(now, headers, payload)
    }

    /// Writes one frame, with the given time since the Unix epoch.
    pub fn write_at(&mut self, time: Duration, frame: &[u8]) -> io::Result<()> {
        self.write_record(time, frame, &[])
    }

    fn write_record(&mut self, time: Duration, headers: &[u8], payload: &[u8]) -> io::Result<()> {
        let length = ((headers.len() + payload.len()) as u32).to_le_bytes();
        let mut header = [0; 16];
        header[0..4].copy_from_slice(&(time.as_secs() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&time.subsec_micros().to_le_bytes());
        header[8..12].copy_from_slice(&length);
        header[12..16].copy_from_slice(&length);
        self.output.write_all(&header)?;
        self.output.write_all(headers)?;
        self.output.write_all(payload)
    }

    /// Flushes buffered bytes to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Interrupts every second read. The other reads return one byte at a time.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = buffer.len().min(1);
            self.0.read(&mut buffer[..count])
        }
    }

    #[test]
    fn interrupted_reads_are_repeated_and_a_truncated_record_is_named() {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file).unwrap();
        writer.write(&[1; 60]).unwrap();
        writer.write(&[2; 60]).unwrap();
        for truncated in [1, 61] {
            let input = Interrupted(&file[..file.len() - truncated], false);
            let mut reader = Reader::new(input).unwrap();
            assert_eq!(reader.next_record().unwrap().unwrap().data, [1; 60]);
            let error = reader.next_record().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(
                error.to_string(),
                "record 2: the file ends within the record"
            );
        }
    }

    #[test]
    fn a_file_in_the_other_byte_order_with_nanoseconds() {
        let mut file = Vec::new();
        file.extend_from_slice(&NANOSECONDS.to_be_bytes());
        file.extend_from_slice(&[0; 20]);
        for word in [5u32, 6, 2, 2] {
            file.extend_from_slice(&word.to_be_bytes());
        }
        file.extend_from_slice(&[0xab, 0xcd]);
        let mut reader = Reader::new(file.as_slice()).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!(
            record,
            Record {
                time: Duration::new(5, 6),
                data: vec![0xab, 0xcd]
            }
        );
        assert_eq!(reader.next_record().unwrap(), None);
    }

    #[test]
    fn a_record_cut_short_is_an_error_and_not_the_end() {
        let mut file = Vec::new();
        Writer::new(&mut file).unwrap().write(&[1, 2, 3]).unwrap();
        file.pop();
        let mut reader = Reader::new(file.as_slice()).unwrap();
        assert_eq!(
            reader.next_record().unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            frames in proptest::collection::vec(
                (any::<u32>(), 0..1_000_000u32, proptest::collection::vec(any::<u8>(), 0..64)), 0..8)
        ) {
            let mut file = Vec::new();
            let mut writer = Writer::new(&mut file).unwrap();
            for (seconds, micros, data) in &frames {
                writer.write_at(Duration::new(u64::from(*seconds), micros * 1000), data).unwrap();
            }
            let mut reader = Reader::new(file.as_slice()).unwrap();
            for (seconds, micros, data) in frames {
                let time = Duration::new(u64::from(seconds), micros * 1000);
                prop_assert_eq!(reader.next_record().unwrap(), Some(Record { time, data }));
            }
            prop_assert_eq!(reader.next_record().unwrap(), None);
        }

        #[test]
        fn any_bytes_end_in_an_error_or_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(mut reader) = Reader::new(bytes.as_slice()) {
                while let Ok(Some(_)) = reader.next_record() {}
            }
        }
    }
}
