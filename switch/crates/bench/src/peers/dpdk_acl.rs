// SPDX-License-Identifier: Apache-2.0
//! Wraps rte_acl, which compiles rules to tries and searches them with SIMD.

use std::ffi::{c_int, c_void};

use anyhow::{Result, bail};
use sluice_classifier::sample::{FiveTuple, KEY_BYTES};

use super::dpdk::{Dpdk, Handle};

/// Name of the peer in the results.
pub(crate) const NAME: &str = "rte_acl";

/// A packet's 5-tuple, in the layout of `struct peer_tuple` in dpdk.c.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tuple {
    protocol: u8,
    unused: [u8; 3],
    /// Source, destination, source port and destination port, in network order.
    rest: [u8; 12],
}

/// A rule, in the layout of `struct peer_rule` in dpdk.c.
#[repr(C)]
struct AclRule {
    source: u32,
    destination: u32,
    source_port: [u16; 2],
    destination_port: [u16; 2],
    source_length: u8,
    destination_length: u8,
    protocol: u8,
    protocol_mask: u8,
    priority: u32,
    value: u32,
}

type New = unsafe extern "C" fn(*const AclRule, u32, usize) -> Handle;
type Run = unsafe extern "C" fn(Handle, *const Tuple, usize) -> u64;
type Tune = unsafe extern "C" fn(Handle, *const Tuple, usize) -> c_int;
type Values = unsafe extern "C" fn(Handle, *const Tuple, usize, *mut u32);
type Free = unsafe extern "C" fn(*mut c_void);

/// A classifier filled with rules, and the trace in the library's form.
pub(crate) struct DpdkAcl {
    table: Handle,
    trace: Vec<Tuple>,
    implementation: c_int,
    lookup: Run,
    values: Values,
    free: Free,
}

fn rule(number: usize, count: usize, rule: &FiveTuple) -> AclRule {
    let ports = |ports: &std::ops::RangeInclusive<u16>| [*ports.start(), *ports.end()];
    AclRule {
        source: rule.source.0,
        destination: rule.destination.0,
        source_port: ports(&rule.source_ports),
        destination_port: ports(&rule.destination_ports),
        source_length: rule.source.1 as u8,
        destination_length: rule.destination.1 as u8,
        protocol: rule.protocol.unwrap_or(0),
        protocol_mask: if rule.protocol.is_some() { 0xff } else { 0 },
        priority: (count - number) as u32,
        value: number as u32 + 1,
    }
}

fn tuple(key: &[u8; KEY_BYTES]) -> Tuple {
    let mut rest = [0; 12];
    rest.copy_from_slice(&key[..12]);
    Tuple {
        protocol: key[12],
        unused: [0; 3],
        rest,
    }
}

impl DpdkAcl {
    /// Builds the classifier for these rules and this trace. The first matching rule wins.
    ///
    /// # Errors
    /// Fails if the classifier cannot be built.
    pub(crate) fn new(dpdk: Dpdk, rules: &[FiveTuple], trace: &[[u8; KEY_BYTES]]) -> Result<Self> {
        // SAFETY: the functions in dpdk.c have these types.
        let (new, tune, lookup, values, free) = unsafe {
            (
                dpdk.function::<New>("peer_acl_new")?,
                dpdk.function::<Tune>("peer_acl_tune")?,
                dpdk.function::<Run>("peer_acl_lookup")?,
                dpdk.function::<Values>("peer_acl_values")?,
                dpdk.function::<Free>("peer_acl_free")?,
            )
        };
        let count = rules.len();
        let all = rules.iter().enumerate();
        let all: Vec<AclRule> = all.map(|(number, one)| rule(number, count, one)).collect();
        let trace: Vec<Tuple> = trace.iter().map(tuple).collect();
        // SAFETY: `all` has `count` rules, and the call only reads them.
        let table = unsafe { new(all.as_ptr(), count as u32, 0) };
        if table.is_null() {
            bail!("rte_acl cannot be built for {count} rules");
        }
        let mut made = Self {
            table,
            trace,
            implementation: 0,
            lookup,
            values,
            free,
        };
        // SAFETY: the table exists, and the passed length is the length of the trace.
        made.implementation = unsafe { tune(table, made.trace.as_ptr(), made.trace.len()) };
        if made.implementation < 0 {
            bail!("rte_acl has no implementation for this processor");
        }
        Ok(made)
    }

    /// Returns the name of the fastest search function of rte_acl on this processor.
    pub(crate) fn implementation(&self) -> &'static str {
        match self.implementation {
            1 => "scalar",
            2 => "SSE",
            3 => "AVX2",
            6 | 7 => "AVX-512",
            _ => "another",
        }
    }

    /// Returns for each key of the trace the number of the rule that matches, or 0 if no rule matches.
    pub(crate) fn values(&self) -> Vec<u32> {
        let mut values = vec![0; self.trace.len()];
        // SAFETY: the table exists, the passed length is the length of the trace, and `values` has the same length.
        unsafe {
            let trace = self.trace.as_ptr();
            (self.values)(self.table, trace, self.trace.len(), values.as_mut_ptr());
        }
        values
    }

    /// Looks up the whole trace. Returns a digest of the values.
    pub(crate) fn lookup(&self) -> u64 {
        // SAFETY: the table exists, and the passed length is the length of the trace.
        unsafe { (self.lookup)(self.table, self.trace.as_ptr(), self.trace.len()) }
    }
}

impl Drop for DpdkAcl {
    fn drop(&mut self) {
        // SAFETY: the table exists, and is not used afterwards.
        unsafe { (self.free)(self.table) }
    }
}
