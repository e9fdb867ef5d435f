// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime specification, version 1.5, as test cases that run against any server.
//!
//! * [`cases`]: the cases, one file for each section or group of sections; each case tests one sentence of it
//! * [`case`]: a case, and running it; [`outcome`]: outcomes of cases, and checks
//! * [`bench`](mod@bench): the server under test and its clients, as cases use them
//! * [`entity`]: short constructors for entities of the program, `program/suite.p4`
//! * [`program`]: that program
//! * [`report`]: results as a table and as JSON; [`spawn`]: a server for each case
//!
//! The program needs no ports. A packet-out can request to run through a table, and comes back as a packet-in with the
//! result. A server without packet I/O is tested for all the rest; cases that need packet I/O are reported as skipped.
//!
//! Promises: a case changes the server only through P4Runtime, and starts with a pipeline of its own. If the server
//! refuses an optional feature of the specification as UNIMPLEMENTED, the case is skipped, not failed.

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
