// SPDX-License-Identifier: Apache-2.0
//! Map from ids that the control plane chooses to values. Small ids are array indices, larger ids are hashed.

use hashbrown::HashMap;

/// Smallest id that is hashed. Smaller ids are array indices.
pub(crate) const SMALL: u32 = 1 << 16;

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
        if id < SMALL {
            self.small.get(id as usize)?.as_ref()
        } else {
            self.large.get(&id)
        }
    }

    /// Sets the value of an id. `None` removes the value.
    pub(crate) fn set(&mut self, id: u32, thing: Option<T>) {
        let at = id as usize;
        match thing {
            Some(thing) if id < SMALL => {
                if self.small.len() <= at {
                    self.small.resize_with(at + 1, || None);
                }
                self.small[at] = Some(thing);
            }
            Some(thing) => {
                self.large.insert(id, thing);
            }
            None if id < SMALL => {
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
        let mut things = ById::default();
        let ids = [0, 1, 700, SMALL - 1, SMALL, u32::MAX];
        for id in ids {
            assert_eq!(things.get(id), None);
            things.set(id, Some(id));
        }
        for id in ids {
            assert_eq!(things.get(id), Some(&id));
            things.set(id, Some(5));
            assert_eq!(things.get(id), Some(&5));
            things.set(id, None);
            assert_eq!(things.get(id), None);
            things.set(id, None);
        }
    }
}
