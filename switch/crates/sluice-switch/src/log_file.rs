// SPDX-License-Identifier: Apache-2.0
//! A log file that is put aside when it is large: FILE becomes FILE.1, FILE.1 becomes FILE.2, and the
//! oldest goes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How large a log may become, as BMv2's options say it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation {
    /// Bytes after which a file is put aside; a line is never cut.
    pub(crate) max_size: u64,
    /// Files that are kept besides.
    pub(crate) max_files: u32,
}

/// Writes lines; each goes to the file at once.
pub(crate) struct LogFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

impl LogFile {
    /// Creates or empties the file.
    pub(crate) fn create(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = File::create(path)?;
        Ok(Self {
            path: path.to_owned(),
            rotation,
            file,
            size: 0,
        })
    }

    fn aside(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.into()
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (0..self.rotation.max_files).rev() {
            match fs::rename(self.aside(number), self.aside(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = File::create(&self.path)?;
        self.size = 0;
        Ok(())
    }
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
        let path = directory.path().join("log");
        let rotation = Rotation {
            max_size: 10,
            max_files: 2,
        };
        let mut log = LogFile::create(&path, rotation).unwrap();
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
        assert_eq!(read("log"), "five\n");
        assert_eq!(read("log.1"), "a line longer than a file\n");
        assert_eq!(read("log.2"), "three\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn without_files_aside_it_starts_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let rotation = Rotation {
            max_size: 4,
            max_files: 0,
        };
        let mut log = LogFile::create(&path, rotation).unwrap();
        log.write_all(b"one\n").unwrap();
        log.write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
