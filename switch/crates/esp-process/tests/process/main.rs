// SPDX-License-Identifier: Apache-2.0
//! The engine as a process, on a veth pair in a separate network namespace (which ends with the test's thread). Needs
//! root, as the port does.

mod keys;
mod logging;
mod running;
mod service_manager;
mod serving;
