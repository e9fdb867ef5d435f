// SPDX-License-Identifier: Apache-2.0
//! Decodes route messages from FPM frames without Python. The text of a message is the message
//! without its prefix. Only messages whose text is known can be decoded here.
//!
//! A full table has a million prefixes, but only a few hundred different texts, because a text
//! contains only values like interface, gateway and metric. The memo cuts the attribute RTA_DST out
//! of a message and looks up the rest in a hash table. If the rest is known, only the prefix must
//! be decoded.
//!
//! Python decodes each text once, with its general code, and adds the text to the memo. If a frame
//! has a message that is unknown or has an unusual layout, Python decodes the whole frame.

use std::collections::HashMap;

use super::slot::{IPV4, IPV6, RouteSlot};

/// Limit of cached texts. When it is reached, the cache is cleared.
pub const LIMIT: usize = 16384;

const NETLINK_HEADER: usize = 16;
const RTMSG: usize = 12;
/// Length in bytes of the shortest message with an RTA_DST.
const LEAST: usize = NETLINK_HEADER + RTMSG + 8;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTA_DST: u16 = 1;
const RTA_TABLE: u16 = 15;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Position of RTA_DST in a message.
struct DestinationAttribute {
    size: u8,
    /// Offset at which RTA_DST begins.
    at: usize,
    /// Offset at which RTA_DST ends.
    end: usize,
}

/// A message whose text is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Prefix of the message. Its VRF is 0, because the message's VRF is part of the meaning of the
    /// text.
    pub slot: RouteSlot,
    /// Number of the message's text.
    pub text: u32,
}

/// Decoded messages, in the order of the frames.
#[derive(Debug, Default)]
pub struct Run {
    /// All messages of the run.
    pub messages: Vec<Message>,
}

/// What a text means: the properties that all routes with this text share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The routes exist, and have this entry and target (see [`super::table`]).
    Updated {
        /// VRF of the routes.
        vrf: u32,
        /// Entry of the routes. Each route counts as one use of the entry.
        entry: u32,
        /// Current target of the entry.
        target: u32,
    },
    /// The routes were deleted.
    Deleted {
        /// VRF of the routes.
        vrf: u32,
    },
}

/// Maps known texts to their numbers.
#[derive(Debug)]
pub struct Memo {
    texts: HashMap<Box<[u8]>, u32>,
    /// For each value of a prefix's first octet, whether Python must decode such prefixes.
    unusual: [bool; 256],
    scratch: Vec<u8>,
}

impl Memo {
    /// Creates an empty memo. Python must decode prefixes whose first octet is in `unusual_heads`.
    pub fn new(unusual_heads: &[u8]) -> Self {
        let mut unusual = [false; 256];
        for head in unusual_heads {
            unusual[usize::from(*head)] = true;
        }
        Self {
            texts: HashMap::new(),
            unusual,
            scratch: Vec::new(),
        }
    }

    /// Returns whether the memo is full. A full memo must be cleared before it can learn another
    /// text.
    pub fn is_full(&self) -> bool {
        self.texts.len() >= LIMIT
    }

    /// Forgets all texts.
    pub fn forget(&mut self) {
        self.texts.clear();
    }

    /// Learns a text, and gives it the number `text`. The text is that of the message of `length`
    /// bytes at `offset` of `data`. Returns false if the prefix is at an unusual position in the
    /// message. Such messages cannot be decoded here.
    pub fn learn(&mut self, data: &[u8], offset: usize, length: usize, text: u32) -> bool {
        let Some((kind, message)) = header(data, offset).and_then(|(found, kind)| {
            (found == length).then_some((kind, data.get(offset..offset + length)?))
        }) else {
            return false;
        };
        let Some(cut) = cut(message, kind) else {
            return false;
        };
        let key = self.key(message, kind, &cut).into();
        self.texts.insert(key, text);
        true
    }

    /// Appends the messages of a frame's payload to `run`. If a message is unknown or unusual,
    /// returns false and leaves `run` unchanged.
    pub fn read(&mut self, data: &[u8], run: &mut Run) -> bool {
        let (before, mut offset) = (run.messages.len(), 0);
        while offset < data.len() {
            let Some((message, length)) = self.message(data, offset) else {
                run.messages.truncate(before);
                return false;
            };
            run.messages.push(message);
            offset += (length + 3) & !3;
        }
        true
    }

    fn message(&mut self, data: &[u8], offset: usize) -> Option<(Message, usize)> {
        let (length, kind) = header(data, offset)?;
        let message = data.get(offset..offset.checked_add(length)?)?;
        let cut = cut(message, kind)?;
        let key = self.key(message, kind, &cut);
        // Keeps the key's buffer, to build the next key in it.
        let text = self.texts.get(key.as_slice()).copied();
        self.scratch = key;
        let text = text?;
        let address = &message[cut.at + 4..cut.end];
        let slot = RouteSlot::new(0, address, message[NETLINK_HEADER + 1])?;
        let usual = !self.unusual[usize::from(address[0])] && !slot.has_host_bits();
        usual.then_some((Message { slot, text }, length))
    }

