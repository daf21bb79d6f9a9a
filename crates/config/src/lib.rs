//! gateway.yaml: what it means, and everything that is wrong with it. All mistakes are reported at once, each at its place.
//!
//! A text becomes a tree (`yaml_tree`), the tree a raw configuration (`raw`), and that a valid one (`validate`): [`Config`].
//! [`Report`] collects the mistakes on the way.
//!
//! This crate never opens a socket or reads a clock. Of the files that a configuration names it reads, through
//! [`Folder`], only small ones whose content is a value; what certificates, keys and lists of addresses contain is for
//! its caller to check.
//!
//! The modules, from bottom to top: `read` (the tree, its values with their places, the report), `language` (rates, patterns,
//! templates: the small languages inside values), `raw` (the file as it is written), `model` (what is valid), `validate`.
//!
//! Start reading at [`parse`], then [`Config`]. To add a field, begin with its mapping in `raw`.

mod language;
mod model;
mod raw;
mod read;
mod validate;

use std::path::{Path, PathBuf};

pub use language::host_name::host_name;
pub use language::http_url::HttpUrl;
pub use language::key_part::{Part, PartArgument, PartFacts, PartKind, PartSource, PartTakes, ValueForm};
pub use language::match_regex::{MatchRegex, PathRegex};
pub use language::network::parse_network;
pub use language::normal_path::{
    ENCODED_SLASH, PathError, is_overlong, normalize, normalize_encoded_slashes,
};
pub use language::paths::Paths;
pub use language::pattern::{HostPattern, Params, PathEnd, PathPattern, PatternError, Segment};
pub use language::percent::{form_decode, percent_decode, percent_encode};
pub use language::query_match::{QueryMatch, QueryValue};
pub use language::secret::Secret;
pub use language::template::{Piece, Template, Variable};
pub use language::values::{grouped, parse_bytes, parse_count, parse_duration, parse_rate};
pub use model::api_key::{ApiKeyConfig, ApiKeySource, ConsumersConfig};
pub use model::client::{ClientConfig, DrainConfig, H2Config};
pub use model::cors::{Below, CorsConfig, Origins};
pub use model::cost::{Cost, DetailedCost};
pub use model::fair::FairConfig;
pub use model::identity_rate::{BoundedRate, IdentityRate, RateSource};
pub use model::jwt::{JwksUrl, JwtConfig, JwtKeys};
pub use model::key_spec::KeySpec;
pub use model::lease::Unleased;
pub use model::limit::{Exempt, LimitConfig, Mode, OnMissing, OnStoreFailure, When};
pub use model::limit_files::{LimitFile, LimitFiles, LimitadorConfig, OverLimit, RlsConfig};
pub use model::listen_address::ListenAddress;
pub use model::listener::{
    AdminConfig, AdminToken, CertificateConfig, ClientAuthConfig, ClientIpConfig, ForwardedHeader,
    ListenerConfig, MinTls, Role, TlsConfig, TrustedList,
};
pub use model::lists::{Access, ListConfig, ListSource};
pub use model::log::{
    Accept, AccessLogConfig, Field, Known, LogFormat, LogTarget, Sample, Share, TraceConfig, has_secret_word,
    is_secret_header, secret_parameters,
};
pub use model::outside::{CheckCacheConfig, CheckConfig, IntrospectionConfig, OnFailure, ServiceConfig};
pub use model::overload::{OverloadConfig, OwnOverloadConfig, PrioritiesConfig};
pub use model::parsed::Parsed;
pub use model::queue::{QueueConfig, QueueStorage, SharedQueue};
pub use model::reference::Reference;
pub use model::regions::{RegionsConfig, WHOLE};
pub use model::rewrite::{Change, HeaderChange, HeaderChanges, PathChange, RegexPiece, UriTemplate};
pub use model::route::{
    Action, EncodedSlash, HeaderFamilies, Match, Reject, RouteConfig, ShapeConfig, UpstreamHeaders,
};
pub use model::rules::{RulesConfig, RulesService, RulesSource};
pub use model::served::{ServedConfig, ServedProtocol};
pub use model::store::{RedisAddress, RedisConfig, RedisServers, RedisTls};
pub use model::sync::{Sync, SyncMode};
pub use model::telemetry::OtlpConfig;
pub use model::upstream::{
    Balance, EjectionConfig, HealthConfig, Protocol, ProxyVersion, RetryConfig, ServerConfig, UNIX,
    UpstreamConfig, UpstreamTimeouts, UpstreamTlsConfig, host_of,
};
pub use model::{Config, MetricsConfig};
pub use read::at::{At, FileContent, FileRef, Folder, utf8_text};
pub use read::nearest::nearest;
pub use read::report::{Mistake, Place, Problem, Report};
pub use read::yaml_tree::{Node as YamlNode, Value as YamlValue, parse as parse_yaml};
pub use sluicegate_overload::Priority;
pub use validate::{FRAMING, believes_everybody};

use read::Read;
use read::env;
use read::yaml_tree::{self, Value};

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
    raw::schema::schema()
}
