// SPDX-License-Identifier: Apache-2.0
//! Represents a flow's key and verdict in few bytes.

use std::hash::{Hash, Hasher};

const IS_IPV6: u8 = 1;
const IS_LOCAL: u8 = 2;
const FRAGMENT: u8 = 2; // bit position of the fragment class

/// Length of an IPv4 address in octets.
const IPV4: usize = 4;
/// Length of an IPv6 address in octets.
const IPV6: usize = 16;

/// The key of a flow in a list's flow cache, as `policy.model.FlowKey` describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowKey {
    source: [u8; IPV6],
    destination: [u8; IPV6],
    /// Source port.
    pub source_port: u16,
    /// Destination port, ICMP type and code, or type of a mobility message.
    pub destination_port: u16,
    /// Number of the bundle that carried an inbound packet.
    pub bundle: u16,
    /// Protocol.
    pub protocol: u8,
    shape: u8,
}

impl FlowKey {
    /// A key whose fields are all 0.
    pub const EMPTY: Self = Self {
        source: [0; IPV6],
        destination: [0; IPV6],
        source_port: 0,
        destination_port: 0,
        bundle: 0,
        protocol: 0,
        shape: 0,
    };

    /// Creates a key of these addresses, whose other fields are 0. Returns `None` unless both addresses have 4 octets,
    /// or both 16.
    pub fn new(source: &[u8], destination: &[u8]) -> Option<Self> {
        let size = source.len();
        if size != destination.len() || !matches!(size, IPV4 | IPV6) {
            return None;
        }
        let mut key = Self {
            shape: if size == IPV6 { IS_IPV6 } else { 0 },
            ..Self::EMPTY
        };
        key.source[..size].copy_from_slice(source);
        key.destination[..size].copy_from_slice(destination);
        Some(key)
    }

    /// Sets whether the packets are addressed to this router, or sent by this router.
    pub fn set_local(&mut self, is_local: bool) {
        self.shape = self.shape & !IS_LOCAL | if is_local { IS_LOCAL } else { 0 };
    }

    /// Sets the fragment class, which is less than 4.
    pub fn set_fragment(&mut self, class: u8) {
        self.shape = self.shape & (IS_IPV6 | IS_LOCAL) | (class & 3) << FRAGMENT;
    }

    /// Returns whether the addresses are IPv6 addresses.
    pub fn is_ipv6(&self) -> bool {
        self.shape & IS_IPV6 != 0
    }

    /// Returns whether the packets are addressed to this router, or sent by this router.
    pub fn is_local(&self) -> bool {
        self.shape & IS_LOCAL != 0
    }

    /// Returns the fragment class.
    pub fn fragment(&self) -> u8 {
        self.shape >> FRAGMENT
    }

    /// Returns the source address.
    pub fn source(&self) -> &[u8] {
        &self.source[..self.size()]
    }

    /// Returns the destination address.
    pub fn destination(&self) -> &[u8] {
        &self.destination[..self.size()]
    }

    fn size(&self) -> usize {
        if self.is_ipv6() { IPV6 } else { IPV4 }
    }
}

impl Hash for FlowKey {
    /// Passes all fields to the hasher at once, which is faster than field by field.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut octets = [0; 40];
        octets[..16].copy_from_slice(&self.source);
        octets[16..32].copy_from_slice(&self.destination);
        octets[32..34].copy_from_slice(&self.source_port.to_ne_bytes());
        octets[34..36].copy_from_slice(&self.destination_port.to_ne_bytes());
        octets[36..38].copy_from_slice(&self.bundle.to_ne_bytes());
        octets[38] = self.protocol;
        octets[39] = self.shape;
        state.write(&octets);
    }
}

/// The verdict on a flow's packets, and the epoch in which the verdict is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowVerdict {
    /// Epoch.
    pub epoch: u32,
    /// Number of the rule that gave the verdict.
    pub rule: u32,
    /// Number of the bundle that protects the packets, or 0.
    pub bundle: u16,
    /// Number of the action.
    pub action: u8,
}

impl FlowVerdict {
    /// A verdict that belongs to no epoch.
    pub const EMPTY: Self = Self {
        epoch: 0,
        rule: 0,
        bundle: 0,
        action: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_length_of_one_family() {
        assert!(FlowKey::new(&[0; 4], &[0; 4]).is_some_and(|key| !key.is_ipv6()));
        assert!(FlowKey::new(&[0; 16], &[0; 16]).is_some_and(|key| key.is_ipv6()));
        assert_eq!(FlowKey::new(&[0; 4], &[0; 16]), None);
        assert_eq!(FlowKey::new(&[0; 5], &[0; 5]), None);
    }

    #[test]
    fn local_and_fragment_are_apart() {
        let mut key = FlowKey::new(&[1; 16], &[2; 16]).unwrap_or_default();
        key.set_fragment(2);
        key.set_local(true);
        assert_eq!(
            (key.fragment(), key.is_local(), key.is_ipv6()),
            (2, true, true)
        );
        key.set_fragment(1);
        key.set_local(false);
        assert_eq!(
            (key.fragment(), key.is_local(), key.is_ipv6()),
            (1, false, true)
        );
        assert_eq!(
            (key.source(), key.destination()),
            (&[1; 16][..], &[2; 16][..])
        );
    }
}
