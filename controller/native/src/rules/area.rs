// SPDX-License-Identifier: Apache-2.0
//! Represents the packets that a rule matches as boxes. A box has one range of values for each selector.
//!
//! If a packet lacks a selector, the selector has the value [`ABSENT`]. For example, a later fragment has no ports.
//! So ANY (RFC 4301) is the range of all values, and OPAQUE is the range of `ABSENT` alone.

use std::sync::Arc;

/// Value of a selector that a packet does not have.
pub const ABSENT: u32 = 0x1_0000;
/// Value that no packet has.
const NEVER: u32 = u32::MAX;
/// Range of all values of a selector that is a number.
pub const ANY: [u32; 2] = [0, NEVER];
/// Range of all addresses.
const ANY_ADDRESS: [u128; 2] = [0, u128::MAX];

/// Largest number of boxes of a rule.
pub const MAX_AREAS: usize = 16;

/// Number of fields that a node of the tree can compare with a threshold.
pub const FIELDS: usize = 10;
/// Number of selectors that are numbers: protocol, source port, destination port, ICMP type and code (together one
/// number), mobility type.
pub const NUMBER_SELECTORS: usize = 5;
const ADDRESSES: usize = 2;
const SOURCE: usize = 0;
/// Index of the destination address among the fields.
pub const DESTINATION: usize = 1;
const ORIGIN: usize = 2;
const NUMBERS: usize = FIELDS - ADDRESSES;

/// A box: an inclusive range in each field. A single packet is a box in which every range has one value.
///
/// The fields that are numbers: family of the source, family of the destination, origin (0: transit, 1: this
/// router), protocol, source port, destination port, ICMP type and code, mobility type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    addresses: [[u128; 2]; ADDRESSES],
    numbers: [[u32; 2]; NUMBERS],
}

impl Area {
    /// Returns the range in a field.
    #[inline]
    pub fn range(&self, field: usize) -> [u128; 2] {
        match field.checked_sub(ADDRESSES) {
            None => self.addresses[field],
            Some(number) => self.numbers[number].map(u128::from),
        }
    }

    /// Returns whether some packet is in both boxes.
    #[inline]
    pub fn intersects(&self, other: &Self) -> bool {
        self.numbers
            .iter()
            .zip(&other.numbers)
            .all(|(one, two)| overlap(one, two))
            && self
                .addresses
                .iter()
                .zip(&other.addresses)
                .all(|(one, two)| overlap(one, two))
    }
}

/// Returns whether two inclusive ranges have a common value.
#[inline]
fn overlap<T: PartialOrd>(one: &[T; 2], two: &[T; 2]) -> bool {
    one[0] <= two[1] && two[0] <= one[1]
}

/// A range of addresses of one family: the family's number, and the first and last address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Length of the addresses in bytes, which stands for the family.
    pub family: u32,
    /// First and last address.
    pub range: [u128; 2],
}

/// The selectors of a rule. For each field they list ranges; a packet must match one of them.
#[derive(Clone, Debug)]
pub struct Selectors {
    /// Ranges of source and destination addresses. `None` matches all addresses.
    pub addresses: [Option<Vec<Addresses>>; 2],
    /// Ranges of each selector that is a number.
    pub numbers: [Vec<[u32; 2]>; NUMBER_SELECTORS],
    /// Range of origins, or `None` if the rule applies to no packet.
    pub origins: Option<[u32; 2]>,
}

