// SPDX-License-Identifier: Apache-2.0
//! FPM, the protocol by which zebra streams its routes: TCP with netlink messages in small frames
//! (FRR's `fpm/fpm.h`). [`framing`] cuts the stream, [`server`] accepts zebra and feeds Python.

pub mod framing;
mod pace;
pub mod server;
