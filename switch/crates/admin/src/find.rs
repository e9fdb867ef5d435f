// SPDX-License-Identifier: Apache-2.0
//! Finds the switches that run on this machine. All switches create their sockets in the same directory. The socket's
//! name is the process id of the switch.

use std::io;
use std::path::{Path, PathBuf};

use sluice_unix_socket::is_served;

/// Returns the directory of these sockets: `$SLUICE_SWITCH_RUN` or `/run/sluice-switch`.
pub fn directory() -> PathBuf {
    let chosen = std::env::var_os("SLUICE_SWITCH_RUN");
    chosen.map_or_else(|| PathBuf::from("/run/sluice-switch"), PathBuf::from)
}

/// Returns the admin sockets in a directory, sorted by name. An admin socket has a process id as its name, and a server
/// accepts connections on it. Ignores other sockets, such as the socket of `--metrics-address`. Returns nothing if the
/// directory does not exist.
///
/// # Errors
/// The directory cannot be read.
pub fn sockets(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if is_named_by_process(&path) && is_served(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_named_by_process(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let is_socket = path.extension().is_some_and(|suffix| suffix == "sock");
    is_socket && stem.is_some_and(|stem| stem.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_living_sockets_of_processes_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let living = [
            UnixListener::bind(at("2.sock")),
            UnixListener::bind(at("1.sock")),
            UnixListener::bind(at("metrics.sock")),
        ];
        drop(UnixListener::bind(at("3.sock")).unwrap());
        std::fs::write(at("4.sock"), "").unwrap();
        assert!(living.iter().all(Result::is_ok));
        assert_eq!(
            sockets(directory.path()).unwrap(),
            [at("1.sock"), at("2.sock")]
        );
        assert!(sockets(&at("absent")).unwrap().is_empty());
    }
}
