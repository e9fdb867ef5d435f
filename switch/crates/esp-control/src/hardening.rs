// SPDX-License-Identifier: Apache-2.0
//! Gives up core files and tracing by others.

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Keys are in memory: no core file, and nobody without privileges reads it through /proc or ptrace.
///
/// # Errors
/// The kernel's.
pub fn no_core() -> Result<(), Errno> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // A core file that is piped to a program does not mind the limit.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
