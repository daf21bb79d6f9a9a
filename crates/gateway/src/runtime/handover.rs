//! The hand-over, in which ports stay open: the old gateway passes its listening sockets over a Unix socket, serves until
//! the new gateway reports that it serves too, and then drains.
//!
//! ```text
//! old -> new   "sluicegate 2 COUNT\n", then COUNT sockets, with one byte per 64 sockets
//! new -> old   "serving ADDRESS ADDRESS\n": the addresses on which it serves
//! old -> new   "draining\n"
//! new -> old   "succeeded\n": another process has taken over from the new one
//! ```
//!
//! If the connection is closed before "serving", nothing changes. If it is closed soon after "draining", without "succeeded",
//! the new gateway has ended, and the old one serves again.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::AsyncReadExt;

use sluicegate_config::ListenAddress;

/// Sockets in one message; the kernel allows 253.
const BATCH: usize = 64;
/// More sockets than any gateway has: 256 workers on a hundred addresses.
const MAX_SOCKETS: usize = 25_600;
/// The longest line: every address of every listener.
const MAX_LINE: usize = 64 << 10;
/// How long either side waits for the other.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The connection to the gateway that serves until this one does.
pub(super) struct Predecessor {
    stream: UnixStream,
}

/// The connection to a predecessor that drains. It serves again if this is dropped soon.
pub(super) struct Watching {
    stream: UnixStream,
}

/// What became of a successor.
pub(super) enum Succession {
    /// It serves, and this process ends.
    Done,
    /// It does not, and this process serves.
    Failed,
}

/// The Unix socket on which a successor asks for the listening sockets.
pub(super) struct HandoverSocket {
    path: PathBuf,
    listener: tokio::net::UnixListener,
    location: Location,
}

/// Where the socket is in the file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Location {
    /// Beside its path, under a temporary name.
    Temporary,
    /// At its path.
    Published,
    /// Nowhere: the successor's socket has its path.
    Successor,
}

/// Asks the gateway behind `path` for its sockets; `None` if there is none.
pub(super) fn take_over(path: &Path) -> Result<Option<(Predecessor, Vec<TcpListener>)>, String> {
    let failed =
        |error: io::Error| format!("cannot take over from the gateway at {}: {error}", path.display());
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        // No gateway was started there, or one that did not remove its socket.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    let bounded = stream.set_read_timeout(Some(TIMEOUT)).and(stream.set_write_timeout(Some(TIMEOUT)));
    bounded.map_err(failed)?;
    let sockets = receive(&stream).map_err(failed)?;
    Ok(Some((Predecessor { stream }, sockets)))
}

impl Predecessor {
    /// Reports that this gateway serves on these addresses. When this returns, the predecessor drains.
    pub(super) fn serving(mut self, taken: &[ListenAddress]) -> Result<Watching, String> {
        let addresses: String = taken.iter().map(|address| format!(" {address}")).collect();
        let written = self.stream.write_all(format!("serving{addresses}\n").as_bytes());
        match written.and_then(|()| line(&mut self.stream)) {
            Ok(reply) if reply == "draining" => Ok(Watching { stream: self.stream }),
            Ok(reply) => Err(format!("the predecessor goes on serving: {reply}")),
            Err(error) => Err(format!("the predecessor goes on serving: {error}")),
        }
    }
}

impl Watching {
    /// Tells the predecessor that another process has taken over from this one: it need not serve again.
    pub(super) fn succeeded(mut self) {
        let _ = self.stream.write_all(b"succeeded\n"); // it may have ended
    }
}

