// SPDX-License-Identifier: Apache-2.0
//! Disables core files and tracing by other processes.

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Keeps keys in memory private. The process writes no core file, and only privileged processes can read its memory
/// through /proc or ptrace.
///
/// # Errors
/// The kernel's error.
pub fn no_core() -> Result<(), Errno> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // The limit above has no effect if core files are piped to a program. So this call disables core files as well.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
