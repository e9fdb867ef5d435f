// SPDX-License-Identifier: Apache-2.0
//! Implements a P4Runtime client for test cases. Each method is a step of a case, and fails unless the server responds
//! as expected. This file has the stream and the arbitration messages.

mod expected;
mod packets;
mod pipeline;
mod reads;
mod writes;

use std::time::Duration;

use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::*;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::target::Target;
use crate::outcome::{Failure, Outcome, failed, same};

pub use expected::{Expected, Optional};

/// Time limit for an expected event, on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Time to wait for an event that must not come.
pub const QUIET: Duration = Duration::from_millis(150);

/// An arbitration message that a client received.
#[derive(Debug, Clone, PartialEq)]
pub struct Arbitration(pub MasterArbitrationUpdate);

impl Arbitration {
    /// Returns OK for the primary, ALREADY_EXISTS for a backup, NOT_FOUND without a primary.
    pub fn code(&self) -> Code {
        self.0
            .status
            .as_ref()
            .map_or(Code::Unknown, |status| Code::from(status.code))
    }

    /// Returns the highest election id.
    pub fn election_id(&self) -> Option<Uint128> {
        self.0.election_id
    }
}

/// The stream from the server, which may not be open yet. Before their first message, some servers do not even send the
/// headers that open the stream.
enum Inbound {
    Opening(JoinHandle<Result<Streaming<StreamMessageResponse>, Status>>),
    Open(Box<Streaming<StreamMessageResponse>>),
}

/// A client with a stream.
pub struct Client {
    /// Stub for the RPCs.
    pub rpc: P4RuntimeClient<Channel>,
    /// The device id in requests.
    pub device_id: u64,
    /// The role in requests.
    pub role: String,
    /// The role's configuration, for arbitration.
    pub role_config: Option<prost_types::Any>,
    /// The election id in requests.
    pub election_id: Option<Uint128>,
    first_id: u64,
    packet_io: bool,
    requests: Option<mpsc::Sender<StreamMessageRequest>>,
    inbound: Inbound,
}

impl Client {
    pub(super) fn open(rpc: P4RuntimeClient<Channel>, target: &Target, first_id: u64) -> Self {
        let (requests, receiver) = mpsc::channel(1024);
        let mut stream_rpc = rpc.clone();
        let opening = tokio::spawn(async move {
            let stream = stream_rpc
                .stream_channel(ReceiverStream::new(receiver))
                .await?;
            Ok(stream.into_inner())
        });
        Self {
            rpc,
            device_id: target.device_id,
            role: String::new(),
            role_config: None,
            election_id: None,
            first_id,
            packet_io: target.packet_io,
            requests: Some(requests),
            inbound: Inbound::Opening(opening),
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send(&self, update: Option<Request>) -> Outcome {
        let ended = || Failure::Failed("the stream has ended".into());
        let requests = self.requests.as_ref().ok_or_else(ended)?;
        let message = StreamMessageRequest { update };
        requests.send(message).await.map_err(|_| ended())
    }

    /// Closes the client's half of the stream.
    pub fn close(&mut self) {
        self.requests = None;
    }

    /// Returns the next message, or the status that ended the stream.
    async fn receive(&mut self) -> Result<Option<StreamMessageResponse>, Status> {
        if let Inbound::Opening(opening) = &mut self.inbound {
            let opened = opening
                .await
                .map_err(|error| Status::internal(error.to_string()))?;
            self.inbound = Inbound::Open(Box::new(opened?));
        }
        match &mut self.inbound {
            Inbound::Open(stream) => stream.message().await,
            Inbound::Opening(_) => Ok(None),
        }
    }

    /// Returns the next message.
    ///
    /// # Errors
    /// The stream ends, or no message comes in time.
    pub async fn next(&mut self) -> Outcome<Response> {
        match timeout(DEADLINE, self.receive()).await {
            Err(_) => Err(Failure::Failed(
                "no message arrived on the stream in time".into(),
            )),
            Ok(Err(status)) => Err(failed("the stream ended", &status)),
            Ok(Ok(None)) => Err(Failure::Failed("the stream ended without a status".into())),
            Ok(Ok(Some(message))) => {
                let empty = || Failure::Failed("the stream message is empty".into());
                message.update.ok_or_else(empty)
            }
        }
    }

    /// Returns the next message that `pick` accepts. Skips other messages.
    ///
    /// # Errors
    /// The errors of [`next`](Self::next).
    pub async fn next_of<T>(&mut self, pick: impl Fn(Response) -> Option<T>) -> Outcome<T> {
        loop {
            if let Some(message) = pick(self.next().await?) {
                return Ok(message);
            }
        }
    }

    /// Returns the code with which the server ends the stream. Skips all messages before the end.
    ///
    /// # Errors
    /// The stream does not end in time.
    pub async fn ended(&mut self) -> Outcome<Code> {
        let ending = async {
            loop {
                match self.receive().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Code::Ok,
                    Err(status) => return status.code(),
                }
            }
        };
        let late = |_| Failure::Failed("the server did not end the stream".into());
        timeout(DEADLINE, ending).await.map_err(late)
    }

    /// Checks that no message comes within [`QUIET`].
    ///
    /// # Errors
    /// A message comes.
    pub async fn is_quiet(&mut self) -> Outcome {
        match timeout(QUIET, self.receive()).await {
            Err(_) => Ok(()),
            Ok(message) => Err(Failure::Failed(format!(
                "expected nothing, found {message:?}"
            ))),
        }
    }

    /// Sends an arbitration update with the case's n-th election id.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send_arbitration(&mut self, n: impl Into<Option<u64>>) -> Outcome {
        self.election_id = n.into().map(|n| Uint128 {
            high: 0,
            low: self.first_id + n,
        });
        self.send_election_id().await
    }

    /// Sends an arbitration update with the current election id.
    ///
    /// # Errors
    /// The stream has ended.
    pub async fn send_election_id(&mut self) -> Outcome {
        let role = (!self.role.is_empty() || self.role_config.is_some()).then(|| Role {
            name: self.role.clone(),
            config: self.role_config.clone(),
            ..Default::default()
        });
        let update = MasterArbitrationUpdate {
            device_id: self.device_id,
            role,
            election_id: self.election_id,
            status: None,
        };
        self.send(Some(Request::Arbitration(update))).await
    }

    /// Returns the next message, which must be an arbitration message.
    ///
    /// # Errors
    /// Another message comes, or no message comes in time.
    pub async fn told(&mut self) -> Outcome<Arbitration> {
        match self.next().await? {
            Response::Arbitration(update) => Ok(Arbitration(update)),
            other => Err(Failure::Failed(format!(
                "expected arbitration, found {other:?}"
            ))),
        }
    }

    /// Sends an arbitration update, and expects an answer with this code.
    ///
    /// # Errors
    /// The code differs, or no answer comes in time.
    pub async fn is_told(&mut self, n: impl Into<Option<u64>>, code: Code) -> Outcome<Arbitration> {
        self.send_arbitration(n).await?;
        self.hears(code).await
    }

    /// Expects that the next message is an arbitration message with this code.
    ///
    /// # Errors
    /// The server responds otherwise.
    pub async fn hears(&mut self, code: Code) -> Outcome<Arbitration> {
        let told = self.told().await?;
        same(told.code(), code, "the arbitration's status")?;
        Ok(told)
    }
}
