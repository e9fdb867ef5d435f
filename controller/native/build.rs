// SPDX-License-Identifier: Apache-2.0
//! Generates Rust message types from .proto files. `make setup` provides the files of p4.v1 and
//! google.rpc in the directory `SLUICE_PROTO_DIR` (default: `build/proto` of the repository). The
//! file of sluice-switch's admin service is among the switch's sources. Generates only the messages
//! that this crate decodes. protox compiles the .proto files, so protoc is not needed.

use std::path::{Path, PathBuf};
use std::{env, process};

const PROTOS: [&str; 2] = ["p4/v1/p4runtime.proto", "google/rpc/status.proto"];
const ADMIN: &str = "sluice/admin/v1/admin.proto";

fn main() {
    println!("cargo:rerun-if-env-changed=SLUICE_PROTO_DIR");
    if let Err(message) = generate() {
        eprintln!("sluice-controller-native: {message}");
        process::exit(1);
    }
}

fn generate() -> Result<(), String> {
    let directory = proto_directory()?;
    println!("cargo:rerun-if-changed={}", directory.display());
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../switch/crates/admin/proto");
    println!("cargo:rerun-if-changed={}", own.display());
    let wanted = PROTOS.into_iter().chain([ADMIN]);
    let files = protox::compile(wanted, [&directory, &own]).map_err(|error| {
        format!(
            "cannot compile the .proto files in {} and {}: {error}",
            directory.display(),
            own.display()
        )
    })?;
    prost_build::Config::new()
        .bytes(["."])
        .compile_fds(files)
        .map_err(|error| format!("cannot generate code from the .proto files: {error}"))
}

fn proto_directory() -> Result<PathBuf, String> {
    let directory = match env::var_os("SLUICE_PROTO_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../build/proto"),
    };
    match PROTOS.iter().find(|file| !directory.join(file).is_file()) {
        None => Ok(directory),
        Some(file) => Err(format!(
            "no {file} in {}: run `make setup`, or set SLUICE_PROTO_DIR to a directory that has it",
            directory.display()
        )),
    }
}
