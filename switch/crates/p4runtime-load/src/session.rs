// SPDX-License-Identifier: Apache-2.0
//! Opens the stream that makes this client the primary.

use anyhow::{Context, bail};
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::proto::v1::stream_message_request::Update as Request;
use sluice_p4runtime::proto::v1::stream_message_response::Update as Response;
use sluice_p4runtime::proto::v1::{
    MasterArbitrationUpdate, StreamMessageRequest, StreamMessageResponse, Uint128,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use crate::options::Options;

/// An open stream. This client is the primary for as long as the stream is open.
pub(crate) struct Session {
    channel: Channel,
    _requests: mpsc::Sender<StreamMessageRequest>,
    reader: JoinHandle<()>,
}

/// Connects to the server.
///
/// # Errors
/// No server listens on this address.
pub(crate) async fn connect(options: &Options) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", options.server))?
        .tcp_nodelay(true)
        // The answer to a refused batch has an error for each update, in an HTTP/2 header,
        // so the header can be long.
        .http2_max_header_list_size(64 << 20);
    let connected = endpoint.connect().await;
    connected.with_context(|| format!("cannot connect to {}", options.server))
}

impl Session {
    /// Opens the stream and becomes primary.
    ///
    /// # Errors
    /// The server does not accept this client as primary.
    pub(crate) async fn open(options: &Options) -> anyhow::Result<Self> {
        let (sender, receiver) = mpsc::channel(1);
        let arbitration = MasterArbitrationUpdate {
            device_id: options.device_id,
            election_id: Some(Uint128 {
                high: 0,
                low: options.election_id,
            }),
            ..MasterArbitrationUpdate::default()
        };
        sender
            .send(StreamMessageRequest {
                update: Some(Request::Arbitration(arbitration)),
            })
            .await?;
        let channel = connect(options).await?;
        let mut client = P4RuntimeClient::new(channel.clone());
        let responses = client.stream_channel(ReceiverStream::new(receiver)).await?;
        let mut responses = responses.into_inner();
        let told = next(&mut responses).await?;
        let Some(Response::Arbitration(told)) = told.update else {
            bail!("the server answers the arbitration update with {told:?}");
        };
        let code = told
            .status
            .map_or(Code::Unknown, |status| status.code.into());
        if code != Code::Ok {
            let id = options.election_id;
            bail!("election id {id} does not make this client the primary: {code:?}");
        }
        // Reads packets and notifications, so that the server need not buffer them.
        let reader = tokio::spawn(async move { while next(&mut responses).await.is_ok() {} });
        Ok(Self {
            channel,
            _requests: sender,
            reader,
        })
    }

    /// Returns the stream's connection. Some servers accept writes only on this connection.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Ends the stream.
    pub(crate) fn close(self) {
        self.reader.abort();
    }
}

async fn next(
    responses: &mut Streaming<StreamMessageResponse>,
) -> anyhow::Result<StreamMessageResponse> {
    responses.message().await?.context("the stream has ended")
}
