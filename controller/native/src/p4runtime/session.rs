// SPDX-License-Identifier: Apache-2.0
//! Runs a session on the runtime's thread. The session connects and arbitrates. Then it does three
//! tasks concurrently:
//!
//! * It receives the messages of the stream.
//! * It sends writes and pipeline configurations one after another. The switch must apply next hop,
//!   group and route in the order in which the controller sends them.
//! * It runs reads and all other requests concurrently.
//!
//! The session ends when the client or the switch ends the stream. A session never reconnects.
//!
//! A read runs at the pace of its consumer. Each received part holds a permit of its read until the
//! consumer takes the part. While no permit is free, HTTP/2 flow control stops the switch. All
//! stopped reads together cannot fill the connection's window, so packet-ins still pass.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use super::codec::RawCodec;
use super::dry_run::DRY_RUN;
use super::inbox::{Code, Inbox, RequestKind, RequestOutcome};
use super::ports::LIST_PORTS;
use super::shared::Shared;
use super::status::update_errors;
use super::stream::{self, Outgoing};

const STREAM_CHANNEL: &str = "/p4.v1.P4Runtime/StreamChannel";
const WRITE: &str = "/p4.v1.P4Runtime/Write";
const READ: &str = "/p4.v1.P4Runtime/Read";
const SET_PIPELINE: &str = "/p4.v1.P4Runtime/SetForwardingPipelineConfig";
const GET_PIPELINE: &str = "/p4.v1.P4Runtime/GetForwardingPipelineConfig";
const CAPABILITIES: &str = "/p4.v1.P4Runtime/Capabilities";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of TCP keepalives, which detect a peer that has vanished. HTTP/2 pings are not used,
/// because gRPC servers close connections that send many pings.
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);
/// Maximum size of a message in bytes. Large messages are a pipeline with its P4Info, or a read of
/// a large table.
const MESSAGE_LIMIT: usize = 256 * 1024 * 1024;
/// Maximum size of response metadata in bytes. The status of a failed Write is sent as metadata:
/// 8192 bytes plus 100 bytes for each update (P4Runtime 1.5, section 9.3). This limit is sufficient
/// for 100,000 updates in base64.
const METADATA_LIMIT: u32 = 16 * 1024 * 1024;
/// Limit of concurrent reads.
const READS: usize = 8;
/// Limit of a read's parts that are received and not yet taken. sluice-switch encodes a part just
/// before it sends it, so a slow audit spreads the switch's work over time.
const READ_PARTS: usize = 4;
/// Largest number of punted packets that are queued for Python together.
const PUNTS: usize = 64;
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

/// A request from Python. The inbox has registered it under `number`.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) method: Method,
    pub(super) message: Bytes,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Method {
    Write,
    SetPipeline,
    GetPipeline,
    Capabilities,
    Ports,
    DryRun,
    Read,
}

impl Method {
    pub(super) fn kind(self) -> RequestKind {
        match self {
            Self::Write => RequestKind::Write,
            Self::SetPipeline | Self::GetPipeline => RequestKind::Pipeline,
            Self::Capabilities => RequestKind::Capabilities,
            Self::Ports => RequestKind::Ports,
            Self::DryRun => RequestKind::DryRun,
            Self::Read => RequestKind::Read,
        }
    }

    /// Returns whether calls of this method must reach the switch in the order in which Python made
    /// them.
    pub(super) fn is_ordered(self) -> bool {
        matches!(self, Self::Write | Self::SetPipeline)
    }

    fn path(self) -> PathAndQuery {
        PathAndQuery::from_static(match self {
            Self::Write => WRITE,
            Self::SetPipeline => SET_PIPELINE,
            Self::GetPipeline => GET_PIPELINE,
            Self::Capabilities => CAPABILITIES,
            Self::Ports => LIST_PORTS,
            Self::DryRun => DRY_RUN,
            Self::Read => READ,
        })
    }
}

