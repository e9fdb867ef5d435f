// SPDX-License-Identifier: Apache-2.0
//! Translates port numbers in replicas and watch ports (P4Runtime specification, "Translation of Port Numbers").

use std::sync::Arc;

use crate::bytestring;
use crate::error::{UpdateError, UpdateResult};
use crate::schema::names::{self, Names};

/// The type of ports in replicas and watch ports.
#[derive(Debug, Default)]
pub struct PortType(pub(super) Option<(Arc<Names>, usize)>);

impl PortType {
    /// Returns the strings that clients see, and the width of their numbers.
    pub(super) fn strings(&self) -> Option<(&Arc<Names>, usize)> {
        self.0.as_ref().map(|(names, width)| (names, *width))
    }

    /// Decodes a port. Some strings have a number only because a client wrote the string. Such a string does not name a
    /// port, and is refused.
    pub fn decode(&self, port: &[u8]) -> UpdateResult<u32> {
        let Some((names, width)) = self.strings() else {
            return bytestring::to_u32(port);
        };
        if !names.fixes(port) {
            let text = String::from_utf8_lossy(port);
            return Err(UpdateError::invalid(format!(
                "{text:?} is not a port: write a decimal number, or map the string by @p4runtime_translation_mappings"
            )));
        }
        bytestring::to_u32(&names::decode(Some(names), port, width)?)
    }

    /// Encodes a port.
    pub fn encode(&self, port: u32) -> Vec<u8> {
        let names = self.strings().map(|(names, _)| names);
        names::encode(names, &port.to_be_bytes())
    }
}
