//! Validates connections to servers: TLS, HTTP/2, the PROXY protocol.

use rustls_pki_types::ServerName;

use super::checks::{value, word};
use super::tls::key_pair;
use crate::model::upstream::{Protocol, ProxyVersion, ServerConfig, UpstreamTlsConfig};
use crate::raw::upstream::{RawUpstream, RawUpstreamTls};
use crate::read::at::Folder;
use crate::read::report::{Mistake, Report};

/// The protocols of connections to the servers of an upstream.
pub(super) struct Transport {
    pub(super) protocol: Protocol,
    pub(super) tls: Option<UpstreamTlsConfig>,
    pub(super) proxy_protocol: Option<ProxyVersion>,
}

/// `servers` is `None` if one of them is wrong. A wrong field is reported and gets its default, so that all files are
/// checked.
pub(super) fn transport(
    raw: &RawUpstream,
    servers: Option<&[ServerConfig]>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Transport {
    let protocol = raw.protocol.as_ref().map_or(Some(Protocol::Http1), |text| {
        word(text, "protocol", &[("http1", Protocol::Http1), ("http2", Protocol::Http2)], report)
    });
    let proxy_protocol = raw.proxy_protocol.as_ref().and_then(|text| {
        let versions = [("v1", ProxyVersion::V1), ("v2", ProxyVersion::V2)];
        word(text, "version of the PROXY protocol", &versions, report)
    });
    if let (Some(text), Some(_), Some(Protocol::Http2)) = (&raw.proxy_protocol, proxy_protocol, protocol) {
        let problem = text.problem("`proxy_protocol` and `protocol: http2` do not go together");
        report.error(problem.help(
            "an HTTP/2 connection is shared by many clients, the PROXY protocol tells of one; keep one of them",
        ));
    }
    let secure = servers.map(|servers| servers.iter().any(|server| server.tls));
    if let (Some(tls), Some(false)) = (&raw.tls, secure) {
        let problem = tls.problem("`tls` means nothing without https:// servers");
        report.error(problem.help("write https:// in `servers`, or remove it"));
    }
    let empty = RawUpstreamTls::empty(raw.at);
    let tls = match (&raw.tls, secure) {
        (_, Some(false)) | (None, None) => None,
        (Some(raw), _) => Some(tls(&raw.value, folder, report)),
        (None, Some(true)) => Some(tls(&empty, folder, report)),
    };
    Transport { protocol: protocol.unwrap_or(Protocol::Http1), tls, proxy_protocol }
}

fn tls(raw: &RawUpstreamTls, folder: Folder<'_>, report: &mut Report) -> UpstreamTlsConfig {
    let ca = raw.ca.as_ref().map(|path| folder.file(path));
    let client = key_pair(raw.cert.as_ref(), raw.key.as_ref(), &raw.wrong, report)
        .map(|(cert, key)| (folder.file(cert), folder.file(key)));
    let name = raw.server_name.as_ref().and_then(|text| value(text, report, server_name));
    let verify = raw.verify.as_ref().is_none_or(|given| given.value);
    if let Some(given) = raw.verify.as_ref().filter(|given| !given.value) {
        match &raw.ca {
            Some(ca) => report.error(
                ca.problem("`ca` means nothing with `verify: false`").help("remove one of them; `ca` is the better one to keep"),
            ),
            None => report.warning(
                given
                    .problem("the servers' certificates are not verified: whoever is on the way can answer for them")
                    .help("name the authority that signed them in `ca` instead"),
            ),
        }
    }
    UpstreamTlsConfig { ca, client, server_name: name, verify }
}

fn server_name(text: &str) -> Result<ServerName<'static>, Mistake> {
    ServerName::try_from(text.to_owned()).map_err(|_| {
        Mistake::new(format!("`{text}` is not a name that a certificate can be for"))
            .help("such as api.example.com, without a scheme or a port")
    })
}
