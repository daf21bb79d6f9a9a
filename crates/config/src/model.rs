//! The validated configuration: all references are resolved and all values checked.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use ipnet::IpNet;
use serde::Serialize;
use sluicegate_limiter::{Ban, Division, Quota};

use super::at::{At, FileRef};
use super::client::{ClientConfig, DrainConfig, H2Config};
use super::cors::CorsConfig;
use super::cost::Cost;
use super::fair::FairConfig;
use super::identity_rate::IdentityRate;
use super::jwt::JwtConfig;
use super::listener::{AdminConfig, ClientIpConfig, ListenerConfig};
use super::lists::ListConfig;
use super::log::{AccessLogConfig, TraceConfig};
use super::outside::{CheckConfig, IntrospectionConfig};
use super::overload::{OwnOverloadConfig, PrioritiesConfig};
use super::raw::RawLimit;
use super::reference::Reference;
use super::regions::RegionsConfig;
use super::route::RouteConfig;
use super::rules::RulesConfig;
use super::serialize::{
    ban, count, header_names, parts, plans, quota, quota_or_null, scope, text_or_null, texts,
};
use super::store::RedisConfig;
use super::sync::Sync;
use super::telemetry::OtlpConfig;
use super::upstream::UpstreamConfig;
use crate::{HeaderChange, KeySpec};

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that serve clients, at least one.
    pub listeners: Vec<ListenerConfig>,
    /// The address for operators.
    pub admin: Option<AdminConfig>,
    /// How the client address is determined.
    pub client_ip: ClientIpConfig,
    /// API keys.
    pub api_key: ApiKeyConfig,
    /// How user tokens are verified; without it there are none.
    pub jwt: Option<JwtConfig>,
    /// Where tokens are asked about that are not verified here.
    pub introspection: Option<IntrospectionConfig>,
    /// Where each request is asked about.
    pub check: Option<CheckConfig>,
    /// Where shared counters live; without it all counters are local.
    pub store: Option<RedisConfig>,
    /// The regions that divide the shared limits; `None` if there is one.
    pub regions: Option<RegionsConfig>,
    /// Where rules are kept; without it there are none.
    pub rules: Option<RulesConfig>,
    /// How important the requests of plans and consumers are.
    pub priorities: PrioritiesConfig,
    /// What the metrics show beyond the usual.
    pub metrics: MetricsConfig,
    /// The collector that traces and metrics are sent to.
    pub otlp: Option<OtlpConfig>,
    /// The lists of addresses, in the order of the file.
    pub lists: Vec<ListConfig>,
    /// The plans that consumers can be on, because a limit names them; none if no limit has numbers for any.
    pub plans: Vec<String>,
    /// Its protection from overload, if any.
    pub overload: Option<OwnOverloadConfig>,
    /// The limits, in the order of the file.
    pub limits: Vec<LimitConfig>,
    /// The upstreams, in the order of the file.
    pub upstreams: Vec<UpstreamConfig>,
    /// The routes, in the order of the file.
    pub routes: Vec<RouteConfig>,
    /// Which pages of other origins may read responses to requests that match no route.
    pub cors: Option<Arc<CorsConfig>>,
    /// Header changes for responses to requests that match no route.
    pub answer_headers: Vec<HeaderChange>,
    /// The access log; `None` if it is off.
    pub access_log: Option<AccessLogConfig>,
    /// How requests find their place in a trace.
    pub trace: TraceConfig,
    /// Serving threads; `None` is one per core.
    pub workers: Option<usize>,
    /// How long clients may take, and how much they may send.
    pub client: ClientConfig,
    /// The longest request head in bytes.
    pub max_head: usize,
    /// Names of response headers in the case in which they are written over HTTP/1.1.
    pub header_case: Vec<String>,
    /// Flood limits of HTTP/2 connections.
    pub h2: H2Config,
    /// How connections are closed at shutdown.
    pub drain: DrainConfig,
}

/// API keys: their place in a request, and their consumers.
#[derive(Clone, Debug, Serialize)]
pub struct ApiKeyConfig {
    /// Where a request has its key.
    #[serde(flatten)]
    pub source: ApiKeySource,
    /// The known keys; if `None`, any key is accepted.
    #[serde(flatten)]
    pub consumers: Option<ConsumersConfig>,
}

/// The known API keys.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumersConfig {
    /// The file of the keys.
    #[serde(rename = "consumers")]
    pub file: FileRef,
    /// Whether a request without one is answered 401.
    pub required: bool,
    /// Whether the upstream is told whose key it was.
    pub forward: bool,
}

/// Where the API key is: in a header, in a query parameter, or in either.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ApiKeySource {
    /// The header.
    #[serde(serialize_with = "text_or_null", skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderName>,
    /// The query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

