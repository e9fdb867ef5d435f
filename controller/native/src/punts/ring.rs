// SPDX-License-Identifier: Apache-2.0
//! Serves several queues round robin, and finds the longest queue.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Queues with keys. Invariant: no queue is empty.
#[derive(Debug)]
pub(super) struct Ring<K, Q> {
    members: HashMap<K, RingQueue<Q>>,
    /// The keys in the order in which their queues are served.
    turns: BTreeMap<u64, K>,
    /// The keys ordered by the queue's length, then by the queue's number. So the last key is that of the
    /// longest queue, and among equally long queues that of the youngest.
    lengths: BTreeMap<(usize, u64), K>,
    /// Next number, for a turn or for a new queue.
    next: u64,
}

#[derive(Debug)]
struct RingQueue<Q> {
    queue: Q,
    /// Number of packets in the queue.
    length: usize,
    turn: u64,
    /// Number of the queue. Queues are numbered in the order of creation.
    number: u64,
}

impl<K, Q> Default for Ring<K, Q> {
    fn default() -> Self {
        Self {
            members: HashMap::new(),
            turns: BTreeMap::new(),
            lengths: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<K: Clone + Eq + Hash, Q: Default> Ring<K, Q> {
    /// Adds a packet to the queue of `key`: calls `put` with the queue. Creates the queue if necessary.
    pub(super) fn put(&mut self, key: K, put: impl FnOnce(&mut Q)) {
        if let Some(member) = self.members.get_mut(&key) {
            put(&mut member.queue);
            self.lengths.remove(&(member.length, member.number));
            member.length += 1;
            self.lengths.insert((member.length, member.number), key);
            return;
        }
        let number = self.next;
        self.next += 1;
        let mut queue = Q::default();
        put(&mut queue);
        self.turns.insert(number, key.clone());
        self.lengths.insert((1, number), key.clone());
        let member = RingQueue {
            queue,
            length: 1,
            turn: number,
            number,
        };
        self.members.insert(key, member);
    }

    /// Removes a packet from the queue whose turn it is: calls `take` with this queue. Its next turn comes after
    /// all other queues.
    pub(super) fn take<T>(&mut self, take: impl FnOnce(&mut Q) -> Option<T>) -> Option<T> {
        let (_, key) = self.turns.pop_first()?;
        let turn = self.next;
        self.next += 1;
        self.turns.insert(turn, key.clone());
        if let Some(member) = self.members.get_mut(&key) {
            member.turn = turn;
        }
        self.remove(&key, take)
    }

    /// Removes a packet from the queue of `key`: calls `take` with this queue. The order of the turns stays the
    /// same.
    pub(super) fn remove<T>(
        &mut self,
        key: &K,
        take: impl FnOnce(&mut Q) -> Option<T>,
    ) -> Option<T> {
        let member = self.members.get_mut(key)?;
        let taken = take(&mut member.queue);
        self.lengths.remove(&(member.length, member.number));
        member.length = member.length.saturating_sub(1);
        if member.length == 0 {
            self.turns.remove(&member.turn);
            self.members.remove(key);
        } else {
            self.lengths
                .insert((member.length, member.number), key.clone());
        }
        taken
    }

    /// Returns the key and the length of the longest queue. Of several longest queues, returns the youngest.
    pub(super) fn longest(&self) -> Option<(&K, usize)> {
        let ((length, _), key) = self.lengths.last_key_value()?;
        Some((key, *length))
    }

    /// Returns the length of a queue; 0 if there is none.
    pub(super) fn length(&self, key: &K) -> usize {
        self.members.get(key).map_or(0, |member| member.length)
    }

    /// Returns a queue.
    pub(super) fn get(&self, key: &K) -> Option<&Q> {
        self.members.get(key).map(|member| &member.queue)
    }
}
