// SPDX-License-Identifier: Apache-2.0
//! Completes the work on frames that the kernel left to hardware, so that each frame has the bytes that it would have
//! on a wire.
//!
//! A packet socket can deliver frames whose 802.1Q tag was removed, or whose transport checksum is incomplete. If the
//! far end of a veth has its offloads on, a frame can also be a large TCP or UDP message that is not yet segmented
//! (GSO). A switch that forwards such frames unchanged sends bad packets. [`Restorer`] inserts the tag, completes the
//! checksum, and cuts large messages into segments. It passes on other large messages, such as those of tunnels, as a
//! whole; the pipeline's MTU check handles them.

use sluice_checksum as checksum;

const ETHERNET: usize = 14;
const VLAN_TAG: usize = 4;

/// Metadata of a frame: the kernel's `virtio_net_hdr`, and the tag that the kernel removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The checksum to complete; `None` if the checksum is complete.
    pub partial_checksum: Option<PartialChecksum>,
    /// Segment size and protocol of a large message; `None` for an ordinary frame.
    pub segmentation: Option<Segmentation>,
    /// Tag protocol identifier and tag control information, if the kernel removed a tag.
    pub vlan: Option<(u16, u16)>,
}

/// A transport checksum whose field contains only the sum of the pseudo-header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Offset of the transport header from the start of the frame. The checksum covers the bytes from here to the end.
    pub start: usize,
    /// Offset of the checksum field from `start`.
    pub offset: usize,
}

/// A message to cut into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segmentation {
    /// Transport payload bytes of each segment; the last one may be shorter.
    pub size: usize,
    /// Transport protocol of the message.
    pub transport: Transport,
}

/// Transport protocols whose messages can be cut into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP: the segments have increasing sequence numbers.
    Tcp,
    /// UDP: the segments are datagrams of equal size (UDP_SEGMENT).
    Udp,
}

/// Length of `struct virtio_net_hdr` in bytes.
pub const VNET_HEADER: usize = 10;

impl Metadata {
    /// Reads a `struct virtio_net_hdr` in the machine's byte order, as packet sockets deliver it.
    pub fn from_vnet_header(header: &[u8; VNET_HEADER]) -> Self {
        const NEEDS_CHECKSUM: u8 = 1;
        let word = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
        let (flags, kind, size) = (header[0], header[1] & 0x7f, word(4));
        let transport = match kind {
            1 | 4 => Some(Transport::Tcp),
            5 => Some(Transport::Udp),
            _ => None,
        };
        Self {
            partial_checksum: (flags & NEEDS_CHECKSUM != 0).then(|| PartialChecksum {
                start: word(6),
                offset: word(8),
            }),
            segmentation: transport
                .filter(|_| size > 0)
                .map(|transport| Segmentation { size, transport }),
            vlan: None,
        }
    }

    /// Returns whether the frame already has the bytes that it would have on a wire.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// Restores frames. Keeps its buffers between calls.
#[derive(Debug, Default)]
pub struct Restorer {
    frame: Vec<u8>,
    segment: Vec<u8>,
}

impl Restorer {
    /// Delivers the frame, or its segments, as a wire would carry them. If the metadata does not fit the bytes,
    /// delivers nothing and returns false.
    pub fn restore(
        &mut self,
        bytes: &[u8],
        metadata: &Metadata,
        deliver: &mut dyn FnMut(&[u8]),
    ) -> bool {
        self.frame.clear();
        let mut shift = 0;
        if let Some((tpid, tci)) = metadata.vlan {
            if bytes.len() < ETHERNET {
                return false;
            }
            shift = VLAN_TAG;
            self.frame.extend_from_slice(&bytes[..12]);
            self.frame.extend_from_slice(&tpid.to_be_bytes());
            self.frame.extend_from_slice(&tci.to_be_bytes());
            self.frame.extend_from_slice(&bytes[12..]);
        } else {
            self.frame.extend_from_slice(bytes);
        }
        let Some(PartialChecksum { start, offset }) = metadata.partial_checksum else {
            deliver(&self.frame);
            return true;
        };
        if let Some(segmentation) = metadata.segmentation {
            return cut(
                &self.frame,
                start + shift,
                segmentation,
                &mut self.segment,
                deliver,
            );
        }
        if !complete_checksum(&mut self.frame, start + shift, offset) {
            return false;
        }
        deliver(&self.frame);
        true
    }
}

/// Completes a checksum whose field contains the sum of the pseudo-header.
fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let field = start + offset;
    if start >= frame.len() || field + 2 > frame.len() {
        return false;
    }
    let value = checksum::finish(checksum::sum(0, &frame[start..]));
    // A UDP checksum field of zero means "no checksum". 0xffff is the same number in one's complement.
    let value = if value == 0 { 0xffff } else { value };
    frame[field..field + 2].copy_from_slice(&value.to_be_bytes());
    true
}

