//! Paths of routes and services.

use crate::accepted;
use crate::names::{escaped, literal};
use crate::regex::{regex, whole};
use crate::yaml::{Node, map, text};

/// A path of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// All that begins with it.
    Prefix(String),
    /// An expression for the beginning of a path.
    Regex(String),
}

/// A change of the path.
pub(super) type Change = Option<(&'static str, Node)>;

impl Path {
    /// Reads a path. Since the format 3.0 expressions begin with `~`; before, a path with other characters than these was one.
    pub(super) fn of(written: &str, by_tilde: bool) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_~/%".contains(c);
        match written.strip_prefix('~') {
            Some(expression) if by_tilde => Self::Regex(expression.to_owned()),
            None if by_tilde => Self::Prefix(written.to_owned()),
            _ if written.chars().all(plain) => Self::Prefix(written.to_owned()),
            _ => Self::Regex(written.to_owned()),
        }
    }

    pub(super) fn is_regex(&self) -> bool {
        matches!(self, Self::Regex(_))
    }

    pub(super) fn length(&self) -> usize {
        match self {
            Self::Prefix(text) | Self::Regex(text) => text.len(),
        }
    }

    /// The path of a `match`; `None` if all paths match.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn node(&self) -> Result<Option<Node>, String> {
        let node = match self {
            Self::Prefix(path) if path == "/" => return Ok(None),
            Self::Prefix(path) => {
                text(format!("{}/*", path.trim_end_matches('/').replace('{', "%7B").replace('}', "%7D")))
            }
            Self::Regex(pattern) => regex(&whole(&format!("^{}", pattern.trim_start_matches('^')), false)?),
        };
        accepted::matches(&map().with("path", node.clone())).map(|()| Some(node))
    }

    /// The path of a `match` that all requests of this one have; `None`: any path.
    pub(super) fn widest(&self) -> Option<Node> {
        match self {
            Self::Prefix(path) => Some(regex(&format!("{}.*", escaped(path)))).filter(|_| path != "/"),
            Self::Regex(_) => self.node().ok().flatten(),
        }
    }

    /// What begins with this prefix and is not below it: `/apix` for `/api`.
    pub(super) fn longer(&self) -> Option<Node> {
        match self {
            Self::Prefix(path) => Some(regex(&format!("{}[^/].*", escaped(path)))),
            Self::Regex(_) => None,
        }
    }

    /// How the path changes on its way to a service whose own path is `base`.
    pub(super) fn change(&self, base: &str, strips: bool) -> Change {
        let base = base.trim_end_matches('/');
        match self {
            _ if !strips && base.is_empty() => None,
            _ if !strips => Some(("rewrite", text(format!("{}{{path}}", literal(base))))),
            Self::Prefix(path) if path.trim_end_matches('/').is_empty() && base.is_empty() => None,
            Self::Prefix(path) if base.is_empty() => Some(("strip_prefix", text(path.trim_end_matches('/')))),
            Self::Prefix(_) => Some(("rewrite", text(format!("{}/{{rest}}", literal(base))))),
            Self::Regex(pattern) => {
                let pattern = format!("^(?:{})/?", pattern.trim_start_matches('^').trim_end_matches('$'));
                Some((
                    "rewrite",
                    map()
                        .with("match", text(pattern))
                        .with("to", text(format!("{}/", base.replace('$', "$$")))),
                ))
            }
        }
    }

    /// A word for names.
    pub(super) fn word(&self) -> &str {
        match self {
            Self::Prefix(text) | Self::Regex(text) => text,
        }
    }
}

/// A host of a route: `*.example.com`, `example.*`, or a name, perhaps with a port.
///
/// # Errors
/// Why there is none.
pub(super) fn host(written: &str) -> Result<Node, String> {
    let lower = written.to_ascii_lowercase();
    let bare = lower
        .rsplit_once(':')
        .filter(|(_, port)| port.chars().all(|c| c.is_ascii_digit()))
        .map_or(lower.as_str(), |(host, _)| host);
    let node = match bare.strip_suffix(".*") {
        Some(front) => regex(&format!("{}\\..*", escaped(front))),
        None => text(bare),
    };
    accepted::matches(&map().with("host", node.clone())).map(|()| node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_formats() {
        assert_eq!(Path::of("~/v\\d+", true), Path::Regex("/v\\d+".into()));
        assert_eq!(
            (Path::of("/v\\d+", false), Path::of("/v+", true)),
            (Path::Regex("/v\\d+".into()), Path::Prefix("/v+".into()))
        );
        let shown = |path: &str| Path::of(path, true).node().unwrap().map(|node| node.file_value());
        assert_eq!(shown("/api/").as_deref(), Some("/api/*"));
        assert_eq!(shown("/"), None);
        assert_eq!(shown("~/items/\\d+$").as_deref(), Some(r"{regex: '/items/\d+'}"));
        assert_eq!(host("Example.*").unwrap().file_value(), r"{regex: 'example\..*'}");
        assert_eq!(host("a.example.com:8000").unwrap().file_value(), "a.example.com");
    }

    #[test]
    fn paths_of_services_come_before_the_rest() {
        let change = |path: &str, base: &str, strips: bool| {
            Path::of(path, true)
                .change(base, strips)
                .map(|(field, node)| format!("{field}: {}", node.file_value()))
        };
        assert_eq!(change("/api", "", true).as_deref(), Some("strip_prefix: /api"));
        assert_eq!(change("/api", "/v2/", true).as_deref(), Some("rewrite: \"/v2/{rest}\""));
        assert_eq!(change("/api", "/v2", false).as_deref(), Some("rewrite: \"/v2{path}\""));
        assert_eq!((change("/api", "/", false), change("/", "", true)), (None, None));
        assert_eq!(
            change("~/a/\\d+$", "", true).as_deref(),
            Some(r"rewrite: {match: '^(?:/a/\d+)/?', to: /}")
        );
    }
}
