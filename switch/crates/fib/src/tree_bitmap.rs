// SPDX-License-Identifier: Apache-2.0
//! A multibit trie with bitmap-compressed nodes (Eatherton, Varghese, Dittia: "Tree bitmap",
//! SIGCOMM CCR 2004), six bits a level.
//!
//! A node covers six bits of the address. Its `internal` bitmap has a bit for each prefix of
//! length 0 to 5 inside the node (63 of them); `external` has a bit for each of the 64 children.
//! Children and values are dense vectors, indexed by counting the bits before.

use crate::{Address, Lpm, Prefix};

const STRIDE: u32 = 6;

/// For each path of six bits: the internal bits of the prefixes that contain it.
const ANCESTORS: [u64; 64] = ancestors();

/// The bit of a prefix of `length` (0 to 5) whose bits are `path`: a heap numbering, in which a
/// longer prefix has a higher bit than every shorter one.
const fn internal_bit(path: u32, length: u32) -> u32 {
    (1 << length) - 1 + path
}

const fn ancestors() -> [u64; 64] {
    let mut masks = [0; 64];
    let mut path = 0;
    while path < 64 {
        let mut length = 0;
        while length < STRIDE {
            masks[path as usize] |= 1 << internal_bit(path >> (STRIDE - length), length);
            length += 1;
        }
        path += 1;
    }
    masks
}

#[derive(Clone, Debug, Default)]
struct Node {
    internal: u64,
    external: u64,
    values: Vec<u32>,
    children: Vec<u32>,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.internal == 0 && self.external == 0
    }
}

/// Position among the set bits below `bit`.
#[inline]
fn rank(bitmap: u64, bit: u32) -> usize {
    (bitmap & ((1u64 << bit) - 1)).count_ones() as usize
}

#[inline]
fn is_set(bitmap: u64, bit: u32) -> bool {
    bitmap >> bit & 1 == 1
}

/// See the module.
#[derive(Clone, Debug)]
pub struct TreeBitmap<A> {
    nodes: Vec<Node>,
    free: Vec<u32>,
    len: usize,
    address: std::marker::PhantomData<A>,
}

impl<A> Default for TreeBitmap<A> {
    fn default() -> Self {
        Self {
            nodes: vec![Node::default()],
            free: Vec::new(),
            len: 0,
            address: std::marker::PhantomData,
        }
    }
}

impl<A: Address> TreeBitmap<A> {
    /// An empty trie.
    pub fn new() -> Self {
        Self::default()
    }

    /// Heap and inline bytes in use, for choosing between structures.
    pub fn memory(&self) -> usize {
        let vectors: usize = self
            .nodes
            .iter()
            .map(|node| (node.values.capacity() + node.children.capacity()) * 4)
            .sum();
        self.nodes.capacity() * size_of::<Node>() + self.free.capacity() * 4 + vectors
    }

    fn allocate(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        self.nodes.push(Node::default());
        u32::try_from(self.nodes.len() - 1).expect("a trie has fewer than 2^32 nodes")
    }

    /// The node that holds a prefix, made if it is not there.
    fn reach(&mut self, prefix: Prefix<A>) -> usize {
        let mut node = 0;
        for level in 0..prefix.length() / STRIDE {
            let path = prefix.address().bits(level * STRIDE, STRIDE);
            let position = rank(self.nodes[node].external, path);
            if !is_set(self.nodes[node].external, path) {
                let child = self.allocate();
                self.nodes[node].external |= 1 << path;
                self.nodes[node].children.insert(position, child);
            }
            node = self.nodes[node].children[position] as usize;
        }
        node
    }

    /// The way to the node that holds a prefix: (node, path taken from it), the node itself last.
    fn trail(&self, prefix: Prefix<A>) -> Option<(Vec<(usize, u32)>, usize)> {
        let mut node = 0;
        let mut trail = Vec::new();
        for level in 0..prefix.length() / STRIDE {
            let path = prefix.address().bits(level * STRIDE, STRIDE);
            let here = &self.nodes[node];
            if !is_set(here.external, path) {
                return None;
            }
            trail.push((node, path));
            node = here.children[rank(here.external, path)] as usize;
        }
        Some((trail, node))
    }

    fn bit_of(prefix: Prefix<A>) -> u32 {
        let length = prefix.length() % STRIDE;
        let start = prefix.length() - length;
        internal_bit(
            if length == 0 {
                0
            } else {
                prefix.address().bits(start, length)
            },
            length,
        )
    }
}

impl<A: Address> Lpm<A> for TreeBitmap<A> {
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        let index = self.reach(prefix);
        let bit = Self::bit_of(prefix);
        let node = &mut self.nodes[index];
        let position = rank(node.internal, bit);
        if is_set(node.internal, bit) {
            return Some(std::mem::replace(&mut node.values[position], value));
        }
        node.internal |= 1 << bit;
        node.values.insert(position, value);
        self.len += 1;
        None
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let (mut trail, index) = self.trail(prefix)?;
        let bit = Self::bit_of(prefix);
        let node = &mut self.nodes[index];
        if !is_set(node.internal, bit) {
            return None;
        }
        node.internal &= !(1 << bit);
        let value = node.values.remove(rank(node.internal, bit));
        self.len -= 1;
        let mut child = index;
        while self.nodes[child].is_empty()
            && let Some((parent, path)) = trail.pop()
        {
            self.nodes[child] = Node::default();
            self.free.push(child as u32);
            let parent_node = &mut self.nodes[parent];
            parent_node.external &= !(1 << path);
            parent_node
                .children
                .remove(rank(parent_node.external, path));
            child = parent;
        }
        Some(value)
    }

    #[inline]
    fn lookup(&self, address: A) -> Option<u32> {
        let mut node = &self.nodes[0];
        let mut best = None;
        let mut start = 0;
        loop {
            let path = address.bits(start, STRIDE);
            let matches = node.internal & ANCESTORS[path as usize];
            if matches != 0 {
                best = Some((node, 63 - matches.leading_zeros()));
            }
            if !is_set(node.external, path) || start >= A::BITS {
                break;
            }
            node = &self.nodes[node.children[rank(node.external, path)] as usize];
            start += STRIDE;
        }
        best.map(|(node, bit)| node.values[rank(node.internal, bit)])
    }

    fn len(&self) -> usize {
        self.len
    }
}
