// SPDX-License-Identifier: Apache-2.0
//! Analysis of a program before code is generated for it, and of the values that are certain at a point of the code.

pub(crate) mod calculation_input;
pub(crate) mod field_usage;
pub(crate) mod known;
pub(crate) mod parser_states;
mod unwritten;
