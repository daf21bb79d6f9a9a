//! Reads URLs of services that the gateway itself asks.

use http::Uri;

use crate::language::http_url::HttpUrl;
use crate::read::at::At;
use crate::read::report::{Mistake, Report};

/// What messages say of a kind of service.
pub(super) struct Words {
    /// A URL of one.
    pub(super) example: &'static str,
    /// What the URL leads to.
    pub(super) of: &'static str,
    /// What is wrong with http:// over a network; `None` if it is not refused.
    pub(super) risk: Option<&'static str>,
}

/// A URL: https, or http to this machine.
pub(super) fn http_url(text: &str, words: &Words) -> Result<HttpUrl, Mistake> {
    let expected = || Mistake::new(format!("expected a URL such as {}", words.example));
    let uri: Uri = text.parse().map_err(|_| expected())?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(expected()),
    };
    let authority = uri.authority().ok_or_else(expected)?;
    if authority.as_str().contains('@') {
        return Err(Mistake::new(format!("the URL of {} holds no user or password", words.of)));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = match authority.port_u16() {
        Some(0) => return Err(expected()),
        Some(port) => port,
        None if tls => 443,
        None => 80,
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    // A query may hold a key of ours for the service, which no log has to know.
    let shown = text.split('?').next().unwrap_or_default().to_owned();
    let url = HttpUrl { text: shown, tls, host, port, path };
    match words.risk {
        Some(risk) if !tls && !url.is_here() => {
            Err(Mistake::new(risk).help("use https://; http:// leads to this machine only"))
        }
        _ => Ok(url),
    }
}

/// Reports authorities for a URL without TLS.
pub(super) fn ca_needs_tls(ca: Option<&At<String>>, url: &HttpUrl, report: &mut Report) {
    if let Some(text) = ca.filter(|_| !url.tls) {
        report.error(text.problem("`ca` means nothing without https://"));
    }
}
