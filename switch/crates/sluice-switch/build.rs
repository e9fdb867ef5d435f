// SPDX-License-Identifier: Apache-2.0
//! Passes two values to the build: the commit, and the digest of the compiled pipeline in the same tree.

use std::error::Error;
use std::path::{Path, PathBuf};

use sluice_built_from::{SHOWN, commit};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../..");
    println!(
        "cargo::rustc-env=SLUICE_BUILT_FROM=commit {}, pipeline {}",
        commit(&root),
        pipeline(&root)?
    );
    Ok(())
}

/// Returns the first characters of router.json's SHA-256 digest, taken from the manifest. `make check-p4` checks that
/// the manifest has the digest of router.json.
fn pipeline(root: &Path) -> Result<String, Box<dyn Error>> {
    let path = root.join("p4src/build/v1model/manifest.json");
    println!("cargo::rerun-if-changed={}", path.display());
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let digest = &manifest["programs"]["router"]["outputs"]["build/v1model/router.json"];
    let digest = digest.as_str().and_then(|digest| digest.get(..SHOWN));
    Ok(digest
        .ok_or("manifest.json has no digest of router.json: run `make p4`")?
        .to_owned())
}
