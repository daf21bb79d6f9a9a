//! The locations of a server, in the order in which the gateway has to try them.

use super::context::{Context, Scope};
use super::parse::Directive;
use crate::accepted;
use crate::regex::{regex, whole};
use crate::yaml::{Node, map, text};

/// A location, or the rest of a server that no location matches.
pub(super) struct Location<'a> {
    /// `None` for the rest of a server.
    pub(super) directive: Option<&'a Directive>,
    pub(super) scope: Scope<'a>,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exact(String),
    /// Whether it is `^~`.
    Prefix(String, bool),
    /// An expression of the gateway.
    Regex(String),
}

impl Location<'_> {
    /// The path of the route; `None` if it matches all paths.
    pub(super) fn path(&self) -> Option<Node> {
        match &self.kind {
            Kind::Exact(path) => Some(text(literal(path))),
            Kind::Prefix(path, _) if path == "/" => None,
            Kind::Prefix(path, _) => Some(match path.strip_suffix('/') {
                Some(path) => text(format!("{}/*", literal(path))),
                None => regex(&format!("{}.*", escaped(path))),
            }),
            Kind::Regex(pattern) => Some(regex(pattern)),
        }
    }

    /// What the location is called in names.
    pub(super) fn shown(&self) -> String {
        match (&self.kind, self.directive) {
            (Kind::Exact(path) | Kind::Prefix(path, _), _) if path == "/" => "root".to_owned(),
            (Kind::Exact(path) | Kind::Prefix(path, _), _) => path.clone(),
            (Kind::Regex(_), Some(directive)) => directive.args.last().cloned().unwrap_or_default(),
            (Kind::Regex(pattern), None) => pattern.clone(),
        }
    }
}

/// The path as a pattern of the gateway, in which braces are parameters.
fn literal(path: &str) -> String {
    path.replace('{', "%7B").replace('}', "%7D")
}

/// The text as an expression that matches it.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if "\\.+*?()|[]{}^$#&~".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The locations of a server in order: exact ones, `^~` prefixes, expressions, other prefixes, then the rest.
pub(super) fn ordered<'a>(server: &Scope<'a>, cx: &mut Context) -> Vec<Location<'a>> {
    let mut found = Vec::new();
    collect(server, None, &mut found, cx);
    let has_regex = found.iter().any(|location| matches!(location.kind, Kind::Regex(_)));
    let careted: Vec<String> = found
        .iter()
        .filter_map(|location| match &location.kind {
            Kind::Prefix(path, true) => Some(path.clone()),
            _ => None,
        })
        .collect();
    let rank = |location: &Location<'_>| match &location.kind {
        Kind::Exact(_) => (0, 0),
        Kind::Prefix(path, true) => (1, usize::MAX - path.len()),
        Kind::Prefix(path, false) if careted.iter().any(|short| path.starts_with(short.as_str())) => {
            (1, usize::MAX - path.len())
        }
        Kind::Regex(_) => (2, 0),
        Kind::Prefix(path, false) => (3, usize::MAX - path.len()),
    };
    for location in &found {
        if let (Some(directive), Kind::Prefix(path, false), (1, _), true) =
            (location.directive, &location.kind, rank(location), has_regex)
        {
            let text = format!(
                "it is inside a `^~` location, and so comes before regular expressions here; in nginx they come first for {path}"
            );
            cx.approximated(directive, text);
        }
    }
    found.sort_by_key(rank); // stable: expressions stay in the order of the file
    if !found.iter().any(|location| matches!(&location.kind, Kind::Prefix(path, _) if path == "/")) {
        found.push(Location {
            directive: None,
            scope: server.clone(),
            kind: Kind::Prefix("/".to_owned(), false),
        });
    }
    found
}

