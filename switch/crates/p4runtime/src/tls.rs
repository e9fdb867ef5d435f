// SPDX-License-Identifier: Apache-2.0
//! TLS for gRPC: who the server is, and whose clients it serves.

use tonic::transport::{Certificate, Identity, ServerTlsConfig};

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
