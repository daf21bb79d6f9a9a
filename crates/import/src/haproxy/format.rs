//! Texts with samples (`%[path]`), as templates of gateway.yaml; replacements with groups.

use super::criterion::split_converters;
use crate::names::literal;

/// The text as a template.
///
/// # Errors
/// The part that has no equivalent.
pub(super) fn template(format: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        out += &literal(before);
        if let Some(after) = after.strip_prefix('%') {
            out.push('%');
            rest = after;
        } else if let Some(inner) = after.strip_prefix('[') {
            let (sample, after) = inner.split_once(']').ok_or_else(|| format!("%{after}"))?;
            out += variable(sample).ok_or_else(|| format!("%[{sample}]"))?;
            rest = after;
        } else {
            let end = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
            out += alias(&after[..end]).ok_or_else(|| format!("%{}", &after[..end]))?;
            rest = &after[end..];
        }
    }
    Ok(out + &literal(rest))
}

/// The template variable that has the value of a sample.
fn variable(sample: &str) -> Option<&'static str> {
    let lower = sample.to_ascii_lowercase();
    let (fetch, converters) = lower.split_once(',').unwrap_or((&lower, ""));
    if !matches!(converters, "" | "lower" | "field(1,:)" | "host_only") {
        return None;
    }
    Some(match fetch {
        "src" => "{client_ip}",
        "hdr(host)" | "req.hdr(host)" | "req.fhdr(host)" | "ssl_fc_sni" => "{host}",
        "path" | "capture.req.uri" | "url" | "pathq" | "baseq" => "{path}",
        "query" => "{query}",
        "method" | "capture.req.method" => "{method}",
        "unique-id" => "{request_id}",
        "ssl_c_s_dn" => "{tls:subject}",
        _ => return None,
    })
}

/// The template variable of a variable of log formats.
fn alias(name: &str) -> Option<&'static str> {
    Some(match name {
        "ci" => "{client_ip}",
        "HM" => "{method}",
        "HP" | "HPO" | "HU" => "{path}",
        "ID" => "{request_id}",
        _ => return None,
    })
}

/// The expression and the replacement of `%[path,regsub(EXPRESSION,REPLACEMENT)]`.
pub(super) fn regsub(format: &str) -> Option<(String, String)> {
    let inner = format.strip_prefix("%[")?.strip_suffix(']')?;
    let parts = split_converters(inner);
    let [fetch, converter] = parts.as_slice() else { return None };
    let arguments = converter.strip_prefix("regsub(")?.strip_suffix(')')?;
    if fetch != "path" {
        return None;
    }
    let unquoted = |text: &str| text.trim_matches(['\'', '"']).to_owned();
    let mut arguments = arguments.rsplitn(2, ',').map(unquoted);
    let (last, first) = (arguments.next()?, arguments.next()?);
    (last != "g").then_some((first, replacement(&last)))
}

/// `\1` as `${1}`.
pub(super) fn replacement(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out += &before.replace('$', "$$");
        match after.chars().next() {
            Some(digit) if digit.is_ascii_digit() => {
                out += &format!("{{{digit}}}");
                rest = &after[1..];
            }
            _ => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + &rest.replace('$', "$$")
}

/// The expression that matches a whole path, of one for a part of it: HAProxy replaces the whole path.
pub(super) fn around(pattern: &str) -> String {
    let escaped = pattern.ends_with("\\$");
    let (begin, end) = (pattern.starts_with('^'), pattern.ends_with('$') && !escaped);
    let body = pattern.strip_prefix('^').unwrap_or(pattern);
    let body = if end { body.strip_suffix('$').unwrap_or(body) } else { body };
    let whole = end || body.ends_with(".*") || body.ends_with("(.*)");
    format!("^{}{body}{}", if begin { "" } else { ".*?" }, if whole { "$" } else { ".*$" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_variables() {
        assert_eq!(
            template("a{%[src]}%%%ci/%[req.hdr(Host),lower]").unwrap(),
            "a{{{client_ip}}}%{client_ip}/{host}"
        );
        assert_eq!(template("%[rand]"), Err("%[rand]".to_owned()));
        assert_eq!(template("%Tq"), Err("%Tq".to_owned()));
    }

    #[test]
    fn replacements_have_groups() {
        assert_eq!(replacement(r"/v2/\1$"), "/v2/{1}$$");
        assert_eq!(regsub("%[path,regsub(^/api/,/)]"), Some(("^/api/".into(), "/".into())));
        assert_eq!(regsub("/x"), None);
        assert_eq!(
            (around("/foo/(.*)"), around("^/a$"), around("b")),
            ("^.*?/foo/(.*)$".into(), "^/a$".into(), "^.*?b.*$".into())
        );
    }
}
