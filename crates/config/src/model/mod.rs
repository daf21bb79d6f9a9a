//! The validated configuration: all references are resolved and all values checked.

pub(crate) mod api_key;
pub(crate) mod client;
pub(crate) mod cors;
pub(crate) mod cost;
pub(crate) mod fair;
pub(crate) mod identity_rate;
pub(crate) mod jwt;
pub(crate) mod key_spec;
pub(crate) mod lease;
pub(crate) mod limit;
pub(crate) mod limit_files;
pub(crate) mod listen_address;
pub(crate) mod listener;
pub(crate) mod lists;
pub(crate) mod log;
pub(crate) mod outside;
pub(crate) mod overload;
pub(crate) mod parsed;
pub(crate) mod queue;
pub(crate) mod reference;
pub(crate) mod references;
pub(crate) mod regions;
pub(crate) mod rewrite;
pub(crate) mod route;
pub(crate) mod rules;
pub(crate) mod serialize;
pub(crate) mod served;
pub(crate) mod store;
pub(crate) mod sync;
pub(crate) mod telemetry;
pub(crate) mod upstream;

use std::sync::Arc;

use serde::Serialize;

use crate::HeaderChange;
use crate::model::api_key::ApiKeyConfig;
use crate::model::client::{ClientConfig, DrainConfig, H2Config};
use crate::model::cors::CorsConfig;
use crate::model::jwt::JwtConfig;
use crate::model::limit::LimitConfig;
use crate::model::limit_files::{LimitadorConfig, RlsConfig};
use crate::model::listener::{AdminConfig, ClientIpConfig, ListenerConfig};
use crate::model::lists::ListConfig;
use crate::model::log::{AccessLogConfig, TraceConfig};
use crate::model::outside::{CheckConfig, IntrospectionConfig};
use crate::model::overload::{OwnOverloadConfig, PrioritiesConfig};
use crate::model::regions::RegionsConfig;
use crate::model::route::RouteConfig;
use crate::model::rules::RulesConfig;
use crate::model::store::RedisConfig;
use crate::model::telemetry::OtlpConfig;
use crate::model::upstream::UpstreamConfig;

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
    /// The limits, in the order of the file. Behind them are those of the files of [`rls`](Self::rls), in the order of their rules,
    /// and those of the files of [`limitador`](Self::limitador).
    pub limits: Vec<LimitConfig>,
    /// Limits for other proxies, which ask by Envoy's rate limit service.
    pub rls: Option<RlsConfig>,
    /// Limits for other proxies, which ask as they ask limitador.
    pub limitador: Option<LimitadorConfig>,
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
