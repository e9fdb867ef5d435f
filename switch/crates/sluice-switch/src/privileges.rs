// SPDX-License-Identifier: Apache-2.0
//! Gives up the capabilities that the switch does not need, before any thread starts and any client is heard.
//!
//! Kept as permitted: CAP_NET_ADMIN and CAP_NET_RAW, because ports come and go while the switch runs (`ctl add-port`, an
//! interface that comes back) and the filters that close them to the host are put back when somebody removes them. They are
//! effective only during that ([`sluice_ports::privilege`]); workers, which read what the network sends, give up both. A
//! switch without interfaces keeps none. CAP_SYS_NICE is kept until workers have their niceness ([`give_up_niceness`]). Nothing is inheritable, ambient or in the bounding set, and no program that the
//! process might start gains anything (`no_new_privs`).

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use sluice_ports::privilege;

/// Gives up all capabilities but CAP_SYS_NICE and those that ports need, if there may be ports on interfaces.
///
/// Call it with one thread: threads have capabilities of their own.
///
/// # Errors
/// The kernel's.
pub(crate) fn give_up(interfaces: bool) -> Result<(), Errno> {
    let needed = if interfaces {
        privilege::NEEDED
    } else {
        CapabilitySet::empty()
    };
    let nice = CapabilitySet::SYS_NICE;
    privilege::keep_only(needed | nice, nice)
}

/// Gives up CAP_SYS_NICE, when the threads that it was for have started.
///
/// # Errors
/// The kernel's.
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
