// SPDX-License-Identifier: Apache-2.0
//! Disables core files, and tracing by other processes.

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Keeps keys in memory private: no core file, and no access through /proc or ptrace without privileges.
///
/// # Errors
/// The kernel's.
pub fn no_core() -> Result<(), Errno> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // A core file that is piped to a program ignores the limit.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
