// SPDX-License-Identifier: Apache-2.0
//! The switch: flags, start-up, shutdown.

fn main() {}