/// A limit.
#[derive(Clone, Debug, Serialize)]
pub struct LimitConfig {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// The key: what is counted separately.
    pub key: KeySpec,
    /// Its algorithm and numbers.
    #[serde(flatten, serialize_with = "quota")]
    pub quota: Quota,
    /// Where its rate comes from, if the identity of a request names it; `quota` then has the default.
    pub identity_rate: Option<IdentityRate>,
    /// The time zone in which its days, weeks and months begin, where the file names one.
    pub zone: Option<String>,
    /// Its quotas for plans, by the name of the plan.
    #[serde(serialize_with = "plans")]
    pub plans: Vec<(String, Quota)>,
    /// A second quota that is evaluated but never enforced.
    #[serde(serialize_with = "quota_or_null")]
    pub candidate: Option<Quota>,
    /// The requests that it concerns; `None` for all.
    pub when: Option<When>,
    /// The cost of a request.
    pub cost: Cost,
    /// Whether refusals lead to a ban.
    #[serde(serialize_with = "ban")]
    pub ban: Option<Ban>,
    /// The part of it, in millionths, from which on clients are warned.
    #[serde(serialize_with = "parts")]
    pub warn: Option<u32>,
    /// The quota of the slower lane in which requests above the limit wait.
    #[serde(serialize_with = "quota_or_null")]
    pub penalty: Option<Quota>,
    /// How it is divided among consumers.
    pub fair: Option<FairConfig>,
    /// Whether it refuses.
    pub mode: Mode,
    /// Requests that it does not count.
    pub exempt: Exempt,
    /// What happens to a request without the key.
    pub on_missing: OnMissing,
    /// Whether it is counted in the store, together with other gateways.
    #[serde(rename = "scope", serialize_with = "scope")]
    pub shared: bool,
    /// Whether requests carry their key in full: for the store, for rules, and for what operators are shown.
    #[serde(skip)]
    pub whole_key: bool,
    /// The part that the gateway's region has, if there are several.
    #[serde(skip)]
    pub division: Option<Division>,
    /// The region with the smallest part, if there are several: what is too small for this one cannot be divided.
    #[serde(skip)]
    pub(crate) smallest_region: Option<Arc<(String, Division)>>,
    /// How it is counted in the store.
    pub sync: Sync,
    /// What happens to requests of a shared limit while the store fails.
    pub on_store_failure: OnStoreFailure,
    /// Maximum number of live counters.
    pub max_keys: usize,
    /// The limit as it is written, with which numbers of rules are read.
    #[serde(skip)]
    pub(crate) written: Arc<RawLimit>,
}

impl LimitConfig {
    /// The names of the plans with numbers of their own, as they are written.
    pub fn plan_names(&self) -> impl Iterator<Item = &At<String>> {
        self.written.plans.iter().flat_map(|plans| &plans.value.0).map(|(name, _)| name)
    }
}

/// What the metrics show beyond the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetricsConfig {
    /// The number of consumers whose requests are shown by name.
    pub by_consumer: usize,
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It refuses.
    Enforce,
    /// It counts and reports what it would have refused.
    Shadow,
    /// It does nothing.
    Off,
}

/// The requests that a limit does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exempt {
    /// Clients at these addresses.
    #[serde(serialize_with = "texts")]
    pub networks: Vec<IpNet>,
    /// Clients on these lists.
    pub lists: Vec<Reference>,
    /// Keys of these values; a composite key is its values joined by commas.
    #[serde(rename = "keys", serialize_with = "count")]
    pub values: Vec<String>,
    /// Consumers of these names.
    pub consumers: Vec<String>,
    /// Those on these plans.
    pub plans: Vec<At<String>>,
}

/// The requests that a limit applies to; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct When {
    /// One of these methods; empty for any.
    #[serde(serialize_with = "texts")]
    pub methods: Vec<Method>,
    /// These headers with these values, or with any.
    #[serde(serialize_with = "header_names")]
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// A key of one of these values; empty for any.
    #[serde(serialize_with = "count")]
    pub keys: Vec<String>,
}

/// What happens to a request without the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMissing {
    /// All such requests share one bucket.
    Shared,
    /// The limit does not count it.
    Skip,
    /// It is answered 401.
    Deny,
}

/// What happens to requests of a shared limit while the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStoreFailure {
    /// They are counted in the process.
    #[default]
    Local,
    /// The limit admits them.
    Open,
    /// They are answered 503.
    Closed,
}

impl OnStoreFailure {
    /// The policies with their names in the file and in metrics, in the order of the variants.
    pub const WORDS: [(&'static str, Self); 3] =
        [("local", Self::Local), ("open", Self::Open), ("closed", Self::Closed)];
}
