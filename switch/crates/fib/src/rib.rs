// SPDX-License-Identifier: Apache-2.0
//! The routing information base: a trie with six bits per level, from which lookup structures are built. It is compact:
//! a full Internet table takes about 17 bytes per route.
//!
//! A route has a value, which lookups return, and a *note*. The note is a number for the RIB's owner, and has no
//! meaning for this module.
//!
//! A node covers the prefixes of one to six bits below a path. A bitmap marks the present prefixes in *preorder*: a
//! prefix comes before the prefixes inside it, and after all prefixes to its left. This order has three advantages:
//!
//! - Iteration visits prefixes in the order of bits.
//! - The prefixes inside a prefix are adjacent.
//! - Of all prefixes that contain an address, the longest has the highest bit.
//!
//! Values and child nodes are arrays in pools. An element's index in its array is the number of set bits before the
//! element's bit (Eatherton, Varghese, Dittia: "Tree bitmap", SIGCOMM CCR 2004).

mod ranges;

use crate::address::{Address, Prefix};
use crate::array_pool::ArrayPool;
use crate::change::Change;

const STRIDE: u32 = 6;

/// Number of trie levels for the longest addresses.
const LEVELS: usize = u128::BITS.div_ceil(STRIDE) as usize;

/// Number of prefixes of one to six bits in a node.
const PREFIXES: usize = 126;

/// A prefix inside a node: its length, and its bits, left-aligned in six bits.
#[derive(Clone, Copy)]
struct Inner {
    length: u8,
    path: u8,
}

/// Returns the preorder position of a prefix of `length` (1 to 6) bits. `path` has the bits, left-aligned in six bits.
const fn compute_preorder(path: u32, length: u32) -> u32 {
    let mut position = 0;
    let mut depth = 1;
    while depth <= length {
        // A right branch comes after the subtree of its left sibling.
        if path >> (STRIDE - depth) & 1 == 1 {
            position += (1 << (STRIDE + 1 - depth)) - 1;
        }
        if depth < length {
            position += 1;
        }
        depth += 1;
    }
    position
}

/// Results of [`compute_preorder`], by length and path.
static PREORDER: [[u8; 64]; STRIDE as usize + 1] = {
    let mut positions = [[0; 64]; STRIDE as usize + 1];
    let mut length = 1;
    while length <= STRIDE {
        let mut path = 0;
        while path < 64 {
            positions[length as usize][path as usize] = compute_preorder(path, length) as u8;
            path += 1;
        }
        length += 1;
    }
    positions
};

/// Returns the preorder position of a prefix, from the table.
#[inline]
fn preorder(path: u32, length: u32) -> u32 {
    PREORDER[length as usize][path as usize].into()
}

/// Returns the number of prefixes in the subtree of a prefix of `length`.
const fn subtree(length: u32) -> u32 {
    (1 << (STRIDE + 1 - length)) - 1
}

const INNERS: [Inner; PREFIXES] = {
    let mut inners = [Inner { length: 0, path: 0 }; PREFIXES];
    let mut length = 1;
    while length <= STRIDE {
        let mut path = 0;
        while path < 1 << length {
            let aligned = path << (STRIDE - length);
            inners[compute_preorder(aligned, length) as usize] = Inner {
                length: length as u8,
                path: aligned as u8,
            };
            path += 1;
        }
        length += 1;
    }
    inners
};

/// For each path of six bits, a bitmap of the positions of the prefixes that contain this path.
const ANCESTORS: [u128; 64] = {
    let mut masks = [0; 64];
    let mut path = 0;
    while path < 64 {
        let mut length = 1;
        while length <= STRIDE {
            let aligned = path >> (STRIDE - length) << (STRIDE - length);
            masks[path as usize] |= 1 << compute_preorder(aligned, length);
            length += 1;
        }
        path += 1;
    }
    masks
};

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Bitmap of the present prefixes, by preorder position.
    routes: [u64; 2],
    /// Bitmap of the present child nodes, by path.
    nodes: u64,
    /// Pool index of the array of values.
    values: u32,
    /// Pool index of the array of child nodes.
    children: u32,
}

