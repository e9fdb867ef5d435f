// SPDX-License-Identifier: Apache-2.0
//! Encodes packet-outs and decodes packet-ins directly in protobuf's wire format.
//!
//! A packet has about a dozen metadata fields, and generated message types would allocate an object for each of
//! them. Here the fields are integers, in the order of a [`Layout`] that Python sets once. Values are encoded
//! in the shortest form. Received values may have leading zeros (P4Runtime 1.5, section 8.4).

use bytes::{BufMut, Bytes};
use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint,
    encoded_len_varint, skip_field,
};

/// Field number of `packet` in the oneof of both StreamMessageRequest and StreamMessageResponse.
const STREAM_PACKET: u32 = 2;
/// Field number of `payload` in PacketIn and PacketOut.
const PAYLOAD: u32 = 1;
/// Field number of `metadata` in PacketIn and PacketOut.
const METADATA: u32 = 2;
/// Field number of `metadata_id` in PacketMetadata.
const METADATA_ID: u32 = 1;
/// Field number of `value` in PacketMetadata.
const METADATA_VALUE: u32 = 2;
/// Maximum width of a metadata field, in bits.
pub const MAX_WIDTH: u32 = 128;

/// One metadata field of a packet-in or packet-out, as P4Info's controller packet metadata declare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Id of the field in P4Info.
    pub id: u32,
    /// Width of the field in bits.
    pub width: u32,
}

/// The metadata fields of packet-ins or of packet-outs. The metadata values of a packet are in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout(Vec<Field>);

/// Errors of a layout or of a packet-out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A field has a width outside 1..=128.
    #[error("metadata field {id} has width {width}, expected 1 to 128 bits")]
    Width {
        /// Id of the field.
        id: u32,
        /// Width of the field in bits.
        width: u32,
    },
    /// A field has the id 0, or two fields have the same id.
    #[error("metadata id {0} is 0 or listed twice")]
    Id(u32),
    /// The number of values differs from the number of fields in the layout.
    #[error("{given} metadata values, expected {expected} (one for each field of packet_out)")]
    Count {
        /// Number of values in the packet.
        given: usize,
        /// Number of fields in the layout.
        expected: usize,
    },
    /// A value is too wide for its field.
    #[error("metadata field {id} cannot hold {value:#x}: it has {width} bits")]
    Value {
        /// Id of the field.
        id: u32,
        /// Width of the field in bits.
        width: u32,
        /// The value.
        value: u128,
    },
}

/// A packet-in with its metadata in the order of the layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The packet.
    pub payload: Bytes,
    /// Values of the metadata, one for each field of the layout.
    pub metadata: Box<[u128]>,
}

