// SPDX-License-Identifier: Apache-2.0
//! Implements the type of a prefix in a VRF. A value takes 24 bytes.

/// Size of an IPv4 address in octets.
pub const IPV4: u8 = 4;
/// Size of an IPv6 address in octets.
pub const IPV6: u8 = 16;

/// A prefix of one VRF. Prefixes are ordered by VRF, then IPv4 before IPv6, then address, then
/// length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteSlot {
    vrf: u32,
    size: u8,
    high: u64,
    low: u64,
    length: u8,
}

impl RouteSlot {
    /// Creates a prefix. Returns `None` for an invalid length. Host bits are kept.
    pub fn new(vrf: u32, address: &[u8], length: u8) -> Option<Self> {
        let (size, high, low) = match *address {
            [a, b, c, d] => (IPV4, u64::from(u32::from_be_bytes([a, b, c, d])) << 32, 0),
            _ => {
                let whole = u128::from_be_bytes(address.try_into().ok()?);
                (IPV6, (whole >> 64) as u64, whole as u64)
            }
        };
        (length <= size * 8).then_some(Self {
            vrf,
            size,
            high,
            low,
            length,
        })
    }

    /// Returns the same prefix in another VRF.
    #[must_use]
    pub fn in_vrf(self, vrf: u32) -> Self {
        Self { vrf, ..self }
    }

    /// Returns the VRF's number.
    pub fn vrf(&self) -> u32 {
        self.vrf
    }

    /// Returns the size of the address in octets.
    pub fn size(&self) -> u8 {
        self.size
    }

    /// Returns the length of the prefix in bits.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns an array of 16 octets, and the size of the address. The address is the first
    /// `size` octets of the array.
    pub fn address(&self) -> ([u8; 16], usize) {
        (self.bits().to_be_bytes(), usize::from(self.size))
    }

    /// Returns the address, left-aligned in 128 bits.
    pub fn bits(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// Returns whether a host bit is set.
    pub fn has_host_bits(&self) -> bool {
        self.bits() & !self.mask() != 0
    }

    /// Returns whether the prefix contains an address of the same family.
    pub fn covers(&self, bits: u128) -> bool {
        (bits ^ self.bits()) & self.mask() == 0
    }

    fn mask(&self) -> u128 {
        match self.length {
            0 => 0,
            length => u128::MAX << (128 - u32::from(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(address: &[u8], length: u8) -> RouteSlot {
        RouteSlot::new(0, address, length).unwrap_or_else(|| unreachable!("a prefix"))
    }

    #[test]
    fn addresses_of_other_sizes_and_long_prefixes_are_none() {
        assert_eq!(RouteSlot::new(0, &[1, 2, 3], 8), None);
        assert_eq!(RouteSlot::new(0, &[1, 2, 3, 4], 33), None);
        assert_eq!(RouteSlot::new(0, &[0; 16], 129), None);
        assert!(RouteSlot::new(0, &[0; 16], 128).is_some());
    }

    #[test]
    fn host_bits_and_what_a_prefix_covers() {
        assert!(slot(&[10, 1, 0, 0], 8).has_host_bits());
        assert!(!slot(&[10, 0, 0, 0], 8).has_host_bits());
        assert!(slot(&[10, 0, 0, 0], 0).has_host_bits());
        assert!(!slot(&[1; 16], 128).has_host_bits());
        let ten = slot(&[10, 0, 0, 0], 8);
        assert!(ten.covers(slot(&[10, 9, 8, 7], 32).bits()));
        assert!(!ten.covers(slot(&[11, 0, 0, 0], 32).bits()));
        assert!(slot(&[0; 4], 0).covers(u128::MAX));
    }

    #[test]
    fn the_order_is_vrf_family_address_length() {
        let six = slot(&[0; 16], 0);
        let order = [
            slot(&[9, 0, 0, 0], 8),
            slot(&[10, 0, 0, 0], 8),
            slot(&[10, 0, 0, 0], 16),
            six,
            slot(&[1, 0, 0, 0], 8).in_vrf(1),
        ];
        assert!(order.is_sorted());
        assert_eq!(six.address(), ([0; 16], 16));
        assert_eq!(&order[1].address().0[..4], &[10, 0, 0, 0]);
    }
}
