// SPDX-License-Identifier: Apache-2.0
//! Adds routes to rte_fib and rte_fib6, and removes routes from them.

use std::ffi::c_int;

use anyhow::Result;
use sluice_fib::Prefix;

use super::dpdk::{Dpdk, Handle};
use super::dpdk_lpm::DpdkLpm;
use crate::input::routes::Family;

type Add4 = unsafe extern "C" fn(Handle, u32, u8, u32) -> c_int;
type Delete4 = unsafe extern "C" fn(Handle, u32, u8) -> c_int;
type Add6 = unsafe extern "C" fn(Handle, *const [u8; 16], u8, u32) -> c_int;
type Delete6 = unsafe extern "C" fn(Handle, *const [u8; 16], u8) -> c_int;

/// Update functions of one address family.
pub(crate) enum Updater {
    Four(Add4, Delete4),
    Six(Add6, Delete6),
}

impl Updater {
    /// Returns the update functions of a family.
    ///
    /// # Errors
    /// Fails if the library does not have these functions.
    pub(crate) fn new<A: Family>(dpdk: Dpdk) -> Result<Self> {
        // SAFETY: the functions in dpdk.c have these types. The functions for IPv4 take the address by value, those for
        // IPv6 take a pointer to 16 bytes.
        unsafe {
            Ok(match A::BITS {
                32 => Self::Four(
                    dpdk.function("peer_fib4_add")?,
                    dpdk.function("peer_fib4_delete")?,
                ),
                _ => Self::Six(
                    dpdk.function("peer_fib6_add")?,
                    dpdk.function("peer_fib6_delete")?,
                ),
            })
        }
    }

    /// If `hop` is `Some`, adds a route or changes the route's next hop. Otherwise removes the route. Returns whether
    /// DPDK accepted the update.
    pub(crate) fn update<A: Family>(
        &self,
        fib: &DpdkLpm<A>,
        prefix: Prefix<A>,
        hop: Option<u32>,
    ) -> bool {
        let (table, length) = (fib.table, prefix.length() as u8);
        let bytes = prefix.address().bytes();
        let address = u128::from_be_bytes(bytes) as u32;
        // SAFETY: the table exists, and only one thread uses it. The address is passed by value, or as a pointer to 16
        // bytes that are only read.
        let result = unsafe {
            match (self, hop) {
                (Self::Four(add, _), Some(hop)) => add(table, address, length, hop),
                (Self::Four(_, delete), None) => delete(table, address, length),
                (Self::Six(add, _), Some(hop)) => add(table, &bytes, length, hop),
                (Self::Six(_, delete), None) => delete(table, &bytes, length),
            }
        };
        result == 0
    }
}
