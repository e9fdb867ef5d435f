// SPDX-License-Identifier: Apache-2.0
//! Encodes requests for the dry run of a packet, and decodes the answers. sluice-switch serves these
//! requests at its P4Runtime address.

use bytes::Bytes;
use prost::{DecodeError, Message};

use super::proto::sluice::admin::v1::{DryRunRequest, TraceResponse};

/// gRPC method, which only sluice-switch implements.
pub(super) const DRY_RUN: &str = "/sluice.admin.v1.Admin/DryRun";

/// One step of a dry run: kind, name of the object, and details as (name, value).
pub type Step = (String, String, Vec<(String, String)>);

/// Encodes a `DryRunRequest`.
pub(super) fn encode(port: u32, packet: &[u8]) -> Bytes {
    let packet = Bytes::copy_from_slice(packet);
    DryRunRequest { port, packet }.encode_to_vec().into()
}

/// Decodes a serialized `TraceResponse`.
///
/// # Errors
/// The bytes are not a valid message of this type.
pub fn decode(response: &[u8]) -> Result<Vec<Step>, DecodeError> {
    let trace = TraceResponse::decode(response)?;
    let steps = trace.lines.into_iter().map(|line| {
        let details = line.details.into_iter();
        let details = details.map(|detail| (detail.name, detail.value));
        (line.step, line.name, details.collect())
    });
    Ok(steps.collect())
}

#[cfg(test)]
mod tests {
    use super::super::proto::sluice::admin::v1::{Detail, TraceLine};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_are_told_in_order_with_their_particulars() {
        let detail = |name: &str, value: &str| Detail {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let message = TraceResponse {
            lines: vec![
                TraceLine {
                    step: "table".to_owned(),
                    name: "fib".to_owned(),
                    details: vec![detail("result", "hit"), detail("group", "7")],
                },
                TraceLine::default(),
            ],
            ..TraceResponse::default()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let details = vec![pair("result", "hit"), pair("group", "7")];
        let expected = vec![
            ("table".to_owned(), "fib".to_owned(), details),
            Step::default(),
        ];
        assert_eq!(decode(&message.encode_to_vec()), Ok(expected));
    }

    #[test]
    fn a_request_has_port_and_packet() {
        let expected = DryRunRequest {
            port: 510,
            packet: Bytes::from_static(&[1, 2]),
        };
        assert_eq!(DryRunRequest::decode(encode(510, &[1, 2])), Ok(expected));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(decode(&bytes));
        }
    }
}
