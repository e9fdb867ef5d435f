// SPDX-License-Identifier: Apache-2.0
//! Implements the native engine. The engine runs a program's parser, pipelines, deparser and checksums as machine code,
//! which Cranelift generates when the program is loaded.
//!
//! ```text
//! Program -> analysis -> codegen (parser, pipeline, table, action, expr, ...) -> Cranelift -> runtime::pages
//!                                                   Native: frame -> machine code -> runtime::calls
//! ```
//!
//! The code is specialised to the program:
//!
//! - A field is loaded and shifted at a fixed offset of the packet header vector.
//! - Metadata fields are kept in registers where possible. Fields that no code reads from memory are not stored
//!   (`analysis`).
//! - A step is compiled once for each likely set of facts (`codegen::variants`).
//! - An action is inlined where its table is applied.
//! - The entries of a constant table become comparisons in the code, without a lookup.
//! - Arithmetic uses only as many words as the result needs.
//!
//! For lookups in tables that the control plane fills, for hashes and for rare operations, the code calls functions in
//! `runtime`.
//!
//! Promises:
//!
//! * The engine treats a packet exactly as `sluice_interpreter::Interpreter` does, including counters and random
//!   numbers.
//! * Before each access to the packet, the code makes the same bounds check as the interpreter.
//! * Constructs that cannot be compiled to inline code are listed in the [`Report`].
//! * The code stays in memory as long as an engine exists that runs the code.
//! * [`Lanes`] run several packets at a time, with the same results.

mod analysis;
mod codegen;
mod engine;
mod lanes;
mod profiled;
mod runtime;
mod scheduling;

pub use codegen::compile::{Code, NativeError, Report};
pub use engine::Native;
pub use lanes::{Batch, Lanes};
pub use profiled::NativeProfiled;
