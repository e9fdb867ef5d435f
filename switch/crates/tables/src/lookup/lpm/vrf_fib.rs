// SPDX-License-Identifier: Apache-2.0
//! The FIB of one VRF.

use std::time::Instant;

use sluice_fib::{Family, Follower, PinError, Rib, Status};

use super::routes::VrfRoutes;

/// How much a query for the status of a FIB finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibDetail {
    /// Everything except the number of distinct values, which is reported as 0. Takes constant time.
    Sizes,
    /// Includes the number of distinct values. Takes time proportional to the number of routes.
    Values,
}

/// Lookup structure of one VRF. The address type is the narrowest one that holds the prefix field.
#[derive(Debug)]
pub(super) enum VrfFib {
    Narrow(Follower<u32>),
    Wide(Follower<u128>),
}

/// Creates the lookup structure of a FIB without routes.
fn follower<A: Family>(pinned: Option<&str>) -> Follower<A> {
    let nothing = Rib::new();
    let mut fib = Follower::new(&nothing);
    if pinned.is_some() {
        // Every algorithm can be built without routes, so this cannot fail.
        let _ = fib.pin(pinned, &nothing);
    }
    fib
}

impl VrfFib {
    pub(super) fn new(width: u32, pinned: Option<&str>) -> Self {
        if width <= u32::BITS {
            Self::Narrow(follower(pinned))
        } else {
            Self::Wide(follower(pinned))
        }
    }

    pub(super) fn follow(&mut self, routes: &VrfRoutes, now: Instant) {
        match (self, routes) {
            (Self::Narrow(fib), VrfRoutes::Narrow(routes)) => {
                fib.follow(routes.changes(), routes.rib(), || now);
            }
            (Self::Wide(fib), VrfRoutes::Wide(routes)) => {
                fib.follow(routes.changes(), routes.rib(), || now);
            }
            // Unreachable, because the FIB and its routes have addresses of the same width.
            _ => {}
        }
    }

    pub(super) fn build_if_due(&mut self, routes: &VrfRoutes, now: Instant) {
        match (self, routes) {
            (Self::Narrow(fib), VrfRoutes::Narrow(routes)) => fib.follow(&[], routes.rib(), || now),
            (Self::Wide(fib), VrfRoutes::Wide(routes)) => fib.follow(&[], routes.rib(), || now),
            _ => {}
        }
    }

    pub(super) fn pin(&mut self, name: Option<&str>, routes: &VrfRoutes) -> Result<(), PinError> {
        match (self, routes) {
            (Self::Narrow(fib), VrfRoutes::Narrow(routes)) => fib.pin(name, routes.rib()),
            (Self::Wide(fib), VrfRoutes::Wide(routes)) => fib.pin(name, routes.rib()),
            _ => Ok(()),
        }
    }

    pub(super) fn status(&self, routes: &VrfRoutes, detail: FibDetail) -> Option<Status> {
        let whole = detail == FibDetail::Values;
        match (self, routes) {
            (Self::Narrow(fib), VrfRoutes::Narrow(routes)) if whole => {
                Some(fib.status(routes.rib()))
            }
            (Self::Narrow(fib), VrfRoutes::Narrow(routes)) => Some(fib.brief_status(routes.rib())),
            (Self::Wide(fib), VrfRoutes::Wide(routes)) if whole => Some(fib.status(routes.rib())),
            (Self::Wide(fib), VrfRoutes::Wide(routes)) => Some(fib.brief_status(routes.rib())),
            _ => None,
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        match self {
            Self::Narrow(fib) => fib.is_pending(),
            Self::Wide(fib) => fib.is_pending(),
        }
    }
}
