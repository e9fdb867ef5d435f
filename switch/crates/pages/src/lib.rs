// SPDX-License-Identifier: Apache-2.0
//! Memory for lookup structures: in huge pages once it is large enough for one.
//!
//! Each lookup in a table of some megabytes touches a different page. With pages of 4 KiB the address translation
//! costs as much as the read; with pages of 2 MiB it costs hardly anything.
//!
//! * [`Block`]: memory in huge pages.
//! * [`Items`]: a vector that uses such memory once it is large, and normal memory while it is small, so that
//!   small tables stay small.
//! * [`Reserved`]: address space for such memory, in which nothing ever moves.
//!
//! Depends on the operating system only. Invariants: memory holds zeros or what was stored there. Without huge pages
//! only speed is lost. All `unsafe` code concerns memory that this crate owns.

mod block;
mod items;
mod reserved;

pub use block::{Block, HUGE};
pub use items::Items;
pub use reserved::{Reserved, STEP};
