// SPDX-License-Identifier: Apache-2.0
//! Tells the program what it was built from: the commit (`SLUICE_COMMIT`, else the checkout's), and the digest of the
//! compiled pipeline that lies in the same tree.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Characters of a digest or commit that are shown, as `sluice --version` does.
const SHOWN: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../..");
    println!(
        "cargo::rustc-env=SLUICE_BUILT_FROM=commit {}, pipeline {}",
        commit(&root),
        pipeline(&root)?
    );
    Ok(())
}

fn commit(root: &Path) -> String {
    println!("cargo::rerun-if-env-changed=SLUICE_COMMIT");
    if let Ok(named) = std::env::var("SLUICE_COMMIT") {
        return named;
    }
    // Written at each commit and checkout.
    if let Some(log) = git(root, &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={}", root.join(log).display());
    }
    let length = format!("--short={SHOWN}");
    git(root, &["rev-parse", &length, "HEAD"]).unwrap_or_else(|| "unknown".to_owned())
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned())
}

/// The beginning of router.json's SHA-256, as `make check-p4` compares it with the file.
fn pipeline(root: &Path) -> Result<String, Box<dyn Error>> {
    let path = root.join("p4src/build/v1model/manifest.json");
    println!("cargo::rerun-if-changed={}", path.display());
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let digest = &manifest["programs"]["router"]["outputs"]["build/v1model/router.json"];
    let digest = digest.as_str().and_then(|digest| digest.get(..SHOWN));
    Ok(digest
        .ok_or("manifest.json has no digest of router.json")?
        .to_owned())
}
