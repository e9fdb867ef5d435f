// SPDX-License-Identifier: Apache-2.0
//! Finds the commit that is being built, for build scripts. Programs print this commit with `--version`.

use std::path::Path;
use std::process::Command;

/// Number of characters shown of a digest or commit, as in `sluice --version`.
pub const SHOWN: usize = 12;

/// Returns the commit of the build: `SLUICE_COMMIT` if it is set, else the commit of the checkout at `root`. Makes
/// cargo rerun the build script when this variable or that commit changes.
pub fn commit(root: &Path) -> String {
    println!("cargo::rerun-if-env-changed=SLUICE_COMMIT");
    if let Ok(named) = std::env::var("SLUICE_COMMIT") {
        return named;
    }
    // Git appends to this file at each commit and checkout.
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
