// SPDX-License-Identifier: Apache-2.0
//! Analyses a program before code is generated for it, and records the facts that are certain at a point of the code.

pub(crate) mod calculation_input;
pub(crate) mod field_usage;
pub(crate) mod known;
pub(crate) mod parser_states;
mod unwritten;
