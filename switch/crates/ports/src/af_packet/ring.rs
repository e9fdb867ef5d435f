// SPDX-License-Identifier: Apache-2.0
//! Receives from an interface through a ring of frames that the kernel fills and this process reads in place.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::socket::bind;
use crate::interface;
use crate::offload::{Metadata, Restorer, VNET_HEADER};
use crate::privilege::Raised;
use crate::{Deliver, Frame, MAX_FRAME, PortCounters, PortId, Receiver, sys};

/// Number of bytes in a slot in front of the frame and around it: header, address, alignment, `virtio_net_hdr`, and
/// space for a tag.
const SLOT_OVERHEAD: usize = 160;
const BLOCK: usize = 1 << 18;

/// Maximum size of the ring in bytes. With jumbo frames, the slots are larger, so the ring has fewer of them.
const MAX_RING: usize = 8 << 20;

/// The mapped ring. Slot `n` begins at `n * slot_size`, because blocks are adjacent and hold a whole number of slots.
struct Ring {
    base: *mut u8,
    slot_size: usize,
    slots: usize,
}

// SAFETY: no other value of this process uses the mapping. The kernel uses it too, but the status word of each slot
// says whether the slot belongs to the kernel or to the process.
unsafe impl Send for Ring {}

impl Ring {
    /// Asks the kernel for a ring of about `frames` slots for frames of `frame_size` bytes, and maps the ring.
    fn map(socket: BorrowedFd<'_>, frames: usize, frame_size: usize) -> io::Result<Self> {
        let slot_size = (frame_size + SLOT_OVERHEAD).next_power_of_two().min(BLOCK);
        let per_block = BLOCK / slot_size;
        let blocks = frames.div_ceil(per_block).clamp(1, MAX_RING / BLOCK);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_size as u32,
            tp_frame_nr: (blocks * per_block) as u32,
        };
        sys::set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: creates a new mapping of the size that the kernel has just accepted; no existing memory is changed.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let fd = socket.as_raw_fd();
            libc::mmap(
                ptr::null_mut(),
                blocks * BLOCK,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            base: base.cast(),
            slot_size,
            slots: blocks * per_block,
        })
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        debug_assert!(slot < self.slots);
        // SAFETY: the address is within the mapping, and aligned because slot sizes are powers of two. A slot begins
        // with `tp_status`, a u32 that kernel and process access only as a whole.
        unsafe { AtomicU32::from_ptr(self.base.add(slot * self.slot_size).cast()) }
    }

    /// Returns the bytes of a slot. Valid only while the slot's status says that user space owns the slot.
    fn slot(&self, slot: usize) -> &[u8] {
        debug_assert!(slot < self.slots);
        // SAFETY: the range is within the mapping; the kernel does not write to a slot that user space owns.
        unsafe { std::slice::from_raw_parts(self.base.add(slot * self.slot_size), self.slot_size) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the range that `map` mapped; no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.slots * self.slot_size) };
    }
}

/// Receives all frames that arrive on one interface.
pub struct RingReceiver {
    ring: Ring,
    socket: OwnedFd,
    /// Index of the next slot to check.
    next: usize,
    /// Number of slots before `next` that were not yet returned to the kernel.
    held: usize,
    port: PortId,
    restorer: Restorer,
    /// Buffer for frames longer than a slot.
    large: Vec<u8>,
    counters: Arc<PortCounters>,
}

impl RingReceiver {
    /// Opens a receiving socket on the interface `name`, in promiscuous mode. The ring has room for about `frames`
    /// frames.
    pub fn open(
        name: &str,
        port: PortId,
        frames: usize,
        counters: Arc<PortCounters>,
    ) -> io::Result<Self> {
        let _raised = Raised::here();
        let index = sys::interface_index(name)?;
        let mtu = interface::mtu(name)?;
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let fd = socket.as_fd();
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        // The kernel queues a frame that is longer than a slot as a whole, in addition to its slot. The size of the
        // receive buffer limits the number of such frames.
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &1)?;
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &(2 << 20))?;
        let ring = Ring::map(fd, frames, mtu.min(MAX_FRAME) + 18)?;
        bind(fd, index, libc::ETH_P_ALL)?;
        let membership = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sys::set_option(
            fd,
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &membership,
        )?;
        Ok(Self {
            ring,
            socket,
            next: 0,
            held: 0,
            port,
            restorer: Restorer::default(),
            large: Vec::new(),
            counters,
        })
    }

    /// Adds the kernel's drops since the last call to the counters.
    fn count_drops(&self) {
        // SAFETY: the option has two integers, for which every bit pattern is valid.
        let stats = unsafe {
            sys::get_option::<[u32; 2]>(
                self.socket.as_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
            )
        };
        if let Ok([_, dropped]) = stats {
            self.counters.receive_dropped(u64::from(dropped));
        }
    }

    /// Gives slots back to the kernel, after the caller has used their frames.
    fn give_back(&mut self) {
        let first = self.next + self.ring.slots - std::mem::take(&mut self.held);
        for slot in first..self.next + self.ring.slots {
            let status = self.ring.status(slot % self.ring.slots);
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
    }
}

