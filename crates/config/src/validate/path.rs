//! Validates paths of routes; recognizes patterns of other programs.

use crate::read::at::At;
use crate::read::report::{Mistake, Report};
use crate::{PathPattern, normalize};

/// What only regular expressions have.
const OF_REGEX: [&str; 12] = [".*", ".+", "\\", "[^", "[a-z", "[A-Z", "[0-9", "(?", "|", ")?", ")+", ")*"];

pub(super) fn read(text: &str) -> Result<PathPattern, Mistake> {
    PathPattern::parse(text).map_err(|error| {
        if let Some((_, rest)) = text.split_once("://") {
            let path = rest.find('/').map_or("/", |at| &rest[at..]);
            return Mistake::new(format!("expected a path such as /v1/*, found the URL `{text}`"))
                .help(format!("write the path alone, {path}; the name goes into `host`"));
        }
        if let Some(meant) = meant(text).filter(|meant| !is_regex(meant)) {
            return Mistake::from(error).help(format!("write {meant}"));
        }
        if let Some(regex) = expression(text) {
            return Mistake::from(error)
                .help(format!("write `path: {{regex: '{}'}}`", regex.replace('\'', "''")));
        }
        if let Some((path, _)) = text.split_once(['?', '#']) {
            return Mistake::new(format!("the path `{text}` has a query, and paths are matched without it"))
                .help(format!("write {path}"));
        }
        if let Some(part) = text.split('/').find(|part| part.starts_with('{') && !part.contains('}')) {
            return Mistake::new(format!("the parameter `{part}` has no closing brace"))
                .help(format!("write {part}}}"));
        }
        let mistake = Mistake::from(error);
        match normal_form(text) {
            Some(normal) => mistake.help(format!("write {normal}")),
            None => mistake,
        }
    })
}

/// How the path is written in the form in which paths are matched, if that makes it a pattern.
fn normal_form(text: &str) -> Option<String> {
    let encode = |c: char| {
        let mut bytes = [0; 4];
        if c.is_ascii_graphic() {
            return c.to_string();
        }
        c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
    };
    let encoded: String = text.chars().map(encode).collect();
    let normal = normalize(&encoded).ok()?.into_owned();
    PathPattern::parse(&normal).is_ok().then_some(normal)
}

/// Warns of a path that is taken literally and looks like a pattern of another program.
pub(super) fn warn(text: &At<String>, report: &mut Report) {
    let path = &text.value;
    if PathPattern::parse(path).is_err() {
        return; // reported
    }
    let meant = meant(path);
    let is_regex = OF_REGEX.iter().any(|piece| path.contains(piece)) || path.ends_with('$');
    let why = match &meant {
        Some(meant) if meant.contains('{') => "a parameter is written {name}",
        Some(_) => "patterns are written differently here",
        None if is_regex => "an expression is written {regex: …}",
        None => return,
    };
    let problem = text.problem(format!("the path `{path}` is taken literally: {why}"));
    report.warning(match meant {
        Some(meant) => problem.help(format!("write {meant}")),
        None => problem.help(format!("write {{regex: '{path}'}}, or several paths as a list")),
    });
}

/// The path that is meant by a pattern of another program: Express and Gin (`:id`, `*rest`), Flask (`<int:id>`), Go, axum
/// and OpenAPI routers (`{id:[0-9]+}`, `{rest...}`), nginx and other regular expressions.
fn meant(text: &str) -> Option<String> {
    let bare = text.trim_start_matches(['~', '*', '=', ' ']).trim_start_matches('^');
    let bare = bare.strip_suffix('$').unwrap_or(bare).replace("[^/]", ".");
    let parts: Vec<&str> = bare.strip_prefix('/')?.split('/').collect();
    let mut out = String::new();
    for (index, part) in parts.iter().enumerate() {
        out.push('/');
        match foreign(part) {
            None => out += part,
            Some(Foreign::One(name)) => out += &format!("{{{name}}}"),
            Some(Foreign::Rest(_)) if index + 1 == parts.len() => out.push('*'),
            Some(Foreign::Rest(name)) => out += &format!("{{{name}}}"),
        }
    }
    (out != text && PathPattern::parse(&out).is_ok()).then_some(out)
}

/// Whether something is left that only regular expressions have.
fn is_regex(path: &str) -> bool {
    path.contains(['[', ']', '(', ')', '|', '+', '?', '\\', '^', '$']) || path.contains(".*")
}

