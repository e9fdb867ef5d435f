// SPDX-License-Identifier: Apache-2.0
//! Tests the engine from outside: frames in, frames or drops out.

mod allocation;
mod batches;
mod fragments;
mod hostile;
mod modes;
mod round_trips;
mod support;
mod vectors;
