// SPDX-License-Identifier: Apache-2.0
//! Encodes packet-ins and decodes packet-outs directly, without building protobuf messages.
//!
//! prost allocates memory for each metadata field, which takes longer than the pipeline takes for the packet. This fast
//! path handles headers in which each field is a number of at most 64 bits ([`ControllerHeader::numbers`]). It decodes
//! only packet-outs that have all fields in P4Info's order, each with a value that fits. prost decodes all other
//! messages, and finds the mistakes in them.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::pipeline::Pipeline;
use crate::proto::v1::StreamMessageResponse;
use crate::schema::header::{ControllerHeader, NumberField};
use crate::write::wire::{Reader, Value};

/// Field number of the packet in `StreamMessageRequest` and `StreamMessageResponse`.
const PACKET: u32 = 2;
/// Field numbers in `PacketIn` and `PacketOut`.
const PAYLOAD: u32 = 1;
const METADATA: u32 = 2;
/// Field numbers in `PacketMetadata`.
const METADATA_ID: u32 = 1;
const METADATA_VALUE: u32 = 2;

/// A message to a controller.
pub enum Response {
    /// Any message.
    Message(StreamMessageResponse),
    /// A packet-in, with its controller header in front. Invariant: each field of the pipeline's header is a number of
    /// at most 64 bits, and the packet is at least as long as this header.
    Packet(Arc<Pipeline>, Bytes),
}

/// A gRPC codec that keeps requests as bytes, and encodes packet-ins directly.
#[derive(Debug, Default)]
pub(crate) struct StreamCodec;

/// The encoding half of [`StreamCodec`], with a buffer for the encoded metadata of one packet.
#[derive(Debug, Default)]
pub(crate) struct ResponseEncoder {
    metadata: Vec<u8>,
}

/// The decoding half of [`StreamCodec`].
#[derive(Debug)]
pub(crate) struct RequestDecoder;

impl Codec for StreamCodec {
    type Encode = Response;
    type Decode = Bytes;
    type Encoder = ResponseEncoder;
    type Decoder = RequestDecoder;

    fn encoder(&mut self) -> ResponseEncoder {
        ResponseEncoder::default()
    }

    fn decoder(&mut self) -> RequestDecoder {
        RequestDecoder
    }
}

impl Encoder for ResponseEncoder {
    type Item = Response;
    type Error = Status;

    fn encode(&mut self, response: Response, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match response {
            Response::Message(message) => message
                .encode(out)
                .map_err(|error| Status::internal(error.to_string())),
            Response::Packet(pipeline, packet) => {
                let header = pipeline.schema.packet_in.as_ref();
                if let Some((header, fields)) =
                    header.and_then(|header| Some((header, header.numbers()?)))
                {
                    put_packet_in(header, fields, &packet, &mut self.metadata, out);
                }
                Ok(())
            }
        }
    }
}

impl Decoder for RequestDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, request: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(request.copy_to_bytes(request.remaining())))
    }
}

/// Encodes a packet-in as a StreamMessageResponse. `packet` has the controller header in front. `metadata` is a buffer
/// that this function clears and uses.
fn put_packet_in(
    header: &ControllerHeader,
    fields: &[NumberField],
    packet: &[u8],
    metadata: &mut Vec<u8>,
    out: &mut impl BufMut,
) {
    metadata.clear();
    for field in fields {
        put_metadata(field.id, field.read(packet), metadata);
    }
    let payload = packet.get(header.bytes()..).unwrap_or_default();
    let mut length = metadata.len();
    if !payload.is_empty() {
        length += 1 + encoded_len_varint(payload.len() as u64) + payload.len();
    }
    put_key(PACKET, out);
    encode_varint(length as u64, out);
    if !payload.is_empty() {
        put_key(PAYLOAD, out);
        encode_varint(payload.len() as u64, out);
        out.put_slice(payload);
    }
    out.put_slice(metadata);
}

fn put_metadata(id: u32, value: u64, out: &mut Vec<u8>) {
    let octets = value.to_be_bytes();
    let zeros = (value.leading_zeros() / 8).min(7) as usize;
    let value = &octets[zeros..];
    let length = 1 + encoded_len_varint(id.into()) + 2 + value.len();
    put_key(METADATA, out);
    out.push(length as u8);
    out.push((METADATA_ID << 3) as u8);
    encode_varint(id.into(), out);
    put_key(METADATA_VALUE, out);
    out.push(value.len() as u8);
    out.extend_from_slice(value);
}

/// Writes the key of a length-delimited field whose number is below 16.
fn put_key(field: u32, out: &mut impl BufMut) {
    out.put_u8((field << 3 | 2) as u8);
}

