// SPDX-License-Identifier: Apache-2.0
//! Maps ids to values. The control plane chooses the ids. Small ids are array indices, larger ids are hashed.

use hashbrown::HashMap;

/// Smallest id that is hashed. Smaller ids are array indices.
pub(crate) const SMALL_ID_LIMIT: u32 = 1 << 16;

#[derive(Debug)]
pub(crate) struct ById<T> {
    small: Vec<Option<T>>,
    large: HashMap<u32, T>,
}

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self {
            small: Vec::new(),
            large: HashMap::new(),
        }
    }
}

impl<T> ById<T> {
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        if id < SMALL_ID_LIMIT {
            self.small.get(id as usize)?.as_ref()
        } else {
            self.large.get(&id)
        }
    }

    /// Sets the value of an id. `None` removes the value.
    pub(crate) fn set(&mut self, id: u32, value: Option<T>) {
        let at = id as usize;
        match value {
            Some(value) if id < SMALL_ID_LIMIT => {
                if self.small.len() <= at {
                    self.small.resize_with(at + 1, || None);
                }
                self.small[at] = Some(value);
            }
            Some(value) => {
                self.large.insert(id, value);
            }
            None if id < SMALL_ID_LIMIT => {
                if let Some(place) = self.small.get_mut(at) {
                    *place = None;
                }
            }
            None => {
                self.large.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_ids_are_alike() {
        let mut map = ById::default();
        let ids = [0, 1, 700, SMALL_ID_LIMIT - 1, SMALL_ID_LIMIT, u32::MAX];
        for id in ids {
            assert_eq!(map.get(id), None);
            map.set(id, Some(id));
        }
        for id in ids {
            assert_eq!(map.get(id), Some(&id));
            map.set(id, Some(5));
            assert_eq!(map.get(id), Some(&5));
            map.set(id, None);
            assert_eq!(map.get(id), None);
            map.set(id, None);
        }
    }
}