    /// Builds the lookup key of a message: the type, the family, and all bytes except the prefix.
    fn key(&mut self, message: &[u8], kind: u16, cut: &DestinationAttribute) -> Vec<u8> {
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend([kind as u8, cut.size]);
        key.extend_from_slice(&message[NETLINK_HEADER + 2..cut.at]);
        key.extend_from_slice(&message[cut.end..]);
        key
    }
}

/// Returns the length and the type of the message at `offset`. Returns `None` if the message is too
/// short for RTA_DST.
fn header(data: &[u8], offset: usize) -> Option<(usize, u16)> {
    let header = data.get(offset..)?.get(..LEAST)?;
    let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
    (length >= LEAST).then(|| (length, u16::from_ne_bytes([header[4], header[5]])))
}

/// Finds RTA_DST in a message. Returns `None` unless RTA_DST is the first attribute, or follows
/// RTA_TABLE as in the kernel's messages.
fn cut(message: &[u8], kind: u16) -> Option<DestinationAttribute> {
    if kind != RTM_NEWROUTE && kind != RTM_DELROUTE {
        return None;
    }
    let size = match message[NETLINK_HEADER] {
        AF_INET => IPV4,
        AF_INET6 => IPV6,
        _ => return None,
    };
    let mut at = NETLINK_HEADER + RTMSG;
    if attribute(message, at)? == (8, RTA_TABLE) {
        at += 8;
    }
    let length = 4 + usize::from(size);
    if attribute(message, at)? != (length, RTA_DST) {
        return None;
    }
    let end = at + length;
    (end <= message.len()).then_some(DestinationAttribute { size, at, end })
}

/// Returns the length and the type of the attribute at offset `at`.
fn attribute(message: &[u8], at: usize) -> Option<(usize, u16)> {
    let head = message.get(at..at + 4)?;
    Some((
        usize::from(u16::from_ne_bytes([head[0], head[1]])),
        u16::from_ne_bytes([head[2], head[3]]),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a route message as zebra sends it.
    pub(crate) fn route(kind: u16, address: &[u8], length: u8, gateway: u8) -> Vec<u8> {
        let family = if address.len() == 4 {
            AF_INET
        } else {
            AF_INET6
        };
        let mut body = vec![family, length, 0, 0, 254, 186, 0, 1, 0, 0, 0, 0];
        for (kind, value) in [(RTA_DST, address), (5, &[10, 0, 0, gateway][..])] {
            body.extend((4 + value.len() as u16).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(value);
        }
        let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(body);
        message
    }

    fn read(memo: &mut Memo, data: &[u8]) -> Option<Vec<Message>> {
        let mut run = Run::default();
        memo.read(data, &mut run).then_some(run.messages)
    }

    #[test]
    fn a_known_text_is_read_whatever_the_prefix() {
        let mut memo = Memo::new(&[169]);
        let first = route(RTM_NEWROUTE, &[10, 0, 0, 0], 8, 1);
        assert_eq!(read(&mut memo, &first), None);
        assert!(memo.learn(&first, 0, first.len(), 7));
        let other = route(RTM_NEWROUTE, &[20, 1, 0, 0], 16, 1);
        let slot = RouteSlot::new(0, &[20, 1, 0, 0], 16);
        let found = read(&mut memo, &other).unwrap_or_default();
        assert_eq!(found.len(), 1);
        assert_eq!((Some(found[0].slot), found[0].text), (slot, 7));
        for unknown in [
            route(RTM_NEWROUTE, &[20, 1, 0, 0], 16, 2),
            route(RTM_DELROUTE, &[20, 1, 0, 0], 16, 1),
            route(RTM_NEWROUTE, &[20, 1, 0, 0], 8, 1),
            route(RTM_NEWROUTE, &[20, 1, 0, 0], 33, 1),
            route(RTM_NEWROUTE, &[169, 254, 0, 0], 16, 1),
            route(RTM_NEWROUTE, &[1; 16], 128, 1),
        ] {
            assert_eq!(read(&mut memo, &unknown), None);
            assert_eq!(read(&mut memo, &[other.clone(), unknown].concat()), None);
        }
        assert_eq!(
            read(&mut memo, &[first, other].concat()).map(|all| all.len()),
            Some(2)
        );
    }

    proptest! {
        /// Checks that no input bytes cause a panic, for any set of known texts.
        #[test]
        fn any_bytes_are_read(cuts in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8), tail in any::<Vec<u8>>()) {
            let mut memo = Memo::new(&[]);
            let mut data = route(RTM_NEWROUTE, &[10, 0, 0, 0], 8, 1);
            memo.learn(&data, 0, data.len(), 1);
            data.extend(tail);
            let size = data.len();
            for (at, value) in cuts {
                data[at % size] = value;
            }
            read(&mut memo, &data);
            memo.learn(&data, 0, size, 2);
            memo.learn(&data, size / 2, size, 2);
        }
    }
}
