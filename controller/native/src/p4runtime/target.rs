// SPDX-License-Identifier: Apache-2.0
//! Parses the address of a P4Runtime server. Selects the transport: Unix socket, TCP, or TCP with
//! mutual TLS.

use std::fmt;
use std::time::Duration;

use http::uri::Authority;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// Maximum length of a Unix socket's path in bytes (`sun_path` without its final zero).
const LONGEST_SOCKET_PATH: usize = 107;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Certificates and key of a session with mutual TLS, each in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of the authorities that may sign the switch's certificate.
    pub authority: Vec<u8>,
    /// The controller's certificate and its chain.
    pub certificate: Vec<u8>,
    /// The controller's private key.
    pub key: Vec<u8>,
    /// Name that the switch's certificate must have. Default: the host in the address.
    pub server_name: Option<String>,
}

impl fmt::Debug for Tls {
    /// Formats the settings without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// Returns the endpoint for the address `unix:PATH` or `HOST:PORT`.
///
/// # Errors
/// Describes what is wrong with the address, a certificate or the key.
pub(super) fn endpoint(address: &str, tls: Option<&Tls>) -> Result<Endpoint, String> {
    if let Some(path) = address.strip_prefix("unix:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if tls.is_some() {
            return Err(format!(
                "{address:?} takes no TLS: the permissions of a Unix socket say who may connect"
            ));
        }
        check_path(address, path)?;
        return Endpoint::from_shared(format!("unix:{path}"))
            .map_err(|error| format!("{address:?} is no Unix socket: {error}"));
    }
    check_authority(address)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
        .map_err(|error| format!("{address:?} is no P4Runtime address: {error}"))?;
    match tls {
        None => Ok(endpoint),
        Some(tls) => endpoint
            .tls_config(config(tls)?)
            .map_err(|error| format!("tls: {}", super::session::innermost(&error))),
    }
}

fn check_path(address: &str, path: &str) -> Result<(), String> {
    let problem = if path.is_empty() {
        "names no path".to_owned()
    } else if path.contains('\0') {
        "has a zero byte in its path".to_owned()
    } else if path.len() > LONGEST_SOCKET_PATH {
        format!(
            "has a path of more than {LONGEST_SOCKET_PATH} bytes, which no Unix socket can have"
        )
    } else {
        return Ok(());
    };
    Err(format!(
        "{address:?} {problem}: write unix:PATH, like \"unix:/run/sluice/switch.sock\""
    ))
}

fn check_authority(address: &str) -> Result<(), String> {
    let authority: Result<Authority, _> = address.parse();
    if authority
        .is_ok_and(|authority| authority.port_u16().is_some() && !authority.as_str().contains('@'))
    {
        return Ok(());
    }
    Err(format!(
        "{address:?} is no P4Runtime address: write unix:PATH or host:port, \
         like \"unix:/run/sluice/switch.sock\", \"127.0.0.1:9559\" or \"[::1]:9559\""
    ))
}

fn config(tls: &Tls) -> Result<ClientTlsConfig, String> {
    check_certificates("the CA certificate", &tls.authority)?;
    check_certificates("the client certificate", &tls.certificate)?;
    PrivateKeyDer::from_pem_slice(&tls.key).map_err(|error| {
        format!("tls: the client key is no PEM private key ({error}): give a PKCS #8, SEC1 or PKCS #1 key without a passphrase")
    })?;
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.authority))
        .identity(Identity::from_pem(&tls.certificate, &tls.key))
        .timeout(HANDSHAKE_TIMEOUT);
    let Some(name) = &tls.server_name else {
        return Ok(config);
    };
    ServerName::try_from(name.as_str())
        .map_err(|_| format!("server_name {name:?} is neither a DNS name nor an IP address"))?;
    Ok(config.domain_name(name))
}

fn check_certificates(what: &str, pem: &[u8]) -> Result<(), String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Err(error) => Err(format!("tls: {what} is not PEM: {error}")),
        Ok(certificates) if certificates.is_empty() => Err(format!(
            "tls: {what} has no certificate: give PEM with a BEGIN CERTIFICATE block"
        )),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(address: &str, tls: Option<&Tls>) -> String {
        endpoint(address, tls).err().unwrap_or_default()
    }

    fn tls() -> Tls {
        Tls {
            authority: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
            certificate: Vec::new(),
            key: b"secret".to_vec(),
            server_name: None,
        }
    }

    #[test]
    fn addresses_of_each_kind_are_taken() {
        for address in [
            "127.0.0.1:9559",
            "[::1]:9559",
            "switch.example:9559",
            "unix:/run/sluice/switch.sock",
            "unix:///run/sluice/switch.sock",
        ] {
            assert_eq!(problem(address, None), "");
        }
    }

    #[test]
    fn other_addresses_are_refused_with_an_example() {
        for address in [
            "",
            "localhost",
            "a b:1",
            "user@host:1",
            "unix:",
            "unix:a\0b",
        ] {
            assert!(
                problem(address, None).contains("like \"unix:/run/"),
                "{address:?}"
            );
        }
        let long = format!("unix:/{}", "x".repeat(LONGEST_SOCKET_PATH));
        assert!(problem(&long, None).contains("more than 107 bytes"));
    }

    #[test]
    fn what_cannot_be_used_for_tls_is_named() {
        assert!(problem("unix:/x", Some(&tls())).contains("takes no TLS"));
        let mut tls = tls();
        assert!(problem("[::1]:1", Some(&tls)).contains("the client certificate has no"));
        tls.certificate.clone_from(&tls.authority);
        assert!(problem("[::1]:1", Some(&tls)).contains("the client key is no PEM"));
        tls.authority.clear();
        assert!(problem("[::1]:1", Some(&tls)).contains("the CA certificate has no"));
    }

    #[test]
    fn a_key_is_not_shown() {
        assert!(
            !format!("{:?}", tls()).contains("115, 101"),
            "bytes of the key"
        );
    }
}
