// SPDX-License-Identifier: Apache-2.0
//! Tests TLS, mutual TLS, and the services at the same address as P4Runtime.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sluice_p4runtime::proto::v1::CapabilitiesRequest;
use sluice_p4runtime::proto::v1::p4_runtime_client::P4RuntimeClient;
use sluice_p4runtime::{Hub, Server, Tls};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::support::*;

/// A certificate authority.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn certificate(&self) -> Certificate {
        Certificate::from_pem(self.0.pem())
    }

    /// Issues a certificate with its key, in PEM.
    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

/// Starts a server with TLS; returns its address.
async fn serve(tls: Tls) -> String {
    let (hub, digests) = Hub::new(DEVICE);
    let device = sluice_device::Device::start(sluice_device::Config::default(), hub.clone());
    let device = std::sync::Arc::new(device.unwrap());
    let server = Server::bind("127.0.0.1:0", DEVICE, device, hub, digests);
    let server = server.await.unwrap().with_tls(tls);
    let address = server.address().unwrap().to_string();
    tokio::spawn(server.serve(std::future::pending()));
    address
}

/// Returns whether a client gets an answer.
async fn answers(url: String, tls: Option<ClientTlsConfig>) -> bool {
    let mut endpoint = Endpoint::from_shared(url).unwrap();
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls.domain_name("localhost")).unwrap();
    }
    let Ok(channel) = endpoint.connect().await else {
        return false;
    };
    let request = CapabilitiesRequest::default();
    let mut client = P4RuntimeClient::new(channel);
    client.capabilities(request).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_nothing_is_served_without() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue();
    let address = serve(Tls::new(certificate, key)).await;
    let trusting = ClientTlsConfig::new().ca_certificate(authority.certificate());
    assert!(answers(format!("https://{address}"), Some(trusting)).await);
    assert!(!answers(format!("http://{address}"), None).await);
    let other = ClientTlsConfig::new().ca_certificate(Authority::new().certificate());
    assert!(!answers(format!("https://{address}"), Some(other)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutual_tls_serves_only_clients_of_the_authority() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue();
    let tls = Tls::new(certificate, key).require_clients_of(authority.0.pem());
    let url = format!("https://{}", serve(tls).await);
    let anonymous = ClientTlsConfig::new().ca_certificate(authority.certificate());
    assert!(!answers(url.clone(), Some(anonymous.clone())).await);
    for (issuer, served) in [(&authority, true), (&Authority::new(), false)] {
        let (certificate, key) = issuer.issue();
        let client = anonymous
            .clone()
            .identity(Identity::from_pem(certificate, key));
        assert_eq!(answers(url.clone(), Some(client)).await, served);
    }
}

/// Returns the reason why a client gets no answer.
async fn refusal(url: String, tls: ClientTlsConfig) -> String {
    let endpoint = Endpoint::from_shared(url).unwrap();
    let endpoint = endpoint.tls_config(tls.domain_name("localhost")).unwrap();
    let channel = match endpoint.connect().await {
        Ok(channel) => channel,
        Err(error) => return format!("{error:?}"),
    };
    let request = CapabilitiesRequest::default();
    let mut client = P4RuntimeClient::new(channel);
    format!("{:?}", client.capabilities(request).await.unwrap_err())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_client_is_disconnected_without_an_alert_as_by_grpcs_servers() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue();
    let tls = Tls::new(certificate, key).require_clients_of(authority.0.pem());
    let url = format!("https://{}", serve(tls).await);
    let anonymous = ClientTlsConfig::new().ca_certificate(authority.certificate());
    let (certificate, key) = Authority::new().issue();
    let identity = Identity::from_pem(certificate, key);
    for client in [anonymous.clone(), anonymous.identity(identity)] {
        let said = refusal(url.clone(), client).await;
        assert!(!said.to_lowercase().contains("alert"), "{said}");
    }
}
