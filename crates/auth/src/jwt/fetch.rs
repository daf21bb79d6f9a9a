//! Asks an issuer for its keys. It may be down, slow, or lie: all of it ends in time and within bounds.

use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use super::KeySet;
use sluicegate_base::http_client::{AbortOnDrop, Way};
use sluicegate_config::JwksUrl;

/// The longest that a fetch takes, from the name of the host to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest set of keys in bytes.
const MAX_SET: usize = 1 << 20;

/// The way to an issuer.
pub(super) struct Fetcher(Way);

impl Fetcher {
    /// A way to `url`.
    pub(super) fn new(url: &JwksUrl) -> Self {
        Self(Way::new(&url.url, url.ca.as_ref()))
    }

    /// The issuer's keys, or why there are none.
    pub(super) async fn fetch(&self) -> Result<KeySet, String> {
        match tokio::time::timeout(TIMEOUT, self.ask()).await {
            Ok(answer) => KeySet::jwks(&answer?),
            Err(_) => Err(format!("it did not answer within {} seconds", TIMEOUT.as_secs())),
        }
    }

    async fn ask(&self) -> Result<Bytes, String> {
        let stream = self.0.connect().await?;
        let broken = |error: hyper::Error| format!("its answer is broken: {error}");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let connection = sluicegate_base::boxed_future::spawn_local(async move { _ = connection.await }); // its errors reach the sender
        let _ends_with_this = AbortOnDrop(connection.abort_handle());
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = self.0.url().path.parse().map_err(|_| "the path of its URL is none")?;
        let headers = request.headers_mut();
        let host = HeaderValue::try_from(self.0.url().authority());
        headers.insert(header::HOST, host.unwrap_or_else(|_| HeaderValue::from_static("")));
        headers
            .insert(header::ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("sluicegate"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let answer = sender.send_request(request).await.map_err(broken)?;
        if answer.status() != StatusCode::OK {
            return Err(format!("it answered with status {}", answer.status().as_u16())); // also to go elsewhere
        }
        let body = Limited::new(answer.into_body(), MAX_SET).collect().await;
        body.map(|body| body.to_bytes())
            .map_err(|_| "its answer breaks off, or is larger than 1 MiB".to_owned())
    }
}
