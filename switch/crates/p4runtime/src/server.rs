// SPDX-License-Identifier: Apache-2.0
//! Listening: P4Runtime, health and reflection on a TCP address, with TLS if wanted, until it is told to stop.

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
use crate::proto;
use crate::proto::v1::p4_runtime_server::P4RuntimeServer;
use crate::service::Service;
use crate::tls::Tls;

/// Largest request: pipelines and large batches of updates.
const MAX_REQUEST: usize = 256 << 20;

/// How much a client may send before it is read: a large request should not wait for leave to go on.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// A client that has vanished is noticed after this.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A server that listens and does not yet serve.
pub struct Server {
    listener: TcpListener,
    control: Arc<Control>,
    digests: mpsc::Receiver<DigestMessage>,
    tls: Option<Tls>,
}

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The certificates or the key cannot be used.
    #[error("TLS: {0}")]
    Tls(#[source] tonic::transport::Error),
    /// The descriptors that reflection shows cannot be used.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
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
            tls: None,
        })
    }

    /// Serves with TLS, and nothing without.
    pub fn with_tls(self, tls: Tls) -> Self {
        Self {
            tls: Some(tls),
            ..self
        }
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
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let mut builder = GrpcServer::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        if let Some(tls) = &self.tls {
            builder = builder.tls_config(tls.config()).map_err(ServeError::Tls)?;
        }
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<P4RuntimeServer<Service>>().await;
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let (reflection, reflection_alpha) =
            (reflection().build_v1()?, reflection().build_v1alpha()?);
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
            health.set_not_serving::<P4RuntimeServer<Service>>().await;
            hub.end_all(&Status::unavailable("the switch is shutting down"));
        };
        let result = builder
            .add_service(service)
            .add_service(health_service)
            .add_service(reflection)
            .add_service(reflection_alpha)
            .serve_with_incoming_shutdown(incoming, stopped)
            .await;
        digests.abort();
        Ok(result?)
    }
}
