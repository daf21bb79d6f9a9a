//! Listeners that decide for other proxies.

use http::StatusCode;
use ipnet::IpNet;
use serde::Serialize;

use crate::model::serialize::{status_or_null, texts};

/// How a listener decides on the requests of another proxy, which it does not forward.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServedConfig {
    /// How the proxy asks.
    #[serde(rename = "serve")]
    pub protocol: ServedProtocol,
    /// The networks of the proxies that may ask; empty if their certificates say so.
    #[serde(serialize_with = "texts")]
    pub callers: Vec<IpNet>,
    /// The status of a refusal, in place of its own.
    #[serde(serialize_with = "status_or_null")]
    pub deny_status: Option<StatusCode>,
}

/// How a proxy asks for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServedProtocol {
    /// By an HTTP request whose X-Forwarded headers describe the request of the client, as nginx, Traefik, Caddy and APISIX do.
    Check,
    /// By Envoy's external authorization over gRPC.
    ExtAuthz,
    /// By Envoy's external authorization over HTTP, which sends the head of the request itself.
    ExtAuthzHttp,
    /// By Envoy's rate limit service.
    Rls,
    /// As proxies ask limitador.
    Limitador,
}

impl ServedProtocol {
    /// The protocols with their names in the file.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("check", Self::Check),
        ("ext_authz", Self::ExtAuthz),
        ("ext_authz_http", Self::ExtAuthzHttp),
        ("rls", Self::Rls),
        ("limitador", Self::Limitador),
    ];

    /// Whether it has limits of its own, and uses neither routes nor the other limits.
    pub fn has_own_limits(self) -> bool {
        matches!(self, Self::Rls | Self::Limitador)
    }

    /// Its name in the file.
    pub fn name(self) -> &'static str {
        Self::WORDS.iter().find(|(_, protocol)| *protocol == self).map_or("", |(name, _)| name)
    }
}
