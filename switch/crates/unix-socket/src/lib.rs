// SPDX-License-Identifier: Apache-2.0
//! Listens on Unix sockets whose owner, group and mode restrict the clients.
//!
//! Promises:
//!
//! * A socket never has a wider mode than intended.
//! * A directory that all users may write to is refused unless it is sticky, because any user could replace the socket.
//! * The socket of a dead server is replaced. The socket of a running server is not.
//! * At the end, the file is removed only if it is still the socket that was created here.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fs, io, mem};

/// Mode of a directory that is created for sockets.
const DIRECTORY_MODE: u32 = 0o750;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_ALL: u32 = 0o002;
const BACKLOG: libc::c_int = 128;

/// Access rights of a socket's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// The socket's mode.
    pub mode: u32,
    /// The socket's group; `None` for the group of the process.
    pub group: Option<u32>,
}

impl Default for Access {
    /// Returns access for the owner and the group.
    fn default() -> Self {
        Self {
            mode: 0o660,
            group: None,
        }
    }
}

/// The file of a socket. Dropping the value removes the file, unless another file has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

impl SocketFile {
    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let same = identity(&self.path).is_ok_and(|identity| identity == self.identity);
        if same && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the socket is not removed");
        }
    }
}

/// Identity of a file: device, inode and time of creation. Inodes alone are not enough, because the kernel reuses them.
type Identity = (u64, u64, (i64, i64));

fn identity(path: &Path) -> io::Result<Identity> {
    let metadata = fs::symlink_metadata(path)?;
    let created = (metadata.mtime(), metadata.mtime_nsec());
    Ok((metadata.dev(), metadata.ino(), created))
}

/// Returns whether a server accepts connections at this path.
pub fn is_served(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Listens at a path with a non-blocking socket. Creates a missing directory.
///
/// # Errors
/// Fails if the path is a file that is not a socket, if a running server uses the socket, or if any user could replace
/// the socket in its directory. The error names the reason and the path.
pub fn listen(path: &Path, access: Access) -> io::Result<(UnixListener, SocketFile)> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !directory.exists() {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)?;
    }
    check_directory(directory)?;
    make_room(path)?;
    let socket = unix_socket()?;
    // Order: the mode is set before bind(), because bind() takes no mode. Linux gives the file the mode of the socket,
    // so the file never has a wider mode. SAFETY: fchmod takes no pointers; the descriptor is open.
    check(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;
    bind(&socket, path)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path)?,
    };
    if let Some(group) = access.group {
        std::os::unix::fs::chown(path, None, Some(group))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(access.mode))?;
    // SAFETY: listen takes no pointers; the descriptor is open.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok((UnixListener::from(socket), file))
}

/// Refuses a directory if all users may write to it or to one of its parents, unless the sticky bit is set. In such a
/// directory, any user could replace the socket.
fn check_directory(directory: &Path) -> io::Result<()> {
    for ancestor in fs::canonicalize(directory)?.ancestors() {
        let mode = fs::metadata(ancestor)?.mode();
        if mode & WRITABLE_BY_ALL != 0 && mode & STICKY == 0 {
            let problem = format!(
                "any user can write to {} and replace the socket: choose another directory, or run `chmod o-w` on this one",
                ancestor.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
        }
    }
    Ok(())
}

/// Removes a socket that no server uses.
fn make_room(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?.file_type(),
    };
    if !kind.is_socket() {
        let problem = format!(
            "{} exists and is not a socket: remove it, or choose another path",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
    }
    if is_served(path) {
        let problem = format!(
            "{} is served by another process: end it, or choose another path",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
    }
    fs::remove_file(path)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn unix_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket takes no pointers; a non-negative result is a new descriptor that only this function owns.
    unsafe {
        let fd = check(libc::socket(libc::AF_UNIX, kind, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn bind(socket: &OwnedFd, path: &Path) -> io::Result<()> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: every bit pattern, including zero, is valid for this plain C structure.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    if bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        let problem = format!(
            "the path of a Unix socket must have at most {} bytes, and no zero byte",
            address.sun_path.len() - 1
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = mem::size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which lives during the call.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            length,
        )
    })?;
    Ok(())
}

/// Returns the id of a group, given its name or number.
///
/// # Errors
/// The group does not exist.
pub fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let none = || format!("there is no group {text:?}");
    let name = CString::new(text).map_err(|_| none())?;
    // SAFETY: every bit pattern, including zero, is valid for this plain C structure.
    let mut entry: libc::group = unsafe { mem::zeroed() };
    let mut buffer = vec![0; 1 << 16];
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer refers to an object that lives during the call; the passed length is the length of the
    // buffer.
    let result = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    if result != 0 || found.is_null() {
        return Err(none());
    }
    Ok(entry.gr_gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_socket_is_for_owner_and_group_and_replaces_a_dead_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/x.sock");
        let (dead, file) = listen(&path, Access::default()).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o660, 0o750));
        let refused = listen(&path, Access::default()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(dead);
        mem::forget(file);
        assert!(path.exists());
        drop(listen(&path, Access::default()).unwrap());
        assert!(!path.exists(), "the socket is removed at the end");
        fs::write(&path, "precious").unwrap();
        assert!(listen(&path, Access::default()).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn mode_and_group_are_as_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.sock");
        let group = Some(group("daemon").unwrap());
        let access = Access { mode: 0o600, group };
        let _socket = listen(&path, access).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(Some(fs::metadata(&path).unwrap().gid()), group);
        assert!(super::group("no such group").is_err());
        assert_eq!(super::group("17"), Ok(17));
    }

    #[test]
    fn a_directory_where_anybody_could_replace_the_socket_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let open = directory.path().join("open");
        fs::create_dir_all(open.join("below")).unwrap();
        let try_mode = |mode| {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
            [open.join("x.sock"), open.join("below/x.sock")]
                .map(|path| listen(&path, Access::default()).err())
        };
        for error in try_mode(0o777) {
            assert!(error.unwrap().to_string().contains("replace the socket"));
        }
        assert!(try_mode(0o1777).iter().all(Option::is_none));
    }

    #[test]
    fn another_socket_at_the_path_is_not_removed_in_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.sock");
        let (listener, file) = listen(&path, Access::default()).unwrap();
        drop(listener);
        let _other = listen(&path, Access::default()).unwrap();
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn paths_that_no_socket_can_have_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x".repeat(100));
        assert!(listen(&path, Access::default()).is_err());
        assert!(listen(&directory.path().join("a\0b"), Access::default()).is_err());
    }
}
