// SPDX-License-Identifier: Apache-2.0
//! Gives up the capabilities that the switch does not need, before any thread starts and any client is heard.
//!
//! Kept as permitted: CAP_NET_ADMIN and CAP_NET_RAW, because ports come and go while the switch runs (`ctl add-port`, an
//! interface that comes back) and the filters that close them to the host are put back when somebody removes them. They are
//! effective only during that ([`sluice_ports::privilege`]); workers, which read what the network sends, give up both. A
//! switch without interfaces keeps none. CAP_SYS_NICE is kept until workers have their niceness ([`give_up_niceness`]). Nothing is inheritable, ambient or in the bounding set, and no program that the
//! process might start gains anything (`no_new_privs`).

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Gives up all capabilities but CAP_SYS_NICE and those that ports need, if there may be ports on interfaces.
///
/// Call it with one thread: threads have capabilities of their own.
///
/// # Errors
/// The kernel's.
pub(crate) fn give_up(interfaces: bool) -> Result<(), Errno> {
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
    let needed = if interfaces {
        sluice_ports::privilege::NEEDED
    } else {
        CapabilitySet::empty()
    };
    set_no_new_privs(true)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: sets.permitted & CapabilitySet::SYS_NICE,
            permitted: sets.permitted & (needed | CapabilitySet::SYS_NICE),
            inheritable: CapabilitySet::empty(),
        },
    )
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
