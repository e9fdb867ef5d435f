// SPDX-License-Identifier: Apache-2.0
//! Implements an ordered set of records. [`Queue::pop`] returns the newest record first, like
//! `popitem` of a Python dictionary.
//!
//! [`Queue::push`] returns the record's place, which is its position in the queue, counted from 1.
//! The caller stores the place in the record. Place 0 means that the record is not queued. Removing
//! a record from the middle leaves a gap. The caller should close the gaps when there are more gaps
//! than records.

/// Marks a gap in the list of record numbers.
const GAP: u32 = u32::MAX;
/// Number of gaps that are tolerated beyond the number of records.
const FEW: usize = 1024;

/// Record numbers in the order of arrival. The newest is at the end.
#[derive(Debug, Default)]
pub struct Queue {
    items: Vec<u32>,
    gaps: usize,
}

impl Queue {
    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.items.len() - self.gaps
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a record and returns its place. The record must not be in the queue already.
    pub fn push(&mut self, item: u32) -> u32 {
        self.items.push(item);
        self.items.len() as u32
    }

    /// Removes and returns the newest record.
    pub fn pop(&mut self) -> Option<u32> {
        while let Some(item) = self.items.pop() {
            if item != GAP {
                return Some(item);
            }
            self.gaps -= 1;
        }
        None
    }

    /// Removes the record at this place. The caller should then check [`Self::has_many_gaps`].
    pub fn remove(&mut self, place: u32) {
        self.items[place as usize - 1] = GAP;
        self.gaps += 1;
        while self.items.last() == Some(&GAP) {
            self.items.pop();
            self.gaps -= 1;
        }
    }

    /// Returns whether there are so many gaps that they should be closed.
    pub fn has_many_gaps(&self) -> bool {
        self.gaps > FEW + self.len()
    }

    /// Closes all gaps. Calls `moved` with each record and its new place.
    pub fn close_gaps(&mut self, mut moved: impl FnMut(u32, u32)) {
        self.items.retain(|&item| item != GAP);
        self.items.shrink_to(2 * self.items.len());
        self.gaps = 0;
        for (place, &item) in (1..).zip(&self.items) {
            moved(item, place);
        }
    }

    /// Yields (place, record) for all records after a place, the oldest first. To continue later,
    /// pass the last place that was yielded.
    pub fn after(&self, place: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        (place + 1..)
            .zip(self.items.iter().skip(place as usize))
            .filter(|(_, item)| **item != GAP)
            .map(|(place, &item)| (place, item))
    }

    /// Removes and returns all records.
    pub fn clear(&mut self) -> impl Iterator<Item = u32> + use<> {
        self.gaps = 0;
        std::mem::take(&mut self.items)
            .into_iter()
            .filter(|&item| item != GAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_comes_first_and_gaps_are_skipped() {
        let mut queue = Queue::default();
        let places: Vec<u32> = (10..15).map(|item| queue.push(item)).collect();
        queue.remove(places[1]);
        queue.remove(places[4]);
        assert_eq!(queue.len(), 3);
        let order: Vec<u32> = queue.after(0).map(|(_, item)| item).collect();
        assert_eq!(order, [10, 12, 13]);
        assert_eq!(queue.pop(), Some(13));
        assert_eq!(queue.pop(), Some(12));
        assert_eq!(queue.pop(), Some(10));
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
    }

    #[test]
    fn many_gaps_are_closed() {
        let mut queue = Queue::default();
        let places: Vec<u32> = (0..5000).map(|item| queue.push(item)).collect();
        for place in &places[..4000] {
            queue.remove(*place);
        }
        assert!(queue.has_many_gaps());
        let mut told = Vec::new();
        queue.close_gaps(|item, place| told.push((item, place)));
        assert!(!queue.has_many_gaps());
        assert_eq!(told.len(), 1000);
        assert_eq!((told[0], told[999]), ((4000, 1), (4999, 1000)));
        queue.remove(1);
        assert_eq!(queue.clear().count(), 999);
        assert!(queue.is_empty());
    }
}
