// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime specification, version 1.5, as test cases that run against any server.
//!
//! * [`cases`]: the cases, one file for each section or group of sections; each case is a sentence of it
//! * [`case`]: what a case is, and running one
//! * [`bench`](mod@bench): the server under test and its clients, as cases use them
//! * [`entity`]: entities of the program, `program/suite.p4`, in few words
//! * [`program`]: that program
//! * [`report`]: results as a table and as JSON; [`spawn`]: a server for each case
//!
//! The program needs no ports: a packet-out may ask to run through a table and comes back as a packet-in that says what
//! happened to it. A server without packet I/O is tested for all the rest; the cases that need it are skipped by name.
//!
//! Promises: a case changes the server only through P4Runtime and begins with a pipeline of its own; a feature that the
//! specification makes optional and that the server refuses as UNIMPLEMENTED is skipped, not failed.

#![allow(deprecated, reason = "what older clients send must be taken too")]

pub mod bench;
pub mod case;
pub mod cases;
pub mod entity;
pub mod program;
pub mod report;
pub mod spawn;

pub use bench::{Bench, Target};
pub use case::{Case, Failure, Outcome, Verdict};
