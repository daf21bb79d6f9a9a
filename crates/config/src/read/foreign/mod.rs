//! Words of other programs (nginx, HAProxy, Envoy, Traefik, Kong, Caddy, …) -> what is written here instead.
//!
//! The result is help below an error; it is never used as the value. `keys` and `words` are the tables.

mod keys;
mod words;

use self::keys::{COUNTS, KEYS, LIMIT, PERIODS, PLAN};
use self::words::{LIMIT_KEYS, SCALARS, WORDS};
use super::at::At;
use super::redact::printable;
use super::suggest;
use super::yaml_tree::{Node, Value};

/// Where docs/configuration.md describes the keys of a mapping that has many.
const SECTIONS: &[(&str, &str)] = &[
    ("gateway.yaml", "the-file"),
    ("a limit", "limits"),
    ("a route", "routes"),
    ("match", "match"),
    ("an upstream", "upstreams"),
    ("a health check", "health"),
    ("a listener", "listen"),
    ("auth.jwt", "authjwt"),
    ("auth.introspection", "authintrospection"),
    ("auth.check", "authcheck"),
    ("store.redis", "store"),
    ("regions.home", "regions"),
    ("regions.home.redis", "regions"),
    ("access_log", "access_log"),
    ("cors", "cors"),
    ("h2", "http2-clients"),
    ("telemetry.otlp", "telemetry"),
    ("overload", "overload"),
    ("rules", "rules"),
    ("admin", "admin"),
];

/// So many keys can be named in one line of help.
const FEW: usize = 6;

/// What is known of a key that a mapping does not have.
pub(super) struct Meant {
    /// The field that is meant; empty if it is of another mapping.
    pub(super) field: &'static str,
    pub(super) help: String,
}

/// The field that is meant by a key of another program in the mapping `what`.
pub(super) fn key(what: &str, word: &str, value: &Node) -> Option<Meant> {
    let word = word.to_ascii_lowercase();
    let (.., field, help) = KEYS
        .iter()
        .find(|(mappings, words, ..)| mappings.contains(&what) && words.contains(&word.as_str()))?;
    Some(Meant { field, help: filled(help, value) })
}

/// A count and a period that stand beside each other (`limit: 10`, `window: 60s`), and the rate that they are.
pub(super) fn rate<'e>(
    what: &str,
    entries: &'e [(At<String>, &Node)],
) -> Option<(&'e At<String>, &'e At<String>, String)> {
    if what != LIMIT[0] && what != PLAN[0] {
        return None;
    }
    let one = |words: &[&str]| {
        entries.iter().find(|(key, _)| words.contains(&key.value.to_ascii_lowercase().as_str()))
    };
    let ((count_key, count), (period_key, period)) = one(COUNTS).zip(one(PERIODS))?;
    let (Value::Scalar(count), Value::Scalar(period)) = (&count.value, &period.value) else { return None };
    let unit = if period.bytes().all(|b| b.is_ascii_digit()) { "s" } else { "" };
    Some((count_key, period_key, suggest::rate(&format!("{count} per {period}{unit}"))?))
}

/// The help for a value of another program in the field `what`.
pub(crate) fn word(what: &str, text: &str) -> Option<&'static str> {
    let text = text.to_ascii_lowercase();
    let found = WORDS.iter().find(|(field, words, _)| *field == what && words.contains(&text.as_str()))?;
    Some(found.2)
}

/// The help for a mapping `what` that is written as one value.
pub(super) fn scalar(what: &str, node: &Node) -> Option<String> {
    let Value::Scalar(text) = &node.value else { return None };
    let (.., example, help) = SCALARS.iter().find(|(mapping, ..)| *mapping == what)?;
    // The example shows what a value looks like that this one does not resemble: `health: on`.
    let like = example.starts_with('/') == text.starts_with('/');
    Some(if like { filled(help, node) } else { help.replace("{}", example) })
}

/// The key of a limit as it is written here: `$remote_addr` is `ip`, `ip + path` is `[ip, path]`. `known` tells keys
/// that are right.
pub(crate) fn limit_key(text: &str, known: &impl Fn(&str) -> bool) -> Option<String> {
    if let Some(one) = one_key(text, known) {
        return Some(one);
    }
    let joined = text.replace("&&", "+").replace(" and ", "+").replace('$', "+$");
    let pieces: Vec<&str> =
        joined.split(['+', ',', '&', ';']).map(str::trim).filter(|piece| !piece.is_empty()).collect();
    let keys: Option<Vec<String>> = pieces
        .iter()
        .map(|piece| if known(piece) { Some((*piece).to_owned()) } else { one_key(piece, known) })
        .collect();
    keys.filter(|keys| keys.len() > 1).map(|keys| format!("[{}]", keys.join(", ")))
}

