// SPDX-License-Identifier: Apache-2.0
//! The effort of a lookup, for measurements.

/// Effort of a lookup, in counts that do not depend on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Nodes visited.
    pub nodes: usize,
    /// Leaves compared.
    pub leaves: usize,
    /// Rules in these leaves.
    pub rules: usize,
}
