// SPDX-License-Identifier: Apache-2.0
//! Wraps the longest-prefix match of the crate prefix-trie, a map of prefixes.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use ::prefix_trie::{Prefix as _, PrefixMap};
use ipnet::{Ipv4Net, Ipv6Net};
use sluice_fib::Prefix;

use crate::input::routes::{Family, Route};
use crate::input::trace::Trace;
use crate::lookup_tables::LpmTable;
use crate::system::opaque;

/// The crate's prefix type for an address family.
pub(crate) trait Net: Family {
    type Net: ::prefix_trie::Prefix;

    fn net(prefix: Prefix<Self>) -> Self::Net;

    /// Returns the prefix that contains only this address. The crate takes such a prefix as the key of a lookup.
    fn host(self) -> Self::Net;
}

impl Net for u32 {
    type Net = Ipv4Net;

    fn net(prefix: Prefix<Self>) -> Ipv4Net {
        Ipv4Net::from_repr_len(prefix.address(), prefix.length() as u8)
    }

    #[inline]
    fn host(self) -> Ipv4Net {
        Ipv4Net::from(Ipv4Addr::from_bits(self))
    }
}

impl Net for u128 {
    type Net = Ipv6Net;

    fn net(prefix: Prefix<Self>) -> Ipv6Net {
        Ipv6Net::from_repr_len(prefix.address(), prefix.length() as u8)
    }

    #[inline]
    fn host(self) -> Ipv6Net {
        Ipv6Net::from(Ipv6Addr::from_bits(self))
    }
}

/// A table of the crate.
pub(crate) struct Trie<A: Net>(PrefixMap<A::Net, u32>);

impl<A: Net> Trie<A> {
    /// Creates the table with these routes.
    pub(crate) fn new(routes: &[Route<A>]) -> Self {
        let entries = routes.iter().map(|(prefix, hop)| (A::net(*prefix), *hop));
        Self(entries.collect())
    }

    #[inline]
    fn value(&self, address: A) -> u32 {
        self.0.get_lpm(&address.host()).map_or(0, |(_, hop)| *hop)
    }
}

impl<A: Net> LpmTable<A> for Trie<A> {
    fn name(&self) -> &str {
        "prefix-trie"
    }

    fn values(&self, trace: &Trace<A>, count: usize) -> Vec<u32> {
        let keys = trace.keys.iter().take(count);
        keys.map(|key| self.value(*key)).collect()
    }

    fn lookup(&self, trace: &Trace<A>, keys: Range<usize>) -> u64 {
        let values = trace.keys[keys]
            .iter()
            .map(|key| u64::from(self.value(*key)));
        values.sum()
    }

    fn chain(&self, trace: &Trace<A>) -> u64 {
        let (mut value, mut digest) = (0, 0);
        for key in &trace.keys {
            value = self.value(key.flipped(opaque(value & 1)));
            digest += u64::from(value);
        }
        digest
    }
}
