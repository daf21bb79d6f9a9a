//! What a location does with a request: forwards it, answers it, or redirects it.

use super::context::{Context, Scope};
use super::headers::{content_type, request_headers};
use super::location::{Kind, Location};
use super::parse::Directive;
use super::template::Variables;
use super::upstream::{Target, Upstreams};
use crate::accepted;
use crate::names::escaped;
use crate::yaml::{Node, map, text};

/// The action of a route.
#[derive(Clone, Default)]
pub(super) struct Action {
    /// Fields of the route.
    pub(super) fields: Vec<(String, Node)>,
    /// Whether nginx answers before it evaluates limits.
    pub(super) before_limits: bool,
    /// Whether the answer is for everybody: a redirect or an error.
    pub(super) harmless: bool,
    /// Why the route answers something else than nginx.
    pub(super) lost: Option<&'static str>,
}

/// Directives that answer requests with something that the gateway does not have.
const OTHER_ANSWERS: [&str; 12] = [
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "memcached_pass",
    "content_by_lua_block",
    "content_by_lua_file",
    "content_by_lua",
    "js_content",
    "perl",
    "stub_status",
    "empty_gif",
    "autoindex",
];

/// The action of a location.
pub(super) fn action<'a>(
    location: &Location<'a>,
    variables: &Variables,
    upstreams: &mut Upstreams<'a>,
    cx: &mut Context,
) -> Action {
    let scope = &location.scope;
    if let Some(found) = scope.own("internal").into_iter().next() {
        cx.converted(found, "answered 404, as by nginx: only its own redirects reach it");
        let respond = map().with("status", text(404)).source(&found.source);
        return Action {
            fields: vec![("respond".to_owned(), respond)],
            before_limits: true,
            harmless: true,
            lost: None,
        };
    }
    if let Some(found) = location.directive.and_then(|_| scope.own("return").into_iter().next()) {
        return returned(found, scope, variables, cx);
    }
    if let Some(pass) = location
        .directive
        .and_then(|_| scope.own("proxy_pass").into_iter().chain(scope.own("grpc_pass")).next())
    {
        match forwarded(pass, location, variables, upstreams, cx) {
            Ok(fields) => return Action { fields, ..Action::default() },
            Err(why) => cx.unsupported(pass, why),
        }
        return not_converted(502, "its proxy_pass could not be converted");
    }
    if let Some(other) = OTHER_ANSWERS.iter().find_map(|name| scope.own(name).into_iter().next()) {
        let text = match other.name.as_str() {
            "stub_status" => "the admin API has the metrics: admin: {address: …}, GET /metrics",
            "fastcgi_pass" | "uwsgi_pass" | "scgi_pass" => {
                "the gateway speaks HTTP: let the application, or a server beside it, speak HTTP, and forward to it"
            }
            _ => "write this answer as `respond`, or forward to a server that has it",
        };
        cx.unsupported(other, text);
        return not_converted(404, "nginx answers this by something that the gateway does not have");
    }
    for name in ["try_files", "root", "alias", "index"] {
        for found in scope.own(name) {
            cx.unsupported(found, "the gateway serves no files: forward these paths to a server that does");
        }
    }
    if location.directive.is_none()
        && ["root", "try_files", "alias"].iter().all(|name| scope.last(name).is_none())
    {
        return Action {
            fields: vec![("respond".to_owned(), map().with("status", text(404)))],
            ..Action::default()
        };
    }
    match location.directive.is_some_and(|_| {
        scope.own("rewrite").into_iter().any(|rewrite| cx.is_lost(rewrite) || !is_redirect(rewrite))
    }) {
        true => not_converted(404, "its rewrite could not be converted"),
        false => not_converted(404, "nginx serves files here"),
    }
}

fn not_converted(status: u16, why: &'static str) -> Action {
    let respond = map().with("status", text(status)).comment(format!("not converted: {why}"));
    Action { fields: vec![("respond".to_owned(), respond)], lost: Some(why), ..Action::default() }
}

