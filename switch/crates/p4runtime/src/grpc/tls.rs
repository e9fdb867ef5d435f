// SPDX-License-Identifier: Apache-2.0
//! Configures TLS for gRPC: the server's certificate, and the certificate authority whose certificates clients must
//! present.
//!
//! The server closes the connection of a client without an accepted certificate, and sends no TLS alert. The servers of
//! the gRPC project do the same. The client then reports "Socket closed", an error that gRPC users know. After an
//! alert, it would report corrupted data.

use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// First bytes and total length of an encrypted TLS 1.3 record that carries an alert. No other record has these first
/// bytes and this length.
const ALERT: ([u8; 5], usize) = ([0x17, 3, 3, 0, 19], 24);

/// Progress of a TLS 1.3 handshake, inferred from the lengths of the encrypted records. On a connection without TLS no
/// data look like an alert, so nothing is withheld.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// The server has sent nothing.
    #[default]
    Begun,
    /// The server has sent its certificate.
    Answered,
    /// The client has sent its certificate, or an empty one.
    Told,
    /// The server has accepted the client.
    Done,
    /// The server has refused the client. All further data to the client are withheld.
    Refused,
}

impl Handshake {
    /// Records that the client has sent data.
    pub(crate) fn heard(&mut self) {
        if *self == Self::Answered {
            *self = Self::Told;
        }
    }

    /// Returns whether data that is about to be sent must be withheld. `first` is the beginning of the data, `length`
    /// the total length in bytes.
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
    /// Creates settings with this certificate, its chain and its key. The server accepts clients without a certificate.
    pub fn new(certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            client_authority: None,
        }
    }

    /// Makes the server accept only clients with a certificate that this authority has issued.
    pub fn require_clients_of(self, authority: impl Into<Vec<u8>>) -> Self {
        Self {
            client_authority: Some(authority.into()),
            ..self
        }
    }

    /// Returns the configuration for gRPC.
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
