// SPDX-License-Identifier: Apache-2.0
//! Tests any P4Runtime server against the specification, version 1.5.
//!
//! * [`cases`]: the cases, one file for each section or group of sections; each case tests one sentence of the
//!   specification
//! * [`case`]: a case, and how it runs; [`outcome`]: outcomes of cases, and checks
//! * [`bench`](mod@bench): the server under test and its clients, as cases use them
//! * [`entity`]: short constructors for entities of the program, `program/suite.p4`
//! * [`program`]: the compiled program
//! * [`report`]: results as a table and as JSON; [`spawn`]: a server for each case
//!
//! The program needs no ports. A packet-out asks to pass a table, and comes back as a packet-in with the result. On a
//! server without packet I/O, the cases that need packets are reported as skipped.
//!
//! Promises: a case changes the server only through P4Runtime, and sets the pipeline first. If the server refuses an
//! optional feature with UNIMPLEMENTED, the case is skipped, not failed.

#![allow(deprecated, reason = "what older clients send must be taken too")]

pub mod bench;
pub mod case;
pub mod cases;
pub mod entity;
pub mod outcome;
pub mod program;
pub mod report;
pub mod spawn;

pub use bench::{Bench, Target};
pub use case::{Case, Verdict};
pub use outcome::{Failure, Outcome};
