// SPDX-License-Identifier: Apache-2.0
//! The switch as a process: on veth pairs in a network namespace of its own (which ends with the test's thread, so a
//! failed test leaves nothing behind), on pcap files, and with command lines that it refuses. Needs root, as the ports do.

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
