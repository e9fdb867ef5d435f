// SPDX-License-Identifier: Apache-2.0
//! Generates access to metadata fields that only one function reads and writes ([`crate::analysis::field_usage`]). Such
//! a field is stored little-endian in its bytes of the header vector.

use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{InstBuilder, Value};
use sluice_program::FieldSlot;

use crate::codegen::lower::{Lower, chunks};

impl Lower<'_> {
    /// Loads the words of a field that only this function uses, least significant first.
    pub(crate) fn load_own(&mut self, slot: FieldSlot) -> Vec<Value> {
        let own = own_words(slot).map(|(place, bytes, bits)| {
            let mut word: Option<Value> = None;
            for (ty, offset) in chunks(bytes) {
                let part = self.load_wide(ty, self.phv, place + offset);
                word = Some(match word {
                    None => part,
                    Some(word) => {
                        let part = self.shl(part, offset * 8);
                        self.b.ins().bor(word, part)
                    }
                });
            }
            let word = word.expect("a field has bits");
            self.note_bits(word, bits);
            word
        });
        own.collect()
    }

    /// Stores a field that only this function uses.
    pub(crate) fn store_own(&mut self, slot: FieldSlot, words: &[Value]) {
        for ((place, bytes, _), word) in own_words(slot).zip(words) {
            for (ty, offset) in chunks(bytes) {
                let part = self.shr(*word, offset * 8);
                let part = if ty == I64 {
                    part
                } else {
                    self.b.ins().ireduce(ty, part)
                };
                self.store(part, self.phv, place + offset);
            }
        }
    }
}

/// Returns the offset, number of bytes and number of bits of each word of a field, least significant first.
fn own_words(slot: FieldSlot) -> impl Iterator<Item = (u32, u32, u32)> {
    let width = u32::from(slot.width);
    (0..width.div_ceil(64)).map(move |word| {
        let bits = (width - word * 64).min(64);
        (slot.byte + word * 8, bits.div_ceil(8), bits)
    })
}
