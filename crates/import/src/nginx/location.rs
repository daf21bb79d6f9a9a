//! The locations of a server, in the order in which the gateway has to try them.
//!
//! nginx chooses the longest prefix, then looks inside of it, and only then tries the expressions around it. Here the order of the routes
//! decides, so what is inside comes before, restricted to the paths that reach it.

use super::context::{Context, Scope};
use super::parse::Directive;
use super::remainder;
use crate::accepted;
use crate::names::escaped;
use crate::regex::{regex, whole, wider};
use crate::yaml::{Node, map, text};

/// How many routes the locations of a server may become: expressions stand before each prefix that needs it.
const MOST: usize = 5_000;

/// A location, or the rest of a server that no location matches.
#[derive(Clone)]
pub(super) struct Location<'a> {
    /// `None` for the rest of a server.
    pub(super) directive: Option<&'a Directive>,
    pub(super) scope: Scope<'a>,
    pub(super) kind: Kind,
    /// The expression for its paths, if it is not that of `kind`.
    pub(super) only: Option<String>,
    /// It cannot be converted, and denies everybody.
    pub(super) closed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exact(String),
    /// Whether it is `^~`.
    Prefix(String, bool),
    /// An expression of the gateway.
    Regex(String),
}

impl<'a> Location<'a> {
    /// The rest of a server.
    pub(super) fn rest(scope: &Scope<'a>) -> Self {
        let kind = Kind::Prefix("/".to_owned(), false);
        Self { directive: None, scope: scope.clone(), kind, only: None, closed: false }
    }

    /// A part of its paths; `None` if it has not all paths of its kind.
    pub(super) fn part(&self, kind: Kind) -> Option<Self> {
        self.only.is_none().then(|| Self { kind, ..self.clone() })
    }

    /// The `if` blocks in it.
    pub(super) fn ifs(&self) -> impl Iterator<Item = &'a Directive> {
        self.directive.into_iter().flat_map(Directive::children).filter(|child| child.name == "if")
    }

    /// The path of the route; `None` if it matches all paths.
    pub(super) fn path(&self) -> Option<Node> {
        if let Some(only) = &self.only {
            return Some(regex(only));
        }
        match &self.kind {
            Kind::Exact(path) if is_literal(path) => Some(text(encoded(path))),
            Kind::Exact(path) => Some(regex(&escaped(&encoded(path)))),
            Kind::Prefix(path, _) if path == "/" => None,
            Kind::Prefix(path, _) => Some(match path.strip_suffix('/') {
                Some(path) if is_literal(path) => text(format!("{}/*", encoded(path))),
                _ => regex(&format!("{}.*", escaped(&encoded(path)))),
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

    fn is_regex(&self) -> bool {
        matches!(self.kind, Kind::Regex(_))
    }

    fn prefix(&self) -> Option<&str> {
        match &self.kind {
            Kind::Prefix(path, _) => Some(path),
            Kind::Exact(_) | Kind::Regex(_) => None,
        }
    }
}

/// Whether a path as a pattern of the gateway is just this path.
fn is_literal(path: &str) -> bool {
    !path.contains('*')
}

/// The path as it is in requests: nginx compares decoded paths.
pub(super) fn encoded(path: &str) -> String {
    let one = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    path.bytes().map(one).collect()
}

/// The paths that reach a block: those with a prefix that an expression matches, too.
#[derive(Clone, Default)]
struct Reach {
    prefix: String,
    pattern: Option<String>,
}

impl Reach {
    /// These paths with a prefix, too; `None` if there are none.
    fn with_prefix(&self, prefix: &str) -> Option<Self> {
        let longer = if prefix.starts_with(&self.prefix) { prefix } else { &self.prefix };
        longer.starts_with(prefix).then(|| Self { prefix: longer.to_owned(), pattern: self.pattern.clone() })
    }

    /// These paths that an expression matches, too.
    fn with_regex(&self, pattern: &str) -> Result<Self, String> {
        if self.pattern.is_some() {
            return Err("it is inside of another expression: write one expression for both".to_owned());
        }
        // `/api/.*` is a prefix, and other expressions can be restricted to it.
        let literal = pattern.strip_suffix(".*").filter(|literal| {
            !literal.contains(|c: char| "\\.+*?()|[]{}^$".contains(c)) && literal.starts_with('/')
        });
        match literal.and_then(|literal| self.with_prefix(literal)) {
            Some(reach) => Ok(reach),
            None => Ok(Self { prefix: self.prefix.clone(), pattern: Some(pattern.to_owned()) }),
        }
    }

    /// The expression for them; `Ok(None)` if there are none.
    fn regex(&self) -> Result<Option<String>, String> {
        match &self.pattern {
            None => Ok(Some(format!("{}.*", escaped(&encoded(&self.prefix))))),
            Some(pattern) if self.prefix.len() <= 1 => Ok(Some(pattern.clone())),
            Some(pattern) => remainder::within(pattern, &encoded(&self.prefix)),
        }
    }
}

/// The locations of a server in order; the last one takes all paths that are left.
///
/// # Errors
/// They would be too many routes.
pub(super) fn ordered<'a>(server: &Scope<'a>, cx: &mut Context) -> Result<Vec<Location<'a>>, String> {
    let mut walk = Walk { cx, left: MOST };
    let reach = Reach { prefix: "/".to_owned(), pattern: None };
    let (mut found, rest) = walk.level(server, &reach, &[])?;
    found.extend(rest);
    if !found.iter().any(|location| location.path().is_none()) {
        found.push(Location::rest(server));
    }
    Ok(found)
}

struct Walk<'w> {
    cx: &'w mut Context,
    left: usize,
}

