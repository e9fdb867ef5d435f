// SPDX-License-Identifier: Apache-2.0
//! Memory of look-up structures: in huge pages as soon as there is enough for one.
//!
//! A look-up in a table of some megabytes touches another page each time. With pages of 4 KiB,
//! finding out where they are costs as much as reading them; with pages of 2 MiB, hardly anything.
//! [`Block`] is memory of that kind; [`Items`] is a vector that is in such memory once it is large, and
//! like any other while it is small, so that small tables stay small; [`Reserved`] is address space for such
//! memory, in which nothing ever moves.
//!
//! Depends on the operating system only. Promises: memory is zeroed, or what was put there; where the
//! system has no huge pages, nothing is lost but speed. The `unsafe` is all about memory that is
//! this crate's own.

mod block;
mod items;
mod reserved;

pub use block::{Block, HUGE};
pub use items::Items;
pub use reserved::Reserved;
