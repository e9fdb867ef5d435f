// SPDX-License-Identifier: Apache-2.0
//! Maps prefixes to record numbers, in order. There is a B-tree for each VRF and address family.
//!
//! A search among a million prefixes spends most of its time waiting for memory, so short keys make
//! it faster. A key contains only the parts that differ within its tree: the key of an IPv4 prefix
//! has 8 bytes, while a whole [`RouteSlot`] has 24.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{Excluded, Unbounded};

use super::slot::{IPV4, RouteSlot};

/// IPv4 prefix: the address in the high half, the prefix length in the low half.
type Ipv4 = u64;
/// IPv6 prefix: the two halves of the address, and the prefix length.
type Ipv6 = (u64, u64, u8);

/// A key that is greater than the key of every IPv4 prefix.
const IPV4_END: Ipv4 = Ipv4::MAX;

fn ipv4(slot: &RouteSlot) -> Ipv4 {
    (slot.bits() >> 64) as u64 | u64::from(slot.length())
}

fn ipv6(slot: &RouteSlot) -> Ipv6 {
    let bits = slot.bits();
    ((bits >> 64) as u64, bits as u64, slot.length())
}

/// Maps the prefixes of one VRF to record numbers.
#[derive(Debug, Default)]
struct Prefixes {
    ipv4: BTreeMap<Ipv4, u32>,
    ipv6: BTreeMap<Ipv6, u32>,
}

/// Maps the prefixes of all VRFs to record numbers.
#[derive(Debug, Default)]
pub(super) struct Index {
    vrfs: BTreeMap<u32, Prefixes>,
}

impl Index {
    /// Returns the record number of a prefix.
    pub(super) fn get(&self, slot: &RouteSlot) -> Option<u32> {
        let prefixes = self.vrfs.get(&slot.vrf())?;
        let number = match slot.size() {
            IPV4 => prefixes.ipv4.get(&ipv4(slot)),
            _ => prefixes.ipv6.get(&ipv6(slot)),
        };
        number.copied()
    }

    /// Returns the record number of a prefix. If the prefix is not in the index, inserts it with
    /// the record number that `make` returns.
    pub(super) fn get_or_insert_with(
        &mut self,
        slot: &RouteSlot,
        make: impl FnOnce() -> u32,
    ) -> u32 {
        let prefixes = self.vrfs.entry(slot.vrf()).or_default();
        *match slot.size() {
            IPV4 => prefixes.ipv4.entry(ipv4(slot)).or_insert_with(make),
            _ => prefixes.ipv6.entry(ipv6(slot)).or_insert_with(make),
        }
    }

    /// Removes a prefix.
    pub(super) fn remove(&mut self, slot: &RouteSlot) {
        let Entry::Occupied(mut vrf) = self.vrfs.entry(slot.vrf()) else {
            return;
        };
        let prefixes = vrf.get_mut();
        match slot.size() {
            IPV4 => prefixes.ipv4.remove(&ipv4(slot)),
            _ => prefixes.ipv6.remove(&ipv6(slot)),
        };
        if prefixes.ipv4.is_empty() && prefixes.ipv6.is_empty() {
            vrf.remove();
        }
    }

    /// Yields the record numbers of all prefixes after `slot`, in order. Without `slot`, yields all
    /// record numbers.
    pub(super) fn after(&self, slot: Option<&RouteSlot>) -> impl Iterator<Item = u32> + '_ {
        let (vrf, from_ipv4, from_ipv6) = match slot {
            None => (0, Unbounded, Unbounded),
            Some(slot) if slot.size() == IPV4 => (slot.vrf(), Excluded(ipv4(slot)), Unbounded),
            Some(slot) => (slot.vrf(), Excluded(IPV4_END), Excluded(ipv6(slot))),
        };
        let first = self.vrfs.get(&vrf).into_iter().flat_map(move |prefixes| {
            let ipv4 = prefixes.ipv4.range((from_ipv4, Unbounded));
            let ipv6 = prefixes.ipv6.range((from_ipv6, Unbounded));
            ipv4.map(|(_, number)| *number)
                .chain(ipv6.map(|(_, number)| *number))
        });
        let others = self.vrfs.range((Excluded(vrf), Unbounded));
        let others = others
            .flat_map(|(_, prefixes)| prefixes.ipv4.values().chain(prefixes.ipv6.values()))
            .copied();
        first.chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slots() -> impl Strategy<Value = RouteSlot> {
        let address = prop_oneof![
            prop::array::uniform4(0..3_u8).prop_map(|octets| octets.to_vec()),
            prop::array::uniform16(0..2_u8).prop_map(|octets| octets.to_vec()),
        ];
        let slot = (0..3_u32, address, 0..=32_u8);
        slot.prop_map(|(vrf, address, length)| {
            RouteSlot::new(vrf, &address, length).unwrap_or_else(|| unreachable!("a prefix"))
        })
    }

    proptest! {
        /// Compares the index with a single B-tree whose keys are whole prefixes.
        #[test]
        fn it_holds_what_one_tree_holds_in_the_same_order(
            steps in prop::collection::vec((slots(), any::<bool>()), 0..200),
            from in slots(),
        ) {
            let (mut index, mut tree) = (Index::default(), BTreeMap::new());
            for (number, (slot, add)) in (0..).zip(&steps) {
                if *add {
                    let expected = *tree.entry(*slot).or_insert(number);
                    prop_assert_eq!(index.get_or_insert_with(slot, || number), expected);
                } else {
                    tree.remove(slot);
                    index.remove(slot);
                }
                prop_assert_eq!(index.get(&from), tree.get(&from).copied());
            }
            let all: Vec<u32> = index.after(None).collect();
            prop_assert_eq!(all, tree.values().copied().collect::<Vec<u32>>());
            let behind: Vec<u32> = index.after(Some(&from)).collect();
            let expected = tree.range((Excluded(from), Unbounded));
            prop_assert_eq!(behind, expected.map(|(_, number)| *number).collect::<Vec<u32>>());
        }
    }
}
