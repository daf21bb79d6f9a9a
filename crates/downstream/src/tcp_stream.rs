//! The socket of a client, which is registered with the runtime at the first wait. A connection with a single request that
//! has arrived by the time it is accepted is never registered.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{self, Shutdown};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, send, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// The most bytes of one read from a socket that is not registered.
const FIRST: usize = 4 << 10;

/// A socket that does not block.
#[derive(Debug)]
pub struct LazyTcpStream {
    socket: Registration,
    /// Whether the kernel holds back the last bytes until the end of the connection.
    holds_back: bool,
}

#[derive(Debug)]
enum Registration {
    /// Not registered: no task had to wait for it yet.
    New(net::TcpStream),
    /// Registered with the runtime.
    Registered(TcpStream),
    /// The registration failed.
    Lost,
}

impl LazyTcpStream {
    /// A socket that is not registered yet.
    pub fn new(socket: net::TcpStream) -> Self {
        Self { socket: Registration::New(socket), holds_back: false }
    }

    /// From now on, the kernel holds back bytes that do not fill a segment until [`send_rest`](Self::send_rest), which must follow at
    /// once. The last bytes and the end of the connection are then one segment.
    pub(crate) fn hold_back(&mut self) {
        self.holds_back = true;
    }

    /// If bytes are held back, sends them and the end of the connection. To close the socket is not enough: if the client has sent
    /// bytes that were not read, the kernel resets the connection and discards what it has not sent.
    pub(crate) fn send_rest(&self) {
        if let Some(socket) = self.handle().filter(|_| self.holds_back) {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }

    fn send_flags(&self) -> SendFlags {
        match self.holds_back {
            #[cfg(target_os = "linux")]
            true => SendFlags::NOSIGNAL | SendFlags::MORE,
            _ => SendFlags::NOSIGNAL,
        }
    }

    /// Whether it is not registered with the runtime yet.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.socket, Registration::New(_))
    }

    /// Whether bytes have arrived. If not, the task is woken when they do. A socket that is not registered is never readable, and
    /// wakes nobody.
    pub(crate) fn is_readable(&self, cx: &mut Context<'_>) -> bool {
        match &self.socket {
            Registration::Registered(socket) => socket.poll_read_ready(cx).is_ready(),
            Registration::New(_) | Registration::Lost => false,
        }
    }

    /// The socket, registered with the runtime from now on.
    ///
    /// # Errors
    /// If the registration fails.
    pub(crate) fn registered(&mut self) -> io::Result<&mut TcpStream> {
        if let Registration::New(_) = self.socket
            && let Registration::New(socket) = std::mem::replace(&mut self.socket, Registration::Lost)
        {
            self.socket = Registration::Registered(TcpStream::from_std(socket)?);
        }
        match &mut self.socket {
            Registration::Registered(socket) => Ok(socket),
            Registration::New(_) | Registration::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The file descriptor; `None` if the registration failed.
    pub(crate) fn handle(&self) -> Option<BorrowedFd<'_>> {
        match &self.socket {
            Registration::New(socket) => Some(socket.as_fd()),
            Registration::Registered(socket) => Some(socket.as_fd()),
            Registration::Lost => None,
        }
    }

    /// Does `work` if the socket is not registered; `None` if it is, or if `work` would block.
    fn at_once<T>(
        &mut self,
        work: impl FnOnce(&mut net::TcpStream) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let Registration::New(socket) = &mut self.socket else { return None };
        unless_it_blocks(work(socket))
    }

    /// Does `send` with its flags; `None` if it would block, or if the registration failed. The kernel is called directly, because
    /// `send` of libc is a cancellation point and costs more in a process with several threads.
    fn send(
        &self,
        send: impl FnOnce(BorrowedFd<'_>, SendFlags) -> rustix::io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        unless_it_blocks(match &self.socket {
            Registration::New(socket) => send(socket.as_fd(), self.send_flags()).map_err(io::Error::from),
            Registration::Registered(socket) => {
                socket.try_io(Interest::WRITABLE, || Ok(send(socket.as_fd(), self.send_flags())?))
            }
            Registration::Lost => return None,
        })
    }
}

/// Reads from a socket that is not registered.
#[inline(never)]
fn read_first(socket: &net::TcpStream, buf: &mut ReadBuf<'_>) -> io::Result<()> {
    let mut first = [const { MaybeUninit::uninit() }; FIRST];
    let room = buf.remaining().min(FIRST);
    let ((read, _), _) = recv(socket, &mut first[..room], RecvFlags::empty())?;
    buf.put_slice(read);
    Ok(())
}

/// The result; `None` if it is `WouldBlock`.
fn unless_it_blocks<T>(done: io::Result<T>) -> Option<io::Result<T>> {
    let blocks = done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    (!blocks).then_some(done)
}

impl AsyncRead for LazyTcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.at_once(|socket| read_first(socket, buf)) {
            Some(read) => Poll::Ready(read),
            None => Pin::new(self.registered()?).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for LazyTcpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // There is nearly always room, so the first attempt does not register a waker.
        match self.send(|socket, flags| send(socket, bytes, flags)) {
            Some(written) => Poll::Ready(written),
            None => Pin::new(self.registered()?).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = pieces {
            return self.poll_write(cx, only); // cheaper
        }
        let sendmsg = |socket: BorrowedFd<'_>, flags| {
            sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), flags)
        };
        match self.send(sendmsg) {
            Some(written) => Poll::Ready(written),
            None => Pin::new(self.registered()?).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // nothing is buffered here
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.at_once(|socket| socket.shutdown(Shutdown::Write)) {
            Some(shut) => Poll::Ready(shut),
            None => Pin::new(self.registered()?).poll_shutdown(cx),
        }
    }
}
