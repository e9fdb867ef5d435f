// SPDX-License-Identifier: Apache-2.0
//! Passes the commit of the build to the program.

use std::env::{self, VarError};
use std::path::PathBuf;

fn main() -> Result<(), VarError> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../..");
    let commit = sluice_built_from::commit(&root);
    println!("cargo::rustc-env=SLUICE_BUILT_FROM=commit {commit}");
    Ok(())
}