impl Node {
    #[inline]
    fn bitmap(&self) -> u128 {
        u128::from(self.routes[1]) << 64 | u128::from(self.routes[0])
    }

    fn set_bitmap(&mut self, bitmap: u128) {
        self.routes = [bitmap as u64, (bitmap >> 64) as u64];
    }

    fn is_empty(&self) -> bool {
        self.routes == [0, 0] && self.nodes == 0
    }

    fn route_count(&self) -> usize {
        self.bitmap().count_ones() as usize
    }

    fn node_count(&self) -> usize {
        self.nodes.count_ones() as usize
    }

    fn value_index(&self, position: u32) -> usize {
        (self.bitmap() & ((1 << position) - 1)).count_ones() as usize
    }

    fn child_index(&self, path: u32) -> usize {
        (self.nodes & ((1 << path) - 1)).count_ones() as usize
    }

    fn has_child(&self, path: u32) -> bool {
        self.nodes >> path & 1 == 1
    }

    /// Returns whether there is a longer prefix inside the prefix with this path and `length` (1 to 6).
    fn has_inside(&self, path: u32, length: u32) -> bool {
        let (routes, paths) = (subtree(length) - 1, 1 << (STRIDE - length));
        let nodes = self.nodes >> path & (u64::MAX >> (64 - paths));
        self.bitmap() >> preorder(path, length) >> 1 & ((1 << routes) - 1) != 0 || nodes != 0
    }
}

/// Maximum number of prefixes that [`Rib::get_all`] looks up together.
pub const TOGETHER: usize = 16;

/// Value and note of a prefix.
#[derive(Clone, Copy, Debug, Default)]
struct Route {
    value: u32,
    note: u32,
}

impl Route {
    fn both(self) -> (u32, u32) {
        (self.value, self.note)
    }
}

/// The routes: prefixes, each with a value.
#[derive(Clone, Debug)]
pub struct Rib<A> {
    default: Option<Route>,
    root: Node,
    nodes: ArrayPool<Node>,
    values: ArrayPool<Route>,
    len: usize,
    address: std::marker::PhantomData<A>,
}

impl<A: Address> Default for Rib<A> {
    fn default() -> Self {
        Self::new()
    }
}

/// Result of [`Rib::around`].
#[derive(Clone, Copy)]
struct Around {
    /// Length and value of the longest prefix that covers the given prefix, which may be the given prefix itself.
    covering: Option<(u32, u32)>,
    /// Whether there are longer prefixes inside the given prefix.
    inside: bool,
}

/// Location of a node: the index of an array in the pool and an index in this array, or the root.
#[derive(Clone, Copy)]
struct At(u32, u32);

const ROOT: At = At(u32::MAX, 0);

/// Returns the level of the node that holds a prefix of `length` (above 0), and the prefix's length in this node.
fn level_of(length: u32) -> (u32, u32) {
    let level = (length - 1) / STRIDE;
    (level, length - level * STRIDE)
}

impl<A: Address> Rib<A> {
    /// Creates a RIB without routes.
    pub fn new() -> Self {
        Self {
            default: None,
            root: Node::default(),
            nodes: ArrayPool::new(),
            values: ArrayPool::new(),
            len: 0,
            address: std::marker::PhantomData,
        }
    }

