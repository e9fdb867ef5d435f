// SPDX-License-Identifier: Apache-2.0
//! Generates code for the whole packet path, as Cranelift's intermediate representation. There is one module for each
//! construct of a program.

pub(crate) mod action;
pub(crate) mod checksum;
pub(crate) mod choice;
pub(crate) mod compile;
pub(crate) mod conditions;
pub(crate) mod constant_table;
pub(crate) mod counters;
pub(crate) mod deparser;
pub(crate) mod expr;
pub(crate) mod flow;
pub(crate) mod forward;
pub(crate) mod kept_fields;
pub(crate) mod key;
pub(crate) mod lower;
pub(crate) mod number;
pub(crate) mod own_fields;
pub(crate) mod parser;
pub(crate) mod pipeline;
pub(crate) mod start;
pub(crate) mod table;
pub(crate) mod variants;
