// SPDX-License-Identifier: Apache-2.0
//! Answers of lookups. An answer is the value of a route, or [`NONE`].

/// Result of a lookup if no route matches. No route may have this value.
pub const NONE: u32 = u32::MAX;
