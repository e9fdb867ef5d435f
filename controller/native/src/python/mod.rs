// SPDX-License-Identifier: Apache-2.0
//! Implements the Python module `sluice._native`, with thin classes over the other modules of the
//! crate.
//!
//! This module only converts values to Python objects and errors to exceptions.
//! `src/sluice/_native.pyi` is the reference.
//!
//! Invariant: no mailbox is locked while Python objects are created.

mod errors;
mod fast_path;
mod flows;
mod fpm;
mod p4runtime;
mod packets;
mod punts;
mod routes;
mod rules;
mod tap;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<p4runtime::P4RuntimeClient>()?;
    module.add_class::<p4runtime::ReadPart>()?;
    module.add_class::<tap::TapSet>()?;
    module.add_class::<punts::PuntQueue>()?;
    module.add_class::<punts::FirstPacket>()?;
    module.add_class::<flows::FlowTypes>()?;
    module.add_class::<flows::FlowCache>()?;
    module.add_class::<flows::FlowKeys>()?;
    module.add_class::<flows::FlowItems>()?;
    module.add_class::<flows::FlowSequenceIterator>()?;
    module.add_class::<flows::FlowQueue>()?;
    module.add_class::<flows::FlowBatch>()?;
    module.add_class::<flows::FlowEncoder>()?;
    module.add_class::<fast_path::FastPath>()?;
    module.add_class::<routes::RouteMemo>()?;
    module.add_class::<routes::RouteRun>()?;
    module.add_class::<routes::RouteTable>()?;
    module.add_class::<routes::RouteBlock>()?;
    module.add_class::<routes::RouteBatch>()?;
    module.add_class::<routes::RouteColumn>()?;
    module.add_class::<routes::RouteKeys>()?;
    module.add_class::<routes::RouteItems>()?;
    module.add_class::<routes::RouteQueue>()?;
    module.add_class::<routes::RouteQueueKeys>()?;
    module.add_class::<rules::RuleBatch>()?;
    module.add_class::<rules::RuleTree>()?;
    module.add_class::<fpm::FpmServer>()
}
