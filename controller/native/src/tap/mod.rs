// SPDX-License-Identifier: Apache-2.0
//! Implements host interfaces. These are TAPs, through which the router's own kernel and FRR send
//! and receive packets. [`device`] controls one interface. [`set`] reads all interfaces with one
//! thread.

pub mod device;
pub mod set;
