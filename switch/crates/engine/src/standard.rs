// SPDX-License-Identifier: Apache-2.0
//! Standard metadata: the fields that the traffic manager reads and writes before and after the pipelines.

use sluice_program::{FieldListId, FieldSlot, Program};

use crate::bits;
use crate::number::Number;
use crate::packet::{InstanceType, Packet};
use crate::queue::QueueMetadata;

/// The location of a field in the header vector. Metadata fields share no bytes ([`sluice_program::layout`]). In the
/// field's bytes, the unused bits come first.
///
/// Loads and stores have the same sizes as those of native code. With different sizes, store-to-load forwarding would
/// fail, and the load would stall.
#[derive(Clone, Copy, Debug)]
enum FieldLocation {
    /// A field of one byte: its offset and bit mask. The next two variants are for two and four bytes.
    One(usize, u64),
    Two(usize, u64),
    Four(usize, u64),
    /// A field of six bytes, accessed as one word of four bytes and one of two bytes.
    Six(usize, u64),
    /// A field of any other size.
    FieldSlot(FieldSlot),
}

/// Writes the lowest `N` bytes of a number, big-endian.
#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], at: usize, value: u64) {
    let place = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<N>);
    if let (Some(place), Some(last)) = (place, value.to_be_bytes().last_chunk()) {
        *place = *last;
    }
}

/// Reads a big-endian number of `N` bytes.
#[inline(always)]
fn get<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let place = bytes.get(at..).and_then(<[u8]>::first_chunk::<N>);
    let mut word = [0; 8];
    if let (Some(place), Some(last)) = (place, word.last_chunk_mut()) {
        *last = *place;
    }
    u64::from_be_bytes(word)
}

impl FieldLocation {
    fn new(slot: FieldSlot) -> Self {
        let (lead, width) = (usize::from(slot.lead), usize::from(slot.width));
        let byte = slot.byte as usize;
        let bits = |width| u64::MAX >> (64 - width);
        match lead + width {
            8 => Self::One(byte, bits(width)),
            16 => Self::Two(byte, bits(width)),
            32 => Self::Four(byte, bits(width)),
            48 => Self::Six(byte, bits(width)),
            _ => Self::FieldSlot(slot),
        }
    }

    #[inline(always)]
    fn store(&self, packet: &mut Packet, value: u64) {
        let bytes = &mut packet.phv.bytes;
        match *self {
            Self::One(at, bits) => put::<1>(bytes, at, value & bits),
            Self::Two(at, bits) => put::<2>(bytes, at, value & bits),
            Self::Four(at, bits) => put::<4>(bytes, at, value & bits),
            Self::Six(at, bits) => {
                put::<4>(bytes, at, (value & bits) >> 16);
                put::<2>(bytes, at + 4, value & bits);
            }
            Self::FieldSlot(slot) => (value as i64).store(bytes, slot),
        }
    }

    #[inline(always)]
    fn load(&self, packet: &Packet) -> u32 {
        let bytes = &packet.phv.bytes;
        let value = match *self {
            Self::One(at, bits) => get::<1>(bytes, at) & bits,
            Self::Two(at, bits) => get::<2>(bytes, at) & bits,
            Self::Four(at, bits) => get::<4>(bytes, at) & bits,
            Self::Six(at, bits) => (get::<4>(bytes, at) << 16 | get::<2>(bytes, at + 4)) & bits,
            Self::FieldSlot(slot) => i64::load(bytes, slot) as u64,
        };
        value as u32
    }
}

/// A field that is written only if it may be read ([`crate::Engine::looks_at`]).
type ReadableField = Option<FieldLocation>;

/// The locations of a program's standard metadata fields.
#[derive(Clone, Debug)]
pub(crate) struct StandardFields {
    ingress_port: ReadableField,
    packet_length: ReadableField,
    ingress_time: ReadableField,
    instance_type: ReadableField,
    egress_port: ReadableField,
    egress_rid: ReadableField,
    egress_spec: FieldLocation,
    mcast_grp: Option<FieldLocation>,
    egress_time: ReadableField,
    /// `priority`; `None` also if the program never writes this field.
    priority: Option<FieldLocation>,
    enqueue_time: ReadableField,
    enqueue_depth: ReadableField,
    dequeue_delay: ReadableField,
    dequeue_depth: ReadableField,
    queue: ReadableField,
}

