// SPDX-License-Identifier: Apache-2.0
//! Reads keys from hexadecimal text or from files. Keys are erased when dropped, and never printed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

/// Length in bytes of the longest key of any algorithm.
pub const MAX_KEY: usize = 64;

const NO_STRING: &str = "a key must be a string of hexadecimal digits";

/// Bytes of a key. `Debug` shows only their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Key(Zeroizing<Vec<u8>>);

impl Key {
    /// Parses hexadecimal digits. Ignores white space before and after them.
    ///
    /// # Errors
    /// Describes the problem without showing the text.
    pub fn from_hex(text: &[u8]) -> Result<Self, &'static str> {
        let text = text.trim_ascii();
        let text = text.strip_prefix(b"0x").unwrap_or(text);
        if !text.len().is_multiple_of(2) || text.len() > 2 * MAX_KEY {
            return Err("a key must have an even number of hexadecimal digits, at most 128");
        }
        // Allocates the full size at once: a growing vector would leave copies of the key behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_KEY));
        for pair in text.chunks_exact(2) {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => bytes.push((high << 4 | low) as u8),
                _ => return Err("a key must consist of hexadecimal digits only"),
            }
        }
        Ok(Self(bytes))
    }

    /// Reads a file of hexadecimal digits that only its owner may read.
    ///
    /// # Errors
    /// Describes the problem with the file.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        let (mut file, _) = open_private(path)?;
        let mut text = Zeroizing::new([0; 2 * MAX_KEY + 64]);
        let mut filled = 0;
        while filled < text.len() {
            match file.read(&mut text[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        let invalid = |problem| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {problem}", path.display()),
            )
        };
        if filled == text.len() {
            return Err(invalid("the file is too long for a key"));
        }
        Self::from_hex(&text[..filled]).map_err(invalid)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the key as hexadecimal digits, for sending over a socket.
    pub fn to_hex(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * MAX_KEY));
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        text
    }
}

/// Opens a regular file that only its owner can read or write. The owner must be root or the effective user, because
/// any other owner would know the key. Returns the file and its length.
///
/// # Errors
/// The kernel's error, or a description of the wrong permissions or owner.
pub fn open_private(path: &Path) -> io::Result<(File, u64)> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut options = File::options();
    // Without this flag, opening a FIFO would block.
    options
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path).map_err(named)?;
    let metadata = file.metadata().map_err(named)?;
    if !metadata.is_file() {
        return Err(named(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is not a regular file",
        )));
    }
    if metadata.mode() & 0o077 != 0 {
        let problem = format!(
            "mode {:04o} lets other users access the file: run chmod 600",
            metadata.mode() & 0o7777
        );
        return Err(named(io::Error::new(
            io::ErrorKind::PermissionDenied,
            problem,
        )));
    }
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != 0 && owner != user {
        let problem = format!(
            "the file belongs to user {owner}, who could read the key: chown the file to root or user {user}"
        );
        return Err(named(io::Error::new(
            io::ErrorKind::PermissionDenied,
            problem,
        )));
    }
    Ok((file, metadata.len()))
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hex;
        impl Visitor<'_> for Hex {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key in hexadecimal digits")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
                Key::from_hex(text.as_bytes()).map_err(E::custom)
            }

            // The error of serde itself would contain the number.
            fn visit_u64<E: de::Error>(self, _: u64) -> Result<Key, E> {
                Err(E::custom(NO_STRING))
            }

            fn visit_i64<E: de::Error>(self, _: i64) -> Result<Key, E> {
                Err(E::custom(NO_STRING))
            }

            fn visit_f64<E: de::Error>(self, _: f64) -> Result<Key, E> {
                Err(E::custom(NO_STRING))
            }
        }
        deserializer.deserialize_any(Hex)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_read_and_written_and_never_shown() {
        let key = Key::from_hex(b" 0x00ffAb\n").unwrap();
        assert_eq!(key.bytes(), [0, 0xff, 0xab]);
        assert_eq!(*key.to_hex(), "00ffab");
        assert_eq!(format!("{key:?}"), "Key(3 bytes)");
        for wrong in [&b"abc"[..], b"zz", &[b'0'; 130]] {
            let problem = Key::from_hex(wrong).unwrap_err();
            assert!(!problem.contains("zz"));
        }
        for secret in ["123456", "-123456", "123456e3"] {
            let error = serde_json::from_str::<Key>(secret).unwrap_err();
            assert!(!error.to_string().contains("123456"), "{error}");
        }
        let error = serde_json::from_str::<Key>("\"5ecre7\"")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("5ecre7"), "{error}");
    }

    #[test]
    fn a_key_file_is_its_owner_s_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, "0011\n").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = Key::from_file(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Key::from_file(&path).unwrap().bytes(), [0, 0x11]);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let error = Key::from_file(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("belongs to user 65534"));
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        assert!(Key::from_file(directory.path()).is_err());
        std::fs::write(&path, "0".repeat(1000)).unwrap();
        assert!(Key::from_file(&path).is_err());
    }
}
