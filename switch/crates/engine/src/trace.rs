// SPDX-License-Identifier: Apache-2.0
//! A hook for watching a packet. The interpreter is generic over it; with [`NoTrace`] every call is
//! compiled away.

use sluice_program::{ActionId, ConditionalId, StateId, TableId};

/// Told about every step. All methods do nothing unless overridden.
pub trait Trace: Send {
    /// The parser enters a state.
    fn state(&mut self, state: StateId) {
        let _ = state;
    }

    /// Parsing ended with an error.
    fn parser_error(&mut self, error: u32) {
        let _ = error;
    }

    /// A table was applied: its key, whether an entry matched, what runs.
    fn table(&mut self, table: TableId, key: &[u8], hit: bool, action: Option<ActionId>) {
        let _ = (table, key, hit, action);
    }

    /// A condition was evaluated.
    fn condition(&mut self, conditional: ConditionalId, value: bool) {
        let _ = (conditional, value);
    }

    /// What becomes of the packet, in words.
    fn fate(&mut self, fate: &str) {
        let _ = fate;
    }
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl Trace for NoTrace {}