/// Error of a packet-in that is invalid or does not fit the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Layout {
    /// Creates a layout of these fields.
    ///
    /// # Errors
    /// The error of the first invalid field.
    pub fn new(fields: Vec<Field>) -> Result<Self, LayoutError> {
        for (position, &Field { id, width }) in fields.iter().enumerate() {
            if !(1..=MAX_WIDTH).contains(&width) {
                return Err(LayoutError::Width { id, width });
            }
            if id == 0 || fields[..position].iter().any(|earlier| earlier.id == id) {
                return Err(LayoutError::Id(id));
            }
        }
        Ok(Self(fields))
    }

    /// Returns the fields in order.
    pub fn fields(&self) -> &[Field] {
        &self.0
    }

    /// Encodes a StreamMessageRequest that contains this packet-out.
    ///
    /// # Errors
    /// A value that does not fit its field, or a wrong number of values.
    pub fn encode_packet_out(&self, payload: &[u8], values: &[u128]) -> Result<Bytes, LayoutError> {
        self.check(values)?;
        let metadata: usize = self
            .fields_of(values)
            .map(|(field, value)| {
                let length = metadata_length(field, value);
                1 + encoded_len_varint(length as u64) + length
            })
            .sum();
        let packet = 1 + encoded_len_varint(payload.len() as u64) + payload.len() + metadata;
        let mut message = Vec::with_capacity(1 + encoded_len_varint(packet as u64) + packet);
        put_header(STREAM_PACKET, packet, &mut message);
        put_header(PAYLOAD, payload.len(), &mut message);
        message.put_slice(payload);
        for (field, value) in self.fields_of(values) {
            put_header(METADATA, metadata_length(field, value), &mut message);
            encode_key(METADATA_ID, WireType::Varint, &mut message);
            encode_varint(u64::from(field.id), &mut message);
            let length = value_length(value);
            put_header(METADATA_VALUE, length, &mut message);
            message.put_slice(&value.to_be_bytes()[16 - length..]);
        }
        Ok(message.into())
    }

    /// Decodes a serialized PacketIn.
    ///
    /// # Errors
    /// [`Malformed`] if the message is not a PacketIn, or if a field is missing, repeated, unknown or too wide.
    pub fn decode_packet_in(&self, message: &Bytes) -> Result<PacketIn, Malformed> {
        let mut metadata = vec![0_u128; self.0.len()].into_boxed_slice();
        // Number of fields decoded so far.
        let mut seen = 0_usize;
        let mut payload = Bytes::new();
        let mut cursor: &[u8] = message;
        while let Some((tag, value)) = next_field(&mut cursor)? {
            match tag {
                PAYLOAD => payload = message.slice_ref(value),
                METADATA => {
                    let (id, value) = decode_metadata(value)?;
                    // Tries the order of the layout first, because switches usually send the fields in P4Info's
                    // order.
                    let position = match self.0.get(seen) {
                        Some(field) if field.id == id => seen,
                        _ => return self.decode_in_any_order(message),
                    };
                    metadata[position] = decode_value(value, self.0[position].width)?;
                    seen += 1;
                }
                _ => {}
            }
        }
        if seen == self.0.len() {
            Ok(PacketIn { payload, metadata })
        } else {
            Err(Malformed)
        }
    }

    /// Decodes a PacketIn whose metadata are not in the order of the layout.
    fn decode_in_any_order(&self, message: &Bytes) -> Result<PacketIn, Malformed> {
        let mut metadata = vec![None; self.0.len()];
        let mut payload = Bytes::new();
        let mut cursor: &[u8] = message;
        while let Some((tag, value)) = next_field(&mut cursor)? {
            match tag {
                PAYLOAD => payload = message.slice_ref(value),
                METADATA => {
                    let (id, value) = decode_metadata(value)?;
                    let position = self
                        .0
                        .iter()
                        .position(|field| field.id == id)
                        .ok_or(Malformed)?;
                    let decoded = decode_value(value, self.0[position].width)?;
                    if metadata[position].replace(decoded).is_some() {
                        return Err(Malformed);
                    }
                }
                _ => {}
            }
        }
        let metadata: Option<Box<[u128]>> = metadata.into_iter().collect();
        Ok(PacketIn {
            payload,
            metadata: metadata.ok_or(Malformed)?,
        })
    }

    fn check(&self, values: &[u128]) -> Result<(), LayoutError> {
        if values.len() != self.0.len() {
            return Err(LayoutError::Count {
                given: values.len(),
                expected: self.0.len(),
            });
        }
        match self
            .fields_of(values)
            .find(|&(field, value)| !fits(value, field.width))
        {
            None => Ok(()),
            Some((Field { id, width }, value)) => Err(LayoutError::Value { id, width, value }),
        }
    }

    fn fields_of<'v>(&'v self, values: &'v [u128]) -> impl Iterator<Item = (Field, u128)> + 'v {
        self.0.iter().copied().zip(values.iter().copied())
    }
}

/// Returns the PacketIn that a serialized StreamMessageResponse contains. Returns `None` if the message has any
/// other field.
pub(super) fn packet_in_of(message: &Bytes) -> Option<Bytes> {
    let mut cursor: &[u8] = message;
    match next_field(&mut cursor) {
        Ok(Some((STREAM_PACKET, packet))) if cursor.is_empty() => Some(message.slice_ref(packet)),
        _ => None,
    }
}

fn fits(value: u128, width: u32) -> bool {
    u128::BITS - value.leading_zeros() <= width
}

/// Returns the length of a value's shortest big-endian form, in bytes. The length of zero is 1.
fn value_length(value: u128) -> usize {
    ((u128::BITS - value.leading_zeros()).div_ceil(8) as usize).max(1)
}

