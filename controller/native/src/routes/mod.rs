// SPDX-License-Identifier: Apache-2.0
//! All routes of one router, ordered by prefix, and bulk operations on them.
//!
//! * [`slot`]: a prefix of one VRF,
//! * [`memo`]: decodes route messages of known text from FPM frames into a [`memo::Run`],
//! * `index`: the numbers of records by prefix, in order,
//! * [`table`]: a record for each prefix: the known route, the desired target and the installed target,
//! * [`runs`]: applies runs of routes to the table,
//! * [`read_back`]: decodes routes that are read back from the switch,
//! * [`queue`]: prefixes that wait for a write, the newest first,
//! * [`writes`]: encodes the next updates of a queue.
//!
//! Python decides to which target routes lead, once for each message text, and whether they may be written, once for
//! each target. This module applies the decisions to all routes that share a text or a target. It does not depend on
//! Python, P4 names or routing protocols.

mod index;
pub mod memo;
pub mod queue;
pub mod read_back;
pub mod runs;
pub mod slot;
pub mod table;
pub mod writes;
