// SPDX-License-Identifier: Apache-2.0
//! Counts the effort of a lookup, for measurements.

/// Effort of a lookup, as counts that do not depend on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Number of visited nodes.
    pub nodes: usize,
    /// Number of leaves whose rules were compared.
    pub leaves: usize,
    /// Number of rules in these leaves.
    pub rules: usize,
}
