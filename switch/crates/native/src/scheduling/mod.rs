// SPDX-License-Identifier: Apache-2.0
//! Implements coroutines for packets: their stacks, the scheduler, the queue of packets, and the prefetches that are
//! under way while a coroutine is suspended. Does not depend on the engines.

pub(crate) mod fiber;
pub(crate) mod packet_queue;
pub(crate) mod prefetches;
pub(crate) mod scheduler;
