//! `rewrite` that answers with a redirect: with `permanent`, with `redirect`, or to a URL.

use super::action::{Action, redirect};
use super::context::Context;
use super::location::{Kind, encoded};
use super::parse::Directive;
use super::remainder;
use super::template::Variables;
use crate::regex::whole;

/// The paths of a location that such a `rewrite` is for, or `None` for all of them, and the redirect.
///
/// # Errors
/// Why it cannot be converted.
pub(super) fn redirected(
    rewrite: &Directive,
    location: &Kind,
    variables: &Variables,
    cx: &mut Context,
) -> Result<(Option<Kind>, Action), String> {
    let (kind, target) = paths(rewrite.arg(0), rewrite.arg(1), location)?;
    let status = if rewrite.arg(2) == "permanent" { 301 } else { 302 };
    // A question mark at the end leaves out the query, unless it is in $request_uri.
    let (target, adds_query) = match target.strip_suffix('?') {
        Some(target) => (target, false),
        None => (target.as_str(), true),
    };
    let node = redirect(status, target, adds_query, variables, rewrite, cx)
        .ok_or("its target could not be converted")?;
    let action = Action {
        fields: vec![("redirect".to_owned(), node.source(&rewrite.source))],
        before_limits: true,
        harmless: true,
        lost: None,
    };
    Ok((kind, action))
}

/// The paths of a location that an expression matches, and the target for them.
fn paths(pattern: &str, to: &str, location: &Kind) -> Result<(Option<Kind>, String), String> {
    match (pattern, to) {
        ("^" | "^/" | ".*" | "^.*" | "^.*$", to) if !has_group(to) => return Ok((None, to.to_owned())),
        ("^(.*)$" | "^(.*)" | "(.*)", to) if !has_group(&to.replace("$1", "")) => {
            return Ok((None, to.replace("$1", "$request_uri")));
        }
        ("^/(.*)$" | "^/(.*)", to) if to.contains("/$1") && !has_group(&to.replace("$1", "")) => {
            return Ok((None, to.replace("/$1", "$request_uri")));
        }
        _ => {}
    }
    let (begin, tail) = literal(pattern).unwrap_or_default();
    let (kind, group) = match tail {
        "$" => (Kind::Exact(begin.clone()), ""),
        "" | ".*" | ".*$" if !begin.is_empty() => (Kind::Prefix(begin.clone(), false), ""),
        "(.*)" | "(.*)$" if begin.ends_with('/') => (Kind::Prefix(begin.clone(), false), "${*rest}"),
        _ => (Kind::Regex(whole(pattern, false)?), ""),
    };
    let rest = |path: &str| to.replace("$1", &format!("{}{group}", &path[begin.len()..]));
    let none = || Err("no path that comes here matches it".to_owned());
    let part = match (&kind, location) {
        (Kind::Prefix(path, _), Kind::Prefix(outer, _)) if outer.starts_with(path.as_str()) => {
            (None, if group.is_empty() { to.to_owned() } else { rest(outer) })
        }
        (Kind::Prefix(path, _), Kind::Exact(outer)) if outer.starts_with(path.as_str()) => {
            let given = if group.is_empty() { to.to_owned() } else { to.replace("$1", &outer[path.len()..]) };
            (None, given)
        }
        (Kind::Exact(path) | Kind::Prefix(path, _), Kind::Prefix(outer, _))
            if path.starts_with(outer.as_str()) =>
        {
            (Some(kind.clone()), to.replace("$1", group))
        }
        (Kind::Exact(path), Kind::Exact(outer)) if path == outer => (None, to.to_owned()),
        (Kind::Regex(pattern), Kind::Regex(outer)) if pattern == outer => (None, to.to_owned()),
        (Kind::Regex(pattern), Kind::Prefix(outer, _)) => {
            match remainder::within(pattern, &encoded(outer))? {
                Some(pattern) => (Some(Kind::Regex(pattern)), to.to_owned()),
                None => return none(),
            }
        }
        (Kind::Regex(pattern), Kind::Exact(outer)) => match remainder::matches(pattern, &encoded(outer))? {
            true => (None, to.to_owned()),
            false => return none(),
        },
        (_, Kind::Regex(_)) => {
            return Err("its paths and those of its location have different expressions".to_owned());
        }
        _ => return none(),
    };
    if has_group(&part.1) {
        return Err(
            "a redirect has no groups of an expression: use {rest}, or a parameter of the path".to_owned()
        );
    }
    Ok(part)
}

fn has_group(to: &str) -> bool {
    (1..=9).any(|group| to.contains(&format!("${group}")))
}

/// The text at the beginning of an expression that begins with `^`, and what follows it.
fn literal(pattern: &str) -> Option<(String, &str)> {
    let mut rest = pattern.strip_prefix('^')?;
    let mut begin = String::new();
    loop {
        let plain =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !"/-_~".contains(c)).unwrap_or(rest.len());
        begin += &rest[..plain];
        rest = &rest[plain..];
        match rest.strip_prefix('\\').filter(|next| next.starts_with(['.', '-', '/'])) {
            Some(next) => {
                begin += &next[..1];
                rest = &next[1..];
            }
            None => break,
        }
    }
    if rest.starts_with(['?', '*', '+', '{']) {
        return None; // it is about the character before
    }
    Some((begin, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_redirected() {
        let prefix = |path: &str| Kind::Prefix(path.into(), false);
        let found = |pattern: &str, to: &str, location: &str| paths(pattern, to, &prefix(location));
        let all = |to: &str| Ok((None, to.to_owned()));
        assert_eq!(found("^/old/(.*)$", "/v1/$1", "/old/"), all("/v1/${*rest}"));
        assert_eq!(found("^/old/(.*)$", "/v1/$1", "/old/a/"), all("/v1/a/${*rest}"));
        assert_eq!(found("^/old", "/new", "/old/"), all("/new"));
        assert_eq!(found("^(.*)$", "https://b$1", "/x/"), all("https://b$request_uri"));
        let exact = Ok((Some(Kind::Exact("/old.html".into())), "/new".to_owned()));
        assert_eq!(found(r"^/old\.html$", "/new", "/"), exact);
        assert_eq!(found("^/a/(.*)", "/b/$1", "/"), Ok((Some(prefix("/a/")), "/b/${*rest}".to_owned())));
        let regex = Ok((Some(Kind::Regex("/u/[0-9]+".into())), "/users".to_owned()));
        assert_eq!(found("^/u/[0-9]+$", "/users", "/u/"), regex);
        for (pattern, to, location) in
            [("^/u/([0-9]+)$", "/users/$1", "/u/"), ("^/a$", "/b", "/c/"), ("^/old/?(.*)$", "/$1", "/old/")]
        {
            assert!(found(pattern, to, location).is_err(), "{pattern}");
        }
    }
}
