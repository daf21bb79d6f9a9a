//! The connections of operators: how many there are, and who makes room when there are too many.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};

use super::Admin;
use crate::server::{self, ConnectionBudget, DETACH_GRACE};

/// The longest head of a request.
const MAX_HEAD: usize = 32 << 10;
/// How long the head of a request may take, also that of the next one on a connection.
const HEAD: Duration = Duration::from_secs(10);
/// How long accepting pauses when the process is out of file descriptors.
const OUT_OF_FILES: Duration = Duration::from_millis(50);

/// The connections to one address.
struct Connections {
    admin: Rc<Admin>,
    tasks: JoinSet<()>,
    /// The oldest first.
    open: VecDeque<Open>,
    /// The largest number of them.
    most: usize,
}

struct Open {
    task: AbortHandle,
    /// Whether a request is being answered.
    busy: Rc<Cell<bool>>,
}

impl Admin {
    /// Serves until `end` says whether the socket was detached, and then what is connected. Call it inside a
    /// `LocalSet`.
    pub async fn serve(self, socket: TcpListener, mut end: oneshot::Receiver<bool>) {
        let admin = Rc::new(self);
        let mut connections = Connections {
            admin,
            tasks: JoinSet::new(),
            open: VecDeque::new(),
            most: ConnectionBudget::of_admin(),
        };
        let detached = tokio::select! {
            () = connections.accept(&socket) => false,
            detached = &mut end => detached.unwrap_or(false),
        };
        if detached {
            // Handshakes that began here are completed here.
            let _ = tokio::time::timeout(DETACH_GRACE, connections.accept(&socket)).await;
        }
        if let Ok(socket) = socket.into_std() {
            server::drain(&socket, |stream, _| {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    connections.start(stream);
                }
            });
        }
        while connections.tasks.join_next().await.is_some() {}
    }
}

impl Connections {
    async fn accept(&mut self, socket: &TcpListener) {
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                Some(_) = self.tasks.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => self.start(stream),
                Err(_) => tokio::time::sleep(OUT_OF_FILES).await,
            }
        }
    }

    /// Serves a connection. If there are too many, the oldest one that waits for its client ends; if all are being
    /// answered, the new one does.
    fn start(&mut self, stream: TcpStream) {
        self.open.retain(|open| !open.task.is_finished());
        if self.open.len() >= self.most {
            let waits = self.open.iter().position(|open| !open.busy.get());
            let Some(oldest) = waits.and_then(|at| self.open.remove(at)) else { return };
            oldest.task.abort();
        }
        let busy = Rc::new(Cell::new(false));
        let serving: Pin<Box<dyn Future<Output = ()>>> =
            Box::pin(serve(Rc::clone(&self.admin), stream, Rc::clone(&busy)));
        self.open.push_back(Open { task: self.tasks.spawn_local(serving), busy });
    }
}

async fn serve(admin: Rc<Admin>, stream: TcpStream, busy: Rc<Cell<bool>>) {
    let Ok((own, peer)) = stream.local_addr().and_then(|own| Ok((own, stream.peer_addr()?))) else { return };
    let service = service_fn(async |request| {
        busy.set(true);
        let answer = admin.respond(request, own.ip(), peer.ip()).await;
        busy.set(false);
        answer
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let _ = serving.await; // how a connection ends is the client's business
}
