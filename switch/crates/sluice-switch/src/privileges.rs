// SPDX-License-Identifier: Apache-2.0
//! Drops the capabilities that the switch does not need, before any thread starts and any client connects.
//!
//! Kept as permitted: CAP_NET_ADMIN and CAP_NET_RAW. Ports come and go while the switch runs (`ctl add-port`, an
//! interface that comes back), and filters that close them to the host are restored when a user removes them. The two
//! are effective only during that ([`sluice_ports::privilege`]). Workers, which read what the network sends, drop both.
//! A switch without interfaces keeps neither. CAP_SYS_NICE is kept until workers have their niceness
//! ([`give_up_niceness`]).
//!
//! Nothing is inheritable, ambient or in the bounding set, and no program that the process might start gains any
//! capability (`no_new_privs`).

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use sluice_ports::privilege;

/// Drops all capabilities but CAP_SYS_NICE and, if ports may be on interfaces, those that ports need.
///
/// Call it while the process has one thread, because threads have capabilities of their own.
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
