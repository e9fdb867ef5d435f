// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime server against its specification: a real client, a real device, ports in memory. Each module covers a
//! section; each test covers one sentence of it.

#![allow(deprecated, reason = "what older clients send is tested too")]

mod access;
mod action_profiles;
mod arbitration;
mod batches;
mod cells;
mod mutations;
mod packet_io;
mod pipeline_config;
mod reads;
mod replication;
mod streams;
mod string_ports;
mod strings;
mod support;
mod table_entries;
mod tls;
