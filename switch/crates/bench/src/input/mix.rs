// SPDX-License-Identifier: Apache-2.0
//! Defines the distribution of prefix lengths in a full Internet table, and the shares of nested and of adjacent
//! prefixes. All numbers were counted in one real table with 901,899 IPv4 and 160,147 IPv6 prefixes.

/// The prefixes of one length in the real table.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    pub(crate) length: u32,
    /// Number of prefixes of this length in the real table.
    pub(crate) count: u32,
    /// Percentage of these prefixes that are inside a shorter prefix of the table.
    pub(crate) nested: u8,
    /// Percentage of these prefixes that directly follow another prefix of the same length.
    pub(crate) adjacent: u8,
}

const fn share(length: u32, count: u32, nested: u8, adjacent: u8) -> Share {
    Share {
        length,
        count,
        nested,
        adjacent,
    }
}

/// The IPv4 prefixes of the real table, in ascending order of length.
pub(crate) const IPV4: &[Share] = &[
    share(8, 16, 0, 5),
    share(9, 13, 10, 10),
    share(10, 38, 15, 20),
    share(11, 103, 15, 25),
    share(12, 299, 15, 25),
    share(13, 581, 17, 28),
    share(14, 1203, 15, 32),
    share(15, 2100, 22, 31),
    share(16, 13490, 24, 60),
    share(17, 8235, 46, 45),
    share(18, 13798, 50, 52),
    share(19, 24870, 39, 53),
    share(20, 42611, 54, 57),
    share(21, 50750, 55, 51),
    share(22, 108_623, 45, 54),
    share(23, 96510, 57, 44),
    share(24, 537_698, 51, 69),
    share(28, 75, 99, 25),
    share(32, 886, 99, 25),
];

/// The IPv6 prefixes of the real table, in ascending order of length.
pub(crate) const IPV6: &[Share] = &[
    share(20, 20, 0, 10),
    share(24, 25, 0, 10),
    share(28, 193, 10, 10),
    share(29, 4371, 1, 2),
    share(30, 650, 44, 45),
    share(32, 22548, 25, 31),
    share(33, 2926, 81, 44),
    share(34, 2603, 72, 64),
    share(35, 1043, 62, 60),
    share(36, 5996, 57, 60),
    share(37, 880, 75, 50),
    share(38, 1617, 52, 59),
    share(39, 1377, 82, 68),
    share(40, 13418, 76, 66),
    share(41, 903, 53, 61),
    share(42, 2301, 80, 62),
    share(43, 1001, 43, 59),
    share(44, 14365, 72, 57),
    share(45, 1553, 82, 62),
    share(46, 3039, 53, 65),
    share(47, 3153, 79, 62),
    share(48, 75488, 59, 58),
    share(56, 300, 90, 40),
    share(64, 300, 90, 30),
    share(128, 80, 95, 20),
];

/// The first 16 bits of the IPv6 prefixes that registries assign.
pub(crate) const IPV6_REGIONS: &[u16] = &[
    0x2804, 0x2001, 0x2a02, 0x2401, 0x2400, 0x2402, 0x2600, 0x2620, 0x2a00, 0x2602, 0x2a03, 0x2606,
    0x2408, 0x2604, 0x2a06, 0x2803, 0x2a0e, 0x2806, 0x2a01, 0x2607, 0x2403, 0x2404, 0x2405, 0x2406,
    0x2407, 0x2409, 0x240e, 0x2605, 0x2a04, 0x2a05, 0x2a07, 0x2a09, 0x2a0a, 0x2a0b, 0x2a0c, 0x2a0d,
    0x2a0f, 0x2a10, 0x2a11, 0x2a12, 0x2800, 0x2801, 0x2802, 0x2c0f, 0x2610,
];
