// SPDX-License-Identifier: Apache-2.0
//! Lookup in a table with few keys of at most eight bytes. The keys are compared one by one, which takes far fewer
//! instructions than a hash table. An example is the table of a router's own addresses, in which every packet is looked
//! up.

/// Maximum number of keys.
const MAX_KEYS: usize = 4;

/// Keys with their slots; see the module.
#[derive(Debug, Default)]
pub(super) struct FewKeys {
    keys: [u64; MAX_KEYS],
    slots: [u32; MAX_KEYS],
    count: usize,
    /// Whether there are too many keys, or keys that are too long. If so, this structure is empty and lookups use the
    /// hash table.
    too_many: bool,
}

impl FewKeys {
    /// Creates an empty structure for keys of `key_bytes` bytes.
    pub(super) fn new(key_bytes: usize) -> Self {
        Self {
            too_many: key_bytes > size_of::<u64>(),
            ..Self::default()
        }
    }

    /// Returns the slot of a key, or `None` if the table does not have the key.
    ///
    /// # Errors
    /// `TooMany` if keys are not kept here.
    #[inline(always)]
    pub(super) fn lookup(&self, key: u64) -> Result<Option<u32>, TooMany> {
        if self.too_many {
            return Err(TooMany);
        }
        let mut keys = self.keys.iter().zip(&self.slots).take(self.count);
        let found = keys.find(|(known, _)| **known == key);
        Ok(found.map(|(_, slot)| *slot))
    }

    /// Adds a key, or replaces its slot.
    pub(super) fn insert(&mut self, key: &[u8], slot: u32) {
        if self.too_many {
            return;
        }
        let key = word(key);
        let at = self.index_of(key).unwrap_or(self.count);
        if at == MAX_KEYS {
            self.too_many = true;
            return;
        }
        (self.keys[at], self.slots[at]) = (key, slot);
        self.count = self.count.max(at + 1);
    }

    /// Removes a key. `left` is the number of keys that remain in the table.
    pub(super) fn remove(&mut self, key: &[u8], left: usize) {
        if left == 0 {
            *self = Self::new(key.len());
        } else if !self.too_many
            && let Some(at) = self.index_of(word(key))
        {
            self.count -= 1;
            self.keys[at] = self.keys[self.count];
            self.slots[at] = self.slots[self.count];
        }
    }

    fn index_of(&self, key: u64) -> Option<usize> {
        self.keys[..self.count]
            .iter()
            .position(|known| *known == key)
    }
}

/// Error: this structure does not hold the keys, because they are too many or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// Returns a key of at most eight bytes as a word: its bytes in memory order, followed by zeros.
fn word(key: &[u8]) -> u64 {
    let mut word = [0; size_of::<u64>()];
    word[..key.len()].copy_from_slice(key);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn few_keys_are_found_and_many_are_not_kept() {
        let mut few = FewKeys::new(6);
        let mut model = BTreeMap::new();
        let mut kept = true;
        let mut random = 1u32;
        let mut seen = [0; 2];
        for slot in 0..10_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = [0, 0, 0, 7, 0, (random >> 24) as u8 % 6];
            if random >> 16 & 7 < 3 {
                few.insert(&key, slot);
                model.insert(key, slot);
                kept &= model.len() <= MAX_KEYS;
            } else if model.remove(&key).is_some() {
                few.remove(&key, model.len());
                kept |= model.is_empty();
            }
            seen[usize::from(kept)] += 1;
            for last in 0..7 {
                let key = [0, 0, 0, 7, 0, last];
                let wanted = model.get(&key).copied();
                let found = few.lookup(word(&key));
                assert_eq!(found, if kept { Ok(wanted) } else { Err(TooMany) });
            }
        }
        assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
    }

    #[test]
    fn long_keys_are_not_kept() {
        let mut few = FewKeys::new(9);
        few.insert(&[1; 9], 3);
        assert_eq!(few.lookup(0x0101_0101_0101_0101), Err(TooMany));
        few.remove(&[1; 9], 0);
        assert_eq!(few.lookup(0), Err(TooMany));
    }
}
