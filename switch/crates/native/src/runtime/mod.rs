// SPDX-License-Identifier: Apache-2.0
//! Provides the runtime of machine code: the frame (the argument of machine code), the functions that machine code
//! calls, and the memory pages that hold the code.

pub(crate) mod calls;
pub(crate) mod frame;
pub(crate) mod lookups;
pub(crate) mod pages;
