// SPDX-License-Identifier: Apache-2.0
//! Tests the P4Runtime server where a P4Runtime client alone is not enough: ports and their status, the server's
//! options and limits, and the texts of errors. The clients are real; the device has ports in memory.
//!
//! The cases of `sluice-p4runtime-suite` test the sentences of the P4Runtime specification.

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
