// SPDX-License-Identifier: Apache-2.0
//! Stores all routes of one router, ordered by prefix, and applies bulk operations to them.
//!
//! * [`slot`]: stores a prefix of one VRF,
//! * [`memo`]: decodes route messages with known texts from FPM frames into a [`memo::Run`],
//! * `index`: maps prefixes to record numbers, in order,
//! * [`table`]: holds a record for each prefix: the known route, the desired target and the
//!   installed target,
//! * [`runs`]: applies runs of routes to the table,
//! * [`read_back`]: decodes routes that are read back from the switch,
//! * [`queue`]: holds prefixes that wait for a write, ordered by time,
//! * [`writes`]: encodes the next updates of a queue.
//!
//! For each message text, Python decides once to which target the routes lead. For each target,
//! Python decides once whether routes to the target may be written. This module applies these
//! decisions to all routes with the same text or target. It does not depend on Python, P4 names
//! or routing protocols.

mod index;
pub mod memo;
pub mod queue;
pub mod read_back;
pub mod runs;
pub mod slot;
pub mod table;
pub mod writes;
