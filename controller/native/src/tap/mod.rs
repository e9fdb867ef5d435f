// SPDX-License-Identifier: Apache-2.0
//! Implements host interfaces: the TAPs through which the host's kernel and FRR send and receive
//! packets. [`device`] controls one interface. [`set`] reads all interfaces with one thread.

pub mod device;
pub mod set;
