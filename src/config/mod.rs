//! gateway.yaml: text -> tree -> raw -> valid. All mistakes are reported at once.

mod calendar;
mod client;
mod conceal;
mod cors;
mod cost;
mod drain;
mod env;
mod forms;
mod hints;
mod host_name;
mod jwt;
mod key_spec;
mod listener;
mod lists;
mod log;
mod model;
mod network;
mod node;
mod normal_path;
mod pattern;
mod percent;
mod raw;
mod raw_balance;
mod raw_ban;
mod raw_cors;
mod raw_drain;
mod raw_h2;
mod raw_jwt;
mod raw_listen;
mod raw_log;
mod raw_route;
mod raw_shape;
mod raw_store;
mod raw_upstream;
mod read;
mod report;
mod rewrite;
mod route;
mod schema;
mod source;
mod store;
mod suggest;
mod syntax;
mod template;
mod upstream;
mod upstream_tls;
mod validate;
mod values;

use std::path::{Path, PathBuf};

pub use client::ClientConfig;
pub use cors::{Below, CorsConfig, Origins};
pub use cost::{Cost, DetailedCost};
pub use drain::DrainConfig;
pub use host_name::host_name;
pub use jwt::{JwksUrl, JwtConfig, JwtKeys};
pub use key_spec::{KeySpec, Part};
pub use listener::{
    AdminConfig, CertificateConfig, ClientAuthConfig, ClientIpConfig, ForwardedHeader, ListenerConfig,
    MinTls, TlsConfig,
};
pub use lists::{Access, ListConfig};
pub use log::{
    Accept, AccessLogConfig, Field, Known, LogFormat, LogTarget, Sample, Share, TraceConfig, has_secret_word,
    is_secret_header, secret_parameters,
};
pub use model::{
    ApiKeyConfig, ApiKeySource, Config, ConsumersConfig, Exempt, LimitConfig, Mode, OnMissing,
    OnStoreFailure, When,
};
pub use network::parse_network;
pub use normal_path::{PathError, is_overlong, normalize};
pub use pattern::{HostPattern, Params, PathEnd, PathPattern, PatternError, Segment};
pub use percent::{form_decode, percent_decode};
pub(crate) use report::nearest;
pub use report::{Place, Problem, Report};
pub use rewrite::{Change, HeaderChange, PathChange, RegexPiece, UriTemplate};
pub use route::{Action, HeaderFamilies, Match, Reject, RouteConfig, ShapeConfig};
pub use source::Source;
pub use store::{RedisAddress, RedisConfig, RedisServers, RedisTls};
pub use template::{Piece, Template, Variable};
pub use upstream::{
    Balance, EjectionConfig, HealthConfig, Protocol, ProxyVersion, RetryConfig, ServerConfig, UpstreamConfig,
};
pub use upstream_tls::{TlsFile, TlsFiles, TlsMistakes, TlsPart, UpstreamTls};

use node::Value;
use read::Read;

/// A file that was read: what it means if it means anything, and what is to be said of it.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration; `None` if there are errors.
    pub config: Option<Config>,
    /// Errors and warnings.
    pub report: Report,
    /// The report with the lines it speaks of; empty when there is nothing to say.
    pub rendered: String,
    /// The text that was read.
    pub text: String,
}

/// Reads a text as if it stood in `file`; other files it names are looked for in `folder`.
pub fn parse(text: String, file: &str, folder: &Path) -> Loaded {
    parse_after(text, file, folder, None)
}

fn parse_after(text: String, file: &str, folder: &Path, before: Option<&Config>) -> Loaded {
    let mut report = Report::default();
    let config = raw(&text, &mut report).and_then(|raw| validate::config(&raw, folder, before, &mut report));
    report.sort();
    let config = config.filter(|_| report.errors.is_empty());
    let rendered = report.render(file, &text);
    Loaded { config, report, rendered, text }
}

/// The file of consumers that a configuration names, whether or not it can be read, and the plans that they can be on;
/// none if they can be on any.
///
/// # Errors
/// When the configuration cannot be read as far as that.
pub fn consumers_file(source: &Source) -> Result<Option<(PathBuf, Vec<String>)>, String> {
    let text = source.text().map_err(|error| format!("cannot read {source}: {error}"))?;
    let mut report = Report::default();
    let raw = raw(&text, &mut report);
    let plans = raw.as_ref().map(validate::plans).unwrap_or_default();
    let named = raw.and_then(|raw| raw.auth?.value.api_key?.value.consumers);
    match named {
        Some(file) => Ok(Some((relative(source.folder(), &file.value), plans))),
        None if report.errors.is_empty() => Ok(None),
        None => Err(report.render(&source.to_string(), &text).trim_end().to_owned()),
    }
}

fn raw(text: &str, report: &mut Report) -> Option<raw::RawConfig> {
    let mut tree = node::parse(text).map_err(|problem| report.error(problem)).ok()?;
    match &tree.value {
        Value::Map(_) => {}
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

/// The JSON Schema of gateway.yaml.
pub fn schema() -> serde_json::Value {
    schema::schema()
}

/// `path` as seen from `folder`.
fn relative(folder: &Path, path: &str) -> PathBuf {
    folder.join(path)
}
