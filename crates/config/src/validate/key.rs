//! Validates keys and exemptions of limits.

use std::ops::RangeInclusive;

use http::HeaderName;

use super::checks::header_name;
use super::context::Context;
use crate::model::limit::Exempt;
use crate::parse_network;
use crate::read::OneOrMany;
use crate::read::at::At;
use crate::read::foreign;
use crate::read::report::{Problem, Report};
use crate::{KeySpec, Part, PartArgument, PartKind, PartSource, PartTakes};

/// Bits of IPv6 addresses that can be a key: below are parts of the world, and the bits of IPv4.
const IPV6_BITS: RangeInclusive<u8> = 32..=128;
/// Bits of IPv4 addresses that can be a key: below are parts of the world, and all 32 are `ip`.
const IPV4_BITS: RangeInclusive<u8> = 8..=31;

pub(super) fn key(
    raw: &At<OneOrMany<At<String>>>,
    context: Context<'_>,
    report: &mut Report,
) -> Option<KeySpec> {
    if raw.value.0.is_empty() {
        report.error(raw.problem("the key is empty").help("such as `key: ip`"));
        return None;
    }
    // All of it is read, so that all that is wrong is told at once.
    let all: Vec<Option<Vec<Part>>> =
        raw.value.0.iter().map(|text| alternatives(text, context, report)).collect();
    all.into_iter().collect::<Option<Vec<_>>>().map(KeySpec::new)
}

/// `a | b`: the first that the request has.
fn alternatives(text: &At<String>, context: Context<'_>, report: &mut Report) -> Option<Vec<Part>> {
    if text.value.trim().is_empty() {
        report.error(text.problem("the key is empty").help("such as `key: ip`"));
        return None;
    }
    let mut from = 0;
    let mut parts = Vec::new();
    for piece in text.value.split('|') {
        let name = piece.trim();
        if name.is_empty() {
            report.error(
                text.problem("a `|` of the key has no key before or after it")
                    .help("such as `key: api_key | ip`"),
            );
            return None;
        }
        let start = from + piece.len() - piece.trim_start().len();
        parts.push(part(&text.piece(start, name), context, report));
        from += piece.len() + 1;
    }
    parts.into_iter().collect()
}

/// The kinds that are written as one word.
fn plain() -> impl Iterator<Item = PartKind> {
    PartKind::of_file().filter(|kind| kind.facts().takes == PartTakes::Nothing)
}

/// The kinds that are written with a name, each with an example.
fn with_name() -> impl Iterator<Item = (PartKind, &'static str)> {
    PartKind::of_file().filter_map(|kind| match kind.facts().takes {
        PartTakes::Name(example) => Some((kind, example)),
        PartTakes::Nothing | PartTakes::Bits => None,
    })
}

/// Why no request of this configuration has a value from this source, and what helps.
fn missing_source(part: &str, source: PartSource, context: Context<'_>) -> Option<(String, &'static str)> {
    match source {
        PartSource::Consumer if !context.consumers && !context.checked => Some((
            "the key `consumer` needs consumers, and the file has none".to_owned(),
            "such as `auth: {api_key: {consumers: consumers.yaml}}`",
        )),
        PartSource::Token if !context.tokens => Some((
            format!("the key `{part}` needs `auth.jwt` or `auth.introspection`"),
            "only a verified token says who a user is: `auth: {jwt: {jwks: {url: https://…}}}`",
        )),
        PartSource::Certificate if !context.certified => Some((
            format!("the key `{part}` needs a listener with `client_ca`"),
            "only a verified certificate says who a client is: `tls: {client_ca: clients.pem, …}`",
        )),
        PartSource::Consumer
        | PartSource::Token
        | PartSource::Certificate
        | PartSource::Address
        | PartSource::Nothing
        | PartSource::Route
        | PartSource::PathParameter
        | PartSource::Header
        | PartSource::Query
        | PartSource::Cookie
        | PartSource::ApiKey
        | PartSource::Question => None,
    }
}

fn part(text: &At<String>, context: Context<'_>, report: &mut Report) -> Option<Part> {
    let part = text.value.as_str();
    let plain = plain().find(|kind| kind.facts().word == part);
    let word = part.split_once(':').map(|(word, _)| word);
    let kind =
        plain.or_else(|| with_name().map(|(kind, _)| kind).find(|kind| Some(kind.facts().word) == word));
    if let Some((message, help)) = kind.and_then(|kind| missing_source(part, kind.facts().source, context)) {
        report.error(text.problem(message).help(help));
        return None;
    }
    if let Some(kind) = plain {
        return kind.part(PartArgument::None);
    }
    if let Some(bits) = part.strip_prefix("ip/") {
        let number = bits.parse().ok().filter(|number: &u8| number.to_string() == bits);
        let part = match number {
            Some(bits) if IPV4_BITS.contains(&bits) => Some(Part::Ipv4Prefix(bits)),
            Some(bits) if IPV6_BITS.contains(&bits) => Some(Part::IpPrefix(bits)),
            _ => None,
        };
        if part.is_none() {
            let message = "`ip/` needs the bits of a network: 8 to 31 of IPv4, or 32 to 128 of IPv6";
            let help =
                "such as ip/24 or ip/64; addresses of the other family are counted as `ip` counts them";
            report.error(text.problem(message).help(help));
        }
        return part;
    }
    match named(part) {
        Ok(part) => Some(part),
        Err(help) => {
            report.error(
                help.map_or_else(|| unknown(text), |(message, help)| text.problem(message).help(help)),
            );
            None
        }
    }
}

