//! Serves a router on a local socket. Only the socket's owner may connect. The kernel identifies
//! the calling user.

use super::caller::{Caller, PeerAddr};
use super::server::{Accept, ServerLimits, accept_loop, serve_connection};
use axum::Router;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// Maximum length of a socket's path in bytes: the kernel's limit without the terminating zero.
const PATH_BYTES_MAX: usize = 107;
/// Suffix of the path while the socket is being created.
const NEW: &str = ".new";

/// The reason why the socket could not be created. The file at the path is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("another daemon answers on {}", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    #[error("{} is too long for a socket: at most {most} bytes", .path.display())]
    TooLong { path: PathBuf, most: usize },
    #[error("can't listen on {}", path.display())]
    Listen { path: PathBuf, source: std::io::Error },
}

/// A listening socket. Dropping it removes its file, unless another daemon has replaced the file.
#[derive(Debug)]
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl LocalSocket {
    /// Listens on `path` with mode 0600. If no process listens on an existing socket, the socket is
    /// replaced.
    pub async fn bind(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Listen { path: path.into(), source };
        let most = PATH_BYTES_MAX - NEW.len();
        if path.as_os_str().len() > most {
            return Err(SocketError::TooLong { path: path.into(), most });
        }
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NotASocket(path.into())),
            Ok(_) => match UnixStream::connect(path).await {
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => return Err(failed(e)),
                // The error `WouldBlock` means that the socket's queue is full, so a process owns
                // the socket.
                Ok(_) | Err(_) => return Err(SocketError::InUse(path.into())),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        // The socket is created under another name, so that no process can connect before its mode
        // is set.
        let mut prepared = path.as_os_str().to_owned();
        prepared.push(NEW);
        match std::fs::remove_file(&prepared) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let listener = UnixListener::bind(&prepared).map_err(failed)?;
        std::fs::set_permissions(&prepared, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        std::fs::rename(&prepared, path).map_err(failed)?;
        let inode = std::fs::symlink_metadata(path).map_err(failed)?.ino();
        Ok(Self { listener, path: path.into(), inode })
    }
}

impl Accept for LocalSocket {
    type Connection = UnixStream;

    async fn next(&self) -> std::io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // If the removal fails, the next daemon finds a socket without a listener and replaces
            // it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Serves `router` to local processes until `shutdown` is ready. Then it removes the socket.
pub async fn serve_unix(socket: LocalSocket, router: Router, limits: ServerLimits, shutdown: impl Future<Output = ()>) {
    let serve = |stream: UnixStream, stop: watch::Receiver<bool>| {
        let router = router.clone();
        async move {
            match stream.peer_cred() {
                Ok(peer) => {
                    let caller = Caller::Local { uid: peer.uid() };
                    serve_connection(stream, router, (caller, PeerAddr(None), None), limits.header, stop).await;
                }
                Err(error) => tracing::warn!(%error, "the kernel did not report which user connected to the socket"),
            }
        }
    };
    // All callers on the socket are processes of this machine, so no connection is reserved.
    let limits = ServerLimits { connections: limits.connections + limits.reserved, ..limits };
    accept_loop(&socket, serve, limits, shutdown).await;
}