/// Returns the length of a PacketMetadata message in bytes.
fn metadata_length(field: Field, value: u128) -> usize {
    // The parts are: the id's tag, the id, the value's tag, the value's length, and the value.
    1 + encoded_len_varint(u64::from(field.id)) + 2 + value_length(value)
}

fn put_header(tag: u32, length: usize, buffer: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(length as u64, buffer);
}

/// Returns the next length-delimited field, or `None` at the end of the message. Skips fields of other wire
/// types.
fn next_field<'m>(cursor: &mut &'m [u8]) -> Result<Option<(u32, &'m [u8])>, Malformed> {
    while !cursor.is_empty() {
        let (tag, wire_type) = decode_key(cursor).map_err(|_| Malformed)?;
        if wire_type == WireType::LengthDelimited {
            return Ok(Some((tag, take_delimited(cursor)?)));
        }
        skip_field(wire_type, tag, cursor, DecodeContext::default()).map_err(|_| Malformed)?;
    }
    Ok(None)
}

fn take_delimited<'m>(cursor: &mut &'m [u8]) -> Result<&'m [u8], Malformed> {
    let length = decode_varint(cursor).map_err(|_| Malformed)?;
    let length = usize::try_from(length).map_err(|_| Malformed)?;
    let (value, rest) = cursor.split_at_checked(length).ok_or(Malformed)?;
    *cursor = rest;
    Ok(value)
}

/// Returns the id and the value of a PacketMetadata message.
fn decode_metadata(mut cursor: &[u8]) -> Result<(u32, &[u8]), Malformed> {
    let (mut id, mut value) = (0, &[][..]);
    while !cursor.is_empty() {
        match decode_key(&mut cursor).map_err(|_| Malformed)? {
            (METADATA_ID, WireType::Varint) => {
                let varint = decode_varint(&mut cursor).map_err(|_| Malformed)?;
                id = u32::try_from(varint).map_err(|_| Malformed)?;
            }
            (METADATA_VALUE, WireType::LengthDelimited) => value = take_delimited(&mut cursor)?,
            (tag, wire_type) => {
                skip_field(wire_type, tag, &mut cursor, DecodeContext::default())
                    .map_err(|_| Malformed)?;
            }
        }
    }
    Ok((id, value))
}

