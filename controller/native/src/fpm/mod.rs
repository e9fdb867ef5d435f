// SPDX-License-Identifier: Apache-2.0
//! FPM, the protocol by which zebra streams its routes: TCP with netlink messages in small frames (FRR's `fpm/fpm.h`).
//! [`framing`] splits the stream into frames, [`server`] accepts zebra and queues frames for Python.

pub mod framing;
mod pace;
pub mod server;
