// SPDX-License-Identifier: Apache-2.0
//! Encodes the role that a session requests. There are three kinds: the default role, a named
//! role, and a named role that may receive and send only certain packets.
//!
//! The limits of the third kind are encoded in `role.config`, in sluice-switch's format
//! (`switch/crates/p4runtime/proto/sluice/p4runtime/v1/role.proto`).

use prost::Message;
use prost_types::Any;

use super::proto::p4::v1 as p4;

/// Type URL that sluice-switch requires of the message in `role.config`.
const CONFIG_TYPE: &str = "type.googleapis.com/sluice.p4runtime.v1.RoleConfig";

/// A role other than the default role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Name of the role.
    pub name: String,
    /// Limits of the role. If `None`, the switch decides what the role may do.
    pub bounds: Option<Bounds>,
}

/// The packets that a role may receive and send. A role with such limits may not write anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Packets that the role receives.
    pub packet_in: Filter,
    /// Packets that the role may send.
    pub packet_out: Filter,
}

/// Selects packets by one metadata field: the field must have one of these values.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Filter {
    /// Id of the field.
    #[prost(uint32, tag = "1")]
    pub metadata_id: u32,
    /// Values of the field, big-endian.
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub values: Vec<Vec<u8>>,
}

/// The fields of the switch's RoleConfig that this client uses. The client leaves out all other
/// fields, which means that they grant nothing.
#[derive(Clone, PartialEq, prost::Message)]
struct RoleConfig {
    #[prost(message, optional, tag = "4")]
    packet_in: Option<Filter>,
    #[prost(message, optional, tag = "5")]
    packet_out: Option<Filter>,
}

impl Role {
    pub(super) fn message(&self) -> p4::Role {
        let config = self.bounds.as_ref().map(|bounds| Any {
            type_url: CONFIG_TYPE.to_owned(),
            value: RoleConfig {
                packet_in: Some(bounds.packet_in.clone()),
                packet_out: Some(bounds.packet_out.clone()),
            }
            .encode_to_vec(),
        });
        p4::Role {
            name: self.name.clone(),
            config,
            ..p4::Role::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(metadata_id: u32, values: &[u8]) -> Filter {
        Filter {
            metadata_id,
            values: values.iter().map(|value| vec![*value]).collect(),
        }
    }

    #[test]
    fn a_bounded_role_names_its_packets_and_nothing_to_write() {
        let role = Role {
            name: "r".to_owned(),
            bounds: Some(Bounds {
                packet_in: filter(2, &[1, 5]),
                packet_out: filter(1, &[7]),
            }),
        };
        let config = role.message().config.unwrap_or_default();
        assert_eq!(config.type_url, CONFIG_TYPE);
        // Expected encoding of fields 4 and 5. Each contains field 1 (a varint) and fields 2
        // (bytes), and no other fields.
        let packet_in = [0x22, 8, 0x08, 2, 0x12, 1, 1, 0x12, 1, 5];
        let packet_out = [0x2a, 5, 0x08, 1, 0x12, 1, 7];
        assert_eq!(config.value, [&packet_in[..], &packet_out[..]].concat());
    }

    #[test]
    fn an_unbounded_role_has_no_configuration() {
        let role = Role {
            name: "r".to_owned(),
            bounds: None,
        };
        assert_eq!(
            (role.message().name, role.message().config),
            ("r".to_owned(), None)
        );
    }
}
