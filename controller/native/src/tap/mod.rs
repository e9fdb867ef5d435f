// SPDX-License-Identifier: Apache-2.0
//! Implements host interfaces: TAPs, through which the router's own kernel and FRR send and receive. [`device`]
//! controls one interface; [`set`] reads all interfaces with one thread.

pub mod device;
pub mod set;