impl Walk<'_> {
    /// The locations of a block for the paths that reach it, in two parts. nginx tries the expressions around the block, `pending`,
    /// between the two.
    fn level<'a>(
        &mut self,
        scope: &Scope<'a>,
        reach: &Reach,
        pending: &[Location<'a>],
    ) -> Result<(Vec<Location<'a>>, Vec<Location<'a>>), String> {
        let own = self.locations(scope);
        if own.len() > self.left {
            return Err(too_many());
        }
        let mut prefixes: Vec<_> = own.iter().filter(|location| location.prefix().is_some()).collect();
        prefixes.sort_by_key(|location| usize::MAX - location.prefix().unwrap_or_default().len());
        let regexes: Vec<_> = own.iter().filter(|location| location.is_regex()).cloned().collect();
        let all: Vec<_> = regexes.iter().chain(pending).cloned().collect();
        let skips =
            |location: &Location<'_>| matches!(location.kind, Kind::Prefix(_, true)) && !regexes.is_empty();
        // Their paths must not come to what stands before a shorter prefix.
        let is_early = |(_, prefix): &(usize, &&Location<'_>)| skips(prefix) || has_early(&prefix.scope);
        let early: Vec<_> = prefixes.iter().enumerate().filter(is_early).collect();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for exact in own.iter().filter(|location| matches!(location.kind, Kind::Exact(_))) {
            self.exact(exact, reach, &mut first)?;
        }
        for (at, prefix) in prefixes.iter().enumerate() {
            let path = prefix.prefix().unwrap_or_default();
            let Some(within) = reach.with_prefix(path) else {
                self.unreached(prefix);
                continue;
            };
            let inside = early.iter().any(|(shorter, early)| {
                *shorter > at && path.starts_with(early.prefix().unwrap_or_default())
            });
            let tried: &[_] = if skips(prefix) { pending } else { &all };
            let (before, mut after) = self.level(&prefix.scope, &within, tried)?;
            let mut own = (**prefix).clone();
            own.only = match within.pattern {
                Some(_) => match within.regex() {
                    Ok(Some(only)) => Some(only),
                    Ok(None) => {
                        self.unreached(prefix);
                        continue;
                    }
                    Err(why) => {
                        self.lost(prefix, reach, &why, &mut first)?;
                        continue;
                    }
                },
                None => None,
            };
            self.add(own, &mut after)?;
            first.extend(before);
            if inside || skips(prefix) {
                for outer in tried {
                    self.regex(outer, &within, &mut first)?;
                }
                first.extend(after);
            } else {
                rest.extend(after);
            }
        }
        for one in &regexes {
            self.regex(one, reach, &mut first)?;
        }
        Ok((first, rest))
    }

    /// The locations of one block as they are written.
    fn locations<'a>(&mut self, scope: &Scope<'a>) -> Vec<Location<'a>> {
        let mut found = Vec::new();
        for directive in scope.own("location") {
            let inner = scope.within(directive.children());
            let Some((modifier, path)) = written(directive) else {
                self.cx.unsupported(directive, "a location has a path, and at most a modifier before it");
                continue;
            };
            if path.starts_with('@') && modifier.is_empty() {
                let why = "a named location is reached by error_page and try_files, which the gateway does not have";
                self.cx.unsupported(directive, why);
                continue;
            }
            let mut closed = false;
            let kind = match modifier {
                "=" => Kind::Exact(path.to_owned()),
                "^~" => Kind::Prefix(path.to_owned(), true),
                "" => Kind::Prefix(path.to_owned(), false),
                _ => match whole(path, modifier == "~*") {
                    Ok(pattern) => Kind::Regex(pattern),
                    Err(why) if inner.is_protected() => {
                        closed = true;
                        let pattern = wider(path, modifier == "~*");
                        self.cx.unsupported(
                            directive,
                            format!("{why}. Because it protects something, all paths that match `{pattern}` are denied until you do"),
                        );
                        Kind::Regex(pattern)
                    }
                    Err(why) => {
                        self.cx.unsupported(directive, format!("left out: {why}"));
                        continue;
                    }
                },
            };
            found.push(Location { directive: Some(directive), scope: inner, kind, only: None, closed });
        }
        found
    }

    fn exact<'a>(
        &mut self,
        exact: &Location<'a>,
        reach: &Reach,
        out: &mut Vec<Location<'a>>,
    ) -> Result<(), String> {
        let Kind::Exact(path) = &exact.kind else { return Ok(()) };
        let reached = match &reach.pattern {
            Some(pattern) => remainder::matches(pattern, &encoded(path)),
            None => Ok(true),
        };
        match reached {
            Ok(true) if path.starts_with(&reach.prefix) => self.add(exact.clone(), out),
            Ok(_) => {
                self.unreached(exact);
                Ok(())
            }
            Err(why) => self.lost(exact, reach, &why, out),
        }
    }

    /// A location with an expression, and what is inside of it, for the paths that reach it.
    fn regex<'a>(
        &mut self,
        location: &Location<'a>,
        reach: &Reach,
        out: &mut Vec<Location<'a>>,
    ) -> Result<(), String> {
        let Kind::Regex(pattern) = &location.kind else { return Ok(()) };
        let found = reach.with_regex(pattern).and_then(|within| Ok((within.regex()?, within)));
        let (only, within) = match found {
            Ok((Some(only), within)) => (only, within),
            Ok((None, _)) => return Ok(()),
            Err(why) => return self.lost(location, reach, &why, out),
        };
        if !location.closed {
            let (first, rest) = self.level(&location.scope, &within, &[])?;
            out.extend(first);
            out.extend(rest);
        }
        self.add(Location { only: Some(only), ..location.clone() }, out)
    }

    /// A location whose paths cannot be told. If it protects them, all that it may match is denied.
    fn lost<'a>(
        &mut self,
        location: &Location<'a>,
        reach: &Reach,
        why: &str,
        out: &mut Vec<Location<'a>>,
    ) -> Result<(), String> {
        let Some(directive) = location.directive else { return Ok(()) };
        if !location.closed && !location.scope.is_protected() {
            self.cx.unsupported(directive, format!("left out: {why}"));
            return Ok(());
        }
        let only = match reach.regex() {
            Ok(Some(only)) => only,
            Ok(None) => return Ok(()),
            Err(_) => format!("{}.*", escaped(&encoded(&reach.prefix))),
        };
        self.cx.unsupported(
            directive,
            format!(
                "{why}. Because it protects something, all paths that match `{only}` are denied until you do"
            ),
        );
        self.add(Location { only: Some(only), closed: true, ..location.clone() }, out)
    }

    fn unreached(&mut self, location: &Location<'_>) {
        if let Some(directive) = location.directive {
            self.cx.ignored(directive, "no path that reaches its block matches it");
        }
    }

    /// Adds a location that the gateway accepts.
    fn add<'a>(&mut self, location: Location<'a>, out: &mut Vec<Location<'a>>) -> Result<(), String> {
        self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
        let checked = location.path().map_or(Ok(()), |path| accepted::matches(&map().with("path", path)));
        if let Err(why) = checked {
            let prefix = match &location.kind {
                Kind::Exact(path) | Kind::Prefix(path, _) => path.clone(),
                Kind::Regex(_) => "/".to_owned(),
            };
            let reach = Reach { prefix, pattern: None };
            if location.closed {
                return Err(format!("{}: {why}", location.shown()));
            }
            return self.lost(&location, &reach, &why, out);
        }
        match &location.kind {
            Kind::Prefix(path, _) if path.ends_with('/') && path != "/" => self.cx.report.note(
                "the route of a location such as /api/ matches /api, too, which nginx redirects to /api/",
            ),
            Kind::Prefix(path, _) if path != "/" => self.cx.report.note(
                "a location such as /api matches /apix, too, so its route has an expression. If only /api and what is below it is meant, \
                 path: /api/* is simpler",
            ),
            Kind::Prefix(..) | Kind::Exact(_) | Kind::Regex(_) => {}
        }
        out.push(location);
        Ok(())
    }
}

