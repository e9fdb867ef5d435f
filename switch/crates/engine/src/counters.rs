// SPDX-License-Identifier: Apache-2.0
//! Packet counters and their names.

/// Counters of one worker. Invariant: each received packet and each copy is counted in exactly one of the counters from
/// `transmitted` to `replaced`. A packet that waits in a port's queue is counted when it has left the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub transmitted: u64,
    /// Packets whose `egress_spec` was the drop port at the end of ingress.
    pub dropped_ingress: u64,
    /// Packets whose `egress_spec` was the drop port at the end of egress.
    pub dropped_egress: u64,
    /// Packets dropped because the queue of the port was full.
    pub dropped_queue_full: u64,
    /// Packets dropped because the port had no queue of their priority ([`crate::Config::queues`]).
    pub dropped_priority: u64,
    /// Packets sent to a multicast group that does not exist or has no replica.
    pub dropped_no_replica: u64,
    /// Packets and copies beyond the limit [`crate::Config::max_passes`].
    pub dropped_pass_limit: u64,
    /// Packets for which the parser took more steps than [`crate::Config::max_parser_steps`].
    pub dropped_parser_limit: u64,
    /// Packets that were replaced by copies: multicast, resubmitted or recirculated packets.
    pub replaced: u64,

    /// Packets received.
    pub received: u64,
    /// Copies made: clones, replicas, resubmitted and recirculated packets.
    pub copies: u64,
    /// Packets whose parsing ended with an error. The error alone does not drop the packet.
    pub parser_errors: u64,
    /// Packets with a wrong checksum. The wrong checksum alone does not drop the packet.
    pub checksum_errors: u64,
    /// Clones to a session that does not exist.
    pub clone_no_session: u64,
    /// Accesses beyond the end of a counter, meter, register or header stack. Such an access has no effect.
    pub index_out_of_range: u64,
    /// Actions stopped because they took more steps than [`crate::Config::max_action_steps`].
    pub action_limit: u64,
    /// Hits on a selector group without a live member, for which no action ran.
    pub empty_group: u64,
    /// `assert` or `assume` statements whose condition was false.
    pub assertions_failed: u64,
    /// Digests sent.
    pub digests: u64,
}

impl Counters {
    /// Adds the counters of another worker to the counters of this worker.
    pub fn add(&mut self, other: &Self) {
        self.transmitted += other.transmitted;
        self.dropped_ingress += other.dropped_ingress;
        self.dropped_egress += other.dropped_egress;
        self.dropped_queue_full += other.dropped_queue_full;
        self.dropped_priority += other.dropped_priority;
        self.dropped_no_replica += other.dropped_no_replica;
        self.dropped_pass_limit += other.dropped_pass_limit;
        self.dropped_parser_limit += other.dropped_parser_limit;
        self.replaced += other.replaced;
        self.received += other.received;
        self.copies += other.copies;
        self.parser_errors += other.parser_errors;
        self.checksum_errors += other.checksum_errors;
        self.clone_no_session += other.clone_no_session;
        self.index_out_of_range += other.index_out_of_range;
        self.action_limit += other.action_limit;
        self.empty_group += other.empty_group;
        self.assertions_failed += other.assertions_failed;
        self.digests += other.digests;
    }

    /// Returns all counters with their names, in a fixed order.
    pub fn named(&self) -> [(&'static str, u64); 19] {
        [
            ("received", self.received),
            ("copies", self.copies),
            ("transmitted", self.transmitted),
            ("dropped_ingress", self.dropped_ingress),
            ("dropped_egress", self.dropped_egress),
            ("dropped_queue_full", self.dropped_queue_full),
            ("dropped_priority", self.dropped_priority),
            ("dropped_no_replica", self.dropped_no_replica),
            ("dropped_pass_limit", self.dropped_pass_limit),
            ("dropped_parser_limit", self.dropped_parser_limit),
            ("replaced", self.replaced),
            ("parser_errors", self.parser_errors),
            ("checksum_errors", self.checksum_errors),
            ("clone_no_session", self.clone_no_session),
            ("index_out_of_range", self.index_out_of_range),
            ("action_limit", self.action_limit),
            ("empty_group", self.empty_group),
            ("assertions_failed", self.assertions_failed),
            ("digests", self.digests),
        ]
    }
}