impl Selectors {
    /// Returns boxes that together contain all packets that the rule matches.
    ///
    /// If the boxes also contain other packets, also returns the selectors for an exact test.
    pub fn areas(mut self) -> (Vec<Area>, Option<Arc<Self>>) {
        let Some(origins) = self.origins else {
            return (Vec::new(), None);
        };
        for ranges in &mut self.numbers {
            if ranges.is_empty() {
                ranges.push([NEVER, NEVER]); // matches only queries for any value of this selector
            }
        }
        let mut is_exact = true;
        let mut areas = vec![Area {
            addresses: [ANY_ADDRESS; ADDRESSES],
            numbers: [ANY; NUMBERS],
        }];
        areas[0].numbers[ORIGIN] = origins;
        for (field, ranges) in self.addresses.iter().enumerate() {
            let Some(ranges) = ranges else { continue };
            if areas.len() * ranges.len() <= MAX_AREAS {
                areas = product(&areas, ranges, |area, one| {
                    area.addresses[field] = one.range;
                    area.numbers[field] = [one.family; 2];
                });
            } else {
                is_exact = false;
                let range = cover(ranges.iter().map(|one| one.range));
                let families = cover(ranges.iter().map(|one| [one.family; 2]));
                for area in &mut areas {
                    area.addresses[field] = range.unwrap_or(ANY_ADDRESS);
                    area.numbers[field] = families.unwrap_or(ANY);
                }
            }
        }
        for (index, ranges) in self.numbers.iter().enumerate() {
            let field = ORIGIN + 1 + index;
            if areas.len() * ranges.len() <= MAX_AREAS {
                areas = product(&areas, ranges, |area, &one| area.numbers[field] = one);
            } else {
                is_exact = false;
                let range = cover(ranges.iter().copied()).unwrap_or(ANY);
                for area in &mut areas {
                    area.numbers[field] = range;
                }
            }
        }
        (areas, (!is_exact).then(|| Arc::new(self)))
    }

    /// Returns whether the rule matches some packet of `area`. Does not compare origins.
    pub fn match_some(&self, area: &Area) -> bool {
        let of_addresses = |field: usize| {
            self.addresses[field].as_ref().is_none_or(|ranges| {
                ranges.iter().any(|one| {
                    overlap(&[one.family; 2], &area.numbers[field])
                        && overlap(&one.range, &area.addresses[field])
                })
            })
        };
        of_addresses(SOURCE)
            && of_addresses(DESTINATION)
            && self
                .numbers
                .iter()
                .zip(&area.numbers[ORIGIN + 1..])
                .all(|(ranges, wanted)| ranges.iter().any(|one| overlap(one, wanted)))
    }
}

/// Returns all combinations of an area and a range: copies of the areas, in which `set` has set the range.
fn product<T>(areas: &[Area], ranges: &[T], set: impl Fn(&mut Area, &T)) -> Vec<Area> {
    let mut results = Vec::with_capacity(areas.len() * ranges.len());
    for area in areas {
        for range in ranges {
            let mut result = *area;
            set(&mut result, range);
            results.push(result);
        }
    }
    results
}

/// Returns the smallest range that contains these ranges.
fn cover<T: Ord>(ranges: impl Iterator<Item = [T; 2]>) -> Option<[T; 2]> {
    ranges.reduce(|[low, high], [from, to]| [low.min(from), high.max(to)])
}

/// An address: its length in bytes, and its value.
pub type Address = (u32, u128);

/// A packet, or all packets with given values of some fields. A field that is `None` may have any value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packets {
    /// Source address.
    pub source: Option<Address>,
    /// Destination address.
    pub destination: Option<Address>,
    /// Value of each selector that is a number.
    pub numbers: [Option<u32>; NUMBER_SELECTORS],
    /// Whether this router itself sends the packets.
    pub is_own: bool,
}

impl Packets {
    /// Returns the box of these packets.
    pub fn area(&self) -> Area {
        let mut area = Area {
            addresses: [ANY_ADDRESS; ADDRESSES],
            numbers: [ANY; NUMBERS],
        };
        for (field, address) in [self.source, self.destination].into_iter().enumerate() {
            if let Some((family, value)) = address {
                area.addresses[field] = [value; 2];
                area.numbers[field] = [family; 2];
            }
        }
        area.numbers[ORIGIN] = [u32::from(self.is_own); 2];
        for (range, number) in area.numbers[ORIGIN + 1..].iter_mut().zip(self.numbers) {
            if let Some(number) = number {
                *range = [number; 2];
            }
        }
        area
    }
}
