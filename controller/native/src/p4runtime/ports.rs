// SPDX-License-Identifier: Apache-2.0
//! Decodes the ports that sluice-switch reports at its P4Runtime address.

use prost::{DecodeError, Message};

use super::proto::sluice::admin::v1::ListPortsResponse;

/// gRPC method, which only sluice-switch implements.
pub(super) const LIST_PORTS: &str = "/sluice.admin.v1.Admin/ListPorts";

/// The ports of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchPorts {
    /// Numbers of the attached ports. The value is true if the port's link is up.
    pub ports: Vec<(u32, bool)>,
    /// The CPU port, if the switch has one.
    pub cpu_port: Option<u32>,
}

/// Decodes a serialized `ListPortsResponse`.
///
/// # Errors
/// The bytes are not a valid message of this type.
pub fn decode(response: &[u8]) -> Result<SwitchPorts, DecodeError> {
    let ListPortsResponse { ports, cpu_port } = ListPortsResponse::decode(response)?;
    Ok(SwitchPorts {
        ports: ports.iter().map(|port| (port.number, port.up)).collect(),
        cpu_port,
    })
}

#[cfg(test)]
mod tests {
    use super::super::proto::sluice::admin::v1::Port;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ports_are_told_with_their_links() {
        let port = |number, up| Port {
            number,
            up,
            name: format!("eth{number}"),
            ..Port::default()
        };
        let message = ListPortsResponse {
            ports: vec![port(1, true), port(9, false)],
            cpu_port: Some(510),
        };
        let told = decode(&message.encode_to_vec());
        let expected = SwitchPorts {
            ports: vec![(1, true), (9, false)],
            cpu_port: Some(510),
        };
        assert_eq!(told, Ok(expected));
        assert_eq!(decode(&[]), Ok(SwitchPorts::default()));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(decode(&bytes));
        }
    }
}
