//! The unix socket of the admin API: made private, taken over from the dead, never from the living.
//!
//! Whether another daemon lives is decided by a lock on a file beside the socket, which the kernel frees
//! with its process, and by whether anybody answers; a process id proves nothing.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

const BACKLOG: i32 = 128;

/// Why the socket could not be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("another daemon answers on {0}: stop it, or give this one another socket")]
    Alive(PathBuf),
    #[error("{0} exists and is not a socket: it is left alone; move it, or choose another path")]
    NotASocket(PathBuf),
    #[error("the path {0} is too long for a socket (107 bytes at most)")]
    TooLong(PathBuf),
    #[error("cannot {what} {path}")]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A bound socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    listener: std::os::unix::net::UnixListener,
    /// Device and inode, so that only our own file is ever removed.
    file: (u64, u64),
    /// Held for as long as the socket is ours.
    _lock: File,
}

impl Socket {
    /// Binds the socket with mode 0600, in a directory that is made with mode 0700 if it is missing.
    ///
    /// # Errors
    /// A live daemon's socket, and anything that is no socket, is refused and left as it is.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        Socket::bind_for(path, 0o600, 0o700)
    }

    /// The same, open to every user of the machine: who calls there is known by its user id, and what it may is
    /// decided by that.
    ///
    /// # Errors
    /// As [`Socket::bind`].
    pub(crate) fn bind_open(path: &Path) -> Result<Self, BindError> {
        Socket::bind_for(path, 0o666, 0o755)
    }

    fn bind_for(path: &Path, mode: u32, directory_mode: u32) -> Result<Self, BindError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| BindError::Io { what, path, source }
        };
        let address = SocketAddrUnix::new(path).map_err(|_| BindError::TooLong(path.to_owned()))?;
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(directory_mode)
                .create(directory)
                .map_err(failed("make", directory))?;
        }
        // What stands there is looked at before the lock file is made, so that a refusal leaves no trace.
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
            Ok(_) => {}
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed("look at", path)(source)),
        }
        let lock = lock(path)?;
        match answers(&address) {
            Ok(true) => return Err(BindError::Alive(path.to_owned())),
            Ok(false) => remove_stale(path).map_err(failed("remove the stale socket", path))?,
            Err(source) => return Err(failed("find out who owns the socket", path)(source)),
        }
        let bound = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &address)?;
            // Before it listens nobody can connect, so the modes are never wider than they end up.
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let socket = bound().map_err(failed("bind", path))?;
        let file = std::fs::symlink_metadata(path).map_err(failed("look at", path))?;
        Ok(Socket { path: path.to_owned(), listener: socket.into(), file: (file.dev(), file.ino()), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listener, registered with the runtime that this runs on.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        UnixListener::from_std(self.listener.try_clone()?)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Takes the lock beside the socket. The file stays behind: removing a lock file lets two in.
fn lock(socket: &Path) -> Result<File, BindError> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let failed = |source| BindError::Io { what: "lock", path: path.clone(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BindError::Alive(socket.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Whether somebody listens on the socket. Does not wait.
fn answers(address: &SocketAddrUnix) -> io::Result<bool> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, address) {
        // A full backlog belongs to somebody too.
        Ok(()) | Err(rustix::io::Errno::AGAIN) => Ok(true),
        Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn the_socket_and_the_directory_it_makes_are_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run/forebay.sock");
        let socket = Socket::bind(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        drop(socket);
        assert!(!path.exists(), "the file goes with the socket");
    }

    #[test]
    fn c43_a_dead_daemons_socket_is_taken_over() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("forebay.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "dropping a listener leaves its file, as kill -9 does");
        let socket = Socket::bind(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        drop(socket);
    }

    #[test]
    fn c43_a_live_daemons_socket_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("forebay.sock");
        let first = Socket::bind(&path).unwrap();
        assert!(matches!(Socket::bind(&path), Err(BindError::Alive(_))));
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(first);
        // Another program's, which knows nothing of the lock.
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(Socket::bind(&path), Err(BindError::Alive(_))));
        drop(other);
        Socket::bind(&path).unwrap();
    }

    #[test]
    fn c43_a_plain_file_is_refused_and_kept() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("forebay.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(Socket::bind(&path), Err(BindError::NotASocket(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x".repeat(120));
        assert!(matches!(Socket::bind(&path), Err(BindError::TooLong(_))));
    }

    #[test]
    fn a_file_that_took_the_place_is_not_removed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("forebay.sock");
        let socket = Socket::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another's").unwrap();
        drop(socket);
        assert!(path.exists());
    }
}
