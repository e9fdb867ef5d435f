// SPDX-License-Identifier: Apache-2.0
//! Longest-prefix match with any number of exact fields, such as a VRF. Each value of the exact fields has its own FIB.
//!
//! The authoritative copy and both replicas share one copy of the routes ([`Routes`]). Each replica has its own lookup
//! structures, and updates them from the recorded changes of the routes.
//!
//! A FIB maps a prefix to a number. If the entries keep no packet state, the number is a class: entries with equal
//! targets share one. Otherwise the number is the entry's slot.

mod classes;
mod routes;
mod vrf_fib;
mod vrfs;

use std::sync::Arc;
use std::time::Instant;

use sluice_fib::{Family, Lines, NONE, PinError, Status};

use super::found::Found;
use crate::row::Row;
use crate::slab::{Slab, class_target};
use crate::wait::Wait;
use classes::{ClassRows, Classes};
pub(crate) use routes::{Routes, SharedRoutes};
pub use vrf_fib::FibDetail;
use vrf_fib::VrfFib;
use vrfs::Vrfs;

#[derive(Debug)]
pub(crate) struct LpmTable {
    routes: SharedRoutes,
    vrfs: Vrfs<VrfFib>,
    /// Algorithm for the FIBs of VRFs that are added later. `None` unless an operator has pinned one.
    pinned: Option<String>,
    /// Whether any FIB waits for a rebuild.
    pending: bool,
    /// Rows of the classes, if the FIBs' values are classes.
    rows: Option<ClassRows>,
}

impl LpmTable {
    pub(super) fn new(routes: &SharedRoutes) -> Self {
        let known = routes.read();
        Self {
            vrfs: Vrfs::new(known.vrfs.layout.clone()),
            pinned: None,
            pending: false,
            rows: known.classes.as_ref().map(Classes::empty_rows),
            routes: Arc::clone(routes),
        }
    }

    /// Returns the class or slot that a key matches.
    #[inline]
    fn value(&self, key: &[u8]) -> Option<u32> {
        let value = match self.vrfs.of_key(key)? {
            VrfFib::Narrow(fib) => fib.lookup(self.vrfs.layout.narrow(key)),
            VrfFib::Wide(fib) => fib.lookup(self.vrfs.layout.wide(key)),
        };
        (value != NONE).then_some(value)
    }

