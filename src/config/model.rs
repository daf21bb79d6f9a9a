//! gateway.yaml as it is meant: every reference resolved, every value checked. Nothing after this file fails.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use ipnet::IpNet;
use sluicegate_limiter::{
    Ban, Concurrency, FixedWindow, LeakyBucket, Rate, SlidingLog, SlidingWindow, TokenBucket,
};

use super::jwt::JwtConfig;
use super::store::RedisConfig;
use crate::auth::Consumers;
use crate::key::KeySpec;
use crate::route::{HostPattern, PathPattern};

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that serve clients, at least one.
    pub listeners: Vec<ListenerConfig>,
    /// The address for operators.
    pub admin: Option<AdminConfig>,
    /// Who the client is.
    pub client_ip: ClientIpConfig,
    /// API keys.
    pub api_key: ApiKeyConfig,
    /// How user tokens are verified; without it there are none.
    pub jwt: Option<JwtConfig>,
    /// Where shared counters live; without it all counters are local.
    pub store: Option<RedisConfig>,
    /// The limits, in the order of the file.
    pub limits: Vec<LimitConfig>,
    /// The upstreams, in the order of the file.
    pub upstreams: Vec<UpstreamConfig>,
    /// The routes, in the order of the file.
    pub routes: Vec<RouteConfig>,
    /// Serving threads; `None` is one per core.
    pub workers: Option<usize>,
    /// The longest request head in bytes.
    pub max_head: usize,
    /// How long a drain may take.
    pub drain: Duration,
}

/// An address that serves clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerConfig {
    /// The name that routes may ask for.
    pub name: String,
    /// The address.
    pub address: SocketAddr,
}

/// The address for operators.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// The address.
    pub address: SocketAddr,
    /// What changes need; empty for a read-only API.
    pub token: String,
}

impl std::fmt::Debug for AdminConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminConfig").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Which peers are believed, and in which header.
#[derive(Clone, Debug)]
pub struct ClientIpConfig {
    /// The peers that are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// The header that they write.
    pub header: ForwardedHeader,
    /// Bits of an IPv6 address that make one client.
    pub ipv6_prefix: u8,
}

/// A header in which proxies name the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// X-Forwarded-For.
    XForwardedFor,
    /// Forwarded (RFC 7239).
    Forwarded,
    /// X-Real-IP.
    XRealIp,
}

/// API keys: where they are, and whose.
#[derive(Clone, Debug)]
pub struct ApiKeyConfig {
    /// Where a request has its key.
    pub source: ApiKeySource,
    /// The known keys; without them any key is as good as another.
    pub consumers: Option<ConsumersConfig>,
}

/// The known API keys.
#[derive(Clone, Debug)]
pub struct ConsumersConfig {
    /// The file that they stand in.
    pub file: PathBuf,
    /// Whether a request without one is answered 401.
    pub required: bool,
    /// Whether the upstream is told whose key it was.
    pub forward: bool,
    /// What the file holds.
    pub known: Arc<Consumers>,
}

/// Where the API key is.
#[derive(Clone, Debug)]
pub enum ApiKeySource {
    /// In this header.
    Header(HeaderName),
    /// In this query parameter.
    Query(String),
}

/// A limit.
#[derive(Clone, Debug)]
pub struct LimitConfig {
    /// Its name.
    pub name: String,
    /// What is counted apart.
    pub key: KeySpec,
    /// How it is counted.
    pub quota: Quota,
    /// How it is counted for those on a plan, by the plan's name.
    pub plans: Vec<(String, Quota)>,
    /// Another quota that is counted beside it and never enforced.
    pub candidate: Option<Quota>,
    /// The requests that it concerns; `None` for all.
    pub when: Option<When>,
    /// What a request spends.
    pub cost: Cost,
    /// Whether refusals lead to a ban.
    pub ban: Option<Ban>,
    /// Whether it refuses.
    pub mode: Mode,
    /// Whom it leaves alone.
    pub exempt: Exempt,
    /// What becomes of a request without the key.
    pub on_missing: OnMissing,
    /// Whether it is counted in the store, together with other gateways.
    pub shared: bool,
    /// What becomes of a shared limit's requests while the store fails.
    pub on_store_failure: OnStoreFailure,
    /// Live counters it may hold.
    pub max_keys: usize,
}

