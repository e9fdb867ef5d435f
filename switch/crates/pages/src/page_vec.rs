// SPDX-License-Identifier: Apache-2.0
//! Implements a vector of plain items, which uses huge pages when it is large.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::block::{Block, HUGE};

/// Size in bytes from which items are stored in a [`Block`].
const LARGE: usize = HUGE / 2;

/// A vector of plain items.
pub struct PageVec<T: Copy> {
    /// Address of the first item. Invariant: the first `len` items are initialised, and the memory has room for
    /// `capacity` items.
    start: NonNull<T>,
    len: usize,
    capacity: usize,
    /// Memory of the items. If it is `None`, `start`, `len` and `capacity` are the parts of a `Vec`.
    block: Option<Block>,
}

// SAFETY: the vector owns its memory exclusively.
unsafe impl<T: Copy + Send> Send for PageVec<T> {}
// SAFETY: as for `Send`. The memory is written through exclusive borrows only.
unsafe impl<T: Copy + Sync> Sync for PageVec<T> {}

impl<T: Copy> PageVec<T> {
    /// Creates an empty vector, without memory.
    pub const fn new() -> Self {
        assert!(align_of::<T>() <= HUGE && size_of::<T>() > 0);
        Self {
            start: NonNull::dangling(),
            len: 0,
            capacity: 0,
            block: None,
        }
    }

    /// Returns the number of items that fit without more memory.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Allocates memory for at least `capacity` items, and not many more.
    pub fn reserve(&mut self, capacity: usize) {
        if capacity <= self.capacity {
            return;
        }
        let bytes = capacity * size_of::<T>();
        if self.block.is_none() && bytes < LARGE {
            let mut items = self.take();
            items.reserve_exact(capacity - items.len());
            *self = items.into();
        } else {
            self.move_to(bytes);
        }
    }

    /// Moves the items to a `Vec`, and leaves `self` empty. If the items are in a block, does nothing and returns an
    /// empty `Vec`.
    fn take(&mut self) -> Vec<T> {
        if self.block.is_some() {
            return Vec::new();
        }
        let (start, len, capacity) = (self.start, self.len, self.capacity);
        (self.start, self.len, self.capacity) = (NonNull::dangling(), 0, 0);
        // SAFETY: without a block, these are the parts of a `Vec`, and `self` no longer refers to them.
        unsafe { Vec::from_raw_parts(start.as_ptr(), len, capacity) }
    }

    /// Moves all items to a block of `bytes` bytes. The block must be large enough for all items.
    fn move_to(&mut self, bytes: usize) {
        let block = Block::new(rounded(bytes));
        let start = block.start().cast();
        let (len, capacity) = (self.len, block.bytes() / size_of::<T>());
        // SAFETY: the block is new, aligned for items, and large enough for all items.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), start.as_ptr(), len) };
        let block = Some(block);
        *self = Self {
            start,
            len,
            capacity,
            block,
        };
    }

    /// Changes the number of items to `new`. Each added item is a copy of `item`.
    pub fn resize(&mut self, new: usize, item: T) {
        self.reserve(new);
        for index in self.len..new {
            // SAFETY: `reserve` has allocated memory for `new` items.
            unsafe { self.start.add(index).write(item) };
        }
        self.len = new;
    }

    /// Frees unused memory, unless the unused part is small.
    pub fn shrink(&mut self) {
        let bytes = self.len * size_of::<T>();
        match &self.block {
            None => {
                let mut items = self.take();
                items.shrink_to_fit();
                *self = items.into();
            }
            Some(_) if bytes < LARGE => *self = self.to_vec().into(),
            Some(block) if block.bytes() > Block::size_for(rounded(bytes)) => self.move_to(bytes),
            Some(_) => {}
        }
    }

    /// Returns the size of the memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let heap = self.capacity * size_of::<T>();
        self.block.as_ref().map_or(heap, Block::bytes)
    }
}

impl<T: Copy> From<Vec<T>> for PageVec<T> {
    fn from(items: Vec<T>) -> Self {
        let mut items = ManuallyDrop::new(items);
        Self {
            start: NonNull::new(items.as_mut_ptr()).unwrap_or(NonNull::dangling()),
            len: items.len(),
            capacity: items.capacity(),
            block: None,
        }
    }
}

impl<T: Copy> Drop for PageVec<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Rounds a size in bytes up to whole huge pages, if this adds only a small part of the size.
fn rounded(bytes: usize) -> usize {
    let whole = bytes.next_multiple_of(HUGE);
    if whole == HUGE || whole - bytes <= bytes / 16 {
        whole
    } else {
        bytes
    }
}

impl<T: Copy> Default for PageVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Deref for PageVec<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` items are initialised, and they are borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for PageVec<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`. The borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> Clone for PageVec<T> {
    fn clone(&self) -> Self {
        let mut items = Self::new();
        if let Some(first) = self.first() {
            items.resize(self.len, *first);
            items.copy_from_slice(self);
        }
        items
    }
}

impl<T: Copy + fmt::Debug> fmt::Debug for PageVec<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that a [`PageVec`] has the same items as a `Vec` while both grow and shrink, from normal memory to huge
    /// pages and back.
    #[test]
    fn items_are_what_a_vector_would_have() {
        let (mut items, mut vector) = (PageVec::new(), Vec::new());
        let few = LARGE / size_of::<[u64; 8]>();
        let sizes = [
            0,
            1,
            few - 1,
            few,
            3 * few,
            4 * few + 7,
            9 * few,
            few,
            5,
            2 * few,
        ];
        for (step, size) in sizes.into_iter().enumerate() {
            items.resize(size, [step as u64; 8]);
            vector.resize(size, [step as u64; 8]);
            assert_eq!(items[..], vector);
            assert!(items.capacity() >= size && items.memory_bytes() >= size * 64);
            if let Some(item) = items.get_mut(size / 2) {
                item[0] = 77;
                vector[size / 2][0] = 77;
            }
            assert_eq!(items.clone()[..], vector);
            items.shrink();
            assert_eq!(items[..], vector);
            let most = if size < few {
                size * 64
            } else {
                (size * 64).max(HUGE) * 17 / 16 + 8192
            };
            assert!(
                items.memory_bytes() <= most,
                "{} for {size}",
                items.memory_bytes()
            );
        }
    }

    #[test]
    fn memory_is_allocated_once() {
        let mut items = PageVec::new();
        items.reserve(LARGE / 4);
        items.resize(1, 5u32);
        let start = items.as_ptr();
        items.resize(LARGE / 4, 6);
        assert_eq!(items.as_ptr(), start);
        assert_eq!((items[0], items[LARGE / 4 - 1]), (5, 6));
    }
}
