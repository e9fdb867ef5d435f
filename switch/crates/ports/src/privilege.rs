// SPDX-License-Identifier: Apache-2.0
//! Raises capabilities of the calling thread, and only while it takes over, checks or releases an interface.
//!
//! A process can run without effective capabilities, as sluice-switch does. This module makes CAP_NET_ADMIN and
//! CAP_NET_RAW effective while they are needed, if they are permitted.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The capabilities that ports need.
pub const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Keeps capabilities effective until this is dropped.
#[derive(Debug)]
pub(crate) struct Raised(CapabilitySet);

impl Raised {
    /// Makes the needed capabilities effective, as far as they are permitted. If they are not, the kernel will refuse
    /// the operations that need them.
    pub(crate) fn here() -> Self {
        let raised = capabilities(None).and_then(|sets| {
            let missing = NEEDED & sets.permitted & !sets.effective;
            if !missing.is_empty() {
                let effective = sets.effective | missing;
                set_capabilities(None, CapabilitySets { effective, ..sets })?;
            }
            Ok(missing)
        });
        Self(raised.unwrap_or(CapabilitySet::empty()))
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let lowered = capabilities(None).and_then(|sets| {
            let effective = sets.effective & !self.0;
            set_capabilities(None, CapabilitySets { effective, ..sets })
        });
        if let Err(error) = lowered {
            tracing::error!(%error, "the capabilities of a thread cannot be lowered again");
        }
    }
}

/// Drops all capabilities except those in `permitted`. Of these capabilities, only the ones in `effective` stay
/// effective. Clears the inheritable, ambient and bounding sets, so that no program that the process might start gains
/// a capability.
///
/// The caller must call this while the process has only one thread, because each thread has its own capabilities.
///
/// # Errors
/// Errors from the kernel.
pub fn keep_only(permitted: CapabilitySet, effective: CapabilitySet) -> Result<(), Errno> {
    clear_ambient_capability_set()?;
    let sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            match remove_capability_from_bounding_set(capability) {
                // The kernel does not know this capability, so the process cannot have it.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    set_no_new_privs(true)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: sets.permitted & effective,
            permitted: sets.permitted & permitted,
            inheritable: CapabilitySet::empty(),
        },
    )
}

/// Drops all capabilities of the calling thread permanently. Threads that only move frames call this, because they need
/// no capabilities.
pub fn renounce() {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    if let Err(error) = set_capabilities(None, none) {
        tracing::error!(%error, "a thread cannot drop its capabilities");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn what_is_permitted_is_effective_only_meanwhile() {
        let run = || {
            let before = capabilities(None).unwrap();
            let effective = CapabilitySet::empty();
            set_capabilities(
                None,
                CapabilitySets {
                    effective,
                    ..before
                },
            )
            .unwrap();
            let of_thread = || capabilities(None).unwrap().effective;
            let raised = Raised::here();
            assert_eq!(of_thread(), NEEDED & before.permitted);
            drop(Raised::here());
            assert_eq!(
                of_thread(),
                NEEDED & before.permitted,
                "the outer guard is in force"
            );
            drop(raised);
            assert_eq!(of_thread(), CapabilitySet::empty());
            renounce();
            drop(Raised::here());
            assert_eq!(
                capabilities(None).unwrap().permitted,
                CapabilitySet::empty()
            );
        };
        thread::spawn(run).join().unwrap();
    }
}