/// Offsets in a frame that is cut into segments.
struct Layout {
    network: usize,
    ipv6: bool,
    transport: usize,
    payload: usize,
    protocol: u8,
}

impl Layout {
    fn of(frame: &[u8], transport: usize, kind: Transport) -> Option<Self> {
        let mut network = ETHERNET;
        let ether_type =
            |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        while matches!(ether_type(network - 2)?, 0x8100 | 0x88a8) {
            network += VLAN_TAG;
        }
        let ipv6 = ether_type(network - 2)? == 0x86dd;
        let network_header = if ipv6 { 40 } else { 20 };
        let (protocol, payload) = match kind {
            Transport::Tcp => (
                6,
                transport + usize::from(frame.get(transport + 12)? >> 4) * 4,
            ),
            Transport::Udp => (17, transport + 8),
        };
        let minimum = transport + if kind == Transport::Tcp { 20 } else { 8 };
        let sound = network + network_header <= transport
            && minimum <= payload
            && payload < frame.len()
            && (ipv6 || ether_type(network - 2)? == 0x0800);
        sound.then_some(Self {
            network,
            ipv6,
            transport,
            payload,
            protocol,
        })
    }

    /// Returns the sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1).
    fn pseudo_header(&self, segment: &[u8]) -> u64 {
        let addresses = if self.ipv6 {
            &segment[self.network + 8..self.network + 40]
        } else {
            &segment[self.network + 12..self.network + 20]
        };
        let length = (segment.len() - self.transport) as u64;
        checksum::sum(length + u64::from(self.protocol), addresses)
    }

    /// Writes the lengths, the identification and the header checksum of segment number `index`.
    fn finish_network(&self, segment: &mut [u8], index: usize) {
        let length = segment.len();
        let header = &mut segment[self.network..];
        if self.ipv6 {
            let payload = (length - self.network - 40) as u16;
            header[4..6].copy_from_slice(&payload.to_be_bytes());
            return;
        }
        header[2..4].copy_from_slice(&((length - self.network) as u16).to_be_bytes());
        let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(index as u16);
        header[4..6].copy_from_slice(&id.to_be_bytes());
        header[10..12].fill(0);
        let words = (usize::from(header[0] & 0xf) * 4).clamp(20, self.transport - self.network);
        let value = checksum::finish(checksum::sum(0, &header[..words]));
        header[10..12].copy_from_slice(&value.to_be_bytes());
    }
}

