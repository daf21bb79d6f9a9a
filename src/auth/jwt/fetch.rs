//! Asks an issuer for its keys. It may be down, slow, or lie: all of it ends in time and within bounds.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::KeySet;
use sluicegate_config::JwksUrl;

/// The longest that a fetch takes, from the name of the host to the last byte.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest set of keys in bytes.
const MAX_SET: usize = 1 << 20;

/// The way to an issuer.
pub(super) struct Fetcher<'a> {
    url: &'a JwksUrl,
    tls: Option<TlsConnector>,
}

impl<'a> Fetcher<'a> {
    /// A way to `url`.
    pub(super) fn new(url: &'a JwksUrl) -> Self {
        Self { url, tls: url.tls.then(|| connector(url.ca.as_ref().map(|ca| &ca.bytes[..]))).flatten() }
    }

    /// The issuer's keys, or why there are none.
    pub(super) async fn fetch(&self) -> Result<KeySet, String> {
        match tokio::time::timeout(TIMEOUT, self.connect()).await {
            Ok(answer) => KeySet::jwks(&answer?),
            Err(_) => Err(format!("it did not answer within {} seconds", TIMEOUT.as_secs())),
        }
    }

    async fn connect(&self) -> Result<Bytes, String> {
        let JwksUrl { host, port, tls, .. } = self.url;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| format!("cannot connect to {host}: {error}"))?;
        if !tls {
            return self.ask(stream).await;
        }
        let connector =
            self.tls.as_ref().ok_or("this machine has no certificates of authorities; name some in `ca`")?;
        let name = ServerName::try_from(host.clone()).map_err(|_| format!("{host} is no name for TLS"))?;
        let stream =
            connector.connect(name, stream).await.map_err(|error| format!("TLS with {host}: {error}"))?;
        self.ask(stream).await
    }

    async fn ask(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<Bytes, String> {
        let broken = |error: hyper::Error| format!("its answer is broken: {error}");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let connection = crate::boxed_future::spawn_local(async move { _ = connection.await }); // its errors reach the sender
        let _ends_with_this = AbortOnDrop(connection.abort_handle());
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = self.url.path.parse().map_err(|_| "the path of its URL is none")?;
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host());
        headers
            .insert(header::ACCEPT, HeaderValue::from_static("application/jwk-set+json, application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("sluicegate"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let answer = sender.send_request(request).await.map_err(broken)?;
        if answer.status() != StatusCode::OK {
            return Err(format!("it answers {}", answer.status().as_u16())); // also to go elsewhere
        }
        let body = Limited::new(answer.into_body(), MAX_SET).collect().await;
        body.map(|body| body.to_bytes())
            .map_err(|_| "its answer breaks off, or is larger than 1 MiB".to_owned())
    }

    fn host(&self) -> HeaderValue {
        let JwksUrl { host, port, tls, .. } = self.url;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let usual = if *tls { 443 } else { 80 };
        let text = if *port == usual { host } else { format!("{host}:{port}") };
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

/// A task that ends with whoever waits for it.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// `None` if nobody is believed.
fn connector(ca: Option<&[u8]>) -> Option<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(pem) => _ = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten()),
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    if roots.is_empty() {
        return None;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}
