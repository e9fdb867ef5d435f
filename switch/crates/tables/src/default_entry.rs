// SPDX-License-Identifier: Apache-2.0
//! Default entries, which apply on a miss.

use std::sync::Arc;

use sluice_program::{Program, Table};

use crate::binding::Binding;
use crate::entry_state::EntryState;
use crate::meter::Meter;
use crate::model::EntryAction;

/// Counter and other state that packets write when they miss and use the default entry.
#[derive(Debug)]
pub(crate) struct DefaultState {
    pub(crate) state: EntryState,
    pub(crate) meter: Option<Meter>,
}

impl DefaultState {
    pub(crate) fn new(table: &Table) -> Self {
        Self {
            state: EntryState::default(),
            meter: table.meter.map(|_| Meter::default()),
        }
    }
}

/// A table's default entry, which applies on a miss.
#[derive(Debug)]
pub struct DefaultEntry {
    pub(crate) binding: Option<Binding>,
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) packet_state: Arc<DefaultState>,
    /// Whether this is the default entry that the program declares.
    pub(crate) initial: bool,
}

impl DefaultEntry {
    /// Returns the state that packets write on a miss, with the count of these packets.
    #[inline]
    pub fn state(&self) -> &EntryState {
        &self.packet_state.state
    }

    /// Returns the direct meter, if the table has direct meters.
    #[inline]
    pub fn meter(&self) -> Option<&Meter> {
        self.packet_state.meter.as_ref()
    }

    /// Returns the target, or `None` if there is no default action.
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    /// Returns the controller's opaque 64-bit value.
    pub fn controller_metadata(&self) -> u64 {
        self.controller_metadata
    }

    /// Returns the controller's opaque bytes.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// Returns whether this is the default entry that the program declares.
    pub fn is_initial(&self) -> bool {
        self.initial
    }

    /// Converts the target to the control plane's form.
    pub fn action(&self, program: &Program) -> Option<EntryAction> {
        self.binding.as_ref().map(|binding| binding.action(program))
    }
}
