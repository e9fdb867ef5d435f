// SPDX-License-Identifier: Apache-2.0
//! Compiles the P4Runtime protobufs, which `make setup` unpacks from a pinned package, and our own, without needing
//! `protoc`.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;

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
        let problem = format!("{} is absent: run `make setup`", service.display());
        println!("cargo::error={problem}");
        return Err(problem.into());
    }
    let role = ours.join("sluice/p4runtime/v1/role.proto");
    let folders: [&Path; 2] = [&directory, &ours];
    let descriptors = protox::compile([&service, &role], folders)?;
    let embedded = PathBuf::from(std::env::var("OUT_DIR")?).join("descriptors.bin");
    std::fs::write(embedded, descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_server(true)
        .build_client(true)
        .bytes(".p4.v1.PacketIn.payload")
        .bytes(".p4.v1.PacketOut.payload")
        .bytes(".p4.v1.ForwardingPipelineConfig.p4_device_config")
        .compile_fds(descriptors)?;
    Ok(())
}
