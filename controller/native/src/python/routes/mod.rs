// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes `RouteMemo` and `RouteTable`, and the objects that they return.
//!
//! A prefix is a tuple (vrf, (address, length)). A target is any hashable object.
//!
//! Invariant: no table is locked while Python objects are created or called.

mod column;
mod memo;
mod prefix;
mod queue;
mod shared;
mod table;
mod writes;

pub(super) use column::{RouteColumn, RouteItems, RouteKeys};
pub(super) use memo::{RouteMemo, RouteRun};
pub(super) use queue::{RouteQueue, RouteQueueKeys};
pub(super) use table::{RouteBlock, RouteTable};
pub(super) use writes::RouteBatch;
