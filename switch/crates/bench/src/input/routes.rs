// SPDX-License-Identifier: Apache-2.0
//! Provides routes, which are prefixes with next hops.
//!
//! No published table includes next hops, so each prefix gets a random one of [`NEXT_HOPS`] next hops. This is the
//! hardest case for structures that merge neighbours with the same next hop. Values are 1 to `NEXT_HOPS`, so that even
//! peers with small next-hop fields can store them. The value 0 means "no route".

use std::fmt::Debug;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sluice_fib::Prefix;
use sluice_random::mix;

use super::random::Random;

/// Number of distinct next hops.
pub(crate) const NEXT_HOPS: u64 = 256;

/// A prefix and its next hop.
pub(crate) type Route<A> = (Prefix<A>, u32);

/// IPv4 (`u32`) or IPv6 (`u128`).
pub(crate) trait Family: sluice_fib::Family + Hash + Debug {
    /// `IPv4` or `IPv6`.
    const NAME: &'static str;

    /// Returns the first address after the prefix that begins at `self` and has this length.
    fn following(self, length: u32) -> Option<Self>;

    /// Returns a random address of a prefix.
    fn within(prefix: Prefix<Self>, random: &mut Random) -> Self;

    /// Returns the last address of a prefix.
    fn last(prefix: Prefix<Self>) -> Self;

    /// Returns the number of addresses from `self` to `later`. The result is exact for IPv4.
    fn distance(self, later: Self) -> f64;

    /// Returns the address at this distance after `self`.
    fn plus(self, distance: f64) -> Self;

    /// Flips the 32nd bit (IPv4) or the 64th bit (IPv6), counted from the top, if `flip` is 1. `flip` must be 0 or 1.
    /// Every lookup depends on the part of the address that contains this bit.
    fn flipped(self, flip: u32) -> Self;

    /// Returns the address in network order, right-aligned in 16 bytes.
    fn bytes(self) -> [u8; 16];

    /// Returns the address if it belongs to this family.
    fn parse(address: IpAddr) -> Option<Self>;
}

macro_rules! family {
    ($type:ty, $name:literal, $address:ident, $parsed:ident, $flipped:literal) => {
        impl Family for $type {
            const NAME: &'static str = $name;

            fn following(self, length: u32) -> Option<Self> {
                let size = (1 as $type).checked_shl(Self::BITS - length)?;
                self.checked_add(size)
            }

            fn within(prefix: Prefix<Self>, random: &mut Random) -> Self {
                let host = (random.wide() as $type)
                    .checked_shr(prefix.length())
                    .unwrap_or(0);
                prefix.address() | host
            }

            fn last(prefix: Prefix<Self>) -> Self {
                prefix.address() | <$type>::MAX.checked_shr(prefix.length()).unwrap_or(0)
            }

            fn distance(self, later: Self) -> f64 {
                (later - self) as f64
            }

            fn plus(self, distance: f64) -> Self {
                self.saturating_add(distance as $type)
            }

            #[inline]
            fn flipped(self, flip: u32) -> Self {
                self ^ <$type>::from(flip) << $flipped
            }

            fn bytes(self) -> [u8; 16] {
                u128::from(self).to_be_bytes()
            }

            fn parse(address: IpAddr) -> Option<Self> {
                match address {
                    IpAddr::$parsed(address) => Some($address::to_bits(address)),
                    _ => None,
                }
            }
        }
    };
}

family!(u32, "IPv4", Ipv4Addr, V4, 0);
family!(u128, "IPv6", Ipv6Addr, V6, 64);

/// Returns the next hop of a prefix after the given number of changes.
pub(crate) fn next_hop<A: Family>(prefix: Prefix<A>, changes: u64) -> u32 {
    let bytes = u128::from_be_bytes(prefix.address().bytes());
    let folded = (bytes >> 64) as u64 ^ mix(bytes as u64);
    let seed = mix(folded ^ u64::from(prefix.length()) << 56 ^ changes << 48);
    (seed % NEXT_HOPS) as u32 + 1
}

/// Assigns next hops to the prefixes. Sorts the routes by length, shortest first.
pub(crate) fn with_next_hops<A: Family>(mut prefixes: Vec<Prefix<A>>) -> Vec<Route<A>> {
    prefixes.sort_by_key(|prefix| (prefix.length(), prefix.address()));
    let routes = prefixes.into_iter();
    routes.map(|prefix| (prefix, next_hop(prefix, 0))).collect()
}

/// Reads a family's prefixes from a file with one prefix on each line. If the file's name ends in `.xz`, `xz` unpacks
/// it.
///
/// # Errors
/// Fails if the file cannot be read, or if a line is not a prefix.
pub(crate) fn read<A: Family>(path: &Path) -> Result<Vec<Prefix<A>>> {
    let text = contents(path).with_context(|| format!("reading {}", path.display()))?;
    let mut prefixes = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed = parse(line);
        let (address, length) = parsed.with_context(|| {
            format!(
                "{}:{}: this is not a prefix: {line}",
                path.display(),
                number + 1
            )
        })?;
        if let Some(address) = A::parse(address) {
            prefixes.push(Prefix::new(address, length));
        }
    }
    prefixes.sort();
    prefixes.dedup();
    Ok(prefixes)
}

fn contents(path: &Path) -> Result<String> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return Ok(std::fs::read_to_string(path)?);
    }
    let mut command = Command::new("xz");
    command.arg("-dc").arg(path).stderr(Stdio::inherit());
    let output = command.output().context("cannot run xz")?;
    if !output.status.success() {
        bail!("xz failed: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn parse(line: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = line.split_once('/')?;
    Some((address.parse().ok()?, length.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_by_family() -> Result<()> {
        let path = std::env::temp_dir().join(format!("sluice-bench-{}.txt", std::process::id()));
        std::fs::write(&path, "10.0.0.0/8\n2001:db8::/32\n\n10.1.0.0/16\n")?;
        let (four, six) = (read::<u32>(&path), read::<u128>(&path));
        std::fs::remove_file(&path)?;
        assert_eq!(
            four?,
            [Prefix::new(0x0a00_0000, 8), Prefix::new(0x0a01_0000, 16)]
        );
        assert_eq!(six?, [Prefix::new(0x2001_0db8 << 96, 32)]);
        Ok(())
    }

    #[test]
    fn addresses_within_a_prefix_are_within() {
        let mut random = Random::new(3);
        for length in [0, 1, 8, 31, 32] {
            let prefix = Prefix::new(0xc0a8_5533_u32, length);
            for _ in 0..50 {
                assert!(prefix.contains(u32::within(prefix, &mut random)));
            }
            assert!(prefix.contains(u32::last(prefix)));
        }
    }
}