    #[inline]
    pub(super) fn lookup(&self, key: &[u8]) -> Option<Found<'_>> {
        let value = self.value(key)?;
        Some(match &self.rows {
            Some(rows) => {
                let (target, slot) = class_target(rows.words(value));
                Found::Class(target, slot)
            }
            None => Found::Slot(value),
        })
    }

    /// Returns the row that a key matches.
    #[inline]
    pub(super) fn row<'a>(&'a self, slab: &'a Slab, key: &[u8]) -> Option<Row<'a>> {
        self.value(key).map(|value| self.row_at(slab, value))
    }

    /// Returns the row for a left-aligned address of at most 32 bits. `exact` has the exact fields as one number.
    #[inline]
    pub(crate) fn row_narrow<'a>(
        &'a self,
        slab: &'a Slab,
        exact: u64,
        address: u32,
    ) -> Option<Row<'a>> {
        let VrfFib::Narrow(fib) = self.vrfs.of_number(exact)? else {
            return None;
        };
        let value = fib.lookup(address);
        (value != NONE).then(|| self.row_at(slab, value))
    }

    /// Like [`row_narrow`](Self::row_narrow), but yields through `wait` while cache lines are fetched.
    #[inline]
    pub(crate) fn row_narrow_waiting<'a>(
        &'a self,
        slab: &'a Slab,
        exact: u64,
        address: u32,
        wait: &impl Wait,
    ) -> Option<Row<'a>> {
        let VrfFib::Narrow(fib) = self.vrfs.of_number(exact)? else {
            return None;
        };
        // Does not yield for the index lines of the FIB. These lines are in the second-level or third-level cache, and
        // a yield would cost as much as the miss.
        pause_for(fib.lines(address), wait);
        let value = fib.lookup(address);
        (value != NONE).then(|| self.row_at(slab, value))
    }

    /// Like [`row_narrow`](Self::row_narrow), for an address of more than 32 bits.
    #[inline]
    pub(crate) fn row_wide<'a>(
        &'a self,
        slab: &'a Slab,
        exact: u64,
        address: u128,
    ) -> Option<Row<'a>> {
        let VrfFib::Wide(fib) = self.vrfs.of_number(exact)? else {
            return None;
        };
        let value = fib.lookup(address);
        (value != NONE).then(|| self.row_at(slab, value))
    }

    /// Like [`row_wide`](Self::row_wide), but yields through `wait` while cache lines are fetched.
    #[inline]
    pub(crate) fn row_wide_waiting<'a>(
        &'a self,
        slab: &'a Slab,
        exact: u64,
        address: u128,
        wait: &impl Wait,
    ) -> Option<Row<'a>> {
        let VrfFib::Wide(fib) = self.vrfs.of_number(exact)? else {
            return None;
        };
        pause_for(fib.index_lines(address), wait);
        pause_for(fib.lines(address), wait);
        let value = fib.lookup(address);
        (value != NONE).then(|| self.row_at(slab, value))
    }

    /// Returns the row of a class or slot.
    #[inline]
    fn row_at<'a>(&'a self, slab: &'a Slab, value: u32) -> Row<'a> {
        match &self.rows {
            Some(rows) => Row::of(rows.words(value)),
            None => slab.row(value),
        }
    }

    /// Returns what the entry of a row runs. The row must have been found in this table.
    pub(super) fn at<'a>(&'a self, slab: &Slab, row: Row<'a>) -> Found<'a> {
        match &self.rows {
            Some(rows) => {
                let (target, slot) = class_target(rows.words_of(row));
                Found::Class(target, slot)
            }
            None => Found::Slot(slab.slot_of(row)),
        }
    }

    /// Returns the length of the longest prefix that a key matches, to explain a packet's lookup to an operator. Never
    /// waits: while a transaction changes the routes, returns the full width of the field.
    pub(super) fn prefix_len(&self, key: &[u8]) -> Option<u32> {
        let value = self.value(key)?;
        let width = self.vrfs.layout.width;
        let Some(known) = self.routes.try_read() else {
            return Some(width);
        };
        let longest = known.vrfs.of_key(key);
        let longest = longest.and_then(|routes| routes.longest(&self.vrfs.layout, key));
        let same = longest.filter(|(_, known)| *known == value);
        Some(same.map_or(width, |(length, _)| length))
    }

    /// Updates the lookup structures from the recorded changes of the routes, and runs rebuilds that are due.
    pub(super) fn settle(&mut self, now: Instant) {
        let shared = Arc::clone(&self.routes);
        let known = shared.read();
        if let (Some(rows), Some(classes)) = (&mut self.rows, &known.classes) {
            classes.copy_fresh_rows(rows);
        }
        if known.touched.is_empty() && !self.pending {
            return;
        }
        for at in &known.touched {
            let vrf = &known.vrfs.list[*at];
            let position = self.vrfs.position_like(vrf);
            match (position, vrf.routes.is_empty()) {
                (None, true) => {}
                (Some(position), true) => self.vrfs.remove_at(position),
                (None, false) => {
                    // The VRF is new, so the FIB takes all its routes.
                    let mut fib = VrfFib::new(self.vrfs.layout.width, self.pinned.as_deref());
                    fib.follow(&vrf.routes, now);
                    self.vrfs.add_like(vrf, fib);
                }
                (Some(position), false) => {
                    self.vrfs.list[position].routes.follow(&vrf.routes, now);
                }
            }
        }
        if self.pending {
            for fib in &mut self.vrfs.list {
                if let Some(at) = known.vrfs.position_like(fib) {
                    fib.routes.build_if_due(&known.vrfs.list[at].routes, now);
                }
            }
        }
        self.pending = self.vrfs.list.iter().any(|fib| fib.routes.is_pending());
    }

    /// Returns whether any FIB waits for a rebuild.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Returns the bytes of the exact fields and the status of each FIB.
    pub(crate) fn status(&self, detail: FibDetail) -> Vec<(Vec<u8>, Status)> {
        let known = self.routes.read();
        let fibs = self.vrfs.list.iter();
        let status = fibs.filter_map(|fib| {
            let at = known.vrfs.position_like(fib)?;
            let status = fib.routes.status(&known.vrfs.list[at].routes, detail)?;
            Some((fib.exact.to_vec(), status))
        });
        status.collect()
    }

    /// Pins the algorithm `name` for the FIB of these exact fields, or for all present and future FIBs if `exact` is
    /// `None`. If `name` is `None`, returns to automatic choice. Returns whether there is such a FIB. Fails if the
    /// algorithm cannot hold the routes of some FIB; all other FIBs use the algorithm nevertheless.
    pub(crate) fn pin(
        &mut self,
        exact: Option<&[u8]>,
        name: Option<&str>,
    ) -> Result<bool, PinError> {
        let known: Vec<_> = match self.vrfs.layout.width {
            ..=32 => u32::ALGORITHMS.iter().map(|kind| kind.name).collect(),
            _ => u128::ALGORITHMS.iter().map(|kind| kind.name).collect(),
        };
        if name.is_some_and(|name| !known.contains(&name)) {
            return Err(PinError::Unknown { known });
        }
        if exact.is_none() {
            self.pinned = name.map(str::to_owned);
        }
        let known = self.routes.read();
        let (mut found, mut outcome) = (exact.is_none(), Ok(()));
        for fib in &mut self.vrfs.list {
            if exact.is_none_or(|exact| *fib.exact == *exact)
                && let Some(at) = known.vrfs.position_like(fib)
            {
                found = true;
                outcome = outcome.and(fib.routes.pin(name, &known.vrfs.list[at].routes));
            }
        }
        outcome.map(|()| found)
    }

    /// Returns the routes.
    pub(crate) fn routes(&self) -> &SharedRoutes {
        &self.routes
    }
}

/// Prefetches these cache lines and yields until they have arrived.
#[inline(always)]
fn pause_for(lines: Lines, wait: &impl Wait) {
    lines.addresses().for_each(|line| wait.prefetch(line));
    wait.yield_now();
}
