// SPDX-License-Identifier: Apache-2.0
//! Defines the error for a program that is refused. It says why, and where in the JSON and in the P4 source.

use std::fmt;
use std::sync::Arc;

/// A location in the P4 source, as recorded by p4c.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// File name as it was passed to p4c.
    pub file: Arc<str>,
    /// Line, counted from 1.
    pub line: u32,
    /// Column, counted from 1. 0 if p4c recorded no column.
    pub column: u32,
    /// Source text at the location.
    pub fragment: Arc<str>,
}

impl fmt::Display for SourceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The reason why a program cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    message: String,
    path: String,
    source: Option<SourceInfo>,
}

impl LoadError {
    pub(crate) fn new(message: String, path: String, source: Option<SourceInfo>) -> Self {
        Self {
            message,
            path,
            source,
        }
    }

    /// Returns the reason. It names the construct at fault.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the location in the JSON, e.g. `pipelines[0].tables[3].key[1]`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the location in the P4 source, if p4c recorded it.
    pub fn source_info(&self) -> Option<&SourceInfo> {
        self.source.as_ref()
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        write!(f, "{}", self.message)?;
        if !self.path.is_empty() {
            write!(f, " (at {} of the BMv2 JSON)", self.path)?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}
