// SPDX-License-Identifier: Apache-2.0
//! Points of a program at which a packet can be.

use sluice_program::{Node, Program, StateId};

/// Number of points that exist in every program: traffic manager, checksums and deparser.
pub(crate) const COMMON: usize = 3;

/// A point of the program, or around it, where a packet spends time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramPoint {
    /// The traffic manager: packets are received, copied, queued and sent.
    Manager,
    /// Verification and update of checksums.
    Checksums,
    /// The deparser.
    Deparser,
    /// A parser state.
    State(StateId),
    /// A table (lookup and action together) or a condition.
    Node(Node),
}

impl ProgramPoint {
    /// Returns the point's number in this program, for [`Profile::enter`](crate::Profile::enter).
    pub fn index(self, program: &Program) -> usize {
        let states = COMMON;
        let tables = states + program.states.len();
        let conditionals = tables + program.tables.len();
        match self {
            Self::Manager => 0,
            Self::Checksums => 1,
            Self::Deparser => 2,
            Self::State(id) => states + id.index(),
            Self::Node(Node::Table(id)) => tables + id.index(),
            Self::Node(Node::Conditional(id)) => conditionals + id.index(),
        }
    }
}
