//! Asks a service over HTTP/1.1, on connections that are kept. It may be down, slow, or lie: all of it ends in time and
//! within bounds.

mod connect;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

pub use self::connect::{AbortOnDrop, Way};
use crate::boxed_future::spawn_local;
use crate::clock::Clock;
use sluicegate_config::{FileContent, HttpUrl};

/// The most connections that are kept.
const KEPT: usize = 64;
/// How long an unused connection is kept. Servers and networks forget them soon after.
const IDLE: Duration = Duration::from_secs(15);

/// What a service is asked.
#[derive(Clone)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Path and query; `None` for those of the URL.
    pub target: Option<Uri>,
    /// Headers besides those that every call has.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// What a service answered.
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; `None` if it breaks off or is too long.
    pub body: Option<Bytes>,
}

/// Why there is no answer to a call.
#[derive(Debug)]
pub enum NoReply {
    /// There is no connection, it broke, or nothing came in time: other calls fare no better.
    Away(String),
    /// What came is not an HTTP answer.
    Unreadable(String),
}

impl NoReply {
    /// The reason.
    pub fn why(self) -> String {
        match self {
            Self::Away(why) | Self::Unreadable(why) => why,
        }
    }
}

impl From<hyper::Error> for NoReply {
    fn from(error: hyper::Error) -> Self {
        let why = format!("its answer is broken: {error}");
        if error.is_parse() { Self::Unreadable(why) } else { Self::Away(why) }
    }
}

/// The connections to a service. All workers share them.
pub struct Client {
    way: Way,
    bounds: Bounds,
    path: Uri,
    host: HeaderValue,
    kept: Mutex<Vec<Kept>>,
}

/// The bounds of an answer.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// How long it may take, from the connection to its last byte.
    pub timeout: Duration,
    /// How many bytes its body may have.
    pub largest: usize,
}

/// A connection that waits for the next call.
struct Kept {
    sender: SendRequest<Full<Bytes>>,
    /// It ends with this.
    task: AbortOnDrop,
    /// Since when it waits, in uptime of the process.
    since: Duration,
}

impl Client {
    /// A client without connections.
    pub fn new(url: &HttpUrl, ca: Option<&FileContent>, bounds: Bounds) -> Self {
        let way = Way::new(url, ca);
        let host = HeaderValue::try_from(way.url().authority());
        Self {
            bounds,
            path: way.url().path.parse().unwrap_or_default(), // it was a part of a URL
            host: host.unwrap_or_else(|_| HeaderValue::from_static("")),
            kept: Mutex::default(),
            way,
        }
    }

    /// The answer, or why there is none in time.
    pub async fn ask(&self, call: &Call, clock: Clock) -> Result<Reply, NoReply> {
        match tokio::time::timeout(self.bounds.timeout, self.exchange(call, clock)).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(NoReply::Away(format!("it did not answer within {} ms", self.bounds.timeout.as_millis())))
            }
        }
    }

    async fn exchange(&self, call: &Call, clock: Clock) -> Result<Reply, NoReply> {
        while let Some(mut kept) = self.take(clock.uptime()) {
            // The server may have closed it: then nothing is lost, and another one is tried.
            if kept.sender.ready().await.is_ok()
                && let Ok(answer) = kept.sender.send_request(self.request(call)).await
            {
                return Ok(self.finish(answer, kept.sender, kept.task, clock).await);
            }
        }
        let stream = self.way.connect().await.map_err(NoReply::Away)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = spawn_local(async move { _ = connection.await }); // its errors reach the sender
        let task = AbortOnDrop(connection.abort_handle());
        let answer = sender.send_request(self.request(call)).await?;
        Ok(self.finish(answer, sender, task, clock).await)
    }

    /// A connection that was used lately.
    fn take(&self, now: Duration) -> Option<Kept> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|kept| !kept.sender.is_closed() && now.saturating_sub(kept.since) < IDLE);
        kept.pop()
    }

    fn request(&self, call: &Call) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = call.target.as_ref().unwrap_or(&self.path).clone();
        let headers = request.headers_mut();
        headers.clone_from(&call.headers);
        headers.insert(header::HOST, self.host.clone());
        request
    }

    /// Reads an answer to its end and keeps the connection.
    async fn finish(
        &self,
        answer: hyper::Response<Incoming>,
        sender: SendRequest<Full<Bytes>>,
        task: AbortOnDrop,
        clock: Clock,
    ) -> Reply {
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, self.bounds.largest).collect().await.ok().map(|body| body.to_bytes());
        if body.is_some() && !sender.is_closed() {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT {
                kept.push(Kept { sender, task, since: clock.uptime() });
            }
        }
        Reply { status: head.status, headers: head.headers, body }
    }
}
