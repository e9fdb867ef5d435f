// SPDX-License-Identifier: Apache-2.0
//! Generates code that builds lookup keys in memory, in the form that tables compare: fields one after the other, each
//! in whole bytes.
//!
//! A lookup loads its key in 64-bit words. So the code assembles the key in words and stores whole words. If it made
//! narrower stores, the CPU could not forward them to the wide load, and the load would wait until the stores are in
//! the cache.

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};

use crate::codegen::lower::Lower;
use crate::codegen::number::Words;

/// A field of a key: the offset of its first byte, its length in bytes, and its value.
#[derive(Clone, Debug)]
pub(crate) struct KeyField {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) value: Words,
}

impl Lower<'_> {
    /// Returns the key as big-endian words. The last word is padded with zeros.
    pub(crate) fn key_words(&mut self, fields: &[KeyField], bytes: usize) -> Vec<Value> {
        let mut words: Vec<Option<Value>> = vec![None; bytes.div_ceil(8)];
        for field in fields {
            let end = field.offset + field.bytes;
            for (index, value) in field.value.iter().enumerate() {
                let last = end - index * 8;
                let first = last.saturating_sub(8).max(field.offset);
                self.place(&mut words, first, last, *value);
            }
        }
        words
            .into_iter()
            .map(|word| word.unwrap_or_else(|| self.int(0)))
            .collect()
    }

    /// Merges a number into the words of the key. The number takes the bytes `first..last`, at most 8.
    fn place(&mut self, words: &mut [Option<Value>], first: usize, last: usize, value: Value) {
        let (high, low) = (first / 8, (last - 1) / 8);
        for (word, place) in words.iter_mut().enumerate().take(low + 1).skip(high) {
            let end = (word + 1) * 8;
            let part = if last > end {
                self.shr(value, (last - end) as u32 * 8)
            } else {
                self.shl(value, (end - last) as u32 * 8)
            };
            *place = Some(match *place {
                Some(before) => self.b.ins().bor(before, part),
                None => part,
            });
        }
    }

    /// Stores the key on the stack and returns its address.
    pub(crate) fn key_in_memory(&mut self, fields: &[KeyField], bytes: usize) -> Value {
        let words = self.key_words(fields, bytes);
        let place = self.stack(words.len() * 8);
        for (index, word) in words.into_iter().enumerate() {
            let raw = self.b.ins().bswap(word);
            debug_assert_eq!(self.b.func.dfg.value_type(raw), I64);
            self.store(raw, place, index as u32 * 8);
        }
        place
    }
}
