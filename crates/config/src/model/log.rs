//! The model of the access log and of traces.

use std::path::PathBuf;

use http::HeaderName;
use serde::{Serialize, Serializer};

use crate::model::api_key::ApiKeyConfig;
use crate::read::at::At;

/// Headers that are secrets, whatever they are called here.
const SECRETS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];
/// Words in the names of headers and parameters whose values are secrets.
const SECRET_WORDS: [&str; 5] = ["api-key", "apikey", "token", "secret", "passw"];
/// A query parameter that is a secret everywhere (RFC 6750 §2.3).
const ACCESS_TOKEN: &str = "access_token";
/// Query parameters that are secrets where nothing else is said: credentials, codes of OAuth and of links in mails, and
/// signatures, with which whoever reads the log could repeat a request.
const USUAL_SECRETS: [&str; 31] = [
    "api-key",
    "api_key",
    "apikey",
    "auth",
    "authorization",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "credential",
    "credentials",
    "id_token",
    "jwt",
    "otp",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "pwd",
    "refresh_token",
    "secret",
    "session",
    "session_id",
    "sessionid",
    "sig",
    "signature",
    "token",
    "x-amz-security-token",
    "x-amz-signature",
    "x-goog-signature",
];

/// Whether the value of a header is a secret; `token_headers` are those that tokens come in.
pub fn is_secret_header<'a>(
    name: &HeaderName,
    api_key: &ApiKeyConfig,
    token_headers: impl IntoIterator<Item = &'a HeaderName>,
) -> bool {
    SECRETS.contains(&name.as_str().replace('_', "-").as_str())
        || has_secret_word(name.as_str())
        || api_key.source.header.as_ref() == Some(name)
        || token_headers.into_iter().any(|own| own == name)
}

/// Whether a header or a parameter is called as secrets are.
pub fn has_secret_word(name: &str) -> bool {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    SECRET_WORDS.iter().any(|word| plain.contains(word))
}

/// The query parameters whose values are secrets whatever else the file says.
pub fn secret_parameters(api_key: &ApiKeyConfig) -> Vec<String> {
    let mut names = vec![ACCESS_TOKEN.to_owned()];
    names.extend(api_key.source.query.clone());
    names
}

/// The query parameters whose values are secrets where the file does not say which are.
pub(crate) fn usual_secret_parameters(api_key: &ApiKeyConfig) -> Vec<String> {
    let mut names = secret_parameters(api_key);
    names.extend(USUAL_SECRETS.map(str::to_owned));
    names
}

/// Where a line of each request goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccessLogConfig {
    /// Where to.
    #[serde(rename = "path")]
    pub target: LogTarget,
    /// In which form.
    pub format: LogFormat,
    /// The members of a JSON line, in order.
    pub fields: Vec<Field>,
    /// Query parameters whose values are secrets, besides that of the API key.
    pub redact: Vec<String>,
    /// Which share of them is written.
    pub sample: Sample,
    /// Bytes that may wait to be written; what comes beyond them is dropped, and counted.
    pub buffer: usize,
    /// Where the file stands in the configuration.
    #[serde(skip)]
    pub written: Option<At<()>>,
}

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to.
    File(PathBuf),
}

impl Serialize for LogTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Stdout => serializer.serialize_str("stdout"),
            Self::File(path) => serializer.collect_str(&path.display()),
        }
    }
}

/// How a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A few values in a fixed order, for people.
    Short,
    /// A JSON object.
    Json,
    /// The combined format of Apache and nginx.
    Combined,
}

/// Which requests are written: the share of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Requests that were served.
    pub ok: Share,
    /// Requests that the gateway turned away: by limits, lists, for want of credentials or of a route.
    pub refused: Share,
    /// All others that ended with a status of 400 or above.
    pub error: Share,
}

/// A share of all, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self(1_000_000);

    /// So many millionths, at most all.
    pub fn millionths(number: u32) -> Self {
        Self(number.min(Self::ALL.0))
    }

    /// Whether a random number is in the share.
    #[inline]
    pub fn takes(self, random: u64) -> bool {
        self == Self::ALL || (u128::from(random) * u128::from(Self::ALL.0)) >> 64 < u128::from(self.0)
    }

    /// In millionths.
    pub const fn as_millionths(self) -> u32 {
        self.0
    }

    /// In per cent.
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 10_000.0
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}%", self.percent()))
    }
}

