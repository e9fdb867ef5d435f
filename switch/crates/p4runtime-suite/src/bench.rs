// SPDX-License-Identifier: Apache-2.0
//! Provides the server under test, and its clients.
//!
//! A server remembers the highest election id that it has seen, and several cases use one server. So every [`Bench`]
//! takes a range of ids above the ids of all earlier benches, in this run and in previous runs.

mod client;
mod packet;
mod target;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_p4runtime::proto::v1::Uint128;
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use tonic::transport::{Channel, Endpoint};

pub use client::{Arbitration, Client, DEADLINE, Expected, Optional, QUIET};
pub use packet::{Frame, ReturnedPacket, Walk};
pub use target::Target;

use crate::entity::all_of;
use crate::outcome::{Failure, Outcome};

/// Number of election ids that one case may use.
const RANGE: u64 = 1_000;

impl Target {
    /// Connects to a server at `HOST:PORT`, and sends a packet-out to find out whether it comes back as a packet-in.
    ///
    /// # Errors
    /// No server listens at the address, or the server refuses this client as primary, or refuses the pipeline.
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
}

/// What a case uses to reach the server under test.
pub struct Bench {
    target: Target,
    first_id: u64,
}

impl Bench {
    /// Creates a bench whose election ids are above those of all earlier benches.
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

    /// Returns the device id.
    pub fn device_id(&self) -> u64 {
        self.target.device_id
    }

    /// Returns the n-th election id of this case.
    pub fn id(&self, n: u64) -> Uint128 {
        Uint128 {
            high: 0,
            low: self.first_id + n,
        }
    }

    /// Returns the name of a role that only this case uses.
    pub fn role(&self, name: &str) -> String {
        format!("{name}-{}", self.first_id)
    }

    /// Opens a connection to the server under test.
    ///
    /// # Errors
    /// No server listens at the target's address.
    pub async fn channel(&self) -> Outcome<Channel> {
        let unusable = |error: &dyn std::fmt::Display| Failure::Failed(format!("connect: {error}"));
        let endpoint = Endpoint::from_shared(format!("http://{}", self.target.address))
            .map_err(|error| unusable(&error))?
            .http2_max_header_list_size(1 << 20);
        endpoint.connect().await.map_err(|error| unusable(&error))
    }

    /// Returns a client for RPCs without a stream.
    ///
    /// # Errors
    /// The errors of [`channel`](Self::channel).
    pub async fn rpc(&self) -> Outcome<P4RuntimeClient<Channel>> {
        let rpc = P4RuntimeClient::new(self.channel().await?);
        Ok(rpc.max_decoding_message_size(64 << 20))
    }

    /// Returns a client with an open stream, on which the client has not sent anything yet.
    ///
    /// # Errors
    /// The errors of [`channel`](Self::channel).
    pub async fn client(&self) -> Outcome<Client> {
        let rpc = self.rpc().await?;
        Ok(Client::open(rpc, &self.target, self.first_id))
    }

    /// Returns a primary with the case's election id 100, after it has set the suite's pipeline.
    pub async fn primary(&self) -> Outcome<Client> {
        let mut client = self.elected(100).await?;
        client.commit().await?;
        Ok(client)
    }

    /// Returns a primary with the case's n-th election id.
    ///
    /// # Errors
    /// The server refuses this client as primary.
    pub async fn elected(&self, n: u64) -> Outcome<Client> {
        let mut client = self.client().await?;
        client.is_told(n, tonic::Code::Ok).await?;
        Ok(client)
    }

    /// Like [`elected`](Self::elected), for a role that only this case uses.
    pub async fn elected_for(&self, role: &str, n: u64) -> Outcome<Client> {
        let mut client = self.client().await?;
        client.role = role.into();
        client.send_arbitration(n).await?;
        match client.told().await {
            Ok(told) if told.code() == tonic::Code::Ok => Ok(client),
            Ok(told) => Err(Failure::Failed(format!(
                "role {role:?}: the server answered {:?}",
                told.code()
            ))),
            Err(failure) => Err(failure),
        }
    }

    /// Checks that the server has no pipeline yet. This holds only for the first client of a server.
    ///
    /// # Errors
    /// [`Failure::Skipped`] if the server has a pipeline.
    pub async fn before_any_pipeline(&self) -> Outcome {
        let mut client = self.client().await?;
        match client.pipeline(Default::default()).await? {
            None => Ok(()),
            Some(_) => Err(Failure::Skipped(
                "a pipeline was set on the server before".into(),
            )),
        }
    }

    /// Reads a table's entries without a stream or an election id, which any client may do.
    pub async fn entries_of(&self, table: &str) -> Outcome<usize> {
        let mut client = self.client().await?;
        Ok(client.read(all_of(table)).await?.len())
    }
}
