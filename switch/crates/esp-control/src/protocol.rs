// SPDX-License-Identifier: Apache-2.0
//! Defines the protocol of the admin socket. Each request and each answer is one JSON document on one line.
//!
//! The protocol uses JSON and not gRPC, because requests contain keys. A JSON line is in one buffer, which is erased.
//! gRPC's generated code would copy messages between buffers that are never erased.

use std::io::{self, ErrorKind, Read};

use serde::{Deserialize, Serialize};
use sluice_esp::spec::{Direction, SaSpec};
use zeroize::{Zeroize, Zeroizing};

/// Limit in bytes for a request's line.
pub const MAX_REQUEST: usize = 16 << 10;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Add an SA.
    Add(Box<SaSpec>),
    /// Delete an SA.
    Delete(SaId),
    /// Return the engine's status.
    Status {},
}

/// Identifies an existing SA: an outbound SA by its number, an inbound SA by its VRF and SPI.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SaId {
    /// Direction of the SA.
    pub direction: Direction,
    /// Number of an outbound SA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sa: Option<u32>,
    /// SPI of an inbound SA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spi: Option<u32>,
    /// VRF of an inbound SA.
    #[serde(default)]
    pub vrf: u16,
}

/// Reads lines from a socket. Erases each line from the buffer before it reads the next one.
pub struct Lines<R> {
    from: R,
    buffer: Zeroizing<Vec<u8>>,
    filled: usize,
    /// Length in bytes of the line that was returned last.
    given: usize,
}

impl<R: Read> Lines<R> {
    /// Creates a reader whose lines have at most `longest` bytes.
    pub fn new(from: R, longest: usize) -> Self {
        Self {
            from,
            buffer: Zeroizing::new(vec![0; longest]),
            filled: 0,
            given: 0,
        }
    }

    /// Returns the next line without its newline, or None at the end of the stream.
    ///
    /// # Errors
    /// The stream's error, a line that is too long, or a last line without a newline.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.buffer.copy_within(self.given..self.filled, 0);
        let rest = self.filled - self.given;
        self.buffer[rest..self.filled].zeroize();
        self.filled = rest;
        self.given = 0;
        let mut searched = 0;
        loop {
            let new = &self.buffer[searched..self.filled];
            if let Some(end) = new.iter().position(|byte| *byte == b'\n') {
                self.given = searched + end + 1;
                return Ok(Some(&self.buffer[..searched + end]));
            }
            searched = self.filled;
            if self.filled == self.buffer.len() {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "the line is too long",
                ));
            }
            match self.from.read(&mut self.buffer[self.filled..]) {
                Ok(0) if self.filled == 0 => return Ok(None),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_are_erased_behind() {
        let mut lines = Lines::new(&b"one\ntwo three\n\nfour"[..], 12);
        for expected in [&b"one"[..], b"two three", b""] {
            assert_eq!(lines.next_line().unwrap(), Some(expected));
        }
        let error = lines.next_line().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(&lines.buffer[..], b"four\0\0\0\0\0\0\0\0");
        let mut long = Lines::new(&b"123456789"[..], 8);
        assert_eq!(long.next_line().unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(Lines::new(&b""[..], 8).next_line().unwrap(), None);
    }

    #[test]
    fn an_unknown_request_is_refused() {
        for text in [
            "{}",
            "{\"flush\":{}}",
            "[]",
            "{\"delete\":{\"direction\":\"up\"}}",
            "7",
        ] {
            assert!(serde_json::from_str::<Request>(text).is_err(), "{text}");
        }
        assert!(serde_json::from_str::<Request>("{\"status\":{}}").is_ok());
    }
}
