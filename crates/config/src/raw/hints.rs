//! What editors are told of single values: the patterns of the file's small languages, with examples.
//!
//! A pattern accepts all that `check` accepts, and of what it refuses as much as a regular expression can tell. Whatever
//! holds `${` is accepted, because its value is only known at the start.

use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::language::key_part::{PartFacts, PartKind, PartSource, PartTakes};
use crate::language::values::{calendar_units, units};

/// A count: 20, 10k, 1M.
pub(crate) const COUNT: &str = r"\s*[0-9]+[kKMG]?\s*";
/// A header's name (RFC 9110, token).
const TOKEN: &str = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+";
/// A part of a share in front of its sign.
pub(crate) const SHARE: &str = r"\s*[0-9]{1,3}(?:\.[0-9]{1,4})?\s*%\s*";
const PORT: &str = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})";
const IPV4: &str = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\.(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])){3}";
const IPV6: &str = "[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*";

/// Where the rate of a limit is found.
const IDENTITY_RATE: &str = r"jwt:.+|consumer:metadata\..+|check:rate";

/// The pattern of a rate.
pub(crate) fn rate() -> String {
    let units = units().join("|");
    let calendar = calendar_units().join("|");
    format!(r"\s*0*[1-9][0-9]*[kKMG]?\s*/\s*(?:{units}|{calendar}|(?:[0-9]+(?:{units}))+)\s*")
}

/// The pattern of a Unix socket of a server.
const UNIX_PATH: &str = "unix:/[^/](?:.{0,104}[^/])?";

/// The pattern of a duration.
pub(crate) fn duration() -> String {
    format!(r"\s*(?:[0-9]+(?:{}))+\s*", units().join("|"))
}

/// The pattern of an address with a port.
pub(crate) fn address() -> String {
    format!(r"(?:{IPV4}|\[{IPV6}\]):(?:{PORT}|0)")
}

/// The pattern of an address of a listener.
pub(crate) fn listen_address() -> String {
    format!(r"{}|unix:/[^/\s](?:\S{{0,104}}[^/\s])?", address())
}

/// The pattern of a network, or of an address alone.
pub(crate) fn network() -> String {
    format!("(?:{IPV4}(?:/(?:3[0-2]|[12]?[0-9]))?|{IPV6}(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)")
}

/// The pattern of a server's URL.
pub(crate) fn server() -> String {
    format!(r"https?://(?:\[{IPV6}\]|[^/?#@:\[\]\s]+)(?::{PORT})?/?|{UNIX_PATH}")
}

/// The pattern of a cost that is a text.
pub(crate) fn cost() -> String {
    format!("{COUNT}|header:{TOKEN}|check:cost")
}

/// The description of the key of a limit, with all parts.
pub(crate) fn keys() -> String {
    let written = |kind: &PartKind| {
        let PartFacts { word, takes, source, .. } = kind.facts();
        match takes {
            PartTakes::Nothing => word.to_owned(),
            PartTakes::Bits if *kind == PartKind::Ipv4Prefix => format!("{word}/24 (or other bits of IPv4)"),
            PartTakes::Bits => format!("{word}/64 (or other bits of IPv6)"),
            PartTakes::Name(_) if source == PartSource::Token => format!("{word}:CLAIM"),
            PartTakes::Name(_) => format!("{word}:NAME"),
        }
    };
    let mut parts: Vec<String> = PartKind::of_file().map(|kind| written(&kind)).collect();
    parts.sort();
    format!(
        "What is counted separately: {}. `a | b` is the first that the request has, a list is all together.",
        parts.join(", ")
    )
}

fn key() -> String {
    let part = |kind: &PartKind| {
        let PartFacts { word, takes, source, .. } = kind.facts();
        match takes {
            PartTakes::Nothing => word.to_owned(),
            PartTakes::Bits => format!("{word}/[0-9]{{1,3}}"),
            PartTakes::Name(_) if source == PartSource::Header => format!("{word}:{TOKEN}"),
            PartTakes::Name(_) => format!(r"{word}:[^|\s][^|]*"),
        }
    };
    // The two kinds of networks are written alike.
    let parts: BTreeSet<String> = PartKind::of_file().map(|kind| part(&kind)).collect();
    let parts: Vec<String> = parts.into_iter().collect();
    let part = format!("(?:{})", parts.join("|"));
    format!(r"\s*{part}\s*(?:\|\s*{part}\s*)*")
}

/// A text that matches a pattern from its beginning to its end, or refers to the environment.
pub(crate) fn text(pattern: &str, examples: &[&str]) -> Schema {
    let mut schema = json_schema!({ "type": "string", "pattern": whole(pattern) });
    if !examples.is_empty() {
        schema.insert("examples".to_owned(), json!(examples));
    }
    schema
}

/// A whole number, or a text that matches a pattern.
pub(crate) fn number(pattern: &str, examples: &[&str]) -> Schema {
    let mut schema = text(pattern, examples);
    schema.insert("type".to_owned(), json!(["integer", "string"]));
    schema.insert("minimum".to_owned(), json!(0));
    schema
}

fn whole(pattern: &str) -> String {
    format!(r"\$\{{|^(?:{pattern})$")
}

/// Declares kinds of values: what they are called here, and what editors are told of them.
macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident => $schema:expr;)*) => {$(
        $(#[$meta])*
        pub(crate) struct $name;

        crate::raw::schema_types::schemas! { $name, stringify!($name) => _generator $schema; }
    )*};
}