fn one_key(text: &str, known: &impl Fn(&str) -> bool) -> Option<String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let plain = text.strip_prefix('$').unwrap_or(text);
    let lower = plain.to_ascii_lowercase();
    if let Some((_, ours)) = LIMIT_KEYS.iter().find(|(words, _)| words.contains(&lower.as_str())) {
        return Some((*ours).to_owned());
    }
    if text.starts_with('$') {
        if known(plain) {
            return Some(plain.to_owned());
        }
        let kinds =
            [("http_", "header:"), ("arg_", "query:"), ("cookie_", "cookie:"), ("jwt_claim_", "jwt:")];
        let (kind, name) =
            kinds.iter().find_map(|(theirs, ours)| Some((*ours, plain.strip_prefix(theirs)?)))?;
        let name = if kind == "header:" { header(name) } else { name.to_owned() };
        return Some(format!("{kind}{name}"));
    }
    if let Some((kind, name)) = text.split_once([':', '.', '(']) {
        let name = name.trim_end_matches(')').trim();
        let ours = match kind.trim().to_ascii_lowercase().as_str() {
            "param" | "params" => "path",
            "arg" | "args" | "url_param" | "query_param" | "parameter" => "query",
            "hdr" | "req.hdr" | "headers" | "header" | "requestheadername" => "header",
            "req.cook" | "cookies" | "cookie" => "cookie",
            "claim" | "claims" | "token" => "jwt",
            _ => return None,
        };
        return is_name(name).then(|| format!("{ours}:{name}"));
    }
    // A header alone: X-Tenant, Fly-Client-IP.
    let is_header =
        lower.starts_with("x-") || (text.contains('-') && text.starts_with(|c: char| c.is_ascii_uppercase()));
    (is_header && is_name(text)).then(|| format!("header:{text}"))
}

/// nginx' `x_tenant` as the header X-Tenant.
fn header(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    name.split('_').map(word).collect::<Vec<_>>().join("-")
}

/// Help for a key that nothing is near to: the keys, if they are few; else those that have a word in common with it,
/// and where they are described.
pub(super) fn otherwise(what: &str, word: &str, fields: &[&str]) -> String {
    if fields.len() <= FEW {
        return format!("known keys: {}", fields.join(", "));
    }
    let words = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.split(['_', '-', '.', ' ']).filter(|word| word.len() > 2).map(str::to_owned).collect::<Vec<_>>()
    };
    let given = words(word);
    let alike: Vec<&str> =
        fields.iter().copied().filter(|field| words(field).iter().any(|w| given.contains(w))).collect();
    let section = SECTIONS.iter().find(|(mapping, _)| *mapping == what);
    let page = section.map_or_else(
        || "docs/configuration.md".to_owned(),
        |(_, anchor)| format!("docs/configuration.md#{anchor}"),
    );
    match alike.as_slice() {
        [] => format!("{page} has the keys of {what}"),
        alike => format!("is it {}? {page} has all keys", alike[..alike.len().min(FEW)].join(", ")),
    }
}

/// The help with the value in its place.
fn filled(help: &str, value: &Node) -> String {
    help.replace("{}", &written(value))
}

