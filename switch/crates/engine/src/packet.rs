// SPDX-License-Identifier: Apache-2.0
//! Received packets, and packets between parser and deparser.

use sluice_program::{DigestId, FieldListId, Program};

use crate::phv::Phv;

/// A received packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketIn<'a> {
    /// The frame, from the Ethernet header on, without frame check sequence.
    pub data: &'a [u8],
    /// The ingress port, below 512.
    pub port: u32,
    /// The current time in microseconds since the switch started, which is the store's time 0.
    pub now_us: u64,
}

/// `standard_metadata.instance_type`: the origin of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum InstanceType {
    Normal = 0,
    IngressClone = 1,
    EgressClone = 2,
    Recirculated = 4,
    Replicated = 5,
    Resubmitted = 6,
}

/// A clone that the program requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneRequest {
    /// The clone session.
    pub session: u32,
    /// Metadata that the clone keeps.
    pub preserve: Option<FieldListId>,
}

/// Requests of the program to the traffic manager. If the program makes several requests of the same kind, only the
/// last one has an effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// A clone of the packet.
    pub clone: Option<CloneRequest>,
    /// A digest message to the control plane.
    pub digest: Option<DigestId>,
    /// Resubmission. The inner value names the metadata that the packet keeps.
    pub resubmit: Option<Option<FieldListId>>,
    /// Recirculation. The inner value names the metadata that the packet keeps.
    pub recirculate: Option<Option<FieldListId>>,
}

/// A packet between parser and deparser.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The packet header vector.
    pub phv: Phv,
    /// The bytes of a recirculated packet.
    recirculated: Option<Vec<u8>>,
    /// An unused buffer for `recirculated`.
    spare: Vec<u8>,
    /// Number of bytes that the parser has consumed.
    pub parsed: usize,
    /// Length limit in bytes, set by `truncate`.
    pub truncate: usize,
    /// Value for the metadata field `packet_length`: the received length, plus headers added and minus headers removed
    /// since then.
    pub length: u64,
    /// Length for counters and meters: the length with which the packet was received or recirculated.
    pub ingress_length: u64,
    /// The port on which the packet arrived.
    pub ingress_port: u32,
    /// Whether the header vector still holds the values of an earlier packet.
    pub fresh: bool,
    /// Whether `requests` holds a request; see [`request`](Self::request).
    pub requested: bool,
    /// The program's requests for this packet, such as a clone. Invariant: all are `None` if `requested` is false.
    requests: Requests,
}

impl Packet {
    /// Creates a packet of a program, with nothing parsed.
    pub fn new(program: &Program) -> Self {
        Self {
            phv: Phv::new(program),
            recirculated: None,
            spare: Vec::new(),
            parsed: 0,
            truncate: usize::MAX,
            length: 0,
            ingress_length: 0,
            ingress_port: 0,
            fresh: false,
            requested: false,
            requests: Requests::default(),
        }
    }

    /// Returns a mutable reference to the requests, and sets `requested`.
    #[inline]
    pub fn request(&mut self) -> &mut Requests {
        self.requested = true;
        &mut self.requests
    }

    /// Returns the program's requests and clears them.
    #[inline]
    pub fn take_requests(&mut self) -> Requests {
        if std::mem::take(&mut self.requested) {
            std::mem::take(&mut self.requests)
        } else {
            Requests::default()
        }
    }

    /// Returns the packet's bytes as they were when it last entered the parser. `input` is the packet as received.
    #[inline]
    pub fn data<'p>(&'p self, input: &'p [u8]) -> &'p [u8] {
        self.recirculated.as_deref().unwrap_or(input)
    }

    /// Returns a mutable reference to the header vector, and the bytes that [`data`](Self::data) returns.
    #[inline]
    pub fn parts<'p>(&'p mut self, input: &'p [u8]) -> (&'p mut Phv, &'p [u8]) {
        let data = self.recirculated.as_deref().unwrap_or(input);
        (&mut self.phv, data)
    }

    /// Prepares the state for a received packet of `bytes` bytes: nothing is parsed, and all metadata is 0.
    #[inline]
    pub fn start(&mut self, bytes: usize, port: u32) {
        self.start_bare(bytes, port);
        self.phv.reset();
        self.fresh = false;
    }

    /// Prepares the state for a received packet, but leaves most of the header vector unchanged. For engines that
    /// initialise the header vector themselves ([`Engine::starts_packets`](crate::Engine::starts_packets)).
    #[inline]
    pub fn start_bare(&mut self, bytes: usize, port: u32) {
        if let Some(buffer) = self.recirculated.take() {
            self.spare = buffer;
        }
        self.phv.reset_touched();
        #[cfg(debug_assertions)]
        self.phv.poison();
        self.parsed = 0;
        self.truncate = usize::MAX;
        self.length = bytes as u64;
        self.ingress_length = self.length;
        self.ingress_port = port;
        self.fresh = true;
        self.take_requests();
    }

    /// Prepares the state for a recirculated packet with these bytes.
    pub fn start_recirculated(&mut self, data: &[u8]) {
        self.start(data.len(), 0);
        self.set_recirculated(data);
    }

    /// Prepares the state for a packet with the bytes that `other` had when it last entered the parser.
    pub fn start_again(&mut self, other: &Self, input: &[u8]) {
        self.start(other.data(input).len(), other.ingress_port);
        self.ingress_length = other.ingress_length;
        if let Some(data) = &other.recirculated {
            self.set_recirculated(data);
        }
    }

    /// Returns whether the packet holds its own bytes and no longer depends on the input.
    pub fn is_recirculated(&self) -> bool {
        self.recirculated.is_some()
    }

    fn set_recirculated(&mut self, data: &[u8]) {
        let mut buffer = std::mem::take(&mut self.spare);
        buffer.clear();
        buffer.extend_from_slice(data);
        self.recirculated = Some(buffer);
    }

    /// Copies the current state of another packet, except the requests and the length limit.
    pub fn copy_from(&mut self, program: &Program, other: &Self) {
        self.phv.copy_from(program, &other.phv);
        self.fresh = false;
        if let Some(buffer) = self.recirculated.take() {
            self.spare = buffer;
        }
        if let Some(data) = &other.recirculated {
            self.set_recirculated(data);
        }
        self.parsed = other.parsed;
        self.truncate = usize::MAX;
        self.length = other.length;
        self.ingress_length = other.ingress_length;
        self.ingress_port = other.ingress_port;
        self.take_requests();
    }

    /// Returns the bytes after the parsed headers, cut to the length limit. `input` is the packet as received.
    #[inline]
    pub fn payload<'p>(&'p self, input: &'p [u8]) -> &'p [u8] {
        let rest = &self.data(input)[self.parsed..];
        &rest[..rest.len().min(self.truncate)]
    }
}
