// SPDX-License-Identifier: Apache-2.0
//! What goes into the engine, what comes out, and a packet in between.

use sluice_program::{DigestId, FieldListId, Program};

use crate::phv::Phv;
use crate::queue::{Admission, Arrival};

/// A packet as it came in.
#[derive(Clone, Copy, Debug)]
pub struct PacketIn<'a> {
    /// From the first byte of the Ethernet header, without frame check sequence.
    pub data: &'a [u8],
    /// The port, below 512.
    pub port: u32,
    /// Now, in microseconds since the switch started (the epoch of the store).
    pub now_us: u64,
}

/// Takes what processing a packet gives. Called from inside the packet path: keep it short.
pub trait Sink {
    /// A packet leaves by a port (the CPU port included).
    fn transmit(&mut self, port: u32, data: &[u8]);

    /// Likewise, with its headers in a buffer and its payload where it came in: for those who can put the two
    /// together in the place where they are wanted.
    #[inline]
    fn transmit_parts(&mut self, port: u32, headers: &mut Vec<u8>, payload: &[u8]) {
        headers.extend_from_slice(payload);
        self.transmit(port, headers);
    }

    /// A packet is about to enter egress while packets may have to wait ([`crate::Congestion`]): says whether it does.
    fn queue(&mut self, arrival: &mut Arrival<'_>) -> Admission {
        let _ = arrival;
        Admission::Pass
    }

    /// A digest for the control plane: each field in (width + 7) / 8 big-endian bytes, one after
    /// the other, in the order of [`sluice_program::Digest::fields`].
    fn digest(&mut self, digest: DigestId, fields: &[u8]);

    /// A line that the program logs with `log_msg`. Allocates, as logging does.
    fn log(&mut self, message: &str) {
        let _ = message;
    }
}

/// `standard_metadata.instance_type`: why a packet is processed.
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

/// A clone that the program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloneRequest {
    pub(crate) session: u32,
    pub(crate) preserve: Option<FieldListId>,
}

/// What the program asked the traffic manager for. The last request of a kind counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) clone: Option<CloneRequest>,
    pub(crate) digest: Option<DigestId>,
    pub(crate) resubmit: Option<Option<FieldListId>>,
    pub(crate) recirculate: Option<Option<FieldListId>>,
}

/// A packet between parser and deparser.
#[derive(Clone, Debug)]
pub struct Packet {
    pub(crate) phv: Phv,
    /// The packet as it was recirculated, if it was.
    recirculated: Option<Vec<u8>>,
    /// A buffer for that.
    spare: Vec<u8>,
    /// Bytes that the parser took.
    pub(crate) parsed: usize,
    /// Length limit set by `truncate`.
    pub(crate) truncate: usize,
    /// Length as `packet_length` shows it: as received, then headers added and removed.
    pub(crate) length: u64,
    /// Length as counters and meters count it: as it came in or was recirculated.
    pub(crate) ingress_length: u64,
    pub(crate) ingress_port: u32,
    /// The header vector is still what an earlier packet left.
    pub(crate) fresh: bool,
    /// See [`request`](Self::request).
    pub(crate) requested: bool,
    /// All `None` unless `requested`.
    requests: Requests,
}

impl Packet {
    pub(crate) fn new(program: &Program) -> Self {
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

    /// What the program asks for, to be changed.
    pub(crate) fn request(&mut self) -> &mut Requests {
        self.requested = true;
        &mut self.requests
    }

    /// Takes what the program has asked for.
    #[inline]
    pub(crate) fn take_requests(&mut self) -> Requests {
        if std::mem::take(&mut self.requested) {
            std::mem::take(&mut self.requests)
        } else {
            Requests::default()
        }
    }

    /// The packet as it last entered the parser; `input` is what came in.
    #[inline]
    pub(crate) fn data<'p>(&'p self, input: &'p [u8]) -> &'p [u8] {
        self.recirculated.as_deref().unwrap_or(input)
    }

    /// The header vector, to be changed, and [`data`](Self::data).
    #[inline]
    pub(crate) fn parts<'p>(&'p mut self, input: &'p [u8]) -> (&'p mut Phv, &'p [u8]) {
        let data = self.recirculated.as_deref().unwrap_or(input);
        (&mut self.phv, data)
    }

    /// A packet that starts anew with so many bytes that came in: nothing parsed, metadata 0.
    #[inline]
    pub(crate) fn start(&mut self, bytes: usize, port: u32) {
        self.start_bare(bytes, port);
        self.phv.reset();
        self.fresh = false;
    }

    /// Likewise, but for most of the header vector: an engine that [starts packets](crate::Engine::starts_packets)
    /// writes it.
    #[inline]
    pub(crate) fn start_bare(&mut self, bytes: usize, port: u32) {
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

    /// A packet that starts anew with bytes of its own.
    pub(crate) fn start_recirculated(&mut self, data: &[u8]) {
        self.start(data.len(), 0);
        self.set_recirculated(data);
    }

    /// A packet that starts anew as another did.
    pub(crate) fn start_again(&mut self, other: &Self, input: &[u8]) {
        self.start(other.data(input).len(), other.ingress_port);
        self.ingress_length = other.ingress_length;
        if let Some(data) = &other.recirculated {
            self.set_recirculated(data);
        }
    }

    /// Whether it has its bytes itself: what came in does not matter any more.
    pub(crate) fn is_recirculated(&self) -> bool {
        self.recirculated.is_some()
    }

    fn set_recirculated(&mut self, data: &[u8]) {
        let mut buffer = std::mem::take(&mut self.spare);
        buffer.clear();
        buffer.extend_from_slice(data);
        self.recirculated = Some(buffer);
    }

    /// A copy of another packet in its present state, without its requests and length limit.
    pub(crate) fn copy_from(&mut self, program: &Program, other: &Self) {
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

    /// What follows the parsed headers, within the length limit; `input` is what came in.
    #[inline]
    pub(crate) fn payload<'p>(&'p self, input: &'p [u8]) -> &'p [u8] {
        let rest = &self.data(input)[self.parsed..];
        &rest[..rest.len().min(self.truncate)]
    }
}
