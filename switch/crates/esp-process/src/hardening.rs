// SPDX-License-Identifier: Apache-2.0
//! Gives up core files, tracing by others, and capabilities.

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Keys are in memory: no core file, and nobody without privileges reads it through /proc or ptrace.
///
/// # Errors
/// The kernel's.
pub(crate) fn no_core() -> Result<(), Errno> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    // A core file that is piped to a program does not mind the limit.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Gives up all capabilities but those of the port, which become effective only while it is checked or given back. Call it
/// with one thread: threads have capabilities of their own.
///
/// # Errors
/// The kernel's.
pub(crate) fn give_up_capabilities() -> Result<(), Errno> {
    clear_ambient_capability_set()?;
    let sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            match remove_capability_from_bounding_set(capability) {
                // A kernel that does not know it has not got it.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    set_no_new_privs(true)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: sets.permitted & sluice_ports::privilege::NEEDED,
            inheritable: CapabilitySet::empty(),
        },
    )
}
