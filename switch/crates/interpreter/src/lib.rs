// SPDX-License-Identifier: Apache-2.0
//! The interpreter: the reference engine, which defines correct behaviour.
//!
//! Every faster engine must treat each packet as [`Interpreter`] does. The interpreter executes the loaded program
//! operation by operation, and reports each step to a [`Trace`](sluice_engine::Trace).

mod action;
mod checksum;
mod control;
mod eval;
mod interpreter;
mod machine;
mod parser;
mod profiled;

pub use interpreter::Interpreter;
pub use profiled::Clocked;
