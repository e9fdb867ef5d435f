// SPDX-License-Identifier: Apache-2.0
//! Tests the engine as a process, on a veth pair in a separate network namespace. The namespace ends with the test's
//! thread. The tests need root, because the port needs privileges.

mod keys;
mod logging;
mod running;
mod service_manager;
mod serving;
