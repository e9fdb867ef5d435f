// SPDX-License-Identifier: Apache-2.0
//! Provides the benchmarks' input: tables, rules and traces of keys, read from a file or generated.
//!
//! Promise: the same seed yields the same input on every machine.

pub(crate) mod generate;
pub(crate) mod mix;
pub(crate) mod random;
pub(crate) mod routes;
pub(crate) mod trace;