    /// Returns the number of routes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the RIB has no routes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size of the RIB in bytes, including its memory on the heap.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.nodes.memory_bytes() + self.values.memory_bytes()
    }

    /// Releases unused capacity.
    pub fn shrink(&mut self) {
        self.nodes.shrink();
        self.values.shrink();
    }

    #[inline]
    fn node(&self, at: At) -> &Node {
        if at.0 == ROOT.0 {
            &self.root
        } else {
            self.nodes.get(at.0, at.1 as usize)
        }
    }

    #[inline]
    fn node_mut(&mut self, at: At) -> &mut Node {
        if at.0 == ROOT.0 {
            &mut self.root
        } else {
            self.nodes.get_mut(at.0, at.1 as usize)
        }
    }

    /// Returns the child of a node on this path.
    #[inline]
    fn child(&self, node: &Node, path: u32) -> Option<At> {
        node.has_child(path)
            .then(|| At(node.children, node.child_index(path) as u32))
    }

    /// Returns the node that covers a prefix (longer than 0), and the prefix's position in this node. The RIB may lack
    /// the prefix itself.
    fn find(&self, prefix: Prefix<A>) -> Option<(At, u32)> {
        let (level, length) = level_of(prefix.length());
        let mut at = ROOT;
        for depth in 0..level {
            let path = prefix.address().bits(depth * STRIDE, STRIDE);
            at = self.child(self.node(at), path)?;
        }
        let path = prefix.address().bits(level * STRIDE, STRIDE);
        Some((at, preorder(path, length)))
    }

    /// Returns the value of the route to exactly this prefix.
    pub fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        self.route(prefix).map(|route| route.value)
    }

    /// Returns the value and the note of the route to exactly this prefix.
    pub fn get_noted(&self, prefix: Prefix<A>) -> Option<(u32, u32)> {
        self.route(prefix).map(Route::both)
    }

    /// Calls `found` with the result of [`get_noted`](Self::get_noted) for each prefix. Ignores prefixes beyond the
    /// first [`TOGETHER`]. Processes all prefixes level by level, so that their cache misses overlap.
    pub fn get_all(&self, prefixes: &[Prefix<A>], mut found: impl FnMut(Option<(u32, u32)>)) {
        let prefixes = &prefixes[..prefixes.len().min(TOGETHER)];
        let mut cursors = [Some(ROOT); TOGETHER];
        let levels = prefixes
            .iter()
            .map(|prefix| level_of(prefix.length().max(1)).0);
        for depth in 0..levels.max().unwrap_or(0) {
            for (cursor, prefix) in cursors.iter_mut().zip(prefixes) {
                if let Some(at) = *cursor
                    && depth < level_of(prefix.length().max(1)).0
                {
                    let path = prefix.address().bits(depth * STRIDE, STRIDE);
                    *cursor = self.child(self.node(at), path);
                }
            }
        }
        for (cursor, prefix) in cursors.iter().zip(prefixes) {
            let route = match (prefix.length(), cursor) {
                (0, _) => self.default,
                (_, None) => None,
                (length, Some(at)) => {
                    let (level, length) = level_of(length);
                    let path = prefix.address().bits(level * STRIDE, STRIDE);
                    self.route_at(*at, preorder(path, length))
                }
            };
            found(route.map(Route::both));
        }
    }

    fn route(&self, prefix: Prefix<A>) -> Option<Route> {
        if prefix.length() == 0 {
            return self.default;
        }
        let (at, position) = self.find(prefix)?;
        self.route_at(at, position)
    }

    fn route_at(&self, at: At, position: u32) -> Option<Route> {
        let node = self.node(at);
        let there = node.bitmap() >> position & 1 == 1;
        there.then(|| *self.values.get(node.values, node.value_index(position)))
    }

    /// Adds a route, or replaces the route's value. Sets the note to 0. Returns the old value.
    pub fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        self.put(prefix, value, 0).0.map(|old| old.0)
    }

    /// Adds a route, or replaces the route's value and note. Returns the old value and note, and the change.
    pub fn put(
        &mut self,
        prefix: Prefix<A>,
        value: u32,
        note: u32,
    ) -> (Option<(u32, u32)>, Change<A>) {
        let route = Route { value, note };
        if prefix.length() == 0 {
            let old = self.default.replace(route).map(Route::both);
            self.len += usize::from(old.is_none());
            return (old, Change::of(prefix));
        }
        let (level, length) = level_of(prefix.length());
        let mut at = ROOT;
        for depth in 0..level {
            let path = prefix.address().bits(depth * STRIDE, STRIDE);
            at = match self.child(self.node(at), path) {
                Some(child) => child,
                None => self.add_child(at, path),
            };
        }
        let path = prefix.address().bits(level * STRIDE, STRIDE);
        let position = preorder(path, length);
        let mut node = *self.node(at);
        let change = if node.has_inside(path, length) {
            Change::of(prefix)
        } else {
            Change::to(prefix, Some(value))
        };
        let (bitmap, index) = (node.bitmap(), node.value_index(position));
        if bitmap >> position & 1 == 1 {
            let known = self.values.get_mut(node.values, index);
            return (Some(std::mem::replace(known, route).both()), change);
        }
        let count = node.route_count();
        node.values = self.values.insert(node.values, count, index, route);
        node.set_bitmap(bitmap | 1 << position);
        *self.node_mut(at) = node;
        self.len += 1;
        (None, change)
    }

    fn add_child(&mut self, at: At, path: u32) -> At {
        let mut node = *self.node(at);
        let (count, index) = (node.node_count(), node.child_index(path));
        let empty = Node::default();
        node.children = self.nodes.insert(node.children, count, index, empty);
        node.nodes |= 1 << path;
        *self.node_mut(at) = node;
        At(node.children, index as u32)
    }

    /// Removes a route. Returns its value.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        self.take(prefix).map(|((value, _), _)| value)
    }

    /// Removes a route. Returns its value and note, and the change.
    pub fn take(&mut self, prefix: Prefix<A>) -> Option<((u32, u32), Change<A>)> {
        if prefix.length() == 0 {
            let old = self.default.take()?;
            self.len -= 1;
            return Some((old.both(), Change::of(prefix)));
        }
        let (level, length) = level_of(prefix.length());
        let mut visited = [ROOT; LEVELS];
        // Location of the longest prefix found so far that covers the route's prefix.
        let mut outer = None;
        for depth in 0..level {
            let at = visited[depth as usize];
            let node = self.node(at);
            let path = prefix.address().bits(depth * STRIDE, STRIDE);
            let around = node.bitmap() & ANCESTORS[path as usize];
            if around != 0 {
                outer = Some((at, 127 - around.leading_zeros()));
            }
            visited[depth as usize + 1] = self.child(node, path)?;
        }
        let at = visited[level as usize];
        let path = prefix.address().bits(level * STRIDE, STRIDE);
        let position = preorder(path, length);
        let mut node = *self.node(at);
        let bitmap = node.bitmap();
        if bitmap >> position & 1 == 0 {
            return None;
        }
        // Only lower positions are considered: a prefix comes after the prefixes that contain it.
        let around = bitmap & ANCESTORS[path as usize] & ((1 << position) - 1);
        if around != 0 {
            outer = Some((at, 127 - around.leading_zeros()));
        }
        let change = if node.has_inside(path, length) {
            Change::of(prefix)
        } else {
            let outer = match outer {
                Some((at, position)) => self.route_at(at, position),
                None => self.default,
            };
            Change::to(prefix, outer.map(|route| route.value))
        };
        let (count, index) = (node.route_count(), node.value_index(position));
        let (route, values) = self.values.remove(node.values, count, index);
        node.values = values;
        node.set_bitmap(bitmap & !(1 << position));
        *self.node_mut(at) = node;
        self.len -= 1;
        if node.is_empty() {
            self.prune(prefix, &visited[..level as usize]);
        }
        Some((route.both(), change))
    }

    /// Removes the empty node at the end of a path, and all nodes of the path that become empty.
    fn prune(&mut self, prefix: Prefix<A>, visited: &[At]) {
        for (depth, at) in visited.iter().enumerate().rev() {
            let path = prefix.address().bits(depth as u32 * STRIDE, STRIDE);
            let mut node = *self.node(*at);
            let (count, index) = (node.node_count(), node.child_index(path));
            (_, node.children) = self.nodes.remove(node.children, count, index);
            node.nodes &= !(1 << path);
            *self.node_mut(*at) = node;
            if !node.is_empty() {
                return;
            }
        }
    }

    /// Returns the longest prefix that contains an address, and its value.
    #[inline]
    pub fn lookup(&self, address: A) -> Option<(Prefix<A>, u32)> {
        self.covering(Prefix::new(address, A::BITS))
    }

    /// Returns the longest prefix that covers `prefix`, and its value. This may be `prefix` itself.
    #[inline]
    pub fn covering(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, u32)> {
        let (length, value) = self.around(prefix).covering?;
        Some((Prefix::new(prefix.address(), length), value))
    }

    /// Returns the longest prefix that covers a prefix, and whether there are longer prefixes inside it.
    #[inline]
    fn around(&self, prefix: Prefix<A>) -> Around {
        // Location of the best match so far. Its value is read only at the end.
        let mut best = None;
        let mut node = &self.root;
        let mut start = 0;
        let inside = loop {
            let left = prefix.length() - start;
            if left == 0 {
                break !node.is_empty();
            }
            let path = prefix.address().bits(start, STRIDE);
            let mut matches = node.bitmap() & ANCESTORS[path as usize];
            if left < STRIDE {
                // Keeps only prefixes that are not longer than the given one.
                matches &= (2 << preorder(path, left)) - 1;
            }
            if matches != 0 {
                best = Some((start, node, 127 - matches.leading_zeros()));
            }
            if left <= STRIDE {
                break node.has_inside(path, left);
            }
            let Some(At(array, index)) = self.child(node, path) else {
                break false;
            };
            node = self.nodes.get(array, index as usize);
            start += STRIDE;
        };
        let covering = match best {
            Some((start, node, position)) => {
                let route = self.values.get(node.values, node.value_index(position));
                let length = start + u32::from(INNERS[position as usize].length);
                Some((length, route.value))
            }
            None => self.default.map(|route| (0, route.value)),
        };
        Around { covering, inside }
    }

    /// Calls `visit` for each route to `prefix` or to a prefix inside it, in the order of addresses. A prefix comes
    /// before the prefixes inside it.
    pub fn for_each_under(&self, prefix: Prefix<A>, visit: &mut impl FnMut(Prefix<A>, u32)) {
        if prefix.length() == 0 {
            if let Some(route) = self.default {
                visit(prefix, route.value);
            }
            return self.walk(&self.root, A::default(), 0, visit);
        }
        let Some((at, first)) = self.find(prefix) else {
            return;
        };
        let (level, length) = level_of(prefix.length());
        let positions = first..first + subtree(length);
        let path = prefix.address().bits(level * STRIDE, STRIDE);
        let paths = path..path + (1 << (STRIDE - length));
        let base = prefix.address().truncate(level * STRIDE);
        self.walk_part(self.node(at), base, level * STRIDE, positions, paths, visit);
    }

    /// Calls `visit` for every route, in the order of addresses. A prefix comes before the prefixes inside it.
    pub fn for_each(&self, visit: &mut impl FnMut(Prefix<A>, u32)) {
        self.for_each_under(Prefix::new(A::default(), 0), visit);
    }

    fn walk(&self, node: &Node, base: A, start: u32, visit: &mut impl FnMut(Prefix<A>, u32)) {
        self.walk_part(node, base, start, 0..PREFIXES as u32, 0..64, visit);
    }

    /// Visits the routes at a range of positions of a node, and all routes below the node's children at a range of
    /// paths.
    fn walk_part(
        &self,
        node: &Node,
        base: A,
        start: u32,
        positions: std::ops::Range<u32>,
        paths: std::ops::Range<u32>,
        visit: &mut impl FnMut(Prefix<A>, u32),
    ) {
        let mut routes =
            node.bitmap() & ((1 << positions.end) - 1) >> positions.start << positions.start;
        let mut value = node.value_index(positions.start);
        let mut below = node.nodes & (u64::MAX >> (64 - paths.end)) >> paths.start << paths.start;
        let mut child = node.child_index(paths.start);
        while routes != 0 || below != 0 {
            let path = below.trailing_zeros();
            let next = routes.trailing_zeros();
            if below == 0 || next <= preorder(path, STRIDE) {
                let inner = INNERS[next as usize];
                let address = base.union(A::of_bits(u32::from(inner.path), start, STRIDE));
                let prefix = Prefix::new(address, start + u32::from(inner.length));
                visit(prefix, self.values.get(node.values, value).value);
                routes &= routes - 1;
                value += 1;
            } else {
                let address = base.union(A::of_bits(path, start, STRIDE));
                let node = self.nodes.get(node.children, child);
                self.walk(node, address, start + STRIDE, visit);
                below &= below - 1;
                child += 1;
            }
        }
    }
}
