// SPDX-License-Identifier: Apache-2.0
//! Provides the runtime of machine code: the frame (its argument), the functions that it calls, and the pages that hold
//! it.

pub(crate) mod calls;
pub(crate) mod frame;
pub(crate) mod lookups;
pub(crate) mod pages;