/// An algorithm with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quota {
    /// See [`TokenBucket`].
    TokenBucket(TokenBucket, Rate, u64),
    /// See [`LeakyBucket`].
    LeakyBucket(LeakyBucket, Rate, u64),
    /// See [`FixedWindow`].
    FixedWindow(FixedWindow, Rate),
    /// See [`SlidingLog`].
    SlidingLog(SlidingLog, Rate),
    /// See [`SlidingWindow`].
    SlidingWindow(SlidingWindow, Rate),
    /// See [`Concurrency`].
    Concurrency(Concurrency, u64),
}

/// What a request spends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always the same.
    Constant(u64),
    /// A whole number in a request header; 1 where it is missing or no number.
    Header(HeaderName),
    /// By what the request is, and by what comes of it.
    Detailed(Box<DetailedCost>),
}

/// What a request spends, by what it is and by what comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetailedCost {
    /// For the request itself.
    pub request: u64,
    /// A request header whose number stands for `request`.
    pub request_header: Option<HeaderName>,
    /// For requests with these methods, instead.
    pub methods: Vec<(Method, u64)>,
    /// Only answers with these statuses cost anything, first to last; empty for all.
    pub status: Vec<(u16, u16)>,
    /// A header of the answer, whose number is charged too.
    pub response_header: Option<HeaderName>,
    /// Whether the bytes of the answer's body are charged too.
    pub bytes: bool,
    /// What is taken before the answer is there; `None` for what the request itself costs.
    pub reserve: Option<u64>,
}

impl DetailedCost {
    /// Whether it is only known when the answer is there.
    pub fn settles(&self) -> bool {
        !self.status.is_empty() || self.response_header.is_some() || self.bytes
    }
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It refuses.
    Enforce,
    /// It counts and reports what it would have refused.
    Shadow,
    /// It does nothing.
    Off,
}

/// Whom a limit leaves alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    /// Clients at these addresses.
    pub networks: Vec<IpNet>,
    /// Keys of these values; a composite key is its values joined by commas.
    pub values: Vec<String>,
    /// Consumers of these names.
    pub consumers: Vec<String>,
    /// Those on these plans.
    pub plans: Vec<String>,
}

/// The requests that a limit concerns: all that is given fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// One of these methods; empty for any.
    pub methods: Vec<Method>,
    /// These headers with these values, or with any.
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// A key of one of these values; empty for any.
    pub keys: Vec<String>,
}

/// What becomes of a request without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// All such requests share one bucket.
    Shared,
    /// The limit does not count it.
    Skip,
    /// It is answered 401.
    Deny,
}

/// What becomes of a shared limit's requests while the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// They are counted in the process.
    #[default]
    Local,
    /// The limit admits them.
    Open,
    /// They are answered 503.
    Closed,
}

/// An API behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Its name.
    pub name: String,
    /// Its servers and their shares, at least one.
    pub servers: Vec<ServerConfig>,
    /// For a connection.
    pub connect: Duration,
    /// For the head of an answer.
    pub response: Duration,
    /// For the next bytes, and for the next request on a kept connection.
    pub idle: Duration,
}

/// A server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// HOST:PORT; the host may be a name.
    pub authority: String,
    /// Its share of the requests.
    pub weight: u32,
}

