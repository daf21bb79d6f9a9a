//! gateway.yaml: what it means, and everything that is wrong with it. All mistakes are reported at once, each at its place.
//!
//! A text becomes a tree (`yaml_tree`), the tree a raw configuration (`raw`), and that a valid one (`validate`): [`Config`].
//! [`Report`] collects the mistakes on the way.
//!
//! This crate never opens a socket or reads a clock. Of the files that a configuration names it reads, through
//! [`Folder`], only small ones whose content is a value; what certificates, keys and lists of addresses contain is for
//! its caller to check.
//!
//! Start reading at [`parse`], then [`Config`]. To add a field, begin with the mapping in `raw.rs` or `raw_*.rs`.

mod api_key;
mod at;
mod calendar;
mod client;
mod cors;
mod cost;
mod env;
mod fair;
mod foreign;
#[cfg(feature = "schema")]
mod hints;
mod host_name;
mod http_url;
mod identity_rate;
mod jwt;
mod key_part;
mod key_spec;
mod lease;
mod limit;
mod listen_address;
mod listener;
mod lists;
mod log;
mod match_regex;
mod model;
mod nearest;
mod network;
mod normal_path;
mod outside;
mod overload;
mod parsed;
mod paths;
mod pattern;
mod percent;
mod query_match;
mod raw;
mod raw_balance;
mod raw_cors;
mod raw_excess;
mod raw_fair;
mod raw_headers;
mod raw_jwt;
mod raw_listen;
mod raw_lists;
mod raw_log;
mod raw_metrics;
mod raw_outside;
mod raw_overload;
mod raw_regions;
mod raw_route;
mod raw_rules;
mod raw_shape;
mod raw_store;
mod raw_telemetry;
mod raw_upstream;
mod read;
mod redact;
mod reference;
mod references;
mod regions;
mod report;
mod rewrite;
mod route;
mod rules;
mod scalars;
#[cfg(feature = "schema")]
mod schema;
#[cfg(feature = "schema")]
mod schema_types;
mod secret;
mod serialize;
mod store;
mod suggest;
mod sync;
mod syntax;
mod telemetry;
mod template;
mod upstream;
mod validate;
mod values;
mod yaml_tree;

use std::path::{Path, PathBuf};

pub use api_key::{ApiKeyConfig, ApiKeySource, ConsumersConfig};
pub use at::{At, FileContent, FileRef, Folder, utf8_text};
pub use client::{ClientConfig, DrainConfig, H2Config};
pub use cors::{Below, CorsConfig, Origins};
pub use cost::{Cost, DetailedCost};
pub use fair::FairConfig;
pub use host_name::host_name;
pub use http_url::HttpUrl;
pub use identity_rate::{BoundedRate, IdentityRate, RateSource};
pub use jwt::{JwksUrl, JwtConfig, JwtKeys};
pub use key_part::{Part, PartArgument, PartFacts, PartKind, PartSource, PartTakes, ValueForm};
pub use key_spec::KeySpec;
pub use lease::Unleased;
pub use limit::{Exempt, LimitConfig, Mode, OnMissing, OnStoreFailure, When};
pub use listen_address::ListenAddress;
pub use listener::{
    AdminConfig, AdminToken, CertificateConfig, ClientAuthConfig, ClientIpConfig, ForwardedHeader,
    ListenerConfig, MinTls, Role, TlsConfig, TrustedList,
};
pub use lists::{Access, ListConfig, ListSource};
pub use log::{
    Accept, AccessLogConfig, Field, Known, LogFormat, LogTarget, Sample, Share, TraceConfig, has_secret_word,
    is_secret_header, secret_parameters,
};
pub use match_regex::{MatchRegex, PathRegex};
pub use model::{Config, MetricsConfig};
pub use nearest::nearest;
pub use network::parse_network;
pub use normal_path::{ENCODED_SLASH, PathError, is_overlong, normalize, normalize_encoded_slashes};
pub use outside::{CheckCacheConfig, CheckConfig, IntrospectionConfig, OnFailure, ServiceConfig};
pub use overload::{OverloadConfig, OwnOverloadConfig, PrioritiesConfig};
pub use parsed::Parsed;
pub use paths::Paths;
pub use pattern::{HostPattern, Params, PathEnd, PathPattern, PatternError, Segment};
pub use percent::{form_decode, percent_decode, percent_encode};
pub use query_match::{QueryMatch, QueryValue};
pub use reference::Reference;
pub use regions::{RegionsConfig, WHOLE};
pub use report::{Mistake, Place, Problem, Report};
pub use rewrite::{Change, HeaderChange, HeaderChanges, PathChange, RegexPiece, UriTemplate};
pub use route::{
    Action, EncodedSlash, HeaderFamilies, Match, Reject, RouteConfig, ShapeConfig, UpstreamHeaders,
};
pub use rules::{RulesConfig, RulesService, RulesSource};
pub use secret::Secret;
pub use sluicegate_overload::Priority;
pub use store::{RedisAddress, RedisConfig, RedisServers, RedisTls};
pub use sync::{Sync, SyncMode};
pub use telemetry::OtlpConfig;
pub use template::{Piece, Template, Variable};
pub use upstream::{
    Balance, EjectionConfig, HealthConfig, Protocol, ProxyVersion, RetryConfig, ServerConfig, UNIX,
    UpstreamConfig, UpstreamTimeouts, UpstreamTlsConfig, host_of,
};
pub use validate::believes_everybody;
pub use values::{grouped, parse_count, parse_duration, parse_rate};