/// Endpoint of the session, and its queues of requests and messages.
#[derive(Debug)]
pub(super) struct SessionChannels {
    pub(super) endpoint: Endpoint,
    pub(super) ordered: UnboundedReceiver<Call>,
    pub(super) concurrent: UnboundedReceiver<Call>,
    pub(super) outgoing: Outgoing,
    /// Dropping this sender ends `outgoing`.
    pub(super) session_end: oneshot::Sender<Infallible>,
}

/// Runs the session until it ends or is stopped. It is stopped when `stop` becomes true, or when the
/// sender of `stop` is dropped.
pub(super) async fn run(
    shared: Arc<Shared>,
    work: SessionChannels,
    mut stop: watch::Receiver<bool>,
) {
    let status = tokio::select! {
        _ = stop.wait_for(|stop| *stop) => (tonic::Code::Cancelled as i32, "closed by the controller".to_owned()),
        status = serve(&shared, work) => status,
    };
    shared.end();
    shared.mailbox.update(|inbox| inbox.close(status));
}

async fn serve(shared: &Arc<Shared>, work: SessionChannels) -> Code {
    let channel = match connect(&shared.address, work.endpoint).await {
        Ok(channel) => channel,
        Err(status) => return code_of(&status),
    };
    shared.mailbox.update(Inbox::connected);
    let _session_end = work.session_end;
    tokio::select! {
        status = receive_stream(shared, channel.clone(), work.outgoing) => code_of(&status),
        () = call_in_order(shared, channel.clone(), work.ordered) => handle_dropped(),
        () = call_concurrently(shared, channel, work.concurrent) => handle_dropped(),
    }
}

fn handle_dropped() -> Code {
    (
        tonic::Code::Cancelled as i32,
        "the client was dropped".to_owned(),
    )
}

async fn connect(address: &str, endpoint: Endpoint) -> Result<Channel, Status> {
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(TCP_KEEPALIVE))
        .http2_max_header_list_size(METADATA_LIMIT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    endpoint.connect().await.map_err(|error| {
        let cause = innermost(&error);
        Status::unavailable(format!("cannot connect to the P4Runtime server at {address}: {cause}: is the switch running there?"))
    })
}

/// Returns the message of an error's root cause, for example "Connection refused". It is the most
/// specific message.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel)
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT);
    grpc.ready()
        .await
        .map_err(|error| Status::unavailable(innermost(&error)))?;
    Ok(grpc)
}

/// Receives messages until the stream ends. Returns the status of the stream.
async fn receive_stream(shared: &Shared, channel: Channel, outgoing: Outgoing) -> Status {
    let path = PathAndQuery::from_static(STREAM_CHANNEL);
    let result = async {
        let response = ready(channel)
            .await?
            .streaming(Request::new(outgoing), path, RawCodec)
            .await?;
        let mut messages = response.into_inner();
        let fast_path = shared.fast_path.as_ref();
        let mut punted = Vec::new();
        loop {
            let next = if punted.len() < PUNTS {
                arrived(&mut messages)
            } else {
                None
            };
            if !matches!(next, Some(Ok(Some(_))))
                && let Some(inlet) = fast_path
            {
                inlet.put(&mut punted);
            }
            let message = match next {
                Some(message) => message,
                None => messages.message().await,
            };
            let Some(message) = message? else {
                return Ok(());
            };
            let is_taken = fast_path.is_some_and(|inlet| {
                inlet.receive(&message, &shared.mailbox, &shared.counters, &mut punted)
            });
            if !is_taken {
                shared
                    .mailbox
                    .update(|inbox| stream::receive(&message, inbox, &shared.counters));
            }
        }
    };
    match result.await {
        Ok(()) => Status::ok("the switch ended the stream"),
        Err(status) => status,
    }
}