/// The expression for `{regex: …}`, which matches whole paths, of a location of nginx: `~ ^/v[0-9]+/` is found anywhere.
fn expression(text: &str) -> Option<String> {
    let (bare, prefix) = match text.strip_prefix("~*") {
        Some(bare) => (bare, "(?i)"),
        None => (text.strip_prefix('~').or_else(|| text.starts_with('^').then_some(text))?, ""),
    };
    let bare = bare.trim_start();
    let (front, bare) = match bare.strip_prefix('^') {
        Some(bare) => ("", bare),
        None => (".*", bare),
    };
    let (bare, end) = match bare.strip_suffix('$').filter(|bare| !bare.ends_with('\\')) {
        Some(bare) => (bare, ""),
        None if bare.ends_with(".*") => (bare, ""),
        None => (bare, ".*"),
    };
    (!bare.is_empty()).then(|| format!("{prefix}{front}{bare}{end}"))
}

/// What a segment stands for elsewhere.
enum Foreign<'a> {
    /// One segment.
    One(&'a str),
    /// All that follows, where it is the last.
    Rest(&'a str),
}

fn foreign(part: &str) -> Option<Foreign<'_>> {
    let name = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    if let Some(rest) = part.strip_prefix(':') {
        let (name, suffix) = rest.split_at(name(rest));
        return match suffix {
            _ if name.is_empty() => None,
            "*" | "+" => Some(Foreign::Rest(name)),
            "" | "?" => Some(Foreign::One(name)),
            _ => (suffix.starts_with('(') && suffix.ends_with(')')).then_some(Foreign::One(name)),
        };
    }
    if let Some(inside) = part.strip_prefix('<').and_then(|part| part.strip_suffix('>')) {
        let (kind, name) = inside.split_once(':').unwrap_or(("", inside));
        return Some(if kind == "path" { Foreign::Rest(name) } else { Foreign::One(name) });
    }
    if let Some(inside) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        let (own, suffix) = inside.split_at(name(inside));
        return match (own, suffix) {
            ("", _) => inside.strip_prefix('*').map(Foreign::Rest),
            (_, "" | "-") => None,
            (own, "..." | "*" | "+" | ":.*" | ":.+" | ":path") => Some(Foreign::Rest(own)),
            (own, suffix) => (suffix.starts_with([':', '?'])).then_some(Foreign::One(own)),
        };
    }
    let group = part.strip_prefix('(').and_then(|part| part.strip_suffix(')')).unwrap_or(part);
    match group {
        "*" if part == "*" => Some(Foreign::Rest("name")),
        "**" | ".*" => Some(Foreign::Rest("name")),
        r"\d+" | r"\d*" | "[0-9]+" | "[0-9]*" => Some(Foreign::One("id")),
        ".+" | r"\w+" | r"[\w-]+" | "[a-z]+" | "[a-zA-Z0-9]+" | "[a-zA-Z0-9_]+" | "[a-zA-Z0-9_-]+" => {
            Some(Foreign::One("name"))
        }
        _ => part.strip_prefix('*').filter(|name| !name.is_empty() && !name.contains('*')).map(Foreign::Rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nginx finds an expression anywhere, `{regex: …}` matches the whole path.
    #[test]
    fn locations_of_nginx_are_expressions() {
        for (text, expected) in [
            ("~ ^/v[0-9]+/x$", Some("/v[0-9]+/x")),
            ("~ ^/v[0-9]+/", Some("/v[0-9]+/.*")),
            (r"~* \.(png|jpg)$", Some(r"(?i).*\.(png|jpg)")),
            ("^/a(b|c)", Some("/a(b|c).*")),
            ("/a", None),
            ("~", None),
        ] {
            assert_eq!(expression(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn patterns_of_other_programs_are_known() {
        for (text, expected) in [
            ("/users/:id", Some("/users/{id}")),
            ("/users/:id/posts/:post?", Some("/users/{id}/posts/{post}")),
            (r"/users/:id(\d+)", Some("/users/{id}")),
            ("/files/:path*", Some("/files/*")),
            ("/files/*path", Some("/files/*")),
            ("/users/<id>", Some("/users/{id}")),
            ("/users/<int:id>/x", Some("/users/{id}/x")),
            ("/files/<path:rest>", Some("/files/*")),
            ("/users/{id:[0-9]+}", Some("/users/{id}")),
            ("/files/{rest...}", Some("/files/*")),
            ("/files/{*rest}", Some("/files/*")),
            ("^/v1/.*$", Some("/v1/*")),
            ("~ ^/v1/(.*)$", Some("/v1/*")),
            (r"/users/\d+/posts", Some("/users/{id}/posts")),
            ("/users/[^/]+/posts", Some("/users/{name}/posts")),
            ("/a/*/b", Some("/a/{name}/b")),
            ("/a/**", Some("/a/*")),
            ("/a/b$", Some("/a/b")),
            ("/v1/items:batch", None),
            ("/$batch", None),
            ("/~user", None),
            ("/Products(1)", None),
            ("/users/{id}", None),
            ("/v1/*", None),
            ("/:", None),
            ("/a*", None),
            ("", None),
        ] {
            assert_eq!(meant(text).as_deref(), expected, "{text}");
        }
    }
}