/// Reads a whole frame that was longer than its slot, with its `virtio_net_hdr` in front. Returns the length of header
/// and frame together.
fn read_large(socket: BorrowedFd<'_>, large: &mut Vec<u8>) -> Option<usize> {
    large.resize(VNET_HEADER + MAX_FRAME, 0);
    // SAFETY: the buffer is writable for the passed length.
    let length = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            large.as_mut_ptr().cast(),
            large.len(),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(length)
        .ok()
        .filter(|&length| length > VNET_HEADER)
}

/// Contents of a slot: the `virtio_net_hdr`, and the frame's metadata and bytes.
struct ReceivedFrame<'a> {
    vnet: &'a [u8; VNET_HEADER],
    bytes: &'a [u8],
    vlan: Option<(u16, u16)>,
}

impl ReceivedFrame<'_> {
    /// Returns the metadata of the frame, from its `virtio_net_hdr` and the slot's header.
    fn metadata(&self, vnet: &[u8; VNET_HEADER]) -> Metadata {
        Metadata {
            vlan: self.vlan,
            ..Metadata::from_vnet_header(vnet)
        }
    }
}

fn read_slot(slot: &[u8], status: u32) -> Option<ReceivedFrame<'_>> {
    debug_assert!(slot.len() >= mem::size_of::<libc::tpacket2_hdr>());
    // SAFETY: the slot begins with this plain C structure and is long enough; an unaligned read copies it.
    let header: libc::tpacket2_hdr = unsafe { ptr::read_unaligned(slot.as_ptr().cast()) };
    let start = usize::from(header.tp_mac);
    let bytes = slot.get(start..start.checked_add(header.tp_snaplen as usize)?)?;
    let vnet = slot
        .get(start.checked_sub(VNET_HEADER)?..start)?
        .first_chunk()?;
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
        header.tp_vlan_tpid
    } else {
        libc::ETH_P_8021Q as u16
    };
    let vlan = (status & libc::TP_STATUS_VLAN_VALID != 0).then_some((tpid, header.tp_vlan_tci));
    Some(ReceivedFrame { vnet, bytes, vlan })
}

impl Receiver for RingReceiver {
    fn receive<'b>(&'b mut self, budget: usize, deliver: &mut Deliver<'_, 'b>) -> usize {
        self.give_back();
        let (mut packets, mut bytes, mut losing) = (0, 0u64, false);
        let (ring, port, large) = (&self.ring, self.port, &mut self.large);
        let mut count = |frame: Frame<'b, '_>| {
            packets += 1;
            bytes += frame.len() as u64;
            deliver(port, frame);
        };
        // Holds at most half of the slots; the kernel has the others. If the receiver held all of them, `next` would
        // reach a slot that it still holds, and would deliver its old frame again.
        let most = budget.min((ring.slots / 2).max(1));
        while self.held < most {
            let status = ring.status(self.next).load(Ordering::Acquire);
            if status & libc::TP_STATUS_USER == 0 {
                break;
            }
            losing |= status & libc::TP_STATUS_LOSING != 0;
            let copied = status & libc::TP_STATUS_COPY != 0;
            let whole = copied.then(|| read_large(self.socket.as_fd(), large));
            let sound = match (read_slot(ring.slot(self.next), status), whole) {
                (Some(slot), None) => {
                    let metadata = slot.metadata(slot.vnet);
                    if metadata.is_plain() {
                        count(Frame::Kept(slot.bytes));
                        true
                    } else {
                        let mut deliver = |frame: &[u8]| count(Frame::Passing(frame));
                        self.restorer.restore(slot.bytes, &metadata, &mut deliver)
                    }
                }
                (Some(slot), Some(Some(length))) => {
                    let (vnet, frame) = large[..length].split_at(VNET_HEADER);
                    let metadata = slot.metadata(vnet.first_chunk().unwrap_or(slot.vnet));
                    let mut deliver = |frame: &[u8]| count(Frame::Passing(frame));
                    self.restorer.restore(frame, &metadata, &mut deliver)
                }
                // The frame was truncated, or the slot contains no valid frame.
                (Some(_), Some(None)) | (None, _) => false,
            };
            if !sound {
                self.counters.receive_error(1);
            }
            self.held += 1;
            self.next = if self.next + 1 == ring.slots {
                0
            } else {
                self.next + 1
            };
        }
        if packets > 0 {
            self.counters.received(packets, bytes);
        }
        let slots = self.held;
        if losing {
            self.count_drops();
        }
        slots
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn clear_error(&mut self) {
        // Reading the error clears the error. When the link comes up, the socket works again without further action.
        // SAFETY: the option has one integer, for which every bit pattern is valid.
        let _: io::Result<libc::c_int> =
            unsafe { sys::get_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR) };
        self.count_drops();
    }
}
