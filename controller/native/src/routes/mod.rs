// SPDX-License-Identifier: Apache-2.0
//! All routes of one router, in the order of their prefixes, and what happens to many of them alike.
//!
//! * [`slot`]: a prefix of one VRF,
//! * [`memo`]: route messages of known text, cut from FPM frames: a [`memo::Run`],
//! * `index`: the records' numbers by prefix, in order,
//! * [`table`]: for each prefix what is known, wanted and installed, by number,
//! * [`runs`]: many routes taken in,
//! * [`read_back`]: routes in what the switch says that it holds,
//! * [`queue`]: prefixes that wait for a write, the newest first,
//! * [`writes`]: the next updates of a queue, encoded.
//!
//! Where routes lead, and whether they may be written, is decided by Python: once for each text of
//! messages, and once for each target. Here these decisions are applied to all routes that share
//! them. Nothing here knows Python, a P4 name or a protocol of routing.

mod index;
pub mod memo;
pub mod queue;
pub mod read_back;
pub mod runs;
pub mod slot;
pub mod table;
pub mod writes;
