// SPDX-License-Identifier: Apache-2.0
//! Splits an FPM byte stream into frames. Does no I/O.
//!
//! A frame has these parts:
//!
//! - version (1 byte): 1
//! - type (1 byte): 1 for netlink
//! - length (2 bytes, big endian): includes this header
//! - netlink messages
//!
//! After an error, the start of the next frame is unknown, so the stream cannot be used any more.
//! [`Framer::frames`] returns the same error on each further call and ignores all further bytes.

use bytes::{Buf, Bytes, BytesMut};

/// Size of the FPM header in bytes. The frame's length field includes the header.
pub const HEADER: usize = 4;
/// Size in bytes of a netlink message header (`struct nlmsghdr`), which is the shortest payload of
/// a frame.
pub const NETLINK_HEADER: usize = 16;
const VERSION: u8 = 1;
const TYPE_NETLINK: u8 = 1;

/// Error of an invalid frame in a connection's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("FPM frame at byte {offset}: {fault}")]
pub struct FramingError {
    /// Offset in the stream of the first byte of the invalid frame.
    pub offset: u64,
    /// Kind of the error.
    pub fault: Fault,
}

/// Kinds of frame errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The version is not 1.
    #[error("version {0}, expected 1: is the peer a zebra with dplane_fpm_nl?")]
    Version(u8),
    /// The type is not netlink.
    #[error("message type {0}, expected 1 (netlink): make zebra send netlink (`-M dplane_fpm_nl`)")]
    Type(u8),
    /// The length is too short for the FPM header and a netlink header.
    #[error("length {0}, expected at least 20 (FPM header and a netlink header)")]
    Length(u16),
    /// The stream ended inside the frame.
    #[error("the connection ended after {have} of its bytes ({need} expected)")]
    Truncated {
        /// Number of bytes of the frame that arrived.
        have: usize,
        /// Length of the whole frame, or 4 if the header is incomplete.
        need: usize,
    },
}

/// Splits the stream of one connection into frames.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: BytesMut,
    /// Stream offset of the buffer's first byte.
    offset: u64,
    failed: Option<FramingError>,
}