impl StandardFields {
    /// Finds the fields of a program. `seen` returns whether a field may be read.
    pub(crate) fn new(program: &Program, seen: impl Fn(FieldSlot) -> bool) -> Self {
        let all = &program.standard_metadata;
        let place =
            |slot: Option<FieldSlot>| slot.filter(|slot| seen(*slot)).map(FieldLocation::new);
        Self {
            ingress_port: place(Some(all.ingress_port)),
            packet_length: place(Some(all.packet_length)),
            ingress_time: place(all.ingress_global_timestamp),
            instance_type: place(Some(all.instance_type)),
            egress_port: place(Some(all.egress_port)),
            egress_rid: place(all.egress_rid),
            egress_spec: FieldLocation::new(all.egress_spec),
            mcast_grp: all.mcast_grp.map(FieldLocation::new),
            egress_time: place(all.egress_global_timestamp),
            priority: all.priority.map(FieldLocation::new),
            enqueue_time: place(all.enq_timestamp),
            enqueue_depth: place(all.enq_qdepth),
            dequeue_delay: place(all.deq_timedelta),
            dequeue_depth: place(all.deq_qdepth),
            queue: place(all.qid),
        }
    }

    #[inline]
    pub(crate) fn set_instance_type(&self, packet: &mut Packet, ty: InstanceType) {
        if let Some(place) = &self.instance_type {
            place.store(packet, ty as u64);
        }
    }

    /// Returns the current `instance_type`. Returns 0 if the program never reads this field: the traffic manager then
    /// does not write it.
    #[inline]
    pub(crate) fn instance_type(&self, packet: &Packet) -> u32 {
        self.instance_type
            .as_ref()
            .map_or(0, |place| place.load(packet))
    }

    /// Writes the metadata of a packet that enters the parser.
    #[inline]
    pub(crate) fn enter_ingress(&self, packet: &mut Packet, now_us: u64) {
        if let Some(place) = &self.ingress_port {
            place.store(packet, packet.ingress_port.into());
        }
        self.set_length(packet);
        if let Some(place) = &self.ingress_time {
            place.store(packet, now_us);
        }
    }

    /// Writes the metadata of a packet that enters egress.
    #[inline]
    pub(crate) fn enter_egress(
        &self,
        packet: &mut Packet,
        port: u32,
        now_us: u64,
        drop_port: u32,
        queue_metadata: QueueMetadata,
    ) {
        if let Some(place) = &self.egress_port {
            place.store(packet, port.into());
        }
        // Must differ from the drop port, because egress drops a packet by writing the drop port.
        self.egress_spec.store(packet, u64::from(drop_port) + 1);
        self.set_length(packet);
        let values = [
            (&self.egress_time, now_us),
            (&self.enqueue_time, queue_metadata.enqueued_us),
            (&self.enqueue_depth, queue_metadata.enqueued_depth.into()),
            (&self.dequeue_delay, queue_metadata.delay_us),
            (&self.dequeue_depth, queue_metadata.dequeued_depth.into()),
            (&self.queue, queue_metadata.priority.into()),
        ];
        for (place, value) in values {
            if let Some(place) = place {
                place.store(packet, value);
            }
        }
    }

    /// Writes only the length, for a packet whose other metadata was copied from another packet.
    #[inline]
    pub(crate) fn set_length(&self, packet: &mut Packet) {
        if let Some(place) = &self.packet_length {
            place.store(packet, packet.length);
        }
    }

    pub(crate) fn set_replica_instance(&self, packet: &mut Packet, instance: u16) {
        if let Some(place) = &self.egress_rid {
            place.store(packet, instance.into());
        }
    }

    /// Returns `egress_spec`, to be read at the end of ingress or egress.
    #[inline]
    pub(crate) fn egress_spec(&self, packet: &Packet) -> u32 {
        self.egress_spec.load(packet)
    }

    /// Returns the queue that ingress selected.
    #[inline]
    pub(crate) fn priority(&self, packet: &Packet) -> u32 {
        self.priority.as_ref().map_or(0, |place| place.load(packet))
    }

    /// Returns the multicast group that ingress selected; 0 for none.
    #[inline]
    pub(crate) fn multicast_group(&self, packet: &Packet) -> u32 {
        self.mcast_grp
            .as_ref()
            .map_or(0, |place| place.load(packet))
    }
}

impl Packet {
    /// Resets all metadata except the fields of the list, which are copied from `from`.
    pub(crate) fn preserve(&mut self, program: &Program, list: Option<FieldListId>, from: &Self) {
        self.phv.reset_metadata();
        for slot in list
            .iter()
            .flat_map(|list| &program.field_list(*list).fields)
        {
            let (bit, width) = (slot.bit(), usize::from(slot.width));
            bits::copy_bits(&from.phv.bytes, bit, &mut self.phv.bytes, bit, width);
        }
    }
}
