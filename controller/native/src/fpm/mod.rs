// SPDX-License-Identifier: Apache-2.0
//! Receives routes from zebra by FPM: TCP with netlink messages in small frames (FRR's `fpm/fpm.h`). [`framing`] splits
//! the stream into frames; [`server`] accepts zebra's connection and queues the frames for Python.

pub mod framing;
mod pace;
pub mod server;
