// SPDX-License-Identifier: Apache-2.0
//! Compiles the files in `proto/`. Does not need `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["sluice/admin/v1/admin.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .message_attribute(".", "#[derive(serde::Serialize)]")
        .compile_fds(descriptors)?;
    Ok(())
}
