//! A reverse proxy of hyper on both sides and nothing else: no limits, no metrics, no deadlines. `benches/peers/compare.py`
//! measures it beside the gateway, which has HTTP codecs of its own (decision 19).
//!
//!     cargo run --profile dist --example bare-hyper -- 127.0.0.1:8080 127.0.0.1:9000 [h2c]
//!
//! One thread listens on the first address and forwards to the second over kept HTTP/1.1 connections. With `h2c` it
//! speaks HTTP/2 without TLS to its clients, otherwise HTTP/1.1. A request that cannot be forwarded is answered 502.

#![allow(clippy::unwrap_used)] // a benchmark may end in a panic

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// Runs futures of HTTP/2 connections on the one thread.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// Where requests go, and the connections that are kept to it.
struct Upstream {
    address: SocketAddr,
    idle: RefCell<Vec<SendRequest<Incoming>>>,
}

impl Upstream {
    async fn connection(&self) -> hyper::Result<SendRequest<Incoming>> {
        if let Some(kept) = self.take() {
            return Ok(kept);
        }
        let socket = TcpStream::connect(self.address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let (sender, connection) =
            hyper::client::conn::http1::Builder::new().writev(false).handshake(TokioIo::new(socket)).await?;
        tokio::task::spawn_local(connection);
        Ok(sender)
    }

    /// A kept connection whose last answer has been read to its end.
    fn take(&self) -> Option<SendRequest<Incoming>> {
        let mut idle = self.idle.borrow_mut();
        let ready = idle.iter().rposition(SendRequest::is_ready)?;
        Some(idle.swap_remove(ready))
    }

    async fn send(&self, mut request: Request<Incoming>) -> hyper::Result<Response<Incoming>> {
        let forwarded_for = HeaderName::from_static("x-forwarded-for");
        request.headers_mut().remove(CONNECTION);
        request.headers_mut().insert(forwarded_for, HeaderValue::from_static("127.0.0.1"));
        if let Some(authority) = request.uri().authority() {
            let host = HeaderValue::from_str(authority.as_str()).unwrap();
            request.headers_mut().insert(HOST, host);
        }
        let path = request.uri().path_and_query().unwrap().as_str().parse().unwrap();
        *request.uri_mut() = path;
        *request.version_mut() = http::Version::HTTP_11;
        let mut connection = self.connection().await?;
        let mut answer = connection.send_request(request).await?;
        self.idle.borrow_mut().push(connection);
        answer.headers_mut().remove(CONNECTION);
        *answer.version_mut() = http::Version::default();
        Ok(answer)
    }
}

type Answer = Response<Either<Incoming, Empty<Bytes>>>;

async fn serve(upstream: Rc<Upstream>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    Ok(upstream.send(request).await.map_or_else(
        |_| {
            let mut failed = Response::new(Either::Right(Empty::new()));
            *failed.status_mut() = StatusCode::BAD_GATEWAY;
            failed
        },
        |answer| answer.map(Either::Left),
    ))
}

async fn accept(listener: TcpListener, upstream: Rc<Upstream>, h2c: bool) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let upstream = upstream.clone();
        let service = service_fn(move |request| serve(upstream.clone(), request));
        tokio::task::spawn_local(async move {
            let io = TokioIo::new(socket);
            if h2c {
                let _ = hyper::server::conn::http2::Builder::new(LocalExecutor)
                    .serve_connection(io, service)
                    .await;
            } else {
                let _ = hyper::server::conn::http1::Builder::new()
                    .writev(false)
                    .serve_connection(io, service)
                    .await;
            }
        });
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut address = || -> SocketAddr { arguments.next().expect("an address").parse().unwrap() };
    let (ours, theirs) = (address(), address());
    let h2c = arguments.next().is_some_and(|protocol| protocol == "h2c");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let upstream = Rc::new(Upstream { address: theirs, idle: RefCell::default() });
        let listener = TcpListener::bind(ours).await.unwrap();
        accept(listener, upstream, h2c).await;
    });
}