kinds! {
    /// A rate.
    Rate => text(&rate(), &["100/min", "10/s", "20/15s", "1M/day", "10M/month"]);
    /// The rate of a limit, or where it is found.
    LimitRate => text(
        &format!(r"{}|{IDENTITY_RATE}", rate()),
        &["100/min", "10/s", "20/15s", "10M/month", "jwt:limit", "consumer:metadata.rate", "check:rate"],
    );
    /// A duration.
    Duration => text(&duration(), &["250ms", "30s", "5min", "2h"]);
    /// A size.
    Size => number(r"\s*[0-9]+\s*(?:[bB]|[kKmMgG](?:[iI]?[bB])?)?\s*", &["64KiB", "10MB", "1GiB"]);
    /// A share.
    Share => text(SHARE, &["10%", "0.1%"]);
    /// A key of limits.
    Key => text(&key(), &["ip", "api_key | ip", "header:X-Tenant", "path:id"]);
    /// An address or a network.
    Network => text(&network(), &["192.0.2.7", "10.0.0.0/8", "2001:db8::/32"]);
    /// An address with a port.
    Address => text(&address(), &["0.0.0.0:8080", "[::]:8080", "127.0.0.1:9090"]);
    /// An address with a port, or the path of a Unix socket.
    ListenAddress => text(&listen_address(), &["0.0.0.0:8080", "[::]:8080", "unix:/run/gateway.sock"]);
    /// A host, or all below one.
    Host => text(
        r"(?:\*\.)?(?:[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.*|\[.+\])",
        &["api.example.com", "*.example.com"],
    );
    /// A path of routes.
    Path => {
        let segment = r##"/(?:\{[A-Za-z0-9_-]+\}|[!"$-)+-.0->@-\[\]-z|~]+)"##;
        text(&format!(r"(?:{segment})*(?:/\*|/)|(?:{segment})+"), &["/login", "/v1/*", "/users/{id}"])
    };
    /// An origin of pages, or all hosts below one. Browsers leave out the usual ports.
    Origin => {
        let host = format!(r"(?:(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*|\[{IPV6}\])");
        text(
            &format!(r"\*|[A-Za-z][A-Za-z0-9+.-]*://{host}(?::{PORT})?"),
            &["https://app.example.com", "https://*.example.com", "*"],
        )
    };
    /// The name of a header.
    Header => text(TOKEN, &[]);
    /// The name of a method.
    Method => text(TOKEN, &["GET", "POST"]);
    /// A server of an upstream.
    Server => text(&server(), &["http://127.0.0.1:9000", "https://api.internal:8443", "unix:/run/app.sock"]);
    /// A Redis.
    Redis => text(
        r"rediss?://[^?#\s]+|(?:redis\+)?unix:///[^#\s]+",
        &["redis://127.0.0.1:6379", "rediss://redis.internal:6379/0", "redis+unix:///run/redis.sock?db=0"],
    );
    /// A status, or a class or range of them.
    Status => {
        let mut schema = text("[1-5][0-9]{2}|[1-5]xx|[1-5][0-9]{2} *- *[1-5][0-9]{2}", &["401", "5xx"]);
        schema.insert("type".to_owned(), json!(["integer", "string"]));
        schema.insert("minimum".to_owned(), json!(100));
        schema.insert("maximum".to_owned(), json!(599));
        schema
    };
    /// A file.
    File => json_schema!({ "type": "string", "minLength": 1 });
}

/// What names of limits, routes, upstreams and their like are made of.
pub(crate) fn names() -> Value {
    json!({ "pattern": "^[A-Za-z0-9._-]{1,64}$" })
}

/// The default that a description names: `Default: 30s.`, or `json (default) or combined.`
pub(crate) fn default_in(description: &str) -> Option<&str> {
    if let Some((before, _)) = description.split_once(" (default)").or(description.split_once(" (default,")) {
        return before.rsplit([' ', '\n']).next();
    }
    let (_, rest) = description.split_once("Default: ")?;
    let end = rest.find(['\n', ',', ' ']).unwrap_or(rest.len());
    let word = rest[..end].strip_suffix('.').or(rest[end..].starts_with(',').then_some(&rest[..end]))?;
    (!["all", "none"].contains(&word)).then_some(word)
}

/// A text that matches a pattern, or a mapping.
pub(crate) fn text_or<T: JsonSchema>(pattern: &str, generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [text(pattern, &[]), generator.subschema_for::<T>()] })
}

/// A number, a text that matches a pattern, or a mapping.
pub(crate) fn number_or<T: JsonSchema>(
    pattern: &str,
    examples: &[&str],
    generator: &mut SchemaGenerator,
) -> Schema {
    json_schema!({ "anyOf": [number(pattern, examples), generator.subschema_for::<T>()] })
}

/// One of a few words, or a mapping.
pub(crate) fn word_or<T: JsonSchema>(words: &[&str], generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string", "enum": words }, generator.subschema_for::<T>()] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_is_a_word_of_the_description() {
        for (description, expected) in [
            ("How long. Default: 30s.", Some("30s")),
            ("At most. Default: 1k, for clients of other machines.", Some("1k")),
            ("json (default) or combined.", Some("json")),
            ("enforce (default), shadow or off.", Some("enforce")),
            ("shared (default with a store) or local.", None),
            ("Threads. Default: one per core.", None),
            ("Families. Default: all.", None),
            ("How much.", None),
        ] {
            assert_eq!(default_in(description), expected, "{description}");
        }
    }
}
