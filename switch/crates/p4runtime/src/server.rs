// SPDX-License-Identifier: Apache-2.0
//! Listening: the service on a TCP address, until it is told to stop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sluice_device::Device;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::transport::Server as GrpcServer;
use tonic::transport::server::TcpIncoming;

use crate::control::Control;
use crate::digest_task;
use crate::hub::{DigestMessage, Hub};
use crate::proto::v1::p4_runtime_server::P4RuntimeServer;
use crate::service::Service;

/// Largest request: pipelines and large batches of updates.
const MAX_REQUEST: usize = 256 << 20;

/// A client that has vanished is noticed after this.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A server that listens and does not yet serve.
pub struct Server {
    listener: TcpListener,
    control: Arc<Control>,
    digests: mpsc::Receiver<DigestMessage>,
}

impl Server {
    /// Binds the address (`HOST:PORT`), for a device whose handler is `hub`.
    pub async fn bind(
        address: &str,
        device_id: u64,
        device: Arc<Device>,
        hub: Arc<Hub>,
        digests: mpsc::Receiver<DigestMessage>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let control = Arc::new(Control::new(device_id, device, hub));
        Ok(Self {
            listener,
            control,
            digests,
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What requests do.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Serves until `stop` is ready; then all streams are ended with UNAVAILABLE.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        let (sender, acknowledgements) = mpsc::channel(digest_task::QUEUE);
        let hub = self.control.hub().clone();
        let digests = tokio::spawn(digest_task::run(
            hub.clone(),
            self.digests,
            acknowledgements,
        ));
        let service = P4RuntimeServer::new(Service::new(self.control, sender))
            .max_decoding_message_size(MAX_REQUEST)
            .max_encoding_message_size(MAX_REQUEST);
        let incoming = TcpIncoming::from(self.listener).with_nodelay(Some(true));
        let stopped = async {
            stop.await;
            hub.end_all(&Status::unavailable("the switch is shutting down"));
        };
        let result = GrpcServer::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, stopped)
            .await;
        digests.abort();
        result
    }
}
