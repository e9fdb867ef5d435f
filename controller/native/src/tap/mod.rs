// SPDX-License-Identifier: Apache-2.0
//! Host interfaces: TAPs, through which the router's own kernel and FRR send and receive.
//! [`device`] is one interface and its ioctls, [`set`] reads all interfaces with one thread.

pub mod device;
pub mod set;
