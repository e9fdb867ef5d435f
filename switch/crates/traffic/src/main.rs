// SPDX-License-Identifier: Apache-2.0
//! Traffic generator and sink.

fn main() {}
