// SPDX-License-Identifier: Apache-2.0
//! Reads files of SAs: a JSON object, or a list of objects. Relative paths of key files start at the directory of the
//! file.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use sluice_esp::SaSpec;
use zeroize::Zeroizing;

/// Size limit of a file in bytes, enough for ten thousand SAs.
const MAX_FILE: u64 = 8 << 20;

/// Reads the SAs of a file, and the key files that this file names. The path `-` means standard input.
///
/// # Errors
/// Describes the problem without showing any key. A file that contains keys must be readable by its owner only.
pub fn read(path: &Path) -> anyhow::Result<Vec<SaSpec>> {
    if path == Path::new("-") {
        let text = read_all(io::stdin().lock(), 1 << 20)?;
        let mut specs = parse(&text)?;
        read_keys(&mut specs, Path::new("."))?;
        return Ok(specs);
    }
    let name = || path.display().to_string();
    let file = fs::File::open(path).with_context(name)?;
    let metadata = file.metadata().with_context(name)?;
    if !metadata.is_file() {
        bail!("{}: this is not a regular file", path.display());
    }
    let text = read_all(file, metadata.len()).with_context(name)?;
    let (mut specs, directory) = (parse(&text).with_context(name)?, path.parent());
    let inline = specs
        .iter()
        .any(|spec| spec.key.is_some() || spec.integrity_key.is_some());
    if inline && metadata.mode() & 0o077 != 0 {
        bail!(
            "{}: the file contains keys, and other users can access it: run chmod 600",
            path.display()
        );
    }
    read_keys(&mut specs, directory.unwrap_or(Path::new("."))).with_context(name)?;
    Ok(specs)
}

/// Reads into a buffer that is allocated at full size at once, because a growing buffer would leave copies of keys.
fn read_all(mut from: impl Read, length: u64) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    if length > MAX_FILE {
        bail!("the file is larger than {MAX_FILE} bytes");
    }
    let mut buffer = Zeroizing::new(vec![0; length as usize + 1]);
    let mut filled = 0;
    loop {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
        if filled == buffer.len() {
            bail!("the input is larger than {length} bytes");
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}

fn parse(text: &[u8]) -> anyhow::Result<Vec<SaSpec>> {
    if text.trim_ascii_start().starts_with(b"[") {
        return Ok(serde_json::from_slice(text)?);
    }
    Ok(vec![serde_json::from_slice(text)?])
}

fn read_keys(specs: &mut [SaSpec], directory: &Path) -> anyhow::Result<()> {
    for spec in specs {
        spec.read_keys(directory)
            .map_err(|problem| anyhow!("SA {}: {problem}", spec.sa))?;
    }
    Ok(())
}
