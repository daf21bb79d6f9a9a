//! Asks a service over HTTP/1.1, on connections that are kept. It may be down, slow, or lie: all of it ends in time and
//! within bounds.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::connect::{AbortOnDrop, Way};
use crate::boxed_future::spawn_local;
use crate::clock::Clock;
use sluicegate_config::ServiceConfig;

/// The most connections that are kept.
const KEPT: usize = 64;
/// How long an unused connection is kept. Servers and networks forget them soon after.
const IDLE: Duration = Duration::from_secs(15);
/// The largest answer in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// What a service is asked, at the URL of its configuration.
#[derive(Clone)]
pub(in crate::auth) struct Call {
    /// The method.
    pub(in crate::auth) method: Method,
    /// Headers besides those that every call has.
    pub(in crate::auth) headers: HeaderMap,
    /// The body.
    pub(in crate::auth) body: Bytes,
}

/// What a service answered.
pub(in crate::auth) struct Reply {
    /// The status.
    pub(in crate::auth) status: StatusCode,
    /// The headers.
    pub(in crate::auth) headers: HeaderMap,
    /// The body; `None` if it breaks off or is too long.
    pub(in crate::auth) body: Option<Bytes>,
}

/// The connections to a service. All workers share them.
pub(super) struct Client {
    way: Way,
    timeout: Duration,
    path: Uri,
    host: HeaderValue,
    kept: Mutex<Vec<Kept>>,
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
    pub(super) fn new(config: &ServiceConfig) -> Self {
        let way = Way::new(&config.url, config.ca.as_ref());
        let host = HeaderValue::try_from(way.url().authority());
        Self {
            timeout: config.timeout,
            path: way.url().path.parse().unwrap_or_default(), // it was a part of a URL
            host: host.unwrap_or_else(|_| HeaderValue::from_static("")),
            kept: Mutex::default(),
            way,
        }
    }

    /// The answer, or why there is none in time.
    pub(super) async fn ask(&self, call: &Call, clock: Clock) -> Result<Reply, String> {
        match tokio::time::timeout(self.timeout, self.exchange(call, clock)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("it did not answer within {} ms", self.timeout.as_millis())),
        }
    }

    async fn exchange(&self, call: &Call, clock: Clock) -> Result<Reply, String> {
        while let Some(mut kept) = self.take(clock.uptime()) {
            // The server may have closed it: then nothing is lost, and another one is tried.
            if kept.sender.ready().await.is_ok()
                && let Ok(answer) = kept.sender.send_request(self.request(call)).await
            {
                return Ok(self.finish(answer, kept.sender, kept.task, clock).await);
            }
        }
        let stream = self.way.connect().await?;
        let broken = |error: hyper::Error| format!("its answer is broken: {error}");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let connection = spawn_local(async move { _ = connection.await }); // its errors reach the sender
        let task = AbortOnDrop(connection.abort_handle());
        let answer = sender.send_request(self.request(call)).await.map_err(broken)?;
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
        *request.uri_mut() = self.path.clone();
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
        let body = Limited::new(body, MAX_ANSWER).collect().await.ok().map(|body| body.to_bytes());
        if body.is_some() && !sender.is_closed() {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT {
                kept.push(Kept { sender, task, since: clock.uptime() });
            }
        }
        Reply { status: head.status, headers: head.headers, body }
    }
}
