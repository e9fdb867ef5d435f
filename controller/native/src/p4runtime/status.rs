// SPDX-License-Identifier: Apache-2.0
//! Decodes the errors of a failed Write. gRPC sends a `google.rpc.Status` as
//! `grpc-status-details-bin`. This status has one `p4.v1.Error` for each update, in order
//! (P4Runtime 1.5, section 9.3).

use prost::Message;

use super::proto::google::rpc;
use super::proto::p4::v1::Error;

const ERROR_TYPE: &str = "p4.v1.Error";

/// Returns the canonical code and the message of each update, in order. Code 0 is OK.
///
/// Returns an empty list if the details violate the specification. So a caller cannot
/// mistake an incomplete list for a complete one.
pub fn update_errors(details: &[u8]) -> Vec<(i32, String)> {
    let Ok(status) = rpc::Status::decode(details) else {
        return Vec::new();
    };
    let errors: Option<Vec<_>> = status
        .details
        .iter()
        .map(|any| {
            if any.type_url.rsplit('/').next() != Some(ERROR_TYPE) {
                return None;
            }
            let error = Error::decode(any.value.as_ref()).ok()?;
            Some((error.canonical_code, error.message))
        })
        .collect();
    errors.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error_any(code: i32, message: &str) -> prost_types::Any {
        let error = Error {
            canonical_code: code,
            message: message.to_owned(),
            ..Error::default()
        };
        prost_types::Any {
            type_url: format!("type.googleapis.com/{ERROR_TYPE}"),
            value: error.encode_to_vec(),
        }
    }

    fn details(details: Vec<prost_types::Any>) -> Vec<u8> {
        rpc::Status {
            code: 2,
            message: String::new(),
            details,
        }
        .encode_to_vec()
    }

    #[test]
    fn one_error_per_update_in_order() {
        let details = details(vec![
            error_any(0, ""),
            error_any(6, "already there"),
            error_any(0, ""),
        ]);
        let expected = [
            (0, String::new()),
            (6, "already there".to_owned()),
            (0, String::new()),
        ];
        assert_eq!(update_errors(&details), expected);
    }

    #[test]
    fn details_of_another_kind_give_no_list_at_all() {
        let mut other = error_any(6, "x");
        other.type_url = "type.googleapis.com/google.rpc.ErrorInfo".to_owned();
        assert_eq!(update_errors(&details(vec![error_any(0, ""), other])), []);
        assert_eq!(update_errors(&[]), []);
    }

    proptest! {
        #[test]
        fn arbitrary_details_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            update_errors(&bytes);
        }
    }
}
