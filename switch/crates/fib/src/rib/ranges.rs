// SPDX-License-Identifier: Apache-2.0
//! Converts routes to ranges of addresses with one answer each. Lookup structures are built from these ranges.

use super::Rib;
use crate::address::{Address, Prefix};

impl<A: Address> Rib<A> {
    /// Divides `prefix` into ranges of addresses with one answer each. Calls `visit` with the first address and the
    /// value of each range, in ascending order. The value is `None` where no route matches. The first call is for the
    /// first address of `prefix`. Adjacent ranges have different values.
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

    /// Divides a prefix that has longer prefixes inside it, as [`for_each_range`](Self::for_each_range) does. `outer`
    /// is the value of the longest prefix that covers the whole prefix.
    fn cut(&self, prefix: Prefix<A>, outer: Option<u32>, visit: &mut impl FnMut(A, Option<u32>)) {
        let mut ranges = RangeVisitor {
            // Values of the routes that contain the current address, each with the route's last address.
            stack: vec![(prefix.last(), outer)],
            pending: (prefix.address(), outer),
            visited: None,
            visit,
        };
        self.for_each_under(prefix, &mut |route, value| {
            ranges.open(route, value);
        });
        ranges.close(None);
        ranges.flush();
    }
}

/// State of [`Rib::for_each_range`].
struct RangeVisitor<'a, A, V> {
    stack: Vec<(A, Option<u32>)>,
    /// The range that began last. It is not reported yet, because a longer prefix that begins at the same address may
    /// override it.
    pending: (A, Option<u32>),
    /// Value of the last range that was visited.
    visited: Option<Option<u32>>,
    visit: &'a mut V,
}

impl<A: Address, V: FnMut(A, Option<u32>)> RangeVisitor<'_, A, V> {
    fn begin(&mut self, first: A, value: Option<u32>) {
        if first != self.pending.0 {
            self.flush();
        }
        self.pending = (first, value);
    }

    fn flush(&mut self) {
        let (first, value) = self.pending;
        if self.visited != Some(value) {
            (self.visit)(first, value);
            self.visited = Some(value);
        }
    }

    /// Closes the routes that end before `until`. If `until` is `None`, closes all routes except the outermost.
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
