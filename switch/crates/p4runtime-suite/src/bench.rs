// SPDX-License-Identifier: Apache-2.0
//! The server under test, and its clients.
//!
//! Servers remember the highest election id that they have seen, and cases share a server: every [`Bench`] has a range of
//! ids of its own, above those of all before it, in this run and in earlier ones.

mod client;
mod packet;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sluice_p4runtime::proto::v1::Uint128;
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

pub use client::{Client, Expected, Optional, Told};
pub use packet::{Frame, Seen, Walk};

use crate::case::{Failure, Outcome};
use crate::entity::all_of;

/// How long to wait for what must happen, on a machine that has much else to do.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// How long nothing must happen to show that nothing does.
pub const QUIET: Duration = Duration::from_millis(150);

/// Election ids of one case.
const RANGE: u64 = 1_000;

/// A server and its device.
#[derive(Debug, Clone)]
pub struct Target {
    address: String,
    device_id: u64,
    packet_io: bool,
}

impl Target {
    /// A server at `HOST:PORT`, of which it is known whether packets come back.
    pub fn new(address: &str, device_id: u64, packet_io: bool) -> Self {
        Self {
            address: address.into(),
            device_id,
            packet_io,
        }
    }

    /// A server at `HOST:PORT`: sends a packet to find out whether packets come back.
    ///
    /// # Errors
    /// If nothing listens there, or it does not let this client become primary and set the pipeline.
    pub async fn probe(address: &str, device_id: u64) -> anyhow::Result<Self> {
        let bench = Bench::new(Self::new(address, device_id, true));
        let steps = async || -> Outcome<bool> {
            let mut client = bench.primary().await?;
            Ok(client.walk(Walk::Keyless, Frame::default()).await.is_ok())
        };
        match steps().await {
            Ok(packet_io) => Ok(Self::new(address, device_id, packet_io)),
            Err(Failure::Failed(reason) | Failure::Skipped(reason)) => {
                anyhow::bail!("{address}, device {device_id}: {reason}")
            }
        }
    }

    /// Whether packets come back.
    pub fn has_packet_io(&self) -> bool {
        self.packet_io
    }
}

/// A case's view of the server.
pub struct Bench {
    target: Target,
    first_id: u64,
}

impl Bench {
    /// With election ids above all before.
    pub fn new(target: Target) -> Self {
        static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            AtomicU64::new(now.map_or(0, |now| now.as_micros() as u64))
        });
        Self {
            target,
            first_id: NEXT.fetch_add(RANGE, Ordering::Relaxed),
        }
    }

    /// The device.
    pub fn device_id(&self) -> u64 {
        self.target.device_id
    }

    /// The n-th election id of this case.
    pub fn id(&self, n: u64) -> Uint128 {
        Uint128 {
            high: 0,
            low: self.first_id + n,
        }
    }

    /// A role that only this case uses.
    pub fn role(&self, name: &str) -> String {
        format!("{name}-{}", self.first_id)
    }

    /// A connection.
    ///
    /// # Errors
    /// If nothing listens there.
    pub async fn channel(&self) -> Outcome<Channel> {
        let unusable = |error: &dyn std::fmt::Display| Failure::Failed(format!("connect: {error}"));
        let endpoint = Endpoint::from_shared(format!("http://{}", self.target.address))
            .map_err(|error| unusable(&error))?
            .http2_max_header_list_size(1 << 20);
        endpoint.connect().await.map_err(|error| unusable(&error))
    }

    /// Remote procedures without a stream.
    ///
    /// # Errors
    /// As for [`channel`](Self::channel).
    pub async fn rpc(&self) -> Outcome<P4RuntimeClient<Channel>> {
        let rpc = P4RuntimeClient::new(self.channel().await?);
        Ok(rpc.max_decoding_message_size(64 << 20))
    }

    /// A client with an open stream that has not said anything yet.
    ///
    /// # Errors
    /// As for [`channel`](Self::channel).
    pub async fn client(&self) -> Outcome<Client> {
        let rpc = self.rpc().await?;
        Ok(Client::open(rpc, &self.target, self.first_id))
    }

    /// A client that is primary, with the case's election id 100, and the suite's pipeline fresh in place.
    ///
    /// # Errors
    /// If the server does not let it.
    pub async fn primary(&self) -> Outcome<Client> {
        let mut client = self.elected(100).await?;
        client.commit().await?;
        Ok(client)
    }

    /// A client that is primary with the case's n-th election id.
    ///
    /// # Errors
    /// If the server does not let it.
    pub async fn elected(&self, n: u64) -> Outcome<Client> {
        let mut client = self.client().await?;
        client.is_told(n, tonic::Code::Ok).await?;
        Ok(client)
    }

    /// The same for a role of the case's own.
    ///
    /// # Errors
    /// If the server does not let it. Skipped if the server has no roles.
    pub async fn elected_for(&self, role: &str, n: u64) -> Outcome<Client> {
        let mut client = self.client().await?;
        client.role = role.into();
        client.send_arbitration(n).await?;
        match client.told().await {
            Ok(told) if told.code() == tonic::Code::Ok => Ok(client),
            Ok(told) => Err(Failure::Failed(format!(
                "role {role:?}: told {:?}",
                told.code()
            ))),
            Err(failure) => Err(failure),
        }
    }

    /// Whether the server has no pipeline yet, which only its first client can see.
    ///
    /// # Errors
    /// Skipped if it has one.
    pub async fn before_any_pipeline(&self) -> Outcome {
        let mut client = self.client().await?;
        match client.pipeline(Default::default()).await? {
            None => Ok(()),
            Some(_) => Err(Failure::Skipped("the server has had a pipeline set".into())),
        }
    }

    /// Reads a table's entries without stream or election id, as anybody may.
    ///
    /// # Errors
    /// If the server does not let it.
    pub async fn entries_of(&self, table: &str) -> Outcome<usize> {
        let mut client = self.client().await?;
        Ok(client.read(all_of(table)).await?.len())
    }
}

/// A status as a failure of a step that must succeed.
fn failed(what: &str, status: &Status) -> Failure {
    let (code, message) = (status.code(), status.message());
    Failure::Failed(format!("{what}: {code:?}: {message}"))
}