/// A route.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Its name.
    pub name: String,
    /// Which requests it takes.
    pub matches: Match,
    /// What becomes of them.
    pub action: Action,
    /// Indices into [`Config::limits`].
    pub limits: Vec<usize>,
    /// The answer headers that tell of limits.
    pub headers: HeaderFamilies,
    /// The answer to those refused, instead of the usual one.
    pub reject: Option<Reject>,
    /// The longest request body in bytes.
    pub max_body: Option<u64>,
}

/// Which requests a route takes; all that is given has to fit.
#[derive(Clone, Debug, Default)]
pub struct Match {
    /// An index into [`Config::listeners`].
    pub listener: Option<usize>,
    /// One of these hosts; empty for all.
    pub hosts: Vec<HostPattern>,
    /// One of these paths; empty for all.
    pub paths: Vec<PathPattern>,
    /// One of these methods; empty for all.
    pub methods: Vec<Method>,
    /// These headers with these values; `None` for any value.
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
}

/// What becomes of an admitted request.
#[derive(Clone, Debug)]
pub enum Action {
    /// It is forwarded to an upstream: an index into [`Config::upstreams`].
    Forward {
        /// The index.
        upstream: usize,
        /// Whether the path goes out as it came in.
        original_path: bool,
    },
    /// The client is told its own limits, which spends nothing.
    Usage,
    /// It is answered by the gateway.
    Respond {
        /// The status.
        status: StatusCode,
        /// The body.
        body: String,
        /// Its type.
        content_type: HeaderValue,
    },
}

/// An answer to refused requests that replaces the usual one.
#[derive(Clone, Debug)]
pub struct Reject {
    /// The status.
    pub status: StatusCode,
    /// The body, with its placeholders.
    pub body: String,
    /// Its type.
    pub content_type: HeaderValue,
}

/// Families of answer headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFamilies {
    /// X-RateLimit-Limit, -Remaining, -Reset, -Retry-After.
    pub x_ratelimit: bool,
    /// RateLimit and RateLimit-Policy.
    pub ietf: bool,
    /// Retry-After.
    pub retry_after: bool,
}

impl ForwardedHeader {
    /// The header's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::XForwardedFor => "x-forwarded-for",
            Self::Forwarded => "forwarded",
            Self::XRealIp => "x-real-ip",
        }
    }
}

impl ListenerConfig {
    /// What tells listeners apart across reloads: the address, so that a name may change. A port that the system
    /// chooses is no address yet.
    pub fn id(&self) -> String {
        if self.address.port() == 0 { self.name.clone() } else { self.address.to_string() }
    }
}

impl Quota {
    /// The word for it in the file.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::TokenBucket(..) => "token_bucket",
            Self::LeakyBucket(..) => "leaky_bucket",
            Self::FixedWindow(..) => "fixed_window",
            Self::SlidingLog(..) => "sliding_log",
            Self::SlidingWindow(..) => "sliding_window",
            Self::Concurrency(..) => "concurrency",
        }
    }

    /// The rate's count, or the bucket's size where that is larger.
    pub fn shown(&self) -> u64 {
        self.capacity().max(self.rate().map_or(0, |rate| rate.count()))
    }

    /// Whether it counts requests in flight.
    pub const fn is_concurrency(&self) -> bool {
        matches!(self, Self::Concurrency(..))
    }

    /// The rate; concurrency has none.
    pub const fn rate(&self) -> Option<Rate> {
        match self {
            Self::TokenBucket(_, rate, _)
            | Self::LeakyBucket(_, rate, _)
            | Self::FixedWindow(_, rate)
            | Self::SlidingLog(_, rate)
            | Self::SlidingWindow(_, rate) => Some(*rate),
            Self::Concurrency(..) => None,
        }
    }

    /// The most that one request can ever spend at once.
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(_, _, burst) | Self::LeakyBucket(_, _, burst) => *burst,
            Self::FixedWindow(_, rate) | Self::SlidingLog(_, rate) | Self::SlidingWindow(_, rate) => {
                rate.count()
            }
            Self::Concurrency(_, max) => *max,
        }
    }
}
