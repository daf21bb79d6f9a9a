//! The validated configuration: all references are resolved and all values checked.

use std::sync::Arc;

use serde::Serialize;

use super::api_key::ApiKeyConfig;
use super::client::{ClientConfig, DrainConfig, H2Config};
use super::cors::CorsConfig;
use super::jwt::JwtConfig;
use super::limit::LimitConfig;
use super::listener::{AdminConfig, ClientIpConfig, ListenerConfig};
use super::lists::ListConfig;
use super::log::{AccessLogConfig, TraceConfig};
use super::outside::{CheckConfig, IntrospectionConfig};
use super::overload::{OwnOverloadConfig, PrioritiesConfig};
use super::regions::RegionsConfig;
use super::route::RouteConfig;
use super::rules::RulesConfig;
use super::store::RedisConfig;
use super::telemetry::OtlpConfig;
use super::upstream::UpstreamConfig;
use crate::HeaderChange;

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

/// What the metrics show beyond the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetricsConfig {
    /// The number of consumers whose requests are shown by name.
    pub by_consumer: usize,
}
