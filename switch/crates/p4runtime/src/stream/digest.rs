// SPDX-License-Identifier: Apache-2.0
//! Buffers digests, removes duplicates, and handles acknowledgements (P4Runtime specification, "DigestEntry").
//!
//! [`DigestConfigs`] holds the settings that clients write and read. [`DigestBuffers`] is a state machine without I/O:
//! it takes messages, acknowledgements and the time, and returns the lists to send. Its memory is bounded. A full
//! buffer is sent at once. When there are too many unacknowledged lists, it forgets the oldest one.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::entity::Operation;
use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::digest_entry::Config;
use crate::proto::v1::{DigestEntry, P4Data, P4StructLike, p4_data};
use crate::schema::DigestSchema;
use crate::schema::names;

/// Largest number of messages in a list, if the client sets no limit.
const MAX_LIST: usize = 1024;

/// Largest number of unacknowledged lists that are remembered.
const MAX_UNACKNOWLEDGED: usize = 1024;

/// The enabled digests, with their settings.
#[derive(Debug, Default)]
pub struct DigestConfigs(Mutex<BTreeMap<u32, Config>>);

impl DigestConfigs {
    /// Checks the form of an update.
    pub fn check(operation: Operation, entry: &DigestEntry) -> UpdateResult {
        let Some(config) = &entry.config else {
            return match operation {
                Operation::Delete => Ok(()),
                _ => Err(UpdateError::invalid(
                    "the field `config` of the digest entry is not set",
                )),
            };
        };
        if config.max_timeout_ns < 0 || config.max_list_size < 0 || config.ack_timeout_ns < 0 {
            return Err(UpdateError::invalid("a setting of the digest is negative"));
        }
        Ok(())
    }

    /// Applies an update that [`Self::admit`] has checked.
    pub fn apply(&self, operation: Operation, entry: &DigestEntry) {
        let mut configs = self.0.lock();
        match (operation, entry.config) {
            (Operation::Delete, _) => drop(configs.remove(&entry.digest_id)),
            (_, Some(config)) => drop(configs.insert(entry.digest_id, config)),
            (_, None) => {}
        }
    }