/// `header:NAME` and its like; `Err(None)` if it is nothing of the kind.
fn named(part: &str) -> Result<Part, Option<(String, String)>> {
    let (kind, name) = part.split_once(':').ok_or(None)?;
    let (known, example) = with_name().find(|(known, _)| known.facts().word == kind).ok_or(None)?;
    if name.is_empty() {
        return Err(Some((format!("`{kind}:` needs a name"), format!("such as {example}"))));
    }
    let wrong = || Some((format!("`{name}` is not a header name"), format!("such as {example}")));
    known.part(PartArgument::Name(name)).ok_or_else(wrong)
}

fn unknown(text: &At<String>) -> Problem {
    let known = |text: &str| plain().any(|kind| kind.facts().word == text) || named(text).is_ok();
    let problem = text.problem(format!("unknown key `{}`", text.value));
    if let Some(ours) = foreign::limit_key(&text.value, &known) {
        return problem.help(format!("write `{ours}`"));
    }
    if let Some(("body" | "form" | "json", _)) = text.value.split_once([':', '.']) {
        return problem.help(
            "bodies are not read to find a key: let the client send it in a header (`header:NAME`), or put it in the path (`path:NAME`)",
        );
    }
    let named: Vec<String> = with_name().map(|(kind, _)| format!("{}:", kind.facts().word)).collect();
    let words = plain().map(|kind| kind.facts().word).chain(named.iter().map(String::as_str));
    problem.did_you_mean(&text.value, words, || {
        "such as ip, consumer, user, path or header:NAME; docs/configuration.md#keys has all keys".to_owned()
    })
}

pub(super) fn exempt(
    raw: Option<&At<Vec<At<String>>>>,
    key: Option<&KeySpec>,
    context: Context<'_>,
    report: &mut Report,
) -> Exempt {
    let by_address = key.is_some_and(|key| key.parts().all(Part::is_of_address));
    let mut exempt = Exempt::default();
    for text in raw.map_or(&[][..], |raw| &raw.value) {
        if let Some(name) = text.value.strip_prefix("list:") {
            let name = text.piece("list:".len(), name);
            exempt.lists.extend(context.lists.find(&name, report).map(|(list, _)| list));
            continue;
        }
        if let Some(plan) = text.value.strip_prefix("plan:") {
            if !context.consumers && !context.checked && !context.tokens {
                report.error(nobody_is(text, "auth.api_key.consumers, or auth.jwt with a plan_claim"));
            }
            exempt.plans.push(At { at: text.at, value: plan.to_owned() });
            continue;
        }
        if let Some(consumer) = text.value.strip_prefix("consumer:") {
            if !context.consumers && !context.checked {
                report.error(nobody_is(text, "auth.api_key.consumers names them"));
            }
            exempt.consumers.push(consumer.to_owned());
            continue;
        }
        match parse_network(&text.value) {
            Ok(network) => exempt.networks.push(network),
            Err(message) if looks_like_address(&text.value) => report.error(text.problem(message)),
            Err(_) if by_address => report.error(
                text.problem(format!("`{}` is not an address, and this limit has no other key", text.value))
                    .help("write an address, a network such as 10.0.0.0/8, or list:NAME"),
            ),
            Err(_) => exempt.values.push(text.value.clone()),
        }
    }
    exempt
}

/// The error for an exemption of identities in a file without authentication.
fn nobody_is(text: &At<String>, help: &str) -> Problem {
    text.problem(format!("nobody is `{}`: the file does not say who clients are", text.value)).help(help)
}

/// Whether a text was probably meant as an address or a network, right or wrong. A key value that looks like one
/// would never be found again; `/cafe` and `1.10` are values.
fn looks_like_address(text: &str) -> bool {
    let count = |wanted: char| text.chars().filter(|c| *c == wanted).count();
    let v4 = text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || b".:/".contains(&b))
        && (count('.') >= 2 || count('/') > 0);
    let v6 = count(':') >= 2 && text.bytes().all(|b| b.is_ascii_hexdigit() || b".:/[]".contains(&b));
    v4 || v6
}

/// The header of `header:NAME`, where `text` begins with that.
pub(super) fn header(text: &At<String>, name: &str, report: &mut Report) -> Option<HeaderName> {
    let name = text.piece(text.value.len() - name.len(), name);
    super::value(&name, report, header_name)
}

#[cfg(test)]
mod tests {
    use super::looks_like_address;

    #[test]
    fn what_is_meant_as_an_address_is_told_from_key_values() {
        for text in ["10.0.0.256", "10.0.0.1:80", "10.0.0", "10.0/8", "fd00::/129", "[::1]:80", "1:2:3"] {
            assert!(looks_like_address(text), "{text}");
        }
        for text in
            ["k1", "1.10", "/cafe", "/", "dead.beef", "007", "ab:cd", "api.example.com", "GET", "de/fr"]
        {
            assert!(!looks_like_address(text), "{text}");
        }
    }
}
