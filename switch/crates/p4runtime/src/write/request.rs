// SPDX-License-Identifier: Apache-2.0
//! Splits a received Write request into its head and its encoded updates. The server's codec keeps requests as bytes,
//! so that no protobuf message is built for an update that can be decoded directly ([`batch`](crate::write::batch)).

use std::ops::Range;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::proto::v1::{WriteRequest, WriteResponse};
use crate::write::wire::{Reader, Value};

/// Field number of `WriteRequest.updates`.
const UPDATES: u32 = 4;

/// A gRPC codec that keeps write requests as bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriteCodec;

impl Codec for WriteCodec {
    type Encode = WriteResponse;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for WriteCodec {
    type Item = WriteResponse;
    type Error = Status;

    fn encode(&mut self, response: WriteResponse, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(&response.encode_to_vec());
        Ok(())
    }
}

impl Decoder for WriteCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, request: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(request.copy_to_bytes(request.remaining())))
    }
}

/// A request, split into head and updates.
#[derive(Debug)]
pub(crate) struct Request {
    /// The request without its updates.
    pub head: WriteRequest,
    body: Bytes,
    updates: Vec<Range<usize>>,
}

/// Returns the status of a malformed message. It is the status that gRPC itself would return.
pub(crate) fn malformed(error: prost::DecodeError) -> Status {
    Status::internal(error.to_string())
}

impl Request {
    /// Splits a request.
    pub(crate) fn read(body: Bytes) -> Result<Self, Status> {
        if let Some(parts) = parts(&body) {
            return Self::of(body, parts);
        }
        // The encoding is unusual or malformed, so prost decodes the whole request.
        let request = WriteRequest::decode(body).map_err(malformed)?;
        let body = Bytes::from(request.encode_to_vec());
        match parts(&body) {
            Some(parts) => Self::of(body, parts),
            None => Err(Status::internal(
                "the server cannot split the request into updates",
            )),
        }
    }

    fn of(body: Bytes, (head, updates): (Vec<u8>, Vec<Range<usize>>)) -> Result<Self, Status> {
        Ok(Self {
            head: WriteRequest::decode(head.as_slice()).map_err(malformed)?,
            body,
            updates,
        })
    }

    /// Returns the encoded updates, in order.
    pub(crate) fn updates(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.updates.iter().map(|range| &self.body[range.clone()])
    }
}

/// Returns the encoded head and the ranges of the updates. Returns `None` for an unusual encoding.
fn parts(body: &[u8]) -> Option<(Vec<u8>, Vec<Range<usize>>)> {
    let (mut head, mut updates) = (Vec::new(), Vec::new());
    let mut reader = Reader::new(body);
    while reader.remaining() > 0 {
        let start = body.len() - reader.remaining();
        let (number, value) = reader.field()?;
        let end = body.len() - reader.remaining();
        match value {
            Value::Bytes(update) if number == UPDATES => updates.push(end - update.len()..end),
            _ => head.extend_from_slice(&body[start..end]),
        }
    }
    Some((head, updates))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::{Uint128, Update};

    #[test]
    fn a_request_in_parts_is_the_request() {
        let update = |r#type| Update {
            r#type,
            entity: None,
        };
        let request = WriteRequest {
            device_id: 7,
            role: "r".into(),
            election_id: Some(Uint128 { high: 1, low: 2 }),
            updates: vec![update(1), update(0), update(3)],
            atomicity: 2,
            ..WriteRequest::default()
        };
        let read = Request::read(request.encode_to_vec().into()).unwrap();
        let updates = read.updates().map(|bytes| Update::decode(bytes).unwrap());
        assert_eq!(updates.collect::<Vec<_>>(), request.updates);
        let head = WriteRequest {
            updates: Vec::new(),
            ..request
        };
        assert_eq!(read.head, head);
    }

    #[test]
    fn a_request_that_is_none_is_an_internal_error() {
        let status = Request::read(Bytes::from_static(&[0x22, 9, 1])).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Internal);
        // `parts` cannot read unknown fields of fixed size, so it leaves the message to prost, which skips such
        // fields.
        let unknown = Bytes::from_static(&[0x08, 3, 0x7d, 1, 2, 3, 4, 0x22, 0]);
        let read = Request::read(unknown).unwrap();
        assert_eq!((read.head.device_id, read.updates().len()), (3, 1));
    }
}
