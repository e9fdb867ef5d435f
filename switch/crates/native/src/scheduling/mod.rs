// SPDX-License-Identifier: Apache-2.0
//! Coroutines for packets: stacks, the scheduler that switches between them, the queue of packets, and the prefetches
//! that cover the time in between. Knows nothing of engines.

pub(crate) mod fiber;
pub(crate) mod packet_queue;
pub(crate) mod prefetches;
pub(crate) mod scheduler;
