// SPDX-License-Identifier: Apache-2.0
//! Configures TLS for gRPC, with the flags of simple_switch_grpc.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use sluice_p4runtime::Tls;

/// Paths of the certificates and the key, each a PEM file.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TlsOptions {
    /// Serve P4Runtime with TLS
    #[arg(long)]
    grpc_server_ssl: bool,

    /// Certificate of the authority that signs client certificates (with --grpc-server-with-client-auth)
    #[arg(long, value_name = "FILE")]
    grpc_server_cacert: Option<PathBuf>,

    /// Certificate of the server, with its chain
    #[arg(long, value_name = "FILE")]
    grpc_server_cert: Option<PathBuf>,

    /// Private key of the server
    #[arg(long, value_name = "FILE")]
    grpc_server_key: Option<PathBuf>,

    /// Require a client certificate
    #[arg(long)]
    grpc_server_with_client_auth: bool,
}

impl TlsOptions {
    /// Refuses an incomplete TLS configuration, which would silently disable TLS. clap cannot check this.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.grpc_server_ssl {
            let given = [
                (self.grpc_server_cacert.is_some(), "--grpc-server-cacert"),
                (self.grpc_server_cert.is_some(), "--grpc-server-cert"),
                (self.grpc_server_key.is_some(), "--grpc-server-key"),
                (
                    self.grpc_server_with_client_auth,
                    "--grpc-server-with-client-auth",
                ),
            ];
            return match given.iter().find(|(given, _)| *given) {
                Some((_, flag)) => Err(format!("{flag} needs --grpc-server-ssl")),
                None => Ok(()),
            };
        }
        if self.grpc_server_cert.is_none() || self.grpc_server_key.is_none() {
            return Err("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key".into());
        }
        if self.grpc_server_with_client_auth && self.grpc_server_cacert.is_none() {
            return Err("--grpc-server-with-client-auth needs --grpc-server-cacert".into());
        }
        Ok(())
    }

    /// Returns whether clients must have a certificate.
    pub(crate) fn is_mutual(&self) -> bool {
        self.grpc_server_ssl && self.grpc_server_with_client_auth
    }

    /// Returns whether TLS was requested.
    pub(crate) fn is_on(&self) -> bool {
        self.grpc_server_ssl
    }

    /// Reads the certificates and the key. Returns `None` without TLS.
    pub(crate) fn load(&self) -> anyhow::Result<Option<Tls>> {
        let (Some(certificate), Some(key)) = (&self.grpc_server_cert, &self.grpc_server_key) else {
            return Ok(None);
        };
        let tls = Tls::new(read(certificate)?, read(key)?);
        let authority = self.grpc_server_cacert.as_deref();
        Ok(Some(match authority {
            Some(authority) if self.grpc_server_with_client_auth => {
                tls.require_clients_of(read(authority)?)
            }
            _ => tls,
        }))
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}
