// SPDX-License-Identifier: Apache-2.0
//! Records the flows installed in the switch, and queues their writes.
//!
//! * [`key`]: the compact key and verdict of a flow,
//! * [`store`]: records of flows, found by key or by number, in an index that grows in small steps,
//! * [`pool`]: the order of eviction of the flows of one epoch, as an intrusive list,
//! * [`cache`]: the flows of one list, and the writes to make; `state/flow_cache.py` is its specification,
//! * [`queue`]: the writes of all lists, in order.
//!
//! A flow takes about 100 bytes. No Python object exists for it.

pub mod cache;
pub mod key;
mod pool;
pub mod queue;
mod store;
