//! Lines of access logs: which format they have, and the request in them.
//!
//! | module | |
//! | --- | --- |
//! | `request` | READ FIRST: a request of a log, and what its time and duration are |
//! | `combined` | the combined format and its kin: nginx, Apache, Debian's `vhost_combined`, ingress-nginx, Traefik |
//! | `json` | JSON: ours, Traefik's, Caddy's, nginx's, Kong's, and mapped members |
//! | `proxies`, `clouds` | Envoy, HAProxy and our short format; load balancers and CloudFront of AWS |
//! | `wrapped` | what docker, Kubernetes and syslog put around a line |
//! | `durations`, `texts`, `times` | which numbers are durations; quoted texts and addresses; times |

mod clouds;
mod combined;
mod durations;
mod json;
mod line_error;
mod members;
mod proxies;
mod request;
#[cfg(test)]
mod samples;
mod texts;
mod times;
mod wrapped;

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderValue, Version, header};
use sluicegate_limiter::Time;

pub use self::durations::{DurationField, Unit};
pub use self::line_error::LineError;
use self::line_error::bad;
pub use self::members::Members;
pub use self::request::{Format, Request, TimeOf};

/// The most wrappers around a line, and the line itself: docker's logs can be those of syslog, and so on.
const MOST_WRAPPERS: u32 = 4;

/// What is known of the logs beside their lines.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The host of requests without one.
    pub host: Option<HeaderValue>,
    /// Where the members of JSON lines are.
    pub members: Option<Arc<Members>>,
    /// Which field behind the user agent is the duration.
    pub duration: Option<DurationField>,
}

/// Parses the lines of one file. The format is detected for each.
#[derive(Clone, Debug, Default)]
pub struct LineParser {
    known: Known,
    /// The last time of a line in the combined format, as it was written: most lines repeat it.
    stamp: Option<(Box<str>, Time)>,
    /// The fields of CloudFront, as its files name them.
    columns: Option<Vec<String>>,
    /// The JSON format of the last line.
    last: Option<Format>,
}

impl LineParser {
    /// A parser of lines about which this is known.
    pub fn new(known: Known) -> Self {
        Self { known, ..Self::default() }
    }

    /// Parses a line; `None` if it is not about a request. Bytes that are not UTF-8 are replaced; in headers this affects only
    /// decisions by that header.
    ///
    /// # Errors
    /// If the line has no known format, or one of its fields is not valid.
    pub fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, LineError> {
        // `from_utf8_lossy` is slower, and few lines need it.
        let text = std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
        let line = text.trim_matches([' ', '\r', '\n']);
        let Some(mut request) = self.any(line, MOST_WRAPPERS)? else { return Ok(None) };
        let replaced = matches!(text, Cow::Owned(_));
        if replaced && request.parts.target.path_and_query().contains(char::REPLACEMENT_CHARACTER) {
            return bad("the request target is not UTF-8");
        }
        let head = &mut request.parts;
        if !head.headers.contains_key(header::HOST) {
            match self.known.host.as_ref().filter(|_| head.target.authority().is_none()) {
                Some(host) => head.headers.insert(header::HOST, host.clone()),
                None => head.version = Version::HTTP_10, // a request of HTTP/1.0 needs no host
            }
        }
        Ok(Some(request))
    }

    /// Parses a line, inside so many wrappers at most.
    fn any(&mut self, line: &str, wrappers: u32) -> Result<Option<Request>, LineError> {
        let Some(inside) = wrappers.checked_sub(1) else { return bad("too many logs inside each other") };
        if line.starts_with('#') {
            self.columns = clouds::columns(line).or(self.columns.take());
            return Ok(None);
        }
        if line.starts_with('{') {
            return match wrapped::docker(line) {
                Some(inner) => self.any(inner.trim_end(), inside),
                None => json::parse(line, self.known.members.as_deref(), &mut self.last),
            };
        }
        if line.contains('\t')
            && let Some(request) = clouds::cloud_front(line, self.columns.as_deref())
        {
            return request.map(Some);
        }
        if line.starts_with('[') && times::is_date(&line[1..]) {
            return proxies::envoy(line).map(Some);
        }
        let mut words = line.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (first, second, third) = (word(), word(), word());
        if times::is_date(first) {
            return match (second, third) {
                ("stdout" | "stderr", "F" | "P") => self.any(wrapped::of_cri(line), inside),
                _ if texts::address(second).is_ok() => proxies::short(line).map(Some),
                _ if third.ends_with(':') => self.any(wrapped::of_syslog(line), inside),
                _ => clouds::classic(line).map(Some),
            };
        }
        if let Some(inner) = wrapped::syslog(line) {
            return self.any(inner, inside);
        }
        if matches!(first, "http" | "https" | "h2" | "grpcs" | "ws" | "wss") && times::is_date(second) {
            return clouds::application(line).map(Some);
        }
        if second.starts_with('[') {
            return proxies::haproxy(line).map(Some);
        }
        self.combined(line).map(Some)
    }

    /// The time of a line in the combined format, such as `10/Oct/2000:13:55:36 -0700`.
    fn stamp(&mut self, text: &str) -> Result<Time, LineError> {
        if let Some((last, time)) = &self.stamp
            && **last == *text
        {
            return Ok(*time);
        }
        let time = times::of_combined(text)?;
        self.stamp = Some((text.into(), time));
        Ok(time)
    }
}
