// SPDX-License-Identifier: Apache-2.0
//! Counts served packets, and dropped packets by reason.

use std::fmt;

macro_rules! drops {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Reason why a packet was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Drop {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Drop {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the name of the counter for this reason.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

drops! {
    /// A frame without the shim's EtherType.
    NotShim = "not_shim",
    /// A frame that ends within the shim.
    ShimTruncated = "shim_truncated",
    /// A shim whose kind is neither encryption nor decryption.
    ShimKind = "shim_kind",
    /// The packet after the shim is not a well-formed IP packet.
    Malformed = "malformed_packet",
    /// Encryption: no SA has this number.
    UnknownSa = "unknown_sa",
    /// Decryption: no SA in the VRF has this SPI.
    UnknownSpi = "unknown_spi",
    /// Decryption: the packet is neither ESP nor ESP in UDP.
    NotEsp = "not_esp",
    /// Decryption: a fragment of a protocol other than ESP, such as UDP.
    EspFragment = "esp_fragment",
    /// A fragment without data, whose length is not a multiple of 8 bytes, or that ends beyond the longest packet.
    FragmentMalformed = "fragment_malformed",
    /// Overlapping fragments, and all other fragments of their datagram (RFC 5722).
    FragmentOverlap = "fragment_overlap",
    /// A copy of an earlier fragment.
    FragmentDuplicate = "fragment_duplicate",
    /// Fragments of a datagram that has more fragments than allowed.
    FragmentTooMany = "fragment_too_many",
    /// Fragments that were evicted for newer ones, because the limit on memory or on the number of datagrams was
    /// reached.
    FragmentLimit = "fragment_limit",
    /// Fragments of a datagram that timed out.
    FragmentTimeout = "fragment_timeout",
    /// The shim and the SA name different bundles.
    WrongBundle = "wrong_bundle",
    /// The shim and the SA name different VRFs.
    WrongVrf = "wrong_vrf",
    /// ESP in UDP for an SA that expects plain ESP, or plain ESP for an SA that expects UDP.
    WrongEncapsulation = "wrong_encapsulation",
    /// The SA has reached a hard lifetime.
    HardLifetime = "hard_lifetime",
    /// The SA has used all its sequence numbers.
    SequenceExhausted = "sequence_exhausted",
    /// The next sequence numbers are not on disk yet.
    SequenceNotReserved = "sequence_not_reserved",
    /// The encrypted packet would exceed the maximum length of an IP packet.
    TooLong = "too_long",
    /// Transport mode: source and destination of the packet are not the SA's two addresses.
    TransportAddresses = "transport_addresses",
    /// Transport mode: the packet is a fragment.
    TransportFragment = "transport_fragment",
    /// The library refused to encrypt.
    EncryptionFailed = "encryption_failed",
    /// The ESP packet is too short for its algorithm, or its ciphertext is not a multiple of the block size.
    EspLength = "esp_length",
    /// The sequence number was seen before.
    Replayed = "replayed",
    /// The sequence number is below the anti-replay window.
    Late = "late",
    /// The integrity check value is wrong.
    IntegrityFailed = "integrity_failed",
    /// The padding is longer than the payload, or its bytes are not 1, 2, 3 and so on.
    BadPadding = "bad_padding",
    /// Tunnel mode: the payload is not IP.
    BadNextHeader = "bad_next_header",
    /// Tunnel mode: the inner IP packet is longer than the payload, or malformed.
    InnerMalformed = "inner_malformed",
    /// Tunnel mode: the outer header has a congestion mark, and the inner packet is not ECN-capable (RFC 6040).
    EcnNotCapable = "ecn_not_capable",
    /// A dummy packet (RFC 4303, 2.6).
    Dummy = "dummy",
}

/// Counters of one SA, or of packets without an SA.
#[derive(Clone)]
pub struct Counters {
    /// Packets that were encrypted or decrypted.
    pub packets: u64,
    /// Bytes of these packets before encryption or after decryption.
    pub bytes: u64,
    /// Number of changes of the peer's address or port (RFC 3948).
    pub peer_moved: u64,
    /// Reassembled datagrams.
    pub reassembled: u64,
    /// Fragments of the reassembled datagrams.
    pub reassembled_fragments: u64,
    /// Drops by reason. The array has its own allocation, so that serving a packet touches few cache lines.
    drops: Box<[u64; Drop::ALL.len()]>,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            peer_moved: 0,
            reassembled: 0,
            reassembled_fragments: 0,
            drops: Box::new([0; Drop::ALL.len()]),
        }
    }
}

impl Counters {
    /// Counts a packet that was served.
    #[inline]
    pub fn served(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }

    /// Counts a packet that was dropped.
    pub fn dropped(&mut self, why: Drop) {
        self.drops[why as usize] += 1;
    }

    /// Counts several packets that were dropped for one reason.
    pub(crate) fn dropped_many(&mut self, why: Drop, count: u64) {
        self.drops[why as usize] += count;
    }

    /// Counts a reassembled datagram, with its number of fragments.
    pub(crate) fn reassembled(&mut self, fragments: u64) {
        self.reassembled += 1;
        self.reassembled_fragments += fragments;
    }

    /// Returns the number of drops for a reason.
    pub fn drops(&self, why: Drop) -> u64 {
        self.drops[why as usize]
    }

    /// Iterates over the reasons that occurred, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Drop::ALL
            .iter()
            .map(|why| (why.name(), self.drops(*why)))
            .filter(|(_, count)| *count != 0)
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.peer_moved += other.peer_moved;
        for (sum, more) in self.drops.iter_mut().zip(other.drops.iter()) {
            *sum += more;
        }
    }

    /// Returns the number of all drops.
    pub fn all_drops(&self) -> u64 {
        self.drops.iter().sum()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Counters");
        shown
            .field("packets", &self.packets)
            .field("bytes", &self.bytes);
        for (name, count) in self.nonzero() {
            shown.field(name, &count);
        }
        shown.finish()
    }
}
