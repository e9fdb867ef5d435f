// SPDX-License-Identifier: Apache-2.0
//! Serves P4Runtime, health and reflection on a Unix socket or a TCP address, with optional TLS, until it is stopped.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use sluice_device::Device;
use sluice_unix_socket::Access;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::Server as GrpcServer;

use crate::control::Control;
use crate::grpc::admission::{Admission, MAX_WRITE};
use crate::grpc::listen::{Address, Incoming, Listener};
use crate::grpc::service::Service;
use crate::grpc::tls::Tls;
use crate::proto;
use crate::proto::v1::p4_runtime_server::P4RuntimeServer;
use crate::stream::digest_task;
use crate::stream::hub::{DigestMessage, Hub};

/// Largest number of open requests and streams of one connection. If a client opens more, HTTP/2 makes it wait.
const MAX_STREAMS: u32 = 160;

/// HTTP/2 flow-control windows in bytes. The windows are large, so that a large request need not wait for window
/// updates.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Interval of keepalives, which detect a client that has vanished.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A server that listens but does not serve yet.
pub struct Server {
    listener: Listener,
    control: Arc<Control>,
    digests: mpsc::Receiver<DigestMessage>,
    tls: Option<Tls>,
    any_connection: bool,
    beside: Routes,
}

/// The reason why a server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The certificates or the key cannot be used.
    #[error("cannot use the TLS certificates or the key: {0}")]
    Tls(#[source] tonic::transport::Error),
    /// The descriptors for reflection cannot be used.
    #[error("cannot serve gRPC reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
}

impl Server {
    /// Binds a TCP address (`HOST:PORT`). `hub` must be the handler of the device.
    pub async fn bind(
        address: &str,
        device_id: u64,
        device: Arc<Device>,
        hub: Arc<Hub>,
        digests: mpsc::Receiver<DigestMessage>,
    ) -> io::Result<Self> {
        let listener = Listener::bind(&Address::Tcp(address.to_owned()), Access::default())?;
        Ok(Self::new(listener, device_id, device, hub, digests))
    }

    /// Creates a server on a socket that listens already. `hub` must be the handler of the device.
    pub fn new(
        listener: Listener,
        device_id: u64,
        device: Arc<Device>,
        hub: Arc<Hub>,
        digests: mpsc::Receiver<DigestMessage>,
    ) -> Self {
        Self {
            listener,
            control: Arc::new(Control::new(device_id, device, hub)),
            digests,
            tls: None,
            any_connection: false,
            beside: Routes::default(),
        }
    }

    /// Accepts writes with the primary's election id on any connection, as the specification allows. Without this
    /// call, the server accepts them only on the connection of the primary's stream.
    pub fn with_writes_from_any_connection(self) -> Self {
        Self {
            any_connection: true,
            ..self
        }
    }

    /// Serves these additional services at the same address.
    pub fn with_services(self, beside: Routes) -> Self {
        Self { beside, ..self }
    }

    /// Makes the program's annotations restrict roles. A role without a configuration then has access only to objects
    /// that the program assigns to it, or to no role.
    pub fn with_roles_by_annotation(self) -> Self {
        self.control.hub().enforce_annotations();
        self
    }

    /// Makes the server accept only TLS connections.
    pub fn with_tls(self, tls: Tls) -> Self {
        Self {
            tls: Some(tls),
            ..self
        }
    }

    /// Returns the address of the server: `unix:PATH` or `ADDRESS:PORT`.
    pub fn address(&self) -> io::Result<String> {
        self.listener.address()
    }

    /// Returns the control that handles the requests.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Serves until `stop` is ready. Then ends all streams with UNAVAILABLE.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) -> Result<(), ServeError> {
        let mut builder = GrpcServer::builder()
            .max_concurrent_streams(MAX_STREAMS)
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
        let service = Service::new(self.control, sender, self.any_connection);
        let service = P4RuntimeServer::new(service)
            .max_decoding_message_size(MAX_WRITE)
            .max_encoding_message_size(MAX_WRITE);
        let incoming = Incoming::new(self.listener)?;
        let stopped = async {
            stop.await;
            health.set_not_serving::<P4RuntimeServer<Service>>().await;
            hub.end_all(&Status::unavailable("the switch is shutting down"));
        };
        let result = builder
            .layer(Admission::default())
            .add_routes(self.beside)
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