/// Returns the bytes that a packet-out sends into the pipeline: controller header and payload. `message` is a
/// StreamMessageRequest. Returns `None` for any message that prost must decode: one that is not a packet-out, or a
/// packet-out that this fast path does not accept.
pub(crate) fn packet_out(header: &ControllerHeader, message: &[u8]) -> Option<Vec<u8>> {
    let fields = header.numbers()?;
    let mut reader = Reader::new(message);
    let (PACKET, Value::Bytes(packet)) = reader.field()? else {
        return None;
    };
    if reader.remaining() > 0 {
        return None;
    }
    let mut bytes = Vec::with_capacity(header.bytes() + packet.len());
    let (mut pending, mut bits) = (0_u128, 0);
    let mut payload: Option<&[u8]> = None;
    let mut expected = fields.iter();
    let mut reader = Reader::new(packet);
    while reader.remaining() > 0 {
        match reader.field()? {
            (PAYLOAD, Value::Bytes(found)) if payload.is_none() => payload = Some(found),
            (METADATA, Value::Bytes(found)) => {
                let field = expected.next()?;
                pending = pending << field.width | u128::from(value_of(field, found)?);
                bits += field.width;
                while bits >= 8 {
                    bits -= 8;
                    bytes.push((pending >> bits) as u8);
                }
            }
            _ => return None,
        }
    }
    if expected.next().is_some() {
        return None;
    }
    if bits > 0 {
        bytes.push((pending << (8 - bits)) as u8);
    }
    bytes.extend_from_slice(payload.unwrap_or_default());
    Some(bytes)
}

/// Returns the value of an encoded PacketMetadata, if it has the id of this field and a value that fits.
fn value_of(field: &NumberField, metadata: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(metadata);
    let (METADATA_ID, Value::Varint(id)) = reader.field()? else {
        return None;
    };
    let (METADATA_VALUE, Value::Bytes(octets)) = reader.field()? else {
        return None;
    };
    let is_number = (1..=8).contains(&octets.len());
    if id != u64::from(field.id) || reader.remaining() > 0 || !is_number {
        return None;
    }
    let value = octets
        .iter()
        .fold(0_u64, |value, octet| value << 8 | u64::from(*octet));
    (u64::BITS - value.leading_zeros() <= field.width).then_some(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::v1::stream_message_request::Update as RequestUpdate;
    use crate::proto::v1::stream_message_response::Update;
    use crate::proto::v1::{PacketIn, PacketMetadata, PacketOut, StreamMessageRequest};
    use crate::schema::header::tests::header;

    fn widths() -> impl Strategy<Value = Vec<i32>> {
        proptest::collection::vec(1..=64_i32, 1..20)
    }

    fn request(packet: PacketOut) -> Vec<u8> {
        let update = Some(RequestUpdate::Packet(packet));
        StreamMessageRequest { update }.encode_to_vec()
    }

    proptest! {
        #[test]
        fn packet_ins_are_encoded_as_by_prost(widths in widths(), packet: Vec<u8>) {
            let header = header(&widths).unwrap();
            if let Some(metadata) = header.decode(&packet) {
                let payload = Bytes::copy_from_slice(&packet[header.bytes()..]);
                let update = Some(Update::Packet(PacketIn { payload, metadata }));
                let expected = StreamMessageResponse { update }.encode_to_vec();
                let (mut scratch, mut found) = (vec![7], Vec::new());
                let fields = header.numbers().unwrap();
                put_packet_in(&header, fields, &packet, &mut scratch, &mut found);
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn packet_outs_are_decoded_as_by_prost(
            (widths, values) in widths().prop_flat_map(|widths| {
                let values = proptest::collection::vec(any::<Vec<u8>>(), widths.len());
                (Just(widths), values)
            }),
            shorten: bool,
            payload: Vec<u8>,
            swap: Option<proptest::sample::Index>,
        ) {
            let header = header(&widths).unwrap();
            let fields = header.numbers().unwrap();
            let mut metadata: Vec<_> = fields.iter().zip(values).map(|(field, mut value)| {
                value.truncate(if shorten { field.width as usize / 8 } else { 12 });
                PacketMetadata { metadata_id: field.id, value }
            }).collect();
            if let Some(index) = swap {
                let at = index.index(metadata.len());
                metadata.swap(0, at);
            }
            let slow = header.encode(&metadata);
            let packet = PacketOut { payload: payload.clone().into(), metadata };
            if let Some(fast) = packet_out(&header, &request(packet)) {
                let mut expected = slow.unwrap();
                expected.extend_from_slice(&payload);
                prop_assert_eq!(fast, expected);
            } else {
                prop_assert!(slow.is_err() || swap.is_some() || !shorten);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(message: Vec<u8>, widths in widths()) {
            let header = header(&widths).unwrap();
            let _ = packet_out(&header, &message);
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_left_to_prost() {
        let header = header(&[9]).unwrap();
        let out = |value: &[u8]| {
            let (metadata_id, value) = (1, value.to_vec());
            let metadata = vec![PacketMetadata { metadata_id, value }];
            let payload = Bytes::from_static(b"x");
            packet_out(&header, &request(PacketOut { payload, metadata }))
        };
        assert_eq!(out(&[1, 0xff]), Some(vec![0xff, 0x80, b'x']));
        assert_eq!(out(&[0, 1, 0xff]), Some(vec![0xff, 0x80, b'x']));
        assert_eq!(out(&[2, 0]), None);
        assert_eq!(out(&[]), None);
    }
}
