// SPDX-License-Identifier: Apache-2.0
//! Tests the P4Runtime server as far as a P4Runtime client alone cannot: ports and their status, the server's
//! options and limits, and the texts of errors. The clients are real. The device has ports in memory.
//!
//! The P4Runtime specification itself is tested by `sluice-p4runtime-suite`, sentence by sentence.

mod access;
mod arbitration;
mod mutations;
mod packets;
mod pipeline;
mod port_status;
mod string_ports;
mod strings;
mod support;
mod tables;
mod tls;
