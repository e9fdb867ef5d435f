// SPDX-License-Identifier: Apache-2.0
//! Extracts the program from a `p4_device_config`. The program is p4c's BMv2 JSON, either plain or inside the message
//! `p4.tmp.P4DeviceConfig`. BMv2's first P4Runtime server required this message, and p4lang's `p4runtime_lib` still
//! sends it.

use bytes::Bytes;
use prost::Message;

/// The message `p4.tmp.P4DeviceConfig`, without its field `extras`, which a switch does not use.
#[derive(Message)]
struct Envelope {
    #[prost(bool, tag = "1")]
    reassign: bool,
    #[prost(bytes = "bytes", tag = "3")]
    device_data: Bytes,
}

/// Returns the JSON. Bytes that begin like JSON, or that are not such a message, are returned unchanged, so that the
/// JSON parser reports what is wrong with them.
pub(crate) fn json(device_config: &Bytes) -> Bytes {
    let first = device_config
        .iter()
        .find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        return device_config.clone();
    }
    match Envelope::decode(device_config.clone()) {
        Ok(envelope) if !envelope.device_data.is_empty() => envelope.device_data,
        _ => device_config.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_envelope(device_data: &[u8]) -> Bytes {
        let mut bytes = Envelope {
            reassign: true,
            device_data: Bytes::copy_from_slice(device_data),
        }
        .encode_to_vec();
        bytes.extend([0x12, 0x03, 0x0a, 0x01, 0x20]); // field `extras`, whose content this switch does not know
        bytes.into()
    }

    #[test]
    fn json_is_found_with_and_without_the_envelope() {
        for program in [&b"{}"[..], b" \n{\"actions\": []}", &[b' '; 300]] {
            assert_eq!(json(&in_envelope(program)), program);
            assert_eq!(json(&Bytes::copy_from_slice(program)), program);
        }
    }

    #[test]
    fn what_is_neither_stays_what_it_is() {
        for bytes in [&b""[..], b"null", b"\x1a\x05{}", b"\x08\x01", b"\x1a\x00"] {
            assert_eq!(json(&Bytes::copy_from_slice(bytes)), bytes);
        }
    }
}