/// Returns the next message of a stream if it has already arrived. Does not wait.
fn arrived(messages: &mut Streaming<Bytes>) -> Option<Result<Option<Bytes>, Status>> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(messages).poll_next(&mut context) {
        Poll::Ready(next) => Some(next.transpose()),
        Poll::Pending => None,
    }
}

/// Sends calls one after another. Each call is sent after the previous call was answered.
async fn call_in_order(shared: &Shared, channel: Channel, mut calls: UnboundedReceiver<Call>) {
    while let Some(call) = calls.recv().await {
        answer_unary(shared, channel.clone(), call).await;
    }
}

/// Runs at most [`READS`] calls concurrently.
async fn call_concurrently(
    shared: &Arc<Shared>,
    channel: Channel,
    mut calls: UnboundedReceiver<Call>,
) {
    let mut running = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = running.join_next() => {}
            call = calls.recv(), if running.len() < READS => {
                let Some(call) = call else { return };
                let (shared, channel) = (Arc::clone(shared), channel.clone());
                running.spawn(async move {
                    match call.method {
                        Method::Read => answer_read(&shared, channel, call).await,
                        _ => answer_unary(&shared, channel, call).await,
                    }
                });
            }
        }
    }
}

async fn answer_unary(shared: &Shared, channel: Channel, call: Call) {
    let kind = call.method.kind();
    let exchange = async {
        let mut grpc = ready(channel).await?;
        grpc.unary(Request::new(call.message), call.method.path(), RawCodec)
            .await
    };
    let answer = match timeout(shared.request_timeout, exchange).await {
        Err(_) => RequestOutcome::failed(kind, out_of_time(shared)),
        Ok(Err(status)) => RequestOutcome {
            errors: if kind == RequestKind::Write {
                update_errors(status.details())
            } else {
                Vec::new()
            },
            ..RequestOutcome::failed(kind, code_of(&status))
        },
        Ok(Ok(response)) => RequestOutcome {
            response: response.into_inner(),
            ..RequestOutcome::failed(kind, (0, String::new()))
        },
    };
    shared
        .mailbox
        .update(|inbox| inbox.answer(call.number, answer));
}

async fn answer_read(shared: &Shared, channel: Channel, call: Call) {
    let status = match read(shared, channel, call.number, call.message).await {
        Ok(()) => (0, String::new()),
        Err(status) => status,
    };
    let answer = RequestOutcome::failed(RequestKind::Read, status);
    shared
        .mailbox
        .update(|inbox| inbox.answer(call.number, answer));
}

/// Runs a read and queues its parts. The request timeout does not include the time spent waiting
/// for the consumer.
async fn read(shared: &Shared, channel: Channel, number: u64, message: Bytes) -> Result<(), Code> {
    let path = Method::Read.path();
    let start = async {
        let request = Request::new(message);
        ready(channel)
            .await?
            .server_streaming(request, path, RawCodec)
            .await
    };
    let mut parts = within(shared, start).await?.into_inner();
    let permits = Arc::new(Semaphore::new(READ_PARTS));
    loop {
        // This error cannot occur, because the semaphore is never closed.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return Ok(());
        };
        match within(shared, parts.message()).await? {
            Some(part) => shared
                .mailbox
                .update(|inbox| inbox.read_part(number, part, permit)),
            None => return Ok(()),
        }
    }
}

async fn within<T>(
    shared: &Shared,
    exchange: impl Future<Output = Result<T, Status>>,
) -> Result<T, Code> {
    match timeout(shared.request_timeout, exchange).await {
        Err(_) => Err(out_of_time(shared)),
        Ok(result) => result.map_err(|status| code_of(&status)),
    }
}

fn out_of_time(shared: &Shared) -> Code {
    let seconds = shared.request_timeout.as_secs_f64();
    let message = format!(
        "{} gave no answer within {seconds} s; whether it took effect is unknown",
        shared.address
    );
    (tonic::Code::DeadlineExceeded as i32, message)
}

fn code_of(status: &Status) -> Code {
    (status.code() as i32, status.message().to_owned())
}
