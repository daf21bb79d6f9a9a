//! Request headers with underscores in their names.
//!
//! CGI, WSGI and similar interfaces convert the hyphens of header names to underscores, so an application behind such a server
//! cannot distinguish `X_Real_IP` of a client from `X-Real-IP` of the gateway. By default such headers are removed from a
//! request before anything reads it, as nginx does.

use http::header::{self, HeaderName};
use smallvec::SmallVec;

use super::forwarded_headers::kind;
use super::headers::{X_CONSUMER_NAME, X_CONSUMER_PLAN, X_REQUEST_ID};
use sluicegate_config::Config;
use sluicegate_wire::Headers;

/// Names of headers that frame messages or that authenticating proxies set, besides those that [`kind`] knows.
const TRUSTED: [&str; 10] = [
    "auth-type",
    "auth-user",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "transfer-encoding",
    "x-client-cert",
    "x-client-verify",
];
/// Prefixes of such names.
const FAMILIES: [&str; 9] = [
    "content-",
    "remote-",
    "ssl-client-",
    "x-auth-request-",
    "x-authenticated-",
    "x-consumer-",
    "x-remote-",
    "x-ssl-client-",
    "x-webauth-",
];

/// Which request headers with underscores in their names may pass.
#[derive(Debug)]
pub struct Underscores {
    forwarded: bool,
    /// The sorted names of headers that the gateway reads or writes. Names that are configured with underscores are unchanged.
    own: Vec<Box<[u8]>>,
}

impl Underscores {
    /// The policy of a configuration. `reserved` are the headers that routes, limits and credentials use.
    pub fn new(config: &Config, reserved: &[HeaderName]) -> Self {
        let of_jwt = config.jwt.iter().flat_map(|jwt| &jwt.forward);
        let of_answers = config.introspection.iter().flat_map(|introspection| &introspection.forward);
        let claims = of_jwt.chain(of_answers).map(|(name, _)| name);
        let changed = config.routes.iter().flat_map(|route| &route.shape.request).map(|change| &change.name);
        let names = reserved.iter().chain(claims).chain(changed).chain(&config.priorities.header);
        let names = names.map(HeaderName::as_str);
        let names = names.chain([X_REQUEST_ID, X_CONSUMER_NAME, X_CONSUMER_PLAN]);
        let mut own: Vec<Box<[u8]>> = names.map(|name| name.as_bytes().into()).collect();
        own.sort();
        own.dedup();
        Self { forwarded: config.client.underscores, own }
    }

    /// The fields that a request announces as trailers and that may be forwarded.
    pub(super) fn announced_trailers(&self, headers: &Headers) -> SmallVec<[HeaderName; 2]> {
        let lines = headers.get_all(header::TRAILER).flat_map(|line| line.split(|b| *b == b','));
        let names = lines.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
        names.filter(|name| self.pass_trailer(name.as_ref())).collect()
    }

    /// Removes the headers that may not pass. Nearly all requests have no header with an underscore.
    #[inline]
    pub fn clean(&self, headers: &mut Headers) {
        if headers.has_underscores() {
            self.remove(headers);
        }
    }

    #[cold]
    fn remove(&self, headers: &mut Headers) {
        headers.retain(|name, _| self.pass(name));
    }

    /// Whether the gateway reads or writes the header with this name, which is in lower case.
    fn is_own(&self, name: &[u8]) -> bool {
        self.own.binary_search_by(|own| (**own).cmp(name)).is_ok()
    }

    /// Whether a trailer with this name, which is in lower case, may pass: not in place of a header that the gateway reads or writes.
    pub fn pass_trailer(&self, name: &[u8]) -> bool {
        self.pass(name) && !self.is_own(name)
    }

    /// Whether a header with this name, which is in lower case, may pass. A configured name passes; a name that an upstream may
    /// take for a header that the gateway or trusted proxies set does not.
    pub fn pass(&self, name: &[u8]) -> bool {
        if !name.contains(&b'_') {
            return true;
        }
        if !self.forwarded {
            return false;
        }
        let meant: Vec<u8> = name.iter().map(|b| if *b == b'_' { b'-' } else { *b }).collect();
        let is_trusted = TRUSTED.iter().any(|known| known.as_bytes() == meant)
            || FAMILIES.iter().any(|begin| meant.starts_with(begin.as_bytes()));
        self.is_own(name) || !(self.is_own(&meant) || is_trusted || kind(&meant).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_config::parse_without_files;

    fn underscores(rule: &str) -> Underscores {
        let text = format!(
            "listen: [127.0.0.1:8080]\nunderscores: {rule}\n\
             routes: [{{respond: {{status: 200}}}}]\n"
        );
        let config = parse_without_files(&text).unwrap_or_else(|report| panic!("{report}"));
        let reserved = ["x-tenant", "x-api-key", "own_key"].map(HeaderName::from_static);
        Underscores::new(&config, &reserved)
    }

    #[test]
    fn by_default_none_passes() {
        let underscores = underscores("removed");
        for name in ["x_custom", "x_tenant", "own_key", "_", "a_"] {
            assert!(!underscores.pass(name.as_bytes()), "{name}");
        }
        assert!(underscores.pass(b"x-tenant") && underscores.pass(b"host"));
    }

    #[test]
    fn forwarded_names_do_not_resemble_trusted_headers() {
        let underscores = underscores("forwarded");
        for name in ["x_custom", "own_key", "x_forward_me", "user_agent", "x-b3_trace", "content", "_"] {
            assert!(underscores.pass(name.as_bytes()), "{name}");
        }
        for name in [
            "x_tenant",
            "x_api-key",
            "x-request_id",
            "x_consumer_name",
            "x_consumer_plan",
            "content_length",
            "content_type",
            "transfer_encoding",
            "remote_user",
            "remote_addr",
            "x_remote_user",
            "x_real_ip",
            "x_forwarded_for",
            "x-forwarded_proto",
            "x_forwarded_user",
            "true_client_ip",
            "x_original_url",
            "x_http_method_override",
            "proxy_authorization",
            "ssl_client_verify",
        ] {
            assert!(!underscores.pass(name.as_bytes()), "{name}");
        }
    }
}