fn decode_value(bytes: &[u8], width: u32) -> Result<u128, Malformed> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let significant = &bytes[zeros..];
    if bytes.is_empty() || significant.len() > 16 {
        return Err(Malformed);
    }
    let value = significant
        .iter()
        .fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
    if fits(value, width) {
        Ok(value)
    } else {
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::super::proto::p4::v1::{
        PacketIn as PacketInProto, PacketMetadata, StreamMessageRequest, StreamMessageResponse,
        stream_message_request, stream_message_response,
    };
    use super::*;

    fn layout(fields: &[(u32, u32)]) -> Layout {
        Layout(
            fields
                .iter()
                .map(|&(id, width)| Field { id, width })
                .collect(),
        )
    }

    fn packet_in(payload: &[u8], metadata: &[(u32, &[u8])]) -> Bytes {
        let metadata = metadata.iter().map(|(id, value)| PacketMetadata {
            metadata_id: *id,
            value: Bytes::copy_from_slice(value),
        });
        let message = PacketInProto {
            payload: Bytes::copy_from_slice(payload),
            metadata: metadata.collect(),
        };
        message.encode_to_vec().into()
    }

    #[test]
    fn layouts_are_checked() {
        let new = |fields: &[(u32, u32)]| Layout::new(layout(fields).0).map(drop);
        assert_eq!(new(&[(1, 1), (2, 128)]), Ok(()));
        assert_eq!(new(&[(1, 0)]), Err(LayoutError::Width { id: 1, width: 0 }));
        assert_eq!(
            new(&[(1, 129)]),
            Err(LayoutError::Width { id: 1, width: 129 })
        );
        assert_eq!(new(&[(1, 1), (1, 2)]), Err(LayoutError::Id(1)));
        assert_eq!(new(&[(0, 1)]), Err(LayoutError::Id(0)));
    }

    #[test]
    fn packet_outs_that_do_not_fit_are_refused_by_name() {
        let layout = layout(&[(1, 9), (2, 16)]);
        assert_eq!(
            layout
                .encode_packet_out(b"x", &[0x200, 0])
                .map_err(|error| error.to_string()),
            Err("metadata field 1 cannot hold 0x200: it has 9 bits".to_owned())
        );
        let error = layout.encode_packet_out(b"x", &[1]);
        assert_eq!(
            error,
            Err(LayoutError::Count {
                given: 1,
                expected: 2
            })
        );
    }

    #[test]
    fn packet_ins_that_do_not_fit_are_malformed() {
        let layout = layout(&[(1, 9), (2, 16)]);
        let good: [(u32, &[u8]); 2] = [(1, &[1, 0xff]), (2, &[0, 0, 7])];
        let expected = PacketIn {
            payload: Bytes::from_static(b"pay"),
            metadata: [0x1ff, 7].into(),
        };
        assert_eq!(
            layout.decode_packet_in(&packet_in(b"pay", &good)),
            Ok(expected.clone())
        );
        let reversed = [good[1], good[0]];
        assert_eq!(
            layout.decode_packet_in(&packet_in(b"pay", &reversed)),
            Ok(expected)
        );
        for wrong in [
            &good[..1],
            &[good[0], good[0]],
            &[good[0], good[1], good[1]],
            &[good[0], (3, &[1])],
            &[good[0], good[1], (3, &[1])],
            &[(1, &[2, 0]), good[1]],
            &[(1, &[]), good[1]],
        ] {
            assert_eq!(
                layout.decode_packet_in(&packet_in(b"pay", wrong)),
                Err(Malformed),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn every_truncation_is_malformed_or_lacks_a_field() {
        let layout = layout(&[(1, 9)]);
        let whole = packet_in(b"payload", &[(1, &[7])]);
        for length in 0..whole.len() {
            assert_eq!(
                layout.decode_packet_in(&whole.slice(..length)),
                Err(Malformed),
                "{length}"
            );
        }
    }

    #[test]
    fn only_packets_are_taken_for_packets() {
        let wrap = |update| {
            Bytes::from(
                StreamMessageResponse {
                    update: Some(update),
                }
                .encode_to_vec(),
            )
        };
        let packet = PacketInProto {
            payload: Bytes::from_static(b"x"),
            metadata: vec![],
        };
        let message = wrap(stream_message_response::Update::Packet(packet.clone()));
        assert_eq!(packet_in_of(&message), Some(packet.encode_to_vec().into()));
        let other = wrap(stream_message_response::Update::Arbitration(
            Default::default(),
        ));
        assert_eq!(packet_in_of(&other), None);
        assert_eq!(packet_in_of(&Bytes::new()), None);
    }

    fn fields_and_values() -> impl Strategy<Value = Vec<(u32, u128)>> {
        proptest::collection::vec((1..=MAX_WIDTH, any::<u128>()), 0..20).prop_map(|fields| {
            fields
                .into_iter()
                .map(|(width, value)| (width, value >> (128 - width)))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn packet_outs_read_back_as_prost_reads_them(
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            fields in fields_and_values(),
        ) {
            let ids: Vec<_> = fields.iter().zip(1..).map(|((width, _), id)| (id * 100, *width)).collect();
            let values: Vec<_> = fields.iter().map(|(_, value)| *value).collect();
            let message = layout(&ids).encode_packet_out(&payload, &values).unwrap_or_default();
            let request = StreamMessageRequest::decode(message);
            let Ok(Some(stream_message_request::Update::Packet(packet))) = request.map(|request| request.update) else {
                return Err(TestCaseError::fail("no packet"));
            };
            prop_assert_eq!(&packet.payload[..], &payload[..]);
            prop_assert_eq!(packet.metadata.len(), values.len());
            for ((metadata, (id, width)), value) in packet.metadata.iter().zip(ids).zip(values) {
                prop_assert_eq!(metadata.metadata_id, id);
                prop_assert!(metadata.value.len() == 1 || metadata.value[0] != 0, "shortest form");
                prop_assert_eq!(decode_value(&metadata.value, width), Ok(value));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let bytes = Bytes::from(bytes);
            let _ = layout(&[(1, 9)]).decode_packet_in(&bytes);
            let _ = packet_in_of(&bytes);
        }
    }
}
