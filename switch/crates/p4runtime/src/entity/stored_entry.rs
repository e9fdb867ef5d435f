// SPDX-License-Identifier: Apache-2.0
//! The entries of a table, including the default entry.

use std::sync::Arc;

use sluice_tables::{DefaultEntry, Entry, EntryState, Meter};

/// An entry or a default entry, with its direct resources.
#[derive(Clone)]
pub(crate) enum StoredEntry {
    /// An entry.
    Entry(Entry),
    /// A default entry.
    Default(Arc<DefaultEntry>),
}

impl From<Entry> for StoredEntry {
    fn from(entry: Entry) -> Self {
        Self::Entry(entry)
    }
}

impl From<Arc<DefaultEntry>> for StoredEntry {
    fn from(entry: Arc<DefaultEntry>) -> Self {
        Self::Default(entry)
    }
}

impl StoredEntry {
    /// Returns the state that packets write, if the table keeps it.
    pub(crate) fn state(&self) -> Option<&EntryState> {
        match self {
            Self::Entry(entry) => entry.state(),
            Self::Default(entry) => Some(entry.state()),
        }
    }

    /// Returns the direct meter, if there is one.
    pub(crate) fn meter(&self) -> Option<&Meter> {
        match self {
            Self::Entry(entry) => entry.meter(),
            Self::Default(entry) => entry.meter(),
        }
    }
}
