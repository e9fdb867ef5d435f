// SPDX-License-Identifier: Apache-2.0
//! Implements the parts of rtnetlink that the switch needs: requests with acknowledgement, dumps, and notifications.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// Mask for the type of an attribute, without the flags "nested" and "network byte order".
const NLA_TYPE_MASK: u16 = 0x3fff;

/// A decoded netlink message: its type and the bytes after the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) body: Vec<u8>,
}

/// A NETLINK_ROUTE socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Opens a socket, and subscribes to the multicast groups in the mask (`RTMGRP_*`).
    pub(crate) fn open(groups: u32) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        // NETLINK_ROUTE is protocol 0, the default.
        let fd = net::socket_with(family, SocketType::RAW, flags, None)?;
        net::bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends one request.
    pub(crate) fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&(flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        message.extend_from_slice(&0u32.to_ne_bytes());
        message.extend_from_slice(body);
        net::send(&self.fd, &message, SendFlags::empty())?;
        Ok(())
    }

    /// Receives one datagram with its messages. The error ENOBUFS means that notifications were lost.
    pub(crate) fn receive(&mut self) -> io::Result<Vec<Message>> {
        let mut buffer = vec![0u8; 1 << 16];
        let (length, _) = net::recv(&self.fd, buffer.as_mut_slice(), RecvFlags::empty())?;
        Ok(split(&buffer[..length]))
    }

    /// Sends a request and waits for its acknowledgement.
    pub(crate) fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, flags | libc::NLM_F_ACK as u16, body)?;
        loop {
            for message in self.receive()? {
                if message.kind == libc::NLMSG_ERROR as u16 {
                    return verdict(&message.body);
                }
            }
        }
    }

    /// Dumps all objects of a kind.
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<Message>> {
        self.send(kind, libc::NLM_F_DUMP as u16, body)?;
        let mut objects = Vec::new();
        loop {
            for message in self.receive()? {
                match i32::from(message.kind) {
                    libc::NLMSG_DONE => return Ok(objects),
                    libc::NLMSG_ERROR => verdict(&message.body)?,
                    _ => objects.push(message),
                }
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn verdict(body: &[u8]) -> io::Result<()> {
    match body
        .first_chunk::<4>()
        .map(|code| i32::from_ne_bytes(*code))
    {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Splits a datagram into messages. Stops at the first malformed message.
fn split(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some(header) = bytes.first_chunk::<HEADER>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = bytes.get(HEADER..length) else {
            break;
        };
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        messages.push(Message {
            kind,
            body: body.to_vec(),
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

/// Returns a link's index and flags (`IFF_*`) from an RTM_NEWLINK or RTM_DELLINK body.
pub(crate) fn link(body: &[u8]) -> Option<(i32, u32)> {
    let index = i32::from_ne_bytes(body.get(4..8)?.try_into().ok()?);
    let flags = u32::from_ne_bytes(body.get(8..12)?.try_into().ok()?);
    Some((index, flags))
}

/// Returns a link's name from an RTM_NEWLINK body.
pub(crate) fn link_name(body: &[u8]) -> Option<&str> {
    const IFINFOMSG: usize = 16;
    let value = find_attribute(body.get(IFINFOMSG..)?, libc::IFLA_IFNAME)?;
    let end = value.iter().position(|byte| *byte == 0);
    std::str::from_utf8(&value[..end.unwrap_or(value.len())]).ok()
}

/// Returns the value of the first attribute of a kind.
pub(crate) fn find_attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some(header) = attributes.first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & NLA_TYPE_MASK;
        let value = attributes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// Encodes an attribute, with padding. The value of a nested attribute is a list of attributes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = ATTRIBUTE_HEADER + value.len();
    let mut attribute = Vec::with_capacity(length.next_multiple_of(4));
    attribute.extend_from_slice(&(length as u16).to_ne_bytes());
    attribute.extend_from_slice(&kind.to_ne_bytes());
    attribute.extend_from_slice(value);
    attribute.resize(length.next_multiple_of(4), 0);
    attribute
}

/// Returns the index of the interface in an RTM_NEWADDR body.
pub(crate) fn address_index(body: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(body.get(4..8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_prefix_of_a_datagram_is_split_without_a_panic() {
        let mut datagram = Vec::new();
        for _ in 0..2 {
            datagram.extend_from_slice(&20u32.to_ne_bytes());
            datagram.extend_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        }
        assert_eq!(split(&datagram).len(), 2);
        for length in 0..datagram.len() {
            assert!(split(&datagram[..length]).len() < 2);
        }
        datagram[0..4].copy_from_slice(&3u32.to_ne_bytes());
        assert_eq!(split(&datagram), []);
    }

    #[test]
    fn the_loopback_link_is_in_a_dump() {
        let links = Socket::open(0)
            .unwrap()
            .dump(libc::RTM_GETLINK, &[0; 16])
            .unwrap();
        assert!(
            links
                .iter()
                .filter_map(|message| link(&message.body))
                .any(|(index, _)| index == 1)
        );
    }

    #[test]
    fn a_link_has_its_name_and_any_part_of_a_message_is_read_without_a_panic() {
        let links = Socket::open(0)
            .unwrap()
            .dump(libc::RTM_GETLINK, &[0; 16])
            .unwrap();
        let loopback = links
            .iter()
            .find(|message| link(&message.body).is_some_and(|(index, _)| index == 1));
        let body = &loopback.unwrap().body;
        assert_eq!(link_name(body), Some("lo"));
        for length in 0..body.len() {
            link_name(&body[..length]);
        }
    }
}
