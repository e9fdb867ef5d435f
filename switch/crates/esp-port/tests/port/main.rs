// SPDX-License-Identifier: Apache-2.0
//! Tests the engine port alone, and as a port of a device whose program sends to it.

mod allocation;
mod alone;
mod in_a_device;
mod support;
