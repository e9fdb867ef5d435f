// SPDX-License-Identifier: Apache-2.0
//! Turns an input into a series of decisions. Any bytes are valid, and equal bytes give equal decisions.

/// Decisions read from bytes. When no bytes are left, every further decision is for the first alternative.
#[derive(Clone, Debug)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Starts to read decisions from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    /// Returns the next two bytes as a number.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Returns the next four bytes as a number.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// Returns a number below `limit`. Returns 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let number = match limit {
            0 | 1 => return 0,
            2..=0x100 => usize::from(self.byte()),
            0x101..=0x1_0000 => usize::from(self.u16()),
            _ => self.u32() as usize,
        };
        number % limit
    }

    /// Returns true once in `n` times. Returns false when no bytes are left.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 1 || n < 2
    }

    /// Returns one of the elements; there must be at least one.
    pub fn pick<'b, T>(&mut self, from: &'b [T]) -> &'b T {
        &from[self.below(from.len())]
    }

    /// Returns the next `count` bytes. Pads them with zeros if fewer bytes are left.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        let mut bytes = taken.to_vec();
        bytes.resize(count, 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_up_bytes_choose_the_first_alternative() {
        let mut choices = Choices::new(&[7]);
        assert_eq!(choices.below(5), 2);
        assert!(choices.is_empty());
        assert_eq!(choices.below(1000), 0);
        assert!(!choices.one_in(2));
        assert_eq!(choices.bytes(3), [0, 0, 0]);
        assert_eq!(choices.pick(&["a", "b"]), &"a");
    }
}
