//! A request of a log.

use std::net::IpAddr;

use http::{HeaderValue, Method, StatusCode, Uri, Version, header};
use sluicegate_limiter::{Span, Time};
use sluicegate_wire::headers::is_value;
use sluicegate_wire::{Headers, RequestHead, RequestTarget};

use super::durations::Unit;
use super::line_error::{LineError, bad};
use sluicegate_auth::LogIdentity;
use sluicegate_base::named_enum::named_enum;

/// A request in a log.
#[derive(Debug)]
pub struct Request {
    /// When it arrived, or ended.
    pub time: Time,
    /// What the time is.
    pub time_of: TimeOf,
    /// Whether the time has whole seconds only.
    pub coarse: bool,
    /// The format of the line.
    pub format: Format,
    /// The client's address, or that of the proxy that the line is about.
    pub client: IpAddr,
    /// Its head.
    pub parts: RequestHead,
    /// How long it took, if the log has it, and how that is written.
    pub duration: Option<(Span, Unit)>,
    /// Whether the line has a number behind its fields that may or may not be a duration.
    pub unknown_number: bool,
    /// The status of its answer, if the log has it.
    pub status: Option<StatusCode>,
    /// The bytes of the answer's body, if the log has them.
    pub bytes: Option<u64>,
    /// The bytes of the request's body, if the log has them.
    pub received: Option<u64>,
    /// Who sent it, if the log says so.
    pub identity: Option<Box<LogIdentity>>,
}

/// What the time of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOf {
    /// The arrival of the request.
    Arrival,
    /// The end of its answer.
    End,
}

named_enum! {
    /// The format of a line.
    Format {
        /// JSON lines of this gateway, and others with the same members.
        Json = "JSON of sluicegate",
        /// The default format of this gateway.
        Short = "short format of sluicegate",
        /// JSON whose members `--map` names.
        Mapped = "JSON with --map",
        /// nginx and Apache.
        Combined = "combined",
        /// Debian's Apache with several hosts.
        VhostCombined = "vhost_combined",
        /// The default of ingress-nginx.
        IngressNginx = "ingress-nginx",
        /// The common log format of Traefik.
        TraefikText = "Traefik CLF",
        /// The JSON of Traefik.
        Traefik = "Traefik JSON",
        /// The JSON of Caddy.
        Caddy = "Caddy JSON",
        /// JSON whose members are called as nginx' variables.
        Nginx = "nginx JSON",
        /// The JSON that Kong's plugins write.
        Kong = "Kong JSON",
        /// The default of Envoy and of Istio.
        Envoy = "Envoy",
        /// `option httplog` of HAProxy.
        HaProxy = "HAProxy HTTP",
        /// The Application Load Balancer of AWS.
        Alb = "AWS ALB",
        /// The Classic Load Balancer of AWS.
        Elb = "AWS ELB",
        /// Standard logs of CloudFront.
        CloudFront = "CloudFront",
    }
}

impl Request {
    /// A request of which nothing else is known.
    pub(super) fn new(
        format: Format,
        (time, time_of): (Time, TimeOf),
        client: IpAddr,
        parts: RequestHead,
    ) -> Self {
        Self {
            time,
            time_of,
            coarse: false,
            format,
            client,
            parts,
            duration: None,
            unknown_number: false,
            status: None,
            bytes: None,
            received: None,
            identity: None,
        }
    }

    /// Sets the status, if there is one; 0 and what is none count as missing.
    pub(super) fn answered(mut self, status: Option<u64>, bytes: Option<u64>) -> Self {
        let status = status.and_then(|status| u16::try_from(status).ok());
        self.status = status.and_then(|status| StatusCode::from_u16(status).ok());
        self.bytes = bytes;
        self
    }
}

/// The head of a request.
pub(super) fn head(
    method: &str,
    target: &str,
    host: Option<&str>,
    headers: Headers,
) -> Result<RequestHead, LineError> {
    let Ok(method) = Method::from_bytes(method.as_bytes()) else {
        return bad(format!("`{method}` is not a method"));
    };
    let target = match RequestTarget::origin(target.as_bytes()) {
        Some(target) => target,
        None => match target.parse::<Uri>() {
            Ok(uri) => uri.into(),
            Err(_) => return bad(format!("`{target}` is not a request target")),
        },
    };
    let mut parts = RequestHead { method, target, version: Version::HTTP_11, headers };
    if let Some(host) = host.filter(|host| !matches!(*host, "" | "-")) {
        let Ok(host) = HeaderValue::from_str(host) else { return bad("`host` is not a host") };
        parts.headers.insert(header::HOST, host);
    }
    Ok(parts)
}

/// The method and the target of `METHOD TARGET VERSION`.
pub(super) fn request_line(text: &str) -> Result<(&str, &str), LineError> {
    let mut words = text.split(' ');
    match (words.next().filter(|method| !matches!(*method, "" | "-")), words.next()) {
        (Some(method), Some(target)) => Ok((method, target)),
        _ => bad("no \"request\""),
    }
}

/// Adds a header, unless it is missing or no value of HTTP.
pub(super) fn add_header(headers: &mut Headers, name: &str, value: &str) {
    if is_value(value.as_bytes()) && !matches!(value, "" | "-") {
        headers.append(name, value.as_bytes());
    }
}
