// SPDX-License-Identifier: Apache-2.0
//! Implements the Python classes that record flows and queue their writes.

mod cache;
mod encoder;
mod queue;
mod sequences;
pub(super) mod types;

pub(super) use cache::FlowCache;
pub(super) use encoder::FlowEncoder;
pub(super) use queue::{FlowBatch, FlowQueue};
pub(super) use sequences::{FlowItems, FlowKeys, FlowSequenceIterator};
pub(super) use types::FlowTypes;
