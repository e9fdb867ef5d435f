// SPDX-License-Identifier: Apache-2.0
//! Routes as ranges of addresses with one answer each, which look-up structures are made from.

use super::Rib;
use crate::{Address, Prefix};

impl<A: Address> Rib<A> {
    /// Cuts `prefix` into ranges of addresses with one answer each and calls `visit` with the first
    /// address of every range and its value (`None` where no route matches), in ascending order; the
    /// first call is for the prefix's first address. Neighbouring ranges differ in their values.
    #[inline]
    pub fn for_each_range(&self, prefix: Prefix<A>, visit: &mut impl FnMut(A, Option<u32>)) {
        let around = self.around(prefix);
        let outer = around.covering.map(|(_, value)| value);
        if around.inside {
            self.cut(prefix, outer, visit);
        } else {
            visit(prefix.address(), outer);
        }
    }

    /// The same where there are longer prefixes in this one, around which there is `outer`.
    fn cut(&self, prefix: Prefix<A>, outer: Option<u32>, visit: &mut impl FnMut(A, Option<u32>)) {
        let mut ranges = Ranges {
            // The routes around the present address, with the last address of each.
            stack: vec![(prefix.last(), outer)],
            pending: (prefix.address(), outer),
            said: None,
            visit,
        };
        self.for_each_under(prefix, &mut |route, value| {
            ranges.open(route, value);
        });
        ranges.close(None);
        ranges.flush();
    }
}

/// The state of [`Rib::for_each_range`].
struct Ranges<'a, A, V> {
    stack: Vec<(A, Option<u32>)>,
    /// A range that has begun but may be overridden at the same address.
    pending: (A, Option<u32>),
    said: Option<Option<u32>>,
    visit: &'a mut V,
}

impl<A: Address, V: FnMut(A, Option<u32>)> Ranges<'_, A, V> {
    fn begin(&mut self, first: A, value: Option<u32>) {
        if first != self.pending.0 {
            self.flush();
        }
        self.pending = (first, value);
    }

    fn flush(&mut self) {
        let (first, value) = self.pending;
        if self.said != Some(value) {
            (self.visit)(first, value);
            self.said = Some(value);
        }
    }

    /// Ends the routes that lie before `until`, or all but the outermost.
    fn close(&mut self, until: Option<A>) {
        while self.stack.len() > 1 {
            let (last, _) = self.stack[self.stack.len() - 1];
            if until.is_some_and(|until| last >= until) {
                break;
            }
            self.stack.pop();
            let (outer_last, outer) = self.stack[self.stack.len() - 1];
            if last < outer_last
                && let Some(next) = last.successor()
            {
                self.begin(next, outer);
            }
        }
    }

    fn open(&mut self, route: Prefix<A>, value: u32) {
        self.close(Some(route.address()));
        self.begin(route.address(), Some(value));
        self.stack.push((route.last(), Some(value)));
    }
}