fn too_many() -> String {
    format!(
        "its locations would become more than {MOST} routes: import a part of the servers, or put expressions inside of prefixes"
    )
}

/// Whether a block has locations that nginx tries before the expressions around it.
fn has_early(scope: &Scope<'_>) -> bool {
    scope.own("location").into_iter().any(|directive| match written(directive) {
        Some(("" | "^~", _)) => has_early(&scope.within(directive.children())),
        _ => true,
    })
}

/// The modifier and the path of a location. `location =/path` and `location ~\.php$` have both in one word.
fn written(directive: &Directive) -> Option<(&str, &str)> {
    match directive.args.as_slice() {
        [path] => {
            let modifier = ["=", "^~", "~*", "~"].into_iter().find(|modifier| path.starts_with(modifier));
            let modifier = modifier.unwrap_or_default();
            Some((modifier, &path[modifier.len()..]))
        }
        [modifier, path] => Some((modifier, path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::parse::parse;

    fn order(config: &str) -> Vec<String> {
        let directives = parse("n", config).unwrap();
        let found = ordered(&Scope::top(&directives), &mut Context::default());
        let found = found.unwrap();
        let path = |location: &Location<'_>| location.path().map_or("all".into(), |path| path.file_value());
        found.iter().map(|location| path(location) + if location.closed { " closed" } else { "" }).collect()
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

    #[test]
    fn what_is_inside_of_a_location_comes_before_expressions_around_it() {
        let config = "location / {} location ~ \\.php$ {} location /up/ { location ~ \\.php$ { deny all; } }\n\
                      location ^~ /static/ { location ~ \\.key$ { deny all; } } location ~ ^/api/ { location ~ \\.json$ { deny all; } }";
        let expected = [
            "{regex: '/static/.*\\.key'}",
            "/static/*",
            "{regex: '/up/.*\\.php'}",
            "{regex: '.*\\.php'}",
            "{regex: '/api/.*\\.json'}",
            "{regex: /api/.*}",
            "/up/*",
            "all",
        ];
        assert_eq!(order(config), expected);
        // A longer prefix is chosen first, so what is inside of a shorter one is not tried for its paths.
        let config = "location /a/ { location ~ x$ {} } location /a/b/ {} location ~ y$ {}";
        let expected = ["{regex: /a/b/.*y}", "/a/b/*", "{regex: /a/.*x}", "{regex: .*y}", "/a/*", "all"];
        assert_eq!(order(config), expected);
        assert_eq!(
            order("location ~ ^/(a|b)/ { location /a/ {} location = /b/c {} }")[..2],
            ["/b/c", "{regex: /a/.*}"]
        );
    }

    #[test]
    fn what_protects_and_cannot_be_converted_is_closed() {
        assert_eq!(
            order("location ~ /\\.(?!well-known) { deny all; } location ~ /(?=x) {}"),
            ["{regex: '.*/\\..*'} closed", "all"]
        );
        let inside = "location ~ ^/(a|b)/ { location ~ \\.json$ { deny all; } }";
        assert_eq!(order(inside), ["{regex: /(a|b)/.*} closed", "{regex: /(a|b)/.*}", "all"]);
        assert_eq!(order("location = /a* { deny all; }"), ["{regex: '/a\\*'}", "all"]);
        assert_eq!(order("location \"/a b\" {}"), ["{regex: /a%20b.*}", "all"]);
    }
}