impl Framer {
    /// Returns the buffer, to which the caller appends received bytes.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Moves the payloads of all complete frames to `frames`, in order.
    ///
    /// # Errors
    /// The first malformed header. The frames before this header have then been moved to `frames`.
    pub fn frames(&mut self, frames: &mut Vec<Bytes>) -> Result<(), FramingError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        loop {
            match self.frame_length() {
                Ok(Some(length)) if length <= self.buffer.len() => {
                    let mut frame = self.buffer.split_to(length).freeze();
                    frame.advance(HEADER);
                    frames.push(frame);
                    self.offset += length as u64;
                }
                Ok(_) => return Ok(()),
                Err(fault) => return Err(self.fail(fault)),
            }
        }
    }

    /// Checks that the stream does not end inside a frame.
    ///
    /// # Errors
    /// [`Fault::Truncated`] if the stream ends inside a frame. The fault of the header if the
    /// header is invalid.
    pub fn finish(&mut self) -> Result<(), FramingError> {
        match self.frame_length() {
            _ if self.buffer.is_empty() || self.failed.is_some() => Ok(()),
            Ok(length) => Err(self.fail(Fault::Truncated {
                have: self.buffer.len(),
                need: length.unwrap_or(HEADER),
            })),
            Err(fault) => Err(self.fail(fault)),
        }
    }

    /// Returns the length of the first frame, if the frame's header has arrived. Checks each header
    /// byte as soon as it arrives, so that a peer that does not speak FPM is detected early.
    fn frame_length(&self) -> Result<Option<usize>, Fault> {
        match *self.buffer {
            [version, ..] if version != VERSION => Err(Fault::Version(version)),
            [_, kind, ..] if kind != TYPE_NETLINK => Err(Fault::Type(kind)),
            [_, _, high, low, ..] => {
                let length = u16::from_be_bytes([high, low]);
                if usize::from(length) < HEADER + NETLINK_HEADER {
                    return Err(Fault::Length(length));
                }
                Ok(Some(usize::from(length)))
            }
            _ => Ok(None),
        }
    }

    fn fail(&mut self, fault: Fault) -> FramingError {
        let error = FramingError {
            offset: self.offset,
            fault,
        };
        self.failed = Some(error);
        error
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(HEADER + payload.len()).unwrap_or(u16::MAX);
        let mut bytes = vec![1, 1];
        bytes.extend(length.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn feed(framer: &mut Framer, bytes: &[u8]) -> (Vec<Vec<u8>>, Option<FramingError>) {
        let mut frames = Vec::new();
        framer.buffer().extend_from_slice(bytes);
        let error = framer.frames(&mut frames).err();
        (frames.iter().map(|frame| frame.to_vec()).collect(), error)
    }

    #[test]
    fn every_split_of_a_stream_gives_the_same_frames() {
        let payloads = [vec![7; 16], (0..100).collect(), vec![9; 17]];
        let stream: Vec<u8> = payloads.iter().flat_map(|payload| frame(payload)).collect();
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let mut framer = Framer::default();
                let mut frames = Vec::new();
                for part in [&stream[..first], &stream[first..second], &stream[second..]] {
                    let (more, error) = feed(&mut framer, part);
                    assert_eq!(error, None);
                    frames.extend(more);
                }
                assert_eq!(frames, payloads);
                assert_eq!(framer.finish(), Ok(()));
            }
        }
    }

    #[test]
    fn the_largest_frame_passes() {
        let payload = vec![5; usize::from(u16::MAX) - HEADER];
        let (frames, error) = feed(&mut Framer::default(), &frame(&payload));
        assert_eq!((frames, error), (vec![payload], None));
    }

    #[test]
    fn a_malformed_header_is_named_with_its_offset_and_final() {
        let good = frame(&[0; 16]);
        for (bad, fault) in [
            (&[2_u8][..], Fault::Version(2)),
            (&[1, 2], Fault::Type(2)),
            (&[1, 1, 0, 0], Fault::Length(0)),
            (&[1, 1, 0, 19], Fault::Length(19)),
        ] {
            let mut framer = Framer::default();
            let (frames, error) = feed(&mut framer, &[&good, bad].concat());
            let expected = FramingError { offset: 20, fault };
            assert_eq!((frames.len(), error), (1, Some(expected)));
            let (frames, error) = feed(&mut framer, &good);
            assert_eq!(
                (frames.len(), error),
                (0, Some(expected)),
                "nothing after an error"
            );
        }
    }

    #[test]
    fn an_end_inside_a_frame_is_named() {
        let stream = [frame(&[0; 16]), frame(&[0; 30])].concat();
        for end in 21..stream.len() {
            let mut framer = Framer::default();
            let (frames, _) = feed(&mut framer, &stream[..end]);
            let need = if end < 24 { HEADER } else { 34 };
            let fault = Fault::Truncated {
                have: end - 20,
                need,
            };
            assert_eq!(frames.len(), 1);
            assert_eq!(framer.finish(), Err(FramingError { offset: 20, fault }));
        }
    }

    #[test]
    fn the_message_says_what_where_and_what_to_do() {
        let error = FramingError {
            offset: 20,
            fault: Fault::Type(2),
        };
        assert_eq!(
            error.to_string(),
            "FPM frame at byte 20: message type 2, expected 1 (netlink): \
             make zebra send netlink (`-M dplane_fpm_nl`)"
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_splits_do_not_matter(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            good in 0_usize..3,
            split in any::<prop::sample::Index>(),
        ) {
            let stream = [frame(&[3; 20]).repeat(good), bytes].concat();
            let whole = feed(&mut Framer::default(), &stream);
            let at = split.index(stream.len() + 1);
            let mut framer = Framer::default();
            let (mut frames, first) = feed(&mut framer, &stream[..at]);
            let (more, second) = feed(&mut framer, &stream[at..]);
            frames.extend(more);
            prop_assert_eq!((frames, first.or(second)), whole);
        }
    }
}
