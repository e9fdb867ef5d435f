// SPDX-License-Identifier: Apache-2.0
//! Tests the server's capabilities, and the gRPC services that every server should have.

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::prelude::*;

fn unless_absent(status: &tonic::Status) -> Failure {
    match status.code() {
        UNIMPLEMENTED => Failure::Skipped("optional, and UNIMPLEMENTED here".into()),
        code => Failure::Failed(format!("{code:?}: {}", status.message())),
    }
}

section! { "Capabilities RPC";

async fn the_version_is_a_semantic_version_1(t) {
    let response = t.rpc().await?.capabilities(CapabilitiesRequest::default()).await?;
    let version = response.into_inner().p4runtime_api_version;
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<_> = core.split('.').map(str::parse::<u32>).collect();
    holds(numbers.len() == 3 && numbers.iter().all(Result::is_ok), format!("version {version:?}"))?;
    same(&core[..2], "1.", "the major version")?;
}

async fn it_is_asked_before_anything_else(t) {
    t.rpc().await?.capabilities(CapabilitiesRequest::default()).await?;
}

async fn a_known_device_has_capabilities(t) {
    let request = CapabilitiesRequest { device_id: t.device_id() };
    t.rpc().await?.capabilities(request).await?;
}

async fn an_unknown_device_is_not_found(t) {
    let request = CapabilitiesRequest { device_id: t.device_id() + 1 };
    let result = t.rpc().await?.capabilities(request).await;
    same(result.err().map(|status| status.code()), Some(NOT_FOUND), "the status")?;
}

async fn grpc_health_says_serving(t) {
    let mut health = HealthClient::new(t.channel().await?);
    for service in ["", "p4.v1.P4Runtime"] {
        let request = HealthCheckRequest { service: service.into() };
        let response = health.check(request).await.map_err(|status| unless_absent(&status))?;
        same(response.into_inner().status, 1, &format!("health of {service:?}"))?;
    }
}

async fn grpc_reflection_lists_the_service(t) {
    let mut reflection = ServerReflectionClient::new(t.channel().await?);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = tokio_stream::once(request);
    let response = reflection.server_reflection_info(requests).await.map_err(|status| unless_absent(&status))?;
    let message = response.into_inner().message().await.map_err(|status| unless_absent(&status))?;
    let Some(MessageResponse::ListServicesResponse(list)) = message.and_then(|m| m.message_response) else {
        return Err(Failure::Failed("no list of services".into()));
    };
    let named = list.service.iter().any(|service| service.name == "p4.v1.P4Runtime");
    holds(named, format!("{:?}", list.service))?;
}

}