/// A value as it can stand in a mapping on one line.
fn written(node: &Node) -> String {
    match &node.value {
        Value::Scalar(text) if text.is_empty() || text.chars().count() > 60 || printable(text) != *text => {
            "…".to_owned()
        }
        Value::Scalar(text) if needs_quotes(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Scalar(text) => text.clone(),
        Value::List(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        Value::Map(_) | Value::Null | Value::Wrong => "…".to_owned(),
    }
}

fn needs_quotes(text: &str) -> bool {
    text.contains(['{', '}', '[', ']', ',', '"', '\''])
        || text.contains(": ")
        || text.starts_with(['*', '&', '!', '%', '@', '`', '|', '>', '?', '#', '-'])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Folder, Report, parse};

    /// The help that is given for a file.
    fn helps(text: &str) -> Vec<String> {
        let mut report = Report::default();
        let none = |_: &Path| Err(std::io::Error::other("no files here"));
        parse(text, Folder { path: Path::new(""), read: &none }, &mut report);
        report.errors.into_iter().filter_map(|problem| problem.help).collect()
    }

    /// A file with this entry in a mapping.
    fn file(mapping: &str, entry: &str) -> String {
        let section = match mapping {
            "gateway.yaml" => return format!("{entry}\n"),
            "a limit" => "limits: {l: {%}}",
            "a rate with fields" => "limits: {l: {candidate: {%}}}",
            "a ban" => "limits: {l: {ban: {%}}}",
            "a route" => "routes: [{%}]",
            "match" => "routes: [{match: {%}}]",
            "respond" | "reject" => "routes: [{respond: {%}, reject: {%}}]",
            "an upstream" => "upstreams: {u: {%}}",
            "a server" => "upstreams: {u: {servers: [{%}]}}",
            "a health check" => "upstreams: {u: {health: {%}}}",
            "a listener" => "listen: [{%}]",
            "tls" => "listen: [{tls: {%}}]",
            "store.redis" => "store: {redis: {%}}",
            "auth.api_key" => "auth: {api_key: {%}}",
            "auth.jwt" => "auth: {jwt: {%}}",
            "auth.check" => "auth: {check: {%}}",
            "fair" => "limits: {l: {fair: {%}}}",
            other => return format!("{other}: {{{entry}}}\n"),
        };
        section.replace('%', entry)
    }

    /// Each key in its mapping is answered with its help, whatever field it is near to.
    #[test]
    fn each_key_is_answered() {
        let value = crate::read::yaml_tree::parse("7").unwrap();
        for (mappings, words, field, help) in KEYS {
            for (mapping, word) in
                mappings.iter().flat_map(|mapping| words.iter().map(move |word| (mapping, word)))
            {
                let (expected, found) = (filled(help, &value), helps(&file(mapping, &format!("{word}: 7"))));
                assert!(
                    found.contains(&expected),
                    "{word} in {mapping}, for {field}: {expected}\n{found:#?}"
                );
            }
        }
    }

    #[test]
    fn each_word_is_answered() {
        for (field, words, help) in WORDS {
            for word in *words {
                let text = match *field {
                    "balance" | "protocol" => {
                        format!("upstreams: {{u: {{servers: [\"http://a.test\"], {field}: \"{word}\"}}}}")
                    }
                    "check" => format!(
                        "auth: {{check: {{url: \"https://a.test/\"}}}}\nroutes: [{{name: a, respond: {{status: 200}}, check: \"{word}\"}}]"
                    ),
                    _ => format!(
                        "store: {{redis: {{url: \"redis://a.test\"}}}}\nlimits: {{l: {{key: ip, rate: 1/s, {field}: \"{word}\"}}}}"
                    ),
                };
                let found = helps(&text);
                assert!(found.iter().any(|found| found == help), "{field}: {word}: {help}\n{found:#?}");
            }
        }
    }

    #[test]
    fn each_key_of_a_limit_is_answered() {
        for (words, ours) in LIMIT_KEYS {
            for word in *words {
                let found = helps(&format!("limits: {{l: {{key: \"{word}\", rate: 1/s}}}}"));
                assert!(found.contains(&format!("write `{ours}`")), "{word}: {ours}\n{found:#?}");
            }
        }
    }

    #[test]
    fn each_mapping_in_one_value_is_answered() {
        for (mapping, example, help) in SCALARS {
            let value = if example.is_empty() { "x" } else { example };
            let whole = file(mapping, "%%").replace("{%%}", &format!("\"{value}\""));
            let found = helps(&whole.replace("reject: \"429\"", "reject: 429"));
            let expected = help
                .replace("{}", &written(&crate::read::yaml_tree::parse(&format!("\"{value}\"")).unwrap()));
            assert!(found.contains(&expected), "{mapping}: {expected}\n{whole}{found:#?}");
        }
    }

    /// The sections that help points to.
    #[test]
    fn sections_of_the_manual_exist() {
        let page = include_str!("../../../../../docs/configuration.md");
        let anchor = |heading: &str| -> String {
            let kept = heading.trim_start_matches('#').trim().to_lowercase();
            kept.chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        };
        let anchors: Vec<String> = page.lines().filter(|line| line.starts_with('#')).map(anchor).collect();
        for (what, section) in SECTIONS {
            assert!(anchors.iter().any(|anchor| anchor == section), "{what}: {section}");
        }
    }

    /// A word that stands for two things would be answered with the first only.
    #[test]
    fn no_word_is_there_twice() {
        let mut seen = std::collections::HashSet::new();
        for (mappings, words, ..) in KEYS {
            for pair in mappings.iter().flat_map(|mapping| words.iter().map(move |word| (*mapping, *word))) {
                assert!(seen.insert(pair), "{pair:?}");
            }
        }
        for (field, words, _) in WORDS {
            for word in *words {
                assert!(seen.insert((field, word)), "{field} {word}");
            }
        }
    }
}