/// Cuts a large message into segments. Each segment is a complete frame with its own lengths, sequence number and
/// checksums.
fn cut(
    frame: &[u8],
    transport: usize,
    segmentation: Segmentation,
    segment: &mut Vec<u8>,
    deliver: &mut dyn FnMut(&[u8]),
) -> bool {
    const FIN_PSH: u8 = 0x09;
    const CWR: u8 = 0x80;
    let Some(layout) = Layout::of(frame, transport, segmentation.transport) else {
        return false;
    };
    let (headers, payload) = frame.split_at(layout.payload);
    let chunks = payload.len().div_ceil(segmentation.size);
    for (index, chunk) in payload.chunks(segmentation.size).enumerate() {
        segment.clear();
        segment.extend_from_slice(headers);
        segment.extend_from_slice(chunk);
        layout.finish_network(segment, index);
        let field = match segmentation.transport {
            Transport::Tcp => {
                let header = &mut segment[transport..];
                let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                let sequence = sequence.wrapping_add((index * segmentation.size) as u32);
                header[4..8].copy_from_slice(&sequence.to_be_bytes());
                if index + 1 < chunks {
                    header[13] &= !FIN_PSH;
                }
                if index > 0 {
                    header[13] &= !CWR;
                }
                16
            }
            Transport::Udp => {
                let length = (segment.len() - transport) as u16;
                segment[transport + 4..transport + 6].copy_from_slice(&length.to_be_bytes());
                6
            }
        };
        // `complete_checksum` expects the folded sum of the pseudo-header in the field. `finish` returns the
        // complement of this sum.
        let pseudo = !checksum::finish(layout.pseudo_header(segment));
        segment[transport + field..transport + field + 2].copy_from_slice(&pseudo.to_be_bytes());
        if !complete_checksum(segment, transport, field) {
            return false;
        }
        deliver(segment);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a frame of Ethernet, IPv4 and TCP with 20 bytes each of IPv4 and TCP header, and `payload` bytes.
    fn tcp(payload: usize) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET + 40 + payload];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14] = 0x45;
        frame[18..20].copy_from_slice(&7u16.to_be_bytes());
        frame[23] = 6;
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[34 + 4..34 + 8].copy_from_slice(&1000u32.to_be_bytes());
        frame[34 + 12] = 0x50;
        frame[34 + 13] = 0x18;
        for (index, byte) in frame[54..].iter_mut().enumerate() {
            *byte = index as u8;
        }
        frame
    }

    fn restore(frame: &[u8], metadata: Metadata) -> Option<Vec<Vec<u8>>> {
        let mut out = Vec::new();
        Restorer::default()
            .restore(frame, &metadata, &mut |frame| out.push(frame.to_vec()))
            .then_some(out)
    }

    /// Returns whether the checksum is right: then the words of TCP segment and pseudo-header add up to 0xffff.
    fn transport_checksum_is_right(frame: &[u8]) -> bool {
        let transport = &frame[34..];
        let pseudo = checksum::sum(transport.len() as u64 + 6, &frame[26..34]);
        checksum::finish(checksum::sum(pseudo, transport)) == 0
    }

    const PARTIAL: Option<PartialChecksum> = Some(PartialChecksum {
        start: 34,
        offset: 16,
    });

    #[test]
    fn a_removed_tag_is_put_back() {
        let metadata = Metadata {
            vlan: Some((0x8100, 0x2005)),
            ..Metadata::default()
        };
        let frame = tcp(4);
        let out = restore(&frame, metadata).unwrap();
        assert_eq!(out[0][12..18], [0x81, 0x00, 0x20, 0x05, 0x08, 0x00]);
        assert_eq!(out[0].len(), frame.len() + 4);
        assert_eq!(restore(&frame[..13], metadata), None);
    }

    #[test]
    fn a_partial_checksum_is_completed() {
        let mut frame = tcp(5);
        let pseudo = !checksum::finish(checksum::sum(25 + 6, &frame[26..34]));
        frame[50..52].copy_from_slice(&pseudo.to_be_bytes());
        let out = restore(
            &frame,
            Metadata {
                partial_checksum: PARTIAL,
                ..Metadata::default()
            },
        );
        assert!(transport_checksum_is_right(&out.unwrap()[0]));
    }

    #[test]
    fn a_large_message_becomes_segments() {
        let metadata = Metadata {
            partial_checksum: PARTIAL,
            segmentation: Some(Segmentation {
                size: 1000,
                transport: Transport::Tcp,
            }),
            vlan: None,
        };
        let out = restore(&tcp(2500), metadata).unwrap();
        assert_eq!(
            out.iter().map(Vec::len).collect::<Vec<_>>(),
            [1054, 1054, 554]
        );
        assert!(out.iter().all(|frame| transport_checksum_is_right(frame)));
        assert!(
            out.iter()
                .all(|frame| checksum::finish(checksum::sum(0, &frame[14..34])) == 0)
        );
        assert_eq!(out[2][38..42], 3000u32.to_be_bytes());
        assert_eq!(out[2][18..20], 9u16.to_be_bytes());
        assert_eq!(
            (out[0][47], out[2][47]),
            (0x10, 0x18),
            "only the last segment has PSH"
        );
    }

    proptest! {
        #[test]
        fn any_metadata_over_any_bytes_is_refused_or_served(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            vnet in any::<[u8; VNET_HEADER]>(),
            vlan in any::<Option<(u16, u16)>>(),
        ) {
            let metadata = Metadata { vlan, ..Metadata::from_vnet_header(&vnet) };
            restore(&bytes, metadata);
        }
    }
}
