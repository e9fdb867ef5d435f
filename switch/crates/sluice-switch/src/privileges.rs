// SPDX-License-Identifier: Apache-2.0
//! Drops the capabilities that the switch does not need, before any thread starts and before any client connects.
//!
//! CAP_NET_ADMIN and CAP_NET_RAW stay permitted, for two reasons. The switch needs them to add ports while it runs
//! (`ctl add-port`, an interface that returns). It also needs them to restore a filter that closes a port to the host,
//! if a user has removed the filter. They are effective only during these operations ([`sluice_ports::privilege`]).
//! Workers read untrusted input from the network, so they drop both capabilities. A switch without interfaces keeps
//! neither of them. CAP_SYS_NICE is kept until the workers have their niceness ([`give_up_niceness`]).
//!
//! The inheritable, ambient and bounding sets are empty, and `no_new_privs` is set. So a program that the process might
//! start gains no capability.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use sluice_ports::privilege;

/// Drops all capabilities except CAP_SYS_NICE. If interfaces may become ports, also keeps CAP_NET_ADMIN and
/// CAP_NET_RAW.
///
/// The caller must call this while the process has only one thread, because each thread has its own capabilities.
///
/// # Errors
/// Errors from the kernel.
pub(crate) fn give_up(interfaces: bool) -> Result<(), Errno> {
    let needed = if interfaces {
        privilege::NEEDED
    } else {
        CapabilitySet::empty()
    };
    let nice = CapabilitySet::SYS_NICE;
    privilege::keep_only(needed | nice, nice)
}

/// Drops CAP_SYS_NICE, after the threads that need it have started.
///
/// # Errors
/// Errors from the kernel.
pub(crate) fn give_up_niceness() -> Result<(), Errno> {
    let sets = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: sets.permitted & !CapabilitySet::SYS_NICE,
            ..sets
        },
    )
}