    /// Checks an update against the digests that will be enabled after the updates in `pending`.
    pub fn admit(
        &self,
        pending: &[(Operation, DigestEntry)],
        operation: Operation,
        id: u32,
    ) -> UpdateResult {
        let last = pending
            .iter()
            .rev()
            .find(|(_, entry)| entry.digest_id == id);
        let enabled = match last {
            Some((operation, _)) => *operation != Operation::Delete,
            None => self.get(id).is_some(),
        };
        match (operation, enabled) {
            (Operation::Insert, true) => Err(UpdateError {
                code: tonic::Code::AlreadyExists,
                message: "the digest is enabled already".into(),
            }),
            (Operation::Modify | Operation::Delete, false) => {
                Err(UpdateError::not_found("the digest is not enabled"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the settings of a digest, if it is enabled.
    pub fn get(&self, id: u32) -> Option<Config> {
        self.0.lock().get(&id).copied()
    }

    /// Returns all enabled digests with their settings.
    pub fn all(&self) -> Vec<(u32, Config)> {
        self.0
            .lock()
            .iter()
            .map(|(id, config)| (*id, *config))
            .collect()
    }
}

/// A digest list to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List {
    /// P4Info id of the digest.
    pub digest: u32,
    /// The list's id. The client's acknowledgement contains it.
    pub list: u64,
    /// The messages, without duplicates.
    pub messages: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Buffer {
    messages: Vec<Vec<u8>>,
    /// Time at which the buffered messages must be sent.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Unacknowledged {
    digest: u32,
    list: u64,
    messages: Vec<Vec<u8>>,
    expires: Instant,
}

/// Messages that wait to be sent, and lists that were sent and are not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct DigestBuffers {
    buffers: BTreeMap<u32, Buffer>,
    /// Sent lists without an acknowledgement, in the order of sending.
    unacknowledged: VecDeque<Unacknowledged>,
    /// All messages that are buffered or unacknowledged. A new message that equals one of them is a duplicate.
    known: HashSet<(u32, Vec<u8>)>,
    next_list: u64,
}

impl DigestBuffers {
    /// Buffers a message from the data plane. Returns a list when the buffer is full.
    pub(crate) fn message(
        &mut self,
        now: Instant,
        digest: u32,
        config: &Config,
        message: Vec<u8>,
    ) -> Option<List> {
        if !self.known.insert((digest, message.clone())) {
            return None;
        }
        let buffer = self.buffers.entry(digest).or_default();
        buffer.messages.push(message);
        if buffer.due.is_none() {
            buffer.due = Some(now + nanoseconds(config.max_timeout_ns));
        }
        let limit = match config.max_list_size {
            0 => MAX_LIST,
            size => (size as usize).min(MAX_LIST),
        };
        let full = buffer.messages.len() >= limit || config.max_timeout_ns == 0;
        if full {
            self.flush(now, digest, config)
        } else {
            None
        }
    }

    /// Empties a buffer into a list.
    fn flush(&mut self, now: Instant, digest: u32, config: &Config) -> Option<List> {
        let buffer = self.buffers.remove(&digest)?;
        self.next_list += 1;
        let list = List {
            digest,
            list: self.next_list,
            messages: buffer.messages,
        };
        if config.ack_timeout_ns == 0 {
            self.forget(digest, &list.messages);
            return Some(list);
        }
        if self.unacknowledged.len() >= MAX_UNACKNOWLEDGED
            && let Some(oldest) = self.unacknowledged.pop_front()
        {
            self.forget(oldest.digest, &oldest.messages);
        }
        self.unacknowledged.push_back(Unacknowledged {
            digest,
            list: list.list,
            messages: list.messages.clone(),
            expires: now + nanoseconds(config.ack_timeout_ns),
        });
        Some(list)
    }

    /// Handles an acknowledgement. From now on, messages equal to those of the list are sent again.
    pub(crate) fn acknowledge(&mut self, digest: u32, list: u64) {
        let position = self
            .unacknowledged
            .iter()
            .position(|sent| sent.digest == digest && sent.list == list);
        if let Some(sent) = position.and_then(|position| self.unacknowledged.remove(position)) {
            self.forget(sent.digest, &sent.messages);
        }
    }

    /// Returns the lists that are due. `config` returns the settings of a digest, if it is still enabled.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        config: impl Fn(u32) -> Option<Config>,
    ) -> Vec<List> {
        let expired = self
            .unacknowledged
            .iter()
            .filter(|sent| sent.expires <= now);
        let expired: Vec<_> = expired.map(|sent| (sent.digest, sent.list)).collect();
        for (digest, list) in expired {
            self.acknowledge(digest, list);
        }
        let due = self
            .buffers
            .iter()
            .filter(|(_, buffer)| buffer.due.is_some_and(|due| due <= now));
        let due: Vec<_> = due.map(|(digest, _)| *digest).collect();
        let mut lists = Vec::new();
        for digest in due {
            match config(digest) {
                Some(config) => lists.extend(self.flush(now, digest, &config)),
                None => self.discard(digest),
            }
        }
        lists
    }

    /// Returns the time at which the caller must next call [`Self::tick`]: when a list becomes due, or an
    /// acknowledgement becomes overdue.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let due = self.buffers.values().filter_map(|buffer| buffer.due);
        due.chain(self.unacknowledged.iter().map(|sent| sent.expires))
            .min()
    }

    fn discard(&mut self, digest: u32) {
        if let Some(buffer) = self.buffers.remove(&digest) {
            self.forget(digest, &buffer.messages);
        }
    }

    fn forget(&mut self, digest: u32, messages: &[Vec<u8>]) {
        for message in messages {
            self.known.remove(&(digest, message.clone()));
        }
    }
}

fn nanoseconds(value: i64) -> Duration {
    // Stands for "never". A century is too short to overflow an `Instant`.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    Duration::from_nanos(u64::try_from(value).unwrap_or(0)).min(LONGEST)
}

/// Converts a message to P4Runtime data of the digest's type. The message holds its fields one after the other, each
/// in whole bytes.
pub(crate) fn decode_message(schema: &DigestSchema, mut fields: &[u8]) -> Option<P4Data> {
    let mut members = Vec::with_capacity(schema.members.len());
    for (width, names) in &schema.members {
        let (value, rest) = fields.split_at_checked(width.div_ceil(8))?;
        fields = rest;
        let data = p4_data::Data::Bitstring(names::encode(names.as_ref(), value));
        members.push(P4Data { data: Some(data) });
    }
    if !schema.is_struct && members.len() == 1 {
        return members.pop();
    }
    Some(P4Data {
        data: Some(p4_data::Data::Struct(P4StructLike { members })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(max_timeout_ns: i64, max_list_size: i32, ack_timeout_ns: i64) -> Config {
        Config {
            max_timeout_ns,
            max_list_size,
            ack_timeout_ns,
        }
    }

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_list_is_sent_when_it_is_full_and_holds_no_message_twice() {
        let mut buffers = DigestBuffers::default();
        let (now, config) = (Instant::now(), config(SECOND, 2, 0));
        let mut message = |byte| buffers.message(now, 1, &config, vec![byte]);
        assert_eq!(message(1), None);
        assert_eq!(message(1), None);
        let list = message(2).unwrap();
        assert_eq!(list.messages, [[1], [2]]);
        assert_eq!(message(1), None, "the buffer is new");
    }

    #[test]
    fn a_list_is_sent_when_its_first_message_is_old() {
        let mut buffers = DigestBuffers::default();
        let (now, config) = (Instant::now(), config(SECOND, 10, 0));
        buffers.message(now, 1, &config, vec![1]);
        let due = now + Duration::from_secs(1);
        assert_eq!(buffers.deadline(), Some(due));
        assert_eq!(buffers.tick(now, |_| Some(config)), []);
        assert_eq!(buffers.tick(due, |_| Some(config)).len(), 1);
        assert_eq!(buffers.deadline(), None);
    }

    #[test]
    fn what_is_not_acknowledged_is_not_sent_again_until_the_timeout() {
        let mut buffers = DigestBuffers::default();
        let (now, config) = (Instant::now(), config(0, 1, SECOND));
        let first = buffers.message(now, 1, &config, vec![1]).unwrap();
        assert_eq!(buffers.message(now, 1, &config, vec![1]), None);
        buffers.acknowledge(1, first.list + 1);
        assert_eq!(
            buffers.message(now, 1, &config, vec![1]),
            None,
            "the acknowledgement was for another list"
        );
        buffers.acknowledge(1, first.list);
        assert!(buffers.message(now, 1, &config, vec![1]).is_some());
        buffers.tick(now + Duration::from_secs(1), |_| Some(config));
        assert!(buffers.message(now, 1, &config, vec![1]).is_some());
    }

    #[test]
    fn a_disabled_digest_is_discarded() {
        let mut buffers = DigestBuffers::default();
        let now = Instant::now();
        buffers.message(now, 1, &config(1, 10, 0), vec![1]);
        assert_eq!(buffers.tick(now + Duration::from_secs(1), |_| None), []);
        assert_eq!(buffers.deadline(), None);
        assert!(buffers.known.is_empty());
    }

    #[test]
    fn unacknowledged_lists_are_bounded() {
        let mut buffers = DigestBuffers::default();
        let config = config(0, 1, i64::MAX);
        for number in 0..3 * MAX_UNACKNOWLEDGED as u32 {
            buffers.message(Instant::now(), 1, &config, number.to_be_bytes().to_vec());
        }
        assert_eq!(buffers.known.len(), MAX_UNACKNOWLEDGED);
    }
}
