// SPDX-License-Identifier: Apache-2.0
//! The task that runs [`DigestBuffers`]: it takes messages and acknowledgements, and sends lists to the primaries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::digest::{DigestBuffers, List, decode_message};
use crate::hub::{DigestMessage, Hub, timestamp};
use crate::pipeline::Pipeline;
use crate::proto::v1::DigestList;
use crate::proto::v1::stream_message_response::Update;

/// P4Info id of a digest, and the id of the acknowledged list.
pub type Acknowledgement = (u32, u64);

/// Length of the queue of acknowledgements.
pub const QUEUE: usize = 1024;

/// Wait time when no list is due.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs until the hub has gone.
pub async fn run(
    hub: Arc<Hub>,
    mut messages: mpsc::Receiver<DigestMessage>,
    mut acknowledgements: mpsc::Receiver<Acknowledgement>,
) {
    let mut buffers = DigestBuffers::default();
    let mut pipeline: Option<Arc<Pipeline>> = None;
    loop {
        let deadline = buffers.deadline().unwrap_or_else(|| Instant::now() + IDLE);
        let mut lists = Vec::new();
        tokio::select! {
            message = messages.recv() => {
                let Some((digest, fields)) = message else { return };
                let running = hub.running();
                let same = match (&running, &pipeline) {
                    (Some(running), Some(known)) => Arc::ptr_eq(running, known),
                    _ => false,
                };
                if !same {
                    // The program has changed: messages buffered for the old one have no meaning any more.
                    buffers = DigestBuffers::default();
                    pipeline = running;
                }
                let Some(pipeline) = &pipeline else { continue };
                let Some((id, _)) = pipeline.digest(digest) else { continue };
                let Some(config) = pipeline.digests.get(id) else { continue };
                lists.extend(buffers.message(Instant::now(), id, &config, fields));
            }
            Some((digest, list)) = acknowledgements.recv() => buffers.acknowledge(digest, list),
            () = tokio::time::sleep_until(deadline.into()) => {}
        }
        let Some(pipeline) = &pipeline else { continue };
        lists.extend(buffers.tick(Instant::now(), |digest| pipeline.digests.get(digest)));
        for list in lists {
            send(&hub, pipeline, list);
        }
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
