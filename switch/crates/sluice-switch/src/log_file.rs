// SPDX-License-Identifier: Apache-2.0
//! Writes a log file, and rotates it with BMv2's names. When the file is full, the oldest file is deleted, NAME.1.txt
//! becomes NAME.2.txt, and NAME.txt becomes NAME.1.txt.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Limits of a log, as in BMv2's options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation {
    /// Size in bytes at which a file is rotated. A line is never split.
    pub(crate) max_size: u64,
    /// Number of rotated files to keep.
    pub(crate) max_files: u32,
}

/// Writes lines to the file without buffering.
pub(crate) struct LogFile {
    /// Path without `.txt`.
    name: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

impl LogFile {
    /// Creates or empties the file `NAME.txt`.
    pub(crate) fn create(name: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = File::create(path(name, 0))?;
        Ok(Self {
            name: name.to_owned(),
            rotation,
            file,
            size: 0,
        })
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (0..self.rotation.max_files).rev() {
            match fs::rename(path(&self.name, number), path(&self.name, number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = File::create(path(&self.name, 0))?;
        self.size = 0;
        Ok(())
    }
}

/// Returns the path of the current file (number 0) or of a rotated file.
pub(crate) fn path(name: &Path, number: u32) -> PathBuf {
    let mut path = name.as_os_str().to_owned();
    if number > 0 {
        path.push(format!(".{number}"));
    }
    path.push(".txt");
    path.into()
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = line.len() as u64;
        if self.size > 0 && self.size + length > self.rotation.max_size {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.size += length;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_no_line_is_cut() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("log");
        let rotation = Rotation {
            max_size: 10,
            max_files: 2,
        };
        let mut log = LogFile::create(&name, rotation).unwrap();
        for line in [
            "one\n",
            "two\n",
            "three\n",
            "a line longer than a file\n",
            "five\n",
        ] {
            log.write_all(line.as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!(read("log.txt"), "five\n");
        assert_eq!(read("log.1.txt"), "a line longer than a file\n");
        assert_eq!(read("log.2.txt"), "three\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn without_files_aside_it_starts_over() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("log");
        let rotation = Rotation {
            max_size: 4,
            max_files: 0,
        };
        let mut log = LogFile::create(&name, rotation).unwrap();
        log.write_all(b"one\n").unwrap();
        log.write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(path(&name, 0)).unwrap(), "two\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