/// `return` in its forms.
pub(super) fn returned(
    directive: &Directive,
    scope: &Scope<'_>,
    variables: &Variables,
    cx: &mut Context,
) -> Action {
    let (code, value) = match directive.args.as_slice() {
        [url] if url.parse::<u16>().is_err() => ("302", Some(url.as_str())),
        [code] => (code.as_str(), None),
        [code, value, ..] => (code.as_str(), Some(value.as_str())),
        [] => ("", None),
    };
    let status = code.parse::<u16>().unwrap_or(0);
    let field = match (status, value) {
        (301 | 302 | 303 | 307 | 308, Some(url)) => {
            match redirect(status, url, false, variables, directive, cx) {
                Some(node) => ("redirect", node),
                None => ("respond", map().with("status", text(404)).comment("not converted: a redirect")),
            }
        }
        (444, _) => {
            cx.approximated(directive, "answered 404; nginx closes the connection without an answer");
            ("respond", map().with("status", text(404)))
        }
        (200..=599, value) => {
            let body = value.map(|value| variables.expand(value)).filter(|body| !body.contains("${"));
            match value.is_some() == body.is_some() {
                true => cx.converted(directive, "respond"),
                false => cx.approximated(directive, "answered without the body, which has variables"),
            }
            let node = map().with("status", text(status)).with_some("body", body.map(text));
            ("respond", node.with_some("content_type", content_type(scope, cx).filter(|_| value.is_some())))
        }
        _ => {
            cx.unsupported(directive, "it has no status from 200 to 599; answered 404");
            ("respond", map().with("status", text(404)))
        }
    };
    Action {
        harmless: field.0 == "redirect" || status >= 400,
        fields: vec![(field.0.to_owned(), field.1.source(&directive.source))],
        before_limits: true,
        lost: None,
    }
}

/// Whether a `rewrite` ends with an answer to the client.
pub(super) fn is_redirect(rewrite: &Directive) -> bool {
    let to_url = ["http://", "https://", "$scheme"].iter().any(|begin| rewrite.arg(1).starts_with(begin));
    matches!(rewrite.arg(2), "permanent" | "redirect") || to_url
}

/// A redirect to a URL with variables. `adds_query` says whether nginx adds the query of the request.
pub(super) fn redirect(
    status: u16,
    url: &str,
    adds_query: bool,
    variables: &Variables,
    directive: &Directive,
    cx: &mut Context,
) -> Option<Node> {
    let url = variables.expand(url);
    let written =
        url.replace("${is_args}${args}", "").replace("?${args}", "").replace("?${query_string}", "");
    let to = match variables.template(&written) {
        Ok(to) => to,
        Err(variable) => {
            cx.unsupported(
                directive,
                format!("left out: there is no equivalent of ${variable} in a redirect"),
            );
            return None;
        }
    };
    let node = map().with("status", text(status)).with("to", text(&to));
    if let Err(why) = accepted::field(None, "redirect", &node) {
        cx.unsupported(directive, format!("left out: {why}"));
        return None;
    }
    match (adds_query || url.contains("${request_uri}") || written != url, to.contains('?')) {
        (true, true) if adds_query => {
            cx.approximated(directive, "redirect; nginx adds the query of the request to that of the target");
        }
        (true, _) | (false, true) => cx.converted(directive, "redirect"),
        (false, false) => {
            cx.approximated(directive, "redirect; the query of the request is kept, nginx leaves it out")
        }
    }
    Some(node)
}

/// `proxy_pass` and `grpc_pass`.
fn forwarded<'a>(
    pass: &'a Directive,
    location: &Location<'a>,
    variables: &Variables,
    upstreams: &mut Upstreams<'a>,
    cx: &mut Context,
) -> Result<Vec<(String, Node)>, String> {
    let grpc = pass.name == "grpc_pass";
    let (target, uri) = target(&variables.expand(pass.arg(0)), grpc)?;
    let shown = target.address.clone();
    let host =
        if target.address.starts_with("unix:") { "localhost".to_owned() } else { target.address.clone() };
    let name = upstreams.used(target, &pass.source, &location.scope, cx)?;
    let mut fields = vec![("upstream".to_owned(), text(&name).source(&pass.source))];
    let broken: Vec<_> =
        location.scope.own("rewrite").into_iter().filter(|rewrite| !is_redirect(rewrite)).collect();
    match (uri, broken.as_slice()) {
        (None, []) => cx.converted(pass, format!("upstream {name}")),
        (Some(uri), []) => {
            let change = path_change(&location.kind, &uri)?;
            cx.converted(pass, format!("upstream {name}; the path of the location becomes {uri}"));
            fields.extend(change);
        }
        (None, [rewrite]) if rewrite.arg(2) == "break" => {
            cx.converted(pass, format!("upstream {name}"));
            match rewritten(rewrite) {
                Ok(node) => {
                    cx.converted(rewrite, "rewrite");
                    fields.push(("rewrite".to_owned(), node.source(&rewrite.source)));
                }
                Err(why) => cx.unsupported(rewrite, why),
            }
        }
        (_, rewrites) => {
            for rewrite in rewrites {
                cx.unsupported(rewrite, "a route has one rewrite, and never goes on with another location: use rewrite: {match, to}");
            }
            cx.approximated(pass, format!("upstream {name}, without the rewrites of the path"));
        }
    }
    let prefix = if grpc { "grpc" } else { "proxy" };
    if let Some(node) = request_headers(&location.scope, prefix, &host, variables, cx) {
        fields.push(("request_headers".to_owned(), node));
    }
    if shown.starts_with("unix:") {
        cx.report.note(format!("{shown} is a Unix socket of this machine"));
    }
    Ok(fields)
}

