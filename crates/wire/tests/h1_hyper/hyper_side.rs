//! hyper on a connection in memory, without a runtime.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};

use super::{Body, Request, Response, fields_of};

/// A connection on which these bytes arrive, and then its end or nothing. What is written to it is lost.
struct Pipe {
    bytes: Bytes,
    ends: bool,
}

impl Read for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() && !self.ends {
            return Poll::Pending;
        }
        let length = self.bytes.len().min(into.remaining());
        into.put_slice(&self.bytes.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl Write for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Whether somebody was woken.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until the result is there, or nothing happens any more.
fn run<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    while woken.0.swap(false, Ordering::Relaxed) {
        if let Poll::Ready(done) = poll(&mut Context::from_waker(&waker)) {
            return Some(done);
        }
    }
    None
}

async fn collect(body: Incoming) -> Option<Body> {
    let body = body.collect().await.ok()?;
    let trailers = body.trailers().map(fields_of).unwrap_or_default();
    Some(Body { data: body.to_bytes().to_vec(), trailers })
}

/// The requests that hyper's server reads to their end.
pub(crate) fn requests(bytes: &[u8]) -> Vec<Request> {
    let read = Rc::new(RefCell::new(Vec::new()));
    let service = hyper::service::service_fn(|request: http::Request<Incoming>| {
        let read = Rc::clone(&read);
        async move {
            let (parts, body) = request.into_parts();
            let mut response = http::Response::new(Empty::<Bytes>::new());
            if parts.method == Method::CONNECT {
                *response.status_mut() = StatusCode::BAD_REQUEST; // else it is a tunnel
            }
            if let Some(body) = collect(body).await {
                let fields = fields_of(&parts.headers);
                let (method, uri, version) = (parts.method, parts.uri, parts.version);
                read.borrow_mut().push(Request { method, uri, version, fields, body });
            }
            Ok::<_, Infallible>(response)
        }
    });
    let pipe = Pipe { bytes: Bytes::copy_from_slice(bytes), ends: false };
    let mut builder = hyper::server::conn::http1::Builder::new();
    let mut connection = pin!(builder.header_read_timeout(None).serve_connection(pipe, service));
    let _ = run(|context| connection.as_mut().poll(context));
    read.take()
}

/// The response that hyper's client reads to its end, if it does.
pub(crate) fn response(bytes: &[u8], method: &Method, ends: bool) -> Option<Response> {
    let pipe = Pipe { bytes: Bytes::new(), ends: false };
    let bytes = Bytes::copy_from_slice(bytes);
    let pipe = Rc::new(RefCell::new(pipe));
    let mut handshake = pin!(hyper::client::conn::http1::handshake(Shared(Rc::clone(&pipe))));
    let (mut sender, connection) = run(|context| handshake.as_mut().poll(context))?.ok()?;
    let mut connection = pin!(connection);
    let request = http::Request::builder().method(method).uri("/").header("host", "a.test");
    let sent = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap());
    let mut answer = pin!(async {
        let (parts, body) = sent.await.ok()?.into_parts();
        let fields = fields_of(&parts.headers);
        Some(Response { status: parts.status, fields, body: collect(body).await?, keep_alive: false })
    });
    let mut is_closed = false;
    let mut poll_both = |context: &mut Context<'_>| {
        is_closed = is_closed || connection.as_mut().poll(context).is_ready();
        answer.as_mut().poll(context)
    };
    assert!(run(&mut poll_both).is_none(), "nothing has come yet");
    *pipe.borrow_mut() = Pipe { bytes, ends };
    let mut response = run(&mut poll_both)??;
    if !is_closed {
        let _ = run(|context| -> Poll<()> {
            is_closed = is_closed || connection.as_mut().poll(context).is_ready();
            Poll::Pending
        });
    }
    response.keep_alive = !is_closed && sender.is_ready();
    Some(response)
}

/// A pipe that is filled while it is in use.
struct Shared(Rc<RefCell<Pipe>>);

impl Read for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_read(context, into)
    }
}

impl Write for Shared {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
