// SPDX-License-Identifier: Apache-2.0
//! Runs [`DigestBuffers`] as a task. The task receives messages and acknowledgements, and sends lists to the
//! primaries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::pipeline::Pipeline;
use crate::proto::v1::DigestList;
use crate::proto::v1::stream_message_response::Update;
use crate::stream::digest::{DigestBuffers, List, decode_message};
use crate::stream::hub::{DigestMessage, Hub, timestamp};

/// P4Info id of a digest, and id of the list that is acknowledged.
pub(crate) type Acknowledgement = (u32, u64);

/// Length of the queue of acknowledgements.
pub(crate) const QUEUE: usize = 1024;

/// Wait time when no list is due.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs the task until the hub is dropped.
pub(crate) async fn run(
    hub: Arc<Hub>,
    messages: mpsc::Receiver<DigestMessage>,
    acknowledgements: mpsc::Receiver<Acknowledgement>,
) {
    let mut inputs = Inputs {
        messages,
        acknowledgements,
    };
    let mut buffers = DigestBuffers::default();
    let mut pipeline: Option<Arc<Pipeline>> = None;
    loop {
        let deadline = buffers.deadline().unwrap_or_else(|| Instant::now() + IDLE);
        let input = tokio::select! {
            input = inputs.next() => match input {
                Some(input) => input,
                None => return,
            },
            () = tokio::time::sleep_until(deadline.into()) => Input::default(),
        };
        for (digest, list) in input.acknowledgements {
            buffers.acknowledge(digest, list);
        }
        let mut lists = Vec::new();
        if let Some((digest, fields)) = input.message {
            let running = hub.running();
            let same = match (&running, &pipeline) {
                (Some(running), Some(known)) => Arc::ptr_eq(running, known),
                _ => false,
            };
            if !same {
                // The program has changed, so messages that the old program buffered have no meaning any more.
                buffers = DigestBuffers::default();
                pipeline = running;
            }
            let Some(pipeline) = &pipeline else { continue };
            let Some((id, _)) = pipeline.digest(digest) else {
                continue;
            };
            let Some(config) = pipeline.digests.get(id) else {
                continue;
            };
            lists.extend(buffers.message(Instant::now(), id, &config, fields));
        }
        let Some(pipeline) = &pipeline else { continue };
        lists.extend(buffers.tick(Instant::now(), |digest| pipeline.digests.get(digest)));
        for list in lists {
            send(&hub, pipeline, list);
        }
    }
}

/// The task's two queues.
struct Inputs {
    messages: mpsc::Receiver<DigestMessage>,
    acknowledgements: mpsc::Receiver<Acknowledgement>,
}

/// What the task handles in one step: first the acknowledgements, then the message.
#[derive(Debug, Default, PartialEq, Eq)]
struct Input {
    acknowledgements: Vec<Acknowledgement>,
    message: Option<DigestMessage>,
}

impl Inputs {
    /// Waits for a message or an acknowledgement. Returns `None` when the sender of messages is gone.
    ///
    /// Order: if an acknowledgement was queued before a message, it is returned before the message or together with
    /// it. Otherwise the message could be dropped as a duplicate of one that is already acknowledged.
    async fn next(&mut self) -> Option<Input> {
        let mut input = tokio::select! {
            message = self.messages.recv() => Input { message: Some(message?), ..Input::default() },
            Some(first) = self.acknowledgements.recv() => Input { acknowledgements: vec![first], ..Input::default() },
        };
        while let Ok(acknowledgement) = self.acknowledgements.try_recv() {
            input.acknowledgements.push(acknowledgement);
        }
        Some(input)
    }
}

fn send(hub: &Hub, pipeline: &Pipeline, list: List) {
    let Some(schema) = pipeline.schema.digests.get(&list.digest) else {
        return;
    };
    let data = list
        .messages
        .iter()
        .filter_map(|fields| decode_message(schema, fields))
        .collect();
    let (digest_id, list_id) = (list.digest, list.list);
    let message = DigestList {
        digest_id,
        list_id,
        data,
        timestamp: timestamp(),
    };
    hub.send_to_primaries(|rights| {
        let covered = rights.covers_id(&pipeline.schema, digest_id);
        covered.then(|| Update::Digest(message.clone()))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_program::DigestId;

    #[tokio::test]
    async fn an_acknowledgement_is_not_overtaken_by_a_later_message() {
        let (to_messages, messages) = mpsc::channel(1);
        let (to_acknowledgements, acknowledgements) = mpsc::channel(1);
        let mut inputs = Inputs {
            messages,
            acknowledgements,
        };
        // `select!` polls its branches in random order, so a wrong order shows only after many repetitions.
        for list in 1..=64 {
            to_acknowledgements.try_send((7, list)).unwrap();
            to_messages.try_send((DigestId(0), vec![1])).unwrap();
            let mut acknowledged = Vec::new();
            loop {
                let input = inputs.next().await.unwrap();
                acknowledged.extend(input.acknowledgements);
                if input.message.is_some() {
                    break;
                }
            }
            assert_eq!(acknowledged, [(7, list)]);
        }
    }
}
