// SPDX-License-Identifier: Apache-2.0
//! The admin socket's protocol: one JSON document a line, a request and its answer.
//!
//! JSON and not gRPC, because keys pass here: a line lies in one buffer, which is erased. Messages of generated code
//! are copied between buffers that are never cleared.

use std::io::{self, ErrorKind, Read};

use serde::{Deserialize, Serialize};
use sluice_esp::spec::{Direction, SaSpec};
use zeroize::{Zeroize, Zeroizing};

/// Limit in bytes for the line of a request.
pub const MAX_REQUEST: usize = 16 << 10;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Add an SA.
    Add(Box<SaSpec>),
    /// Delete an SA.
    Delete(Which),
    /// Return the engine's status.
    Status {},
}

/// Names an existing SA: outbound by its number, inbound by VRF and SPI.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Its direction.
    pub direction: Direction,
    /// Its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sa: Option<u32>,
    /// Its SPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spi: Option<u32>,
    /// Its VRF.
    #[serde(default)]
    pub vrf: u16,
}

/// Reads lines from a socket into a buffer that is erased after each line.
pub struct Lines<R> {
    from: R,
    buffer: Zeroizing<Vec<u8>>,
    filled: usize,
    /// Length in bytes of the line that was returned last.
    given: usize,
}

impl<R: Read> Lines<R> {
    /// Creates a reader of lines of at most `longest` bytes.
    pub fn new(from: R, longest: usize) -> Self {
        Self {
            from,
            buffer: Zeroizing::new(vec![0; longest]),
            filled: 0,
            given: 0,
        }
    }

    /// Returns the next line without its end; None at the end of the stream.
    ///
    /// # Errors
    /// The stream's; the line is too long, or truncated.
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
