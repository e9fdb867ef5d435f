// SPDX-License-Identifier: Apache-2.0
//! Serves `GET /metrics`, if the options request it.

use anyhow::Context;
use sluice_metrics::{Server, Source};
use tokio::sync::oneshot;

use crate::options::Options;

/// The running metrics server, if there is one. Dropping this stops the server.
pub(crate) struct RunningMetrics(#[expect(dead_code, reason = "held")] Option<oneshot::Sender<()>>);

/// Starts serving metrics at the address in the options, if there is one.
pub(crate) async fn start(options: &Options, source: Source) -> anyhow::Result<RunningMetrics> {
    let Some(address) = &options.metrics_address else {
        return Ok(RunningMetrics(None));
    };
    let server = Server::bind(address, source).await;
    let server = server.with_context(|| format!("--metrics-address {address}"))?;
    tracing::info!(address = server.address()?, "serving metrics");
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(server.serve(async { drop(stopped.await) }));
    Ok(RunningMetrics(Some(stop)))
}
