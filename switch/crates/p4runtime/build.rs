// SPDX-License-Identifier: Apache-2.0
//! Compiles the protobuf files of P4Runtime and of this project. Does not need `protoc`. `make setup` unpacks
//! P4Runtime's files from a pinned package.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;
use tonic_prost_build::manual;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=SLUICE_PROTO_DIR");
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let directory = match std::env::var_os("SLUICE_PROTO_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => here.join("../../../build/proto"),
    };
    let ours = here.join("proto");
    println!("cargo::rerun-if-changed={}", directory.display());
    println!("cargo::rerun-if-changed={}", ours.display());
    let service = directory.join("p4/v1/p4runtime.proto");
    if !service.is_file() {
        let problem = format!("{} does not exist: run `make setup`", service.display());
        println!("cargo::error={problem}");
        return Err(problem.into());
    }
    let role = ours.join("sluice/p4runtime/v1/role.proto");
    let folders: [&Path; 2] = [&directory, &ours];
    let descriptors = protox::compile([&service, &role], folders)?;
    let embedded = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(embedded, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // `manual::Builder` below builds the server.
        .build_server(false)
        .build_client(true)
        .bytes(".p4.v1.PacketIn.payload")
        .bytes(".p4.v1.PacketOut.payload")
        .bytes(".p4.v1.ForwardingPipelineConfig.p4_device_config")
        .compile_fds(descriptors)?;
    tonic_prost_build::manual::Builder::new()
        .build_client(false)
        .compile(&[service_of_bytes()]);
    Ok(())
}

/// Describes the P4Runtime service for the code generator. Differs from the protobuf file in two points. Write and
/// StreamChannel receive their requests as bytes. StreamChannel can send a packet-in that its codec encodes
/// directly.
fn service_of_bytes() -> manual::Service {
    let method = |name: &str, route: &str, request: &str, response: &str| {
        manual::Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("crate::proto::v1::{request}"))
            .output_type(format!("crate::proto::v1::{response}"))
            .codec_path("tonic_prost::ProstCodec")
    };
    let whole = |name: &str, route: &str| {
        let (request, response) = (format!("{route}Request"), format!("{route}Response"));
        method(name, route, &request, &response)
    };
    let write = method("write", "Write", "WriteRequest", "WriteResponse")
        .input_type("bytes::Bytes")
        .codec_path("crate::write::request::WriteCodec");
    let read = whole("read", "Read").server_streaming();
    let stream = method(
        "stream_channel",
        "StreamChannel",
        "StreamMessageRequest",
        "StreamMessageResponse",
    )
    .input_type("bytes::Bytes")
    .output_type("crate::stream::hub::Response")
    .codec_path("crate::stream::packets::StreamCodec");
    manual::Service::builder()
        .name("P4Runtime")
        .package("p4.v1")
        .method(write.build())
        .method(read.build())
        .method(
            whole(
                "set_forwarding_pipeline_config",
                "SetForwardingPipelineConfig",
            )
            .build(),
        )
        .method(
            whole(
                "get_forwarding_pipeline_config",
                "GetForwardingPipelineConfig",
            )
            .build(),
        )
        .method(stream.client_streaming().server_streaming().build())
        .method(whole("capabilities", "Capabilities").build())
        .build()
}
