// SPDX-License-Identifier: Apache-2.0
//! The parts of a table that exist once, for the authoritative copy and both replicas.

use std::sync::Arc;

use parking_lot::RwLock;
use sluice_program::{Program, Table};

use crate::default_entry::DefaultEntry;
use crate::key::KeyShape;
use crate::lookup::{Routes, SharedRoutes};
use crate::slab::Slab;

/// The parts of a table that the authoritative copy and both replicas share.
#[derive(Debug)]
pub(crate) struct SharedTable {
    pub(crate) slab: Arc<Slab>,
    /// The routes, in a longest-prefix table.
    pub(crate) routes: Option<SharedRoutes>,
    /// The program's default entry.
    pub(crate) default: Arc<DefaultEntry>,
}

impl SharedTable {
    pub(crate) fn new(program: &Program, table: &Table, default: DefaultEntry) -> Self {
        let slab = Arc::new(Slab::of(program, table));
        let routes = match KeyShape::of(table) {
            KeyShape::Lpm(field) => Some(Arc::new(RwLock::new(Routes::new(table, field, &slab)))),
            KeyShape::Exact | KeyShape::Ordered => None,
        };
        Self {
            slab,
            routes,
            default: Arc::new(default),
        }
    }
}
