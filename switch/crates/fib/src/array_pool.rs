// SPDX-License-Identifier: Apache-2.0
//! An arena of small arrays that grow and shrink. All arrays are in one vector, with a free list for each size. An
//! array is identified by the index of its first item. The array's owner knows its length.

use sluice_pages::PageVec;

/// Size classes. An array of some length takes the smallest class that is large enough, which is at most a third
/// larger.
const SIZES: [usize; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// An arena with at least this number of items grows by an eighth. A smaller arena doubles.
const LARGE: usize = 1 << 16;

/// Length of the largest array.
pub(crate) const LARGEST: usize = SIZES[SIZES.len() - 1];

/// The arena; see the module.
#[derive(Clone, Debug)]
pub(crate) struct ArrayPool<T: Copy> {
    items: PageVec<T>,
    free: [Vec<u32>; SIZES.len()],
}

/// Returns the size class for `len` items, for `len` from 1 to [`LARGEST`].
#[inline]
fn class(len: usize) -> usize {
    debug_assert!((1..=LARGEST).contains(&len));
    if len <= 4 {
        return len - 1;
    }
    // There are two sizes for each power of two: 1.5 times and 2 times this power.
    let power = (len - 1).ilog2() as usize;
    let upper = usize::from(len > 3 << (power - 1));
    2 * power + upper
}

impl<T: Copy + Default> ArrayPool<T> {
    pub(crate) fn new() -> Self {
        Self {
            items: PageVec::new(),
            free: Default::default(),
        }
    }

    /// Allocates an array with unspecified items. Returns `u32::MAX` for a length of 0.
    pub(crate) fn allocate(&mut self, len: usize) -> u32 {
        if len == 0 {
            return u32::MAX;
        }
        let class = class(len);
        if let Some(at) = self.free[class].pop() {
            return at;
        }
        let at = self.items.len();
        self.grow(at + SIZES[class]);
        u32::try_from(at).expect("a pool has fewer than 2^32 items")
    }

    /// Grows the arena to `len` items.
    fn grow(&mut self, len: usize) {
        if len > self.items.capacity() {
            // A large arena moves often rather than keep much unused capacity.
            let more = if len < LARGE { len } else { len / 8 };
            self.items.reserve(len + more);
        }
        self.items.resize(len, T::default());
    }

    /// Frees an array of `len` items.
    pub(crate) fn release(&mut self, at: u32, len: usize) {
        if len > 0 {
            self.free[class(len)].push(at);
        }
    }

    #[inline]
    pub(crate) fn get(&self, at: u32, index: usize) -> &T {
        &self.items[at as usize + index]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u32, index: usize) -> &mut T {
        &mut self.items[at as usize + index]
    }

    /// Returns the items of an array.
    #[inline]
    #[cfg(test)]
    pub(crate) fn slice(&self, at: u32, len: usize) -> &[T] {
        if len == 0 {
            return &[];
        }
        &self.items[at as usize..at as usize + len]
    }

    /// Inserts an item into an array of `len` items. Returns the array's index, which may have changed.
    pub(crate) fn insert(&mut self, at: u32, len: usize, index: usize, item: T) -> u32 {
        let to = if len > 0 && class(len) == class(len + 1) {
            let (from, end) = (at as usize + index, at as usize + len);
            self.items.copy_within(from..end, from + 1);
            at
        } else {
            let to = self.allocate(len + 1);
            if len > 0 {
                let (from, place) = (at as usize, to as usize);
                self.items.copy_within(from..from + index, place);
                self.items
                    .copy_within(from + index..from + len, place + index + 1);
            }
            self.release(at, len);
            to
        };
        self.items[to as usize + index] = item;
        to
    }

    /// Removes an item from an array of `len` items. Returns the item and the array's index, which may have changed.
    pub(crate) fn remove(&mut self, at: u32, len: usize, index: usize) -> (T, u32) {
        let from = at as usize;
        let item = self.items[from + index];
        let to = if len > 1 && class(len) == class(len - 1) {
            at
        } else {
            self.allocate(len - 1)
        };
        if len > 1 {
            let place = to as usize;
            if place != from {
                self.items.copy_within(from..from + index, place);
            }
            self.items
                .copy_within(from + index + 1..from + len, place + index);
        }
        if to != at {
            self.release(at, len);
        }
        (item, to)
    }

    /// Returns the number of allocated bytes, including free arrays.
    pub(crate) fn memory_bytes(&self) -> usize {
        let free: usize = self.free.iter().map(|list| list.capacity() * 4).sum();
        self.items.memory_bytes() + free
    }

    /// Releases unused capacity.
    pub(crate) fn shrink(&mut self) {
        self.items.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_the_smallest_size_that_fits() {
        for len in 1..=LARGEST {
            let smallest = SIZES.iter().position(|size| *size >= len);
            assert_eq!(Some(class(len)), smallest, "{len}");
        }
    }

    #[test]
    fn an_array_is_what_a_vector_would_be() {
        let mut pool = ArrayPool::new();
        let mut arrays = vec![(u32::MAX, Vec::new()); 3];
        for step in 0..600usize {
            let (at, vector) = &mut arrays[step % 3];
            let index = step * 7 % (vector.len() + 1);
            if step % 5 == 4 && index < vector.len() {
                let (item, to) = pool.remove(*at, vector.len(), index);
                assert_eq!(item, vector.remove(index));
                *at = to;
            } else {
                *at = pool.insert(*at, vector.len(), index, step);
                vector.insert(index, step);
            }
            for (at, vector) in &arrays {
                assert_eq!(pool.slice(*at, vector.len()), vector);
            }
        }
        let (at, vector) = &mut arrays[0];
        while !vector.is_empty() {
            let (item, to) = pool.remove(*at, vector.len(), 0);
            assert_eq!(item, vector.remove(0));
            *at = to;
        }
    }
}