/// A member of a JSON line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// One of the known members.
    Known(Known),
    /// A header of the request, under `headers`.
    Header(HeaderName),
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(known) => serializer.serialize_str(known.name()),
            Self::Header(name) => serializer.collect_str(&format_args!("header:{name}")),
        }
    }
}

/// Declares the members that a JSON line can have, with their names.
macro_rules! known {
    ($($(#[$meta:meta])* $variant:ident = $name:literal $(, $usual:ident)?;)*) => {
        /// The members that a JSON line can have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Known { $($(#[$meta])* $variant,)* }

        impl Known {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Those of a log that does not choose.
            pub const USUAL: &'static [Self] = &[$($(known!(@$usual $variant),)?)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
    (@usual $variant:ident) => { Self::$variant };
}

known! {
    /// The time of its arrival: seconds since the epoch.
    Time = "time", usual;
    /// The client's address.
    ClientIp = "client_ip", usual;
    /// The method.
    Method = "method", usual;
    /// The host as received.
    Host = "host", usual;
    /// Path and query as received.
    Path = "path", usual;
    /// HTTP/1.1 and its like.
    Protocol = "protocol", usual;
    /// http or https.
    Scheme = "scheme";
    /// The status; 499 if the client left before there was one.
    Status = "status", usual;
    /// Seconds from its head to the end of its answer.
    Duration = "duration", usual;
    /// Whether the answer was sent to its end.
    Complete = "complete", usual;
    /// Why the answer ended before its end.
    Cut = "cut", usual;
    /// Bytes of the request's body that were forwarded.
    BytesIn = "bytes_in", usual;
    /// Bytes of the answer's body.
    BytesOut = "bytes_out", usual;
    /// The route.
    Route = "route", usual;
    /// The listener.
    Listener = "listener";
    /// The address of the peer.
    Peer = "peer";
    /// admitted, refused or unmatched.
    Outcome = "outcome", usual;
    /// Why the gateway refused it.
    Reason = "reason", usual;
    /// The detail of the problem document.
    Detail = "detail", usual;
    /// The limit that the rate limit headers describe.
    Limit = "limit", usual;
    /// The key of the request under that limit; secrets as digests.
    Key = "key";
    /// Its remaining quota.
    Remaining = "remaining", usual;
    /// Seconds until a retry can be admitted.
    RetryAfter = "retry_after", usual;
    /// Seconds that leaky buckets held it.
    Delay = "delay", usual;
    /// Limits in shadow mode that would have refused it.
    Shadow = "shadow", usual;
    /// Limits whose candidate would have refused it.
    Candidate = "candidate", usual;
    /// The consumer.
    Consumer = "consumer";
    /// The plan.
    Plan = "plan";
    /// The user.
    User = "user";
    /// The upstream.
    Upstream = "upstream", usual;
    /// The server of the upstream.
    Server = "server";
    /// Seconds until the head of the upstream's answer.
    UpstreamDuration = "upstream_duration", usual;
    /// Why the upstream gave no answer, or cut it.
    UpstreamError = "upstream_error", usual;
    /// The request's id.
    RequestId = "request_id", usual;
    /// The trace.
    TraceId = "trace_id", usual;
    /// The gateway's span in it.
    SpanId = "span_id";
    /// The parent span.
    ParentId = "parent_id";
    /// User-Agent.
    UserAgent = "user_agent", usual;
    /// Referer.
    Referer = "referer", usual;
}

/// The members that a line of the short format is made of.
pub(crate) const SHORT: &[Known] = &[
    Known::Time,
    Known::ClientIp,
    Known::Method,
    Known::Host,
    Known::Path,
    Known::Status,
    Known::BytesOut,
    Known::Duration,
    Known::Route,
    Known::Reason,
    Known::Cut,
    Known::Limit,
    Known::Server,
    Known::RequestId,
];

/// How requests become part of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TraceConfig {
    /// Whose traceparent is continued.
    pub accept: Accept,
    /// Whether a new trace is started if none is continued.
    pub create: bool,
    /// The share of those that is marked as sampled.
    pub sampled: Share,
}

/// Whose traceparent is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Accept {
    /// Everybody's.
    Anybody,
    /// That of trusted proxies.
    #[serde(rename = "trusted_proxies")]
    Trusted,
    /// Nobody's.
    Nobody,
}

impl Default for TraceConfig {
    fn default() -> Self {
        Self { accept: Accept::Anybody, create: true, sampled: Share::NONE }
    }
}