/// The target and the path of `http://HOST:PORT/path`.
fn target(url: &str, grpc: bool) -> Result<(Target, Option<String>), String> {
    let (scheme, rest) = match url.split_once("://") {
        Some(found) => found,
        None if grpc => ("grpc", url),
        None => {
            return Err("left out: its address has no scheme, or it is in a variable that is not a constant"
                .to_owned());
        }
    };
    let tls = match scheme {
        "http" | "grpc" => false,
        "https" | "grpcs" => true,
        _ => return Err(format!("left out: the gateway does not forward to {scheme}://")),
    };
    let (address, uri) = match rest.strip_prefix("unix:") {
        Some(path) => {
            let (path, uri) =
                path.split_once(':').map_or((path, None), |(path, uri)| (path, Some(uri.to_owned())));
            (format!("unix:{path}"), uri)
        }
        None => match rest.find(['/', '$']) {
            Some(at) if rest[at..].starts_with('/') => (rest[..at].to_owned(), Some(rest[at..].to_owned())),
            Some(at) => (rest[..at].to_owned(), Some(rest[at..].to_owned())),
            None => (rest.to_owned(), None),
        },
    };
    let uri =
        uri.filter(|uri| !matches!(uri.as_str(), "${request_uri}" | "${uri}" | "${uri}${is_args}${args}"));
    let variable = address.is_empty() || uri.as_ref().is_some_and(|uri| uri.contains('$'));
    match variable {
        true => {
            Err("left out: the address or the path has variables. Write a route for each address".to_owned())
        }
        false => Ok((Target { tls, grpc, address }, uri)),
    }
}

/// The path change of `proxy_pass` with a path.
fn path_change(kind: &Kind, uri: &str) -> Result<Option<(String, Node)>, String> {
    if uri.contains(['?', '#']) {
        return Err("left out: its path has a query. Use rewrite: \"/path?query\"".to_owned());
    }
    let braces = |path: &str| path.replace('{', "{{").replace('}', "}}");
    let rewrite = |to: String| Some(("rewrite".to_owned(), text(to)));
    Ok(match kind {
        Kind::Exact(path) if path == uri => None,
        Kind::Exact(_) => rewrite(braces(uri)),
        Kind::Prefix(path, _) if path == uri => None,
        Kind::Prefix(path, _) => match (path.strip_suffix('/'), uri.strip_suffix('/')) {
            (Some(path), Some("")) => Some(("strip_prefix".to_owned(), text(path))),
            (Some(_), Some(uri)) => rewrite(format!("{}/{{rest}}", braces(uri))),
            _ => {
                let to = uri.replace('$', "$$");
                Some((
                    "rewrite".to_owned(),
                    map().with("match", text(format!("^{}", escaped(path)))).with("to", text(to)),
                ))
            }
        },
        Kind::Regex(_) => return Err("left out: nginx accepts no path here without variables".to_owned()),
    })
}

/// `rewrite REGEX REPLACEMENT break`.
fn rewritten(rewrite: &Directive) -> Result<Node, String> {
    let node = map().with("match", text(rewrite.arg(0))).with("to", text(rewrite.arg(1)));
    accepted::field(None, "rewrite", &node).map(|()| node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let found = |url: &str| target(url, false).map(|(target, uri)| (target.address, target.tls, uri));
        assert_eq!(found("http://api"), Ok(("api".into(), false, None)));
        assert_eq!(
            found("https://10.0.0.1:8443/v2/"),
            Ok(("10.0.0.1:8443".into(), true, Some("/v2/".into())))
        );
        assert_eq!(found("http://api${request_uri}"), Ok(("api".into(), false, None)));
        assert_eq!(
            found("http://unix:/run/a.sock:/x"),
            Ok(("unix:/run/a.sock".into(), false, Some("/x".into())))
        );
        assert!(
            found("http://${backend}").is_err() && found("${backend}").is_err() && found("ftp://a").is_err()
        );
    }

    #[test]
    fn paths_are_replaced_as_in_nginx() {
        let change = |kind: Kind, uri: &str| {
            path_change(&kind, uri).unwrap().map(|(name, node)| format!("{name}: {}", node.file_value()))
        };
        let prefix = |path: &str| Kind::Prefix(path.into(), false);
        assert_eq!(change(prefix("/api/"), "/").as_deref(), Some("strip_prefix: /api"));
        assert_eq!(change(prefix("/api/"), "/v2/").as_deref(), Some("rewrite: \"/v2/{rest}\""));
        assert_eq!(change(prefix("/"), "/"), None);
        assert_eq!(change(prefix("/"), "/base/").as_deref(), Some("rewrite: \"/base/{rest}\""));
        assert_eq!(change(prefix("/api"), "/v2").as_deref(), Some("rewrite: {match: \"^/api\", to: /v2}"));
        assert_eq!(change(Kind::Exact("/a".into()), "/b").as_deref(), Some("rewrite: /b"));
    }
}