/// Collects the locations of a block, and those inside of them. `outer` is the prefix around them.
fn collect<'a>(scope: &Scope<'a>, outer: Option<&str>, found: &mut Vec<Location<'a>>, cx: &mut Context) {
    for directive in scope.own("location") {
        let inner = scope.within(directive.children());
        let (modifier, path) = match directive.args.as_slice() {
            [path] if path.starts_with('@') => {
                cx.unsupported(directive, "a named location is reached by error_page and try_files, which the gateway does not have");
                continue;
            }
            [path] => split(path),
            [modifier, path] => (modifier.as_str(), path.as_str()),
            _ => {
                cx.unsupported(directive, "a location has a path, and at most a modifier before it");
                continue;
            }
        };
        let kind = match modifier {
            "=" => Kind::Exact(path.to_owned()),
            "^~" => Kind::Prefix(path.to_owned(), true),
            "" => Kind::Prefix(path.to_owned(), false),
            _ => match within(path, modifier == "~*", outer) {
                Ok((pattern, differs)) => {
                    if differs {
                        cx.approximated(
                            directive,
                            "it is inside a prefix, which here stands before the expression",
                        );
                    }
                    Kind::Regex(pattern)
                }
                Err(why) => {
                    cx.unsupported(directive, format!("left out: {why}"));
                    continue;
                }
            },
        };
        let location = Location { directive: Some(directive), scope: inner.clone(), kind };
        if let Some(Err(why)) = location.path().map(|path| accepted::matches(&map().with("path", path))) {
            cx.unsupported(directive, format!("left out: {why}"));
            continue;
        }
        match &location.kind {
            Kind::Prefix(path, _) if path.ends_with('/') && path != "/" => cx.report.note(
                "the route of a location such as /api/ matches /api, too, which nginx redirects to /api/",
            ),
            Kind::Prefix(path, _) if path != "/" => cx.report.note(
                "a location such as /api matches /apix, too, so its route has an expression. If only /api and what is below it is meant, \
                 path: /api/* is simpler",
            ),
            Kind::Prefix(..) | Kind::Exact(_) | Kind::Regex(_) => {}
        }
        let prefix = match &location.kind {
            Kind::Prefix(path, _) => Some(path.clone()),
            Kind::Exact(_) | Kind::Regex(_) => None,
        };
        found.push(location);
        collect(&inner, prefix.as_deref(), found, cx);
    }
}

/// `location =/path` and `location ~\.php$` have their modifier in one word with the path.
fn split(path: &str) -> (&str, &str) {
    for modifier in ["=", "^~", "~*", "~"] {
        if let Some(rest) = path.strip_prefix(modifier) {
            return (modifier, rest);
        }
    }
    ("", path)
}

/// The expression for an expression inside a prefix, and whether that differs.
fn within(pattern: &str, ignore_case: bool, outer: Option<&str>) -> Result<(String, bool), String> {
    let Some(outer) = outer.filter(|outer| *outer != "/") else {
        return whole(pattern, ignore_case).map(|pattern| (pattern, false));
    };
    if let Some(rest) = pattern.strip_prefix('^') {
        if rest.starts_with(outer) {
            return whole(pattern, ignore_case).map(|pattern| (pattern, false));
        }
        return Err("an expression with ^ inside a prefix: write it with the prefix".to_owned());
    }
    whole(&format!("^{}.*{pattern}", escaped(outer)), ignore_case).map(|pattern| (pattern, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::parse::parse;

    fn order(config: &str) -> Vec<String> {
        let directives = parse("n", config).unwrap();
        let found = ordered(&Scope::top(&directives), &mut Context::default());
        found.iter().map(|location| location.path().map_or("all".into(), |path| path.file_value())).collect()
    }

    #[test]
    fn the_precedence_of_nginx() {
        let config = "location / {} location /api/ {} location = /login {} location ~ \\.php$ {} location /api/v1/ {}\n\
                      location ^~ /static/ {} location ~* ^/img {} location @x {}";
        let expected = [
            "/login",
            "/static/*",
            "{regex: '.*\\.php'}",
            "{regex: \"(?i)/img.*\"}",
            "/api/v1/*",
            "/api/*",
            "all",
        ];
        assert_eq!(order(config), expected);
        assert_eq!(
            order("location /a.b { location ~ x$ {} }"),
            ["{regex: '/a\\.b.*x'}", "{regex: '/a\\.b.*'}", "all"]
        );
        assert_eq!(order("location =/a {} location ~^/b$ {}"), ["/a", "{regex: /b}", "all"]);
    }
}
