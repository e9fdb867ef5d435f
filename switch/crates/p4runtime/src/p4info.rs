// SPDX-License-Identifier: Apache-2.0
//! Reads P4Info files as p4c writes them: protobuf text format, or binary.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};

use crate::proto::DESCRIPTORS;
use crate::proto::config::v1::P4Info;

/// A file that is not P4Info.
#[derive(Debug, thiserror::Error)]
#[error("this is not a P4Info: {0}")]
pub struct P4InfoError(String);

/// Reads protobuf text format.
pub fn from_text(text: &str) -> Result<P4Info, P4InfoError> {
    let error = |error: &dyn std::fmt::Display| P4InfoError(error.to_string());
    let pool = DescriptorPool::decode(DESCRIPTORS).map_err(|e| error(&e))?;
    let descriptor = pool
        .get_message_by_name("p4.config.v1.P4Info")
        .ok_or_else(|| P4InfoError("the protobuf files do not define the message P4Info".into()))?;
    let message = DynamicMessage::parse_text_format(descriptor, text).map_err(|e| error(&e))?;
    message.transcode_to().map_err(|e| error(&e))
}

/// Reads the binary format.
pub fn from_binary(bytes: &[u8]) -> Result<P4Info, P4InfoError> {
    P4Info::decode(bytes).map_err(|error| P4InfoError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_as_p4c_writes_it() {
        let text = r#"
            pkg_info { arch: "v1model" }
            tables {
              preamble { id: 33574068 name: "ingress.t" alias: "t" annotations: "@brief(\"x\")" }
              match_fields { id: 1 name: "hdr.a" bitwidth: 32 match_type: LPM }
              size: 1024
            }
        "#;
        let p4info = from_text(text).unwrap();
        assert_eq!(p4info.tables[0].preamble.as_ref().unwrap().id, 33574068);
        assert_eq!(p4info.tables[0].size, 1024);
        assert_eq!(from_binary(&p4info.encode_to_vec()).unwrap(), p4info);
    }

    #[test]
    fn other_text_is_an_error_with_its_place() {
        let error = from_text("tables { nonsense: 1 }").unwrap_err().to_string();
        assert!(error.contains("nonsense"), "{error}");
        assert!(from_binary(&[0xff]).is_err());
    }
}