use read::Read;
use yaml_tree::Value;

/// Parses the text of a configuration and adds everything that is wrong with it to `report`. `None` if nothing can be
/// understood.
pub fn parse(text: &str, folder: Folder<'_>, report: &mut Report) -> Option<Parsed> {
    raw(text, report).map(|raw| validate::config(&raw, folder, report))
}

/// The configuration of a text that names no files: for tests of what is made of a configuration.
///
/// # Errors
/// The report, if the text is not valid.
pub fn parse_without_files(text: &str) -> Result<Config, String> {
    let read = |path: &Path| Err(std::io::Error::other(format!("{} is not read", path.display())));
    let mut report = Report::default();
    let parsed = parse(text, Folder { path: Path::new(""), read: &read }, &mut report);
    match parsed {
        Some(parsed) if report.errors.is_empty() => Ok(parsed.config),
        _ => Err(report.render("gateway.yaml", text)),
    }
}

/// The file of consumers that a configuration names, and the plans that they can be on; none if they can be on any.
///
/// # Errors
/// When the configuration cannot be read as far as that.
pub fn consumers_file(text: &str, folder: &Path) -> Result<Option<(PathBuf, Vec<String>)>, Report> {
    let mut report = Report::default();
    let raw = raw(text, &mut report);
    let plans = raw.as_ref().map(validate::plans).unwrap_or_default();
    let named = raw.and_then(|raw| raw.auth?.value.api_key?.value.consumers);
    match named {
        Some(file) => Ok(Some((folder.join(&file.value), plans))),
        None if report.errors.is_empty() => Ok(None),
        None => Err(report),
    }
}

/// The address of the admin API as a configuration writes it; `None` if there is none, or it cannot be read. Mistakes
/// elsewhere in the file do not matter.
pub fn admin_address(text: &str) -> Option<String> {
    Some(raw(text, &mut Report::default())?.admin?.value.address?.value)
}

fn raw(text: &str, report: &mut Report) -> Option<raw::RawConfig> {
    let mut tree = yaml_tree::parse(text).map_err(|problem| report.error(problem)).ok()?;
    match &mut tree.value {
        Value::Map(entries) => entries.retain(|(key, _)| !is_extension(key)),
        Value::Null => {
            let problem = Problem::new(Place::START, "the file is empty");
            report.error(problem.help("a gateway needs at least `listen` and `routes`"));
            return None;
        }
        _ => return read::wrong_kind(&tree, "a mapping (`listen: …`, `routes: …`)", report),
    }
    env::substitute(&mut tree, &|name| std::env::var(name).ok(), report);
    raw::RawConfig::read(&tree, report)
}

/// Whether a top-level key is the user's own: a place for anchors that the rest of the file repeats.
fn is_extension(key: &yaml_tree::Node) -> bool {
    matches!(&key.value, Value::Scalar(name) if name.starts_with("x-"))
}

/// The JSON Schema of gateway.yaml.
#[cfg(feature = "schema")]
pub fn schema() -> serde_json::Value {
    schema::schema()
}
