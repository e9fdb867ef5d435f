// SPDX-License-Identifier: Apache-2.0
//! Handles streams: arbitration, and the messages between the switch and its controllers.
//!
//! * [`hub`]: the streams of all controllers, with their queues
//! * [`arbitration`], [`digest`]: state machines without I/O
//! * [`digest_task`]: sends digest lists
//! * [`moderation`]: sends the packet-ins of a busy stream together
//! * [`packets`]: encodes packet-ins and decodes packet-outs

pub(crate) mod arbitration;
pub(crate) mod digest;
pub(crate) mod digest_task;
pub mod hub;
mod moderation;
pub(crate) mod packets;