impl HandoverSocket {
    /// Binds the socket under a temporary name. It must be called inside a Tokio runtime.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file there is not a socket"));
            }
            _ => {}
        }
        let _ = std::fs::remove_file(temporary_path(path)); // left by an earlier process with the same id
        let listener = tokio::net::UnixListener::bind(temporary_path(path))?;
        let socket = Self { path: path.to_owned(), listener, location: Location::Temporary };
        std::fs::set_permissions(temporary_path(path), std::fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    }

    /// Moves the socket to its path. This replaces a predecessor's socket atomically.
    pub(super) fn publish(&mut self) -> io::Result<()> {
        std::fs::rename(temporary_path(&self.path), &self.path)?;
        self.location = Location::Published;
        Ok(())
    }

    /// Accepts the next connection of an authorized user: the same user, or root.
    pub(super) async fn accept(&self) -> UnixStream {
        loop {
            let asked = self.listener.accept().await.and_then(|(stream, _)| {
                let user = stream.peer_cred()?.uid();
                let stream = stream.into_std()?;
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                Ok((stream, user))
            });
            match asked {
                Ok((stream, 0)) => return stream,
                Ok((stream, user)) if user == rustix::process::geteuid().as_raw() => return stream,
                Ok((_, user)) => {
                    tracing::warn!("user {user} asked for the sockets and is not allowed to have them")
                }
                Err(error) => {
                    tracing::warn!("cannot accept connections on the hand-over socket: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Listens at the path again, where a successor did that has ended.
    pub(super) fn reclaim(&mut self) -> io::Result<()> {
        let mut again = Self::bind(&self.path)?;
        again.publish()?;
        *self = again;
        Ok(())
    }

    /// The path belongs to the successor now: it is not removed.
    pub(super) fn leave_to_successor(&mut self) {
        self.location = Location::Successor;
    }
}

impl Drop for HandoverSocket {
    fn drop(&mut self) {
        let _ = match self.location {
            Location::Temporary => std::fs::remove_file(temporary_path(&self.path)),
            Location::Published => std::fs::remove_file(&self.path),
            Location::Successor => Ok(()),
        }; // a stale socket does no harm
    }
}

/// The temporary name of a socket.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    PathBuf::from(name)
}

/// Passes the sockets to a successor and waits until it serves. Returns the addresses that it serves on. Blocks.
pub(super) fn hand_over(mut stream: &UnixStream, sockets: &[OwnedFd]) -> io::Result<Vec<ListenAddress>> {
    stream.write_all(format!("sluicegate 2 {}\n", sockets.len()).as_bytes())?;
    for batch in sockets.chunks(BATCH) {
        let fds: Vec<BorrowedFd<'_>> = batch.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(BATCH))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds)); // `space` has room for a batch
        sendmsg(stream, &[IoSlice::new(b"s")], &mut control, SendFlags::NOSIGNAL)?;
    }
    let reply = line(&mut stream)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("it said `{reply}`"));
    let taken = reply.strip_prefix("serving").ok_or_else(wrong)?;
    taken.split_ascii_whitespace().map(|address| ListenAddress::parse(address).ok_or_else(wrong)).collect()
}

/// Confirms to the successor that this gateway drains now.
pub(super) fn confirm(mut stream: &UnixStream) -> io::Result<()> {
    stream.write_all(b"draining\n")
}

/// Watches a successor for the time `confirm`. It has failed if it closes the connection without a word.
pub(super) async fn watch(successor: UnixStream, confirm: Duration) -> Succession {
    let ended = async {
        successor.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(successor)?.read(&mut [0]).await
    };
    match tokio::time::timeout(confirm, ended).await {
        Ok(Ok(0) | Err(_)) => Succession::Failed,
        Ok(Ok(_)) | Err(_) => Succession::Done,
    }
}

fn receive(mut stream: &UnixStream) -> io::Result<Vec<TcpListener>> {
    let reply = line(&mut stream)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("it said `{reply}`"));
    let count: usize =
        reply.strip_prefix("sluicegate 2 ").and_then(|count| count.parse().ok()).ok_or_else(wrong)?;
    if count > MAX_SOCKETS {
        return Err(wrong());
    }
    let mut sockets: Vec<TcpListener> = Vec::new();
    while sockets.len() < count {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(BATCH))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(&mut byte)];
        let received = recvmsg(stream, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let before = sockets.len();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                sockets.extend(fds.map(TcpListener::from));
            }
        }
        if received.bytes == 0 || sockets.len() == before {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it did not pass all of its sockets"));
        }
    }
    Ok(sockets)
}

/// Reads a line byte by byte, because the bytes after it may carry sockets.
fn line(stream: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        match byte[0] {
            b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
            _ if line.len() >= MAX_LINE => return Err(io::ErrorKind::InvalidData.into()),
            other => line.push(other),
        }
    }
}
