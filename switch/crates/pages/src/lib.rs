// SPDX-License-Identifier: Apache-2.0
//! Provides memory for lookup structures. Memory that is large enough is in huge pages.
//!
//! Lookups in a table of some megabytes touch a different page each time. With pages of 4 KiB, most of them miss the
//! TLB, and the address translation costs as much as the read itself. With pages of 2 MiB, it costs almost nothing.
//!
//! * [`Block`]: memory in huge pages.
//! * [`PageVec`]: a vector that uses normal memory while it is small, so that small tables take little memory, and huge
//!   pages when it is large.
//! * [`Reserved`]: reserved address space, in which contents never move.
//!
//! Depends only on the operating system. Invariants: memory holds zeros until a caller writes to it. Without huge pages
//! everything works, but more slowly. All `unsafe` code concerns memory that this crate owns.

mod block;
mod page_vec;
mod reserved;

pub use block::{Block, HUGE};
pub use page_vec::PageVec;
pub use reserved::{Reserved, STEP};
