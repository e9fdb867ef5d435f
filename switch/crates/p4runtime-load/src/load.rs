// SPDX-License-Identifier: Apache-2.0
//! Sends requests and waits for their responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::{Buf, BufMut, Bytes};
use parking_lot::Mutex;
use sluice_p4runtime::error::batch_errors;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::options::Options;
use crate::report::{Quantiles, Report, Server};
use crate::requests::Requests;
use crate::session::connect;
use crate::usage::Usage;

const WRITE: &str = "/p4.v1.P4Runtime/Write";

/// A gRPC codec for encoded messages. A request consists of two pieces. A response has no content.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = (Bytes, Bytes);
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = (Bytes, Bytes);
    type Error = Status;

    fn encode(
        &mut self,
        (head, updates): Self::Item,
        out: &mut EncodeBuf<'_>,
    ) -> Result<(), Status> {
        out.reserve(head.len() + updates.len());
        out.put(head);
        out.put(updates);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, answer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        answer.advance(answer.remaining());
        Ok(Some(()))
    }
}

/// State that all senders share.
struct Shared {
    requests: Requests,
    start: Instant,
    rate: Option<f64>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    requests: usize,
    updates: usize,
    latencies: Vec<Duration>,
}

impl Shared {
    /// Waits until the next request is due, and returns it. Returns `None` after the last request.
    async fn take(&self) -> Option<(Bytes, Bytes)> {
        let (piece, before) = {
            let mut progress = self.progress.lock();
            let (piece, count) = self.requests.pieces.get(progress.requests)?;
            progress.requests += 1;
            progress.updates += count;
            (piece.clone(), progress.updates - count)
        };
        if let Some(rate) = self.rate {
            let due = self.start + Duration::from_secs_f64(before as f64 / rate);
            tokio::time::sleep_until(due.into()).await;
        }
        Some((self.requests.head.clone(), piece))
    }
}

/// Sends one request after another.
async fn send(shared: Arc<Shared>, mut connection: Grpc<Channel>) -> Result<(), Status> {
    while let Some(request) = shared.take().await {
        let ready = connection.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let begun = Instant::now();
        let path = PathAndQuery::from_static(WRITE);
        connection.unary(Request::new(request), path, Raw).await?;
        shared.progress.lock().latencies.push(begun.elapsed());
    }
    Ok(())
}

/// Sends all requests. Uses this connection, and further ones if the options ask for them.
///
/// # Errors
/// If the server refuses a request, returns the error of the first update that failed.
pub(crate) async fn run(
    options: &Options,
    requests: Requests,
    first: Channel,
) -> anyhow::Result<Report> {
    let mut connections = vec![Grpc::new(first)];
    for _ in 1..options.connections {
        connections.push(Grpc::new(connect(options).await?));
    }
    let (before, server_before) = (Usage::own()?, options.pid.map(Usage::of).transpose()?);
    let shared = Arc::new(Shared {
        requests,
        start: Instant::now(),
        rate: options.rate.map(f64::from),
        progress: Mutex::default(),
    });
    let mut senders = JoinSet::new();
    for connection in &connections {
        for _ in 0..options.window {
            senders.spawn(send(Arc::clone(&shared), connection.clone()));
        }
    }
    while let Some(outcome) = senders.join_next().await {
        outcome?.or_else(refused)?;
    }
    let seconds = shared.start.elapsed().as_secs_f64();
    let server = match (options.pid, server_before) {
        (Some(pid), Some(before)) => Some((Usage::of(pid)?, before)),
        _ => None,
    };
    let progress = std::mem::take(&mut *shared.progress.lock());
    Ok(Report {
        updates: progress.updates,
        requests: progress.requests,
        seconds,
        updates_per_second: progress.updates as f64 / seconds,
        milliseconds: Quantiles::of(progress.latencies),
        client_cpu_seconds: Usage::own()?.cpu_seconds - before.cpu_seconds,
        server: server.map(|(after, before)| Server {
            cpu_seconds: after.cpu_seconds - before.cpu_seconds,
            resident_mib: after.resident_mib,
        }),
    })
}

/// Returns the error of the first failed update, or the status if no update failed.
fn refused(status: Status) -> anyhow::Result<()> {
    let errors = batch_errors(&status);
    match errors.iter().find(|error| error.canonical_code != 0) {
        Some(error) => bail!("{}: {}", status.message(), error.message),
        None => bail!("{status}"),
    }
}
