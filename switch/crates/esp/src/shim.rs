// SPDX-License-Identifier: Apache-2.0
//! Reads and writes the shim between router and engine (p4src/headers.p4). The shim follows an Ethernet header that has
//! the shim's EtherType.

use crate::counters::Drop;

/// The shim's EtherType.
pub const ETHERTYPE: u16 = 0x88b5;
/// IPv4's EtherType.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// IPv6's EtherType.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Offset of the packet in a frame, after the Ethernet header and the shim.
pub const PACKET: usize = ETHERNET + SHIM;

/// Size of an output buffer in bytes: room for the shim and the longest IPv6 packet.
pub const MAX_OUTPUT: usize = PACKET + 40 + 65_535;

const ETHERNET: usize = 14;
const SHIM: usize = 14;
/// Bytes of a frame's MAC addresses.
pub const MACS: usize = 12;

/// A task for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Encrypt the packet with the SA that has the shim's SA number.
    Encrypt,
    /// Decrypt the packet with the SA that has the packet's SPI.
    Decrypt,
}

impl Task {
    const fn asked(self) -> u8 {
        match self {
            Self::Encrypt => 1,
            Self::Decrypt => 3,
        }
    }

    const fn done(self) -> u8 {
        match self {
            Self::Encrypt => 2,
            Self::Decrypt => 4,
        }
    }
}

/// Fields of a shim that requests a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shim {
    /// The task.
    pub task: Task,
    /// The engine's number.
    pub engine: u8,
    /// Bundle of the SA. 0 if the pipeline does not know the bundle, as for fragments of ESP.
    pub bundle: u16,
    /// The number of the SA.
    pub sa: u32,
    /// Layer-3 interface on which the packet was received.
    pub ingress_l3_if: u16,
    /// The packet's VRF.
    pub vrf: u16,
    /// The packet's EtherType.
    pub ether_type: u16,
}

impl Shim {
    /// Parses a frame's shim. Returns the shim, and the packet after it with any padding of the frame.
    ///
    /// # Errors
    /// Returns the reason of the drop.
    pub fn read(frame: &[u8]) -> Result<(Self, &[u8]), Drop> {
        let (ethernet, rest) = frame.split_at_checked(ETHERNET).ok_or(Drop::NotShim)?;
        if ethernet[MACS..] != ETHERTYPE.to_be_bytes() {
            return Err(Drop::NotShim);
        }
        let (shim, packet) = rest.split_at_checked(SHIM).ok_or(Drop::ShimTruncated)?;
        let short = |at: usize| u16::from_be_bytes([shim[at], shim[at + 1]]);
        let task = match shim[0] {
            1 => Task::Encrypt,
            3 => Task::Decrypt,
            _ => return Err(Drop::ShimKind),
        };
        debug_assert_eq!(shim[0], task.asked());
        let this = Self {
            task,
            engine: shim[1],
            bundle: short(2),
            sa: u32::from(short(4)) << 16 | u32::from(short(6)),
            ingress_l3_if: short(8),
            vrf: short(10),
            ether_type: short(12),
        };
        Ok((this, packet))
    }

    /// Returns the MAC addresses of a frame whose shim was already parsed.
    pub(crate) fn macs(frame: &[u8]) -> [u8; MACS] {
        let mut macs = [0; MACS];
        macs.copy_from_slice(&frame[..MACS]);
        macs
    }

    /// Writes the answer's Ethernet header and shim. The shim's kind reports that this task is done. Bundle and
    /// EtherType are the arguments. All other fields are copied from `self`.
    pub fn answer(&self, macs: &[u8; MACS], bundle: u16, ether_type: u16, out: &mut [u8]) {
        out[..MACS].copy_from_slice(macs);
        out[MACS..ETHERNET].copy_from_slice(&ETHERTYPE.to_be_bytes());
        let shim = &mut out[ETHERNET..PACKET];
        shim[0] = self.task.done();
        shim[1] = self.engine;
        shim[2..4].copy_from_slice(&bundle.to_be_bytes());
        shim[4..8].copy_from_slice(&self.sa.to_be_bytes());
        shim[8..10].copy_from_slice(&self.ingress_l3_if.to_be_bytes());
        shim[10..12].copy_from_slice(&self.vrf.to_be_bytes());
        shim[12..14].copy_from_slice(&ether_type.to_be_bytes());
    }

    /// Builds the frame that a router sends to the engine. For tests and benchmarks.
    pub fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; PACKET];
        self.answer(&[2; MACS], self.bundle, self.ether_type, &mut frame);
        frame[ETHERNET] = self.task.asked();
        frame.extend_from_slice(packet);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_pipeline_has_them() {
        let shim = [1, 7, 0x12, 0x34, 0xa, 0xb, 0xc, 0xd, 0, 3, 0, 4, 8, 0];
        let frame = [&[5; 12][..], &[0x88, 0xb5], &shim, b"packet"].concat();
        let (read, packet) = Shim::read(&frame).unwrap();
        let expected = Shim {
            task: Task::Encrypt,
            engine: 7,
            bundle: 0x1234,
            sa: 0x0a0b_0c0d,
            ingress_l3_if: 3,
            vrf: 4,
            ether_type: ETHERTYPE_IPV4,
        };
        assert_eq!((read, packet), (expected, &b"packet"[..]));
        let mut out = [0; PACKET];
        read.answer(&Shim::macs(&frame), 9, ETHERTYPE_IPV6, &mut out);
        let answer = [2, 7, 0, 9, 0xa, 0xb, 0xc, 0xd, 0, 3, 0, 4, 0x86, 0xdd];
        assert_eq!(out[..], [&[5; 12][..], &[0x88, 0xb5], &answer].concat());
        assert_eq!(Shim::read(&read.frame(b"x")).unwrap(), (read, &b"x"[..]));
    }

    #[test]
    fn what_asks_for_nothing_is_a_drop() {
        let shim = [1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        let frame = [&[5; 12][..], &[0x88, 0xb5], &shim].concat();
        for end in 0..frame.len() {
            let expected = if end < 14 {
                Drop::NotShim
            } else {
                Drop::ShimTruncated
            };
            assert_eq!(Shim::read(&frame[..end]), Err(expected));
        }
        for kind in [0, 2, 4, 5, 255] {
            let mut other = frame.clone();
            other[14] = kind;
            assert_eq!(Shim::read(&other), Err(Drop::ShimKind));
        }
        let mut ip = frame.clone();
        ip[12..14].copy_from_slice(&[8, 0]);
        assert_eq!(Shim::read(&ip), Err(Drop::NotShim));
    }
}
