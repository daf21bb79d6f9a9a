//! Connections to services that the gateway itself asks.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use sluicegate_config::{FileContent, HttpUrl};

/// The way to a service.
pub struct Way {
    url: HttpUrl,
    tls: Option<TlsConnector>,
}

/// A connection to a service.
pub enum Stream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A task that ends with whoever waits for it.
pub struct AbortOnDrop(pub AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Way {
    /// The way to `url`; `ca` are the authorities that are trusted, by default those of the system.
    pub fn new(url: &HttpUrl, ca: Option<&FileContent>) -> Self {
        let tls = url.tls.then(|| connector(ca.map(|ca| &ca.bytes[..]))).flatten();
        Self { url: url.clone(), tls }
    }

    /// Where it leads.
    pub const fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// A new connection, or why there is none.
    pub async fn connect(&self) -> Result<Stream, String> {
        let HttpUrl { host, port, tls, .. } = &self.url;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| format!("cannot connect to {host}: {error}"))?;
        let _ = stream.set_nodelay(true); // without it, it is only slower
        if !tls {
            return Ok(Stream::Plain(stream));
        }
        let connector =
            self.tls.as_ref().ok_or("this machine has no certificates of authorities; name some in `ca`")?;
        let name = ServerName::try_from(host.clone()).map_err(|_| format!("{host} is not a name for TLS"))?;
        let stream = connector.connect(name, stream).await;
        stream
            .map(|stream| Stream::Tls(Box::new(stream)))
            .map_err(|error| format!("TLS with {host}: {error}"))
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

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
