// SPDX-License-Identifier: Apache-2.0
//! Tests the switch as a process: on veth pairs in a separate network namespace, on pcap files, and with command lines
//! that it refuses. The namespace ends with the test's thread, so a failed test leaves nothing behind. The tests need
//! root, because the ports do.

mod access;
mod asking;
mod client;
mod command_line;
mod engine_ports;
mod files;
mod interfaces;
mod qdisc;
mod running;
mod service_manager;
mod wire;
