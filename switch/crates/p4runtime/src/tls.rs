// SPDX-License-Identifier: Apache-2.0
//! TLS for gRPC: who the server is, and whose clients it serves.
//!
//! A client whose certificate is refused, or that has none, is disconnected without a TLS alert, as gRPC's own servers do it:
//! clients then say "Socket closed", which their users know. After an alert they speak of corrupted data.

use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// An encrypted record of TLS 1.3 that holds an alert, and nothing else does: its header, and the length of all of it.
const ALERT: ([u8; 5], usize) = ([0x17, 3, 3, 0, 19], 24);

/// How far a connection is with TLS 1.3, as far as that can be seen from outside. Without TLS nothing looks like an alert.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// The server has said nothing.
    #[default]
    Begun,
    /// It has said who it is.
    Answered,
    /// The client has said who it is.
    Told,
    /// The server goes on with it.
    Done,
    /// It does not: nothing more is sent.
    Refused,
}

impl Handshake {
    /// The client has sent something.
    pub(crate) fn heard(&mut self) {
        if *self == Self::Answered {
            *self = Self::Told;
        }
    }

    /// Whether what is about to be sent must not be: of so many bytes, these are the first.
    pub(crate) fn keeps(&mut self, first: &[u8], length: usize) -> bool {
        *self = match *self {
            Self::Begun => Self::Answered,
            Self::Told if first.starts_with(&ALERT.0) && length == ALERT.1 => {
                tracing::warn!("a client without a certificate that is accepted was disconnected");
                Self::Refused
            }
            Self::Told => Self::Done,
            same => same,
        };
        *self == Self::Refused
    }
}

/// Keys and certificates in PEM.
#[derive(Clone)]
pub struct Tls {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_authority: Option<Vec<u8>>,
}

impl Tls {
    /// A server that proves itself by this certificate (with its chain) and key, and serves anybody.
    pub fn new(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            client_authority: None,
        }
    }

    /// Serves only clients that prove themselves by a certificate of this authority.
    pub fn require_clients_of(self, authority: impl Into<Vec<u8>>) -> Self {
        Self {
            client_authority: Some(authority.into()),
            ..self
        }
    }

    /// What gRPC is told.
    pub(crate) fn config(&self) -> ServerTlsConfig {
        let identity = Identity::from_pem(&self.certificate, &self.key);
        let config = ServerTlsConfig::new().identity(identity);
        match &self.client_authority {
            None => config,
            Some(authority) => config
                .client_ca_root(Certificate::from_pem(authority))
                .client_auth_optional(false),
        }
    }
}
