//! `proxy_set_header`, `add_header` and their relatives.

use super::context::{Context, Scope};
use super::parse::Directive;
use super::template::Variables;
use crate::yaml::{Node, list, map, text};

/// The changes of requests. `host` is what nginx sends as Host unless it is set.
pub(super) fn request_headers(
    scope: &Scope<'_>,
    directive: &str,
    host: &str,
    variables: &Variables,
    cx: &mut Context,
) -> Option<Node> {
    let mut set: Vec<(String, Node)> = Vec::new();
    let mut remove = Vec::new();
    let mut has_host = false;
    for header in scope.all(directive) {
        let (name, value) = (header.arg(0), header.arg(1));
        has_host |= name.eq_ignore_ascii_case("host");
        if value.is_empty() {
            match is_own(name) {
                Some(why) => cx.ignored(header, why),
                None => {
                    cx.converted(header, "request_headers.remove");
                    remove.push(text(name).source(&header.source));
                }
            }
        } else if let Some(why) = is_sent_anyway(name, value) {
            cx.converted(header, why);
        } else if let Some(why) = is_own(name) {
            cx.ignored(header, why);
        } else {
            match variables.template(value) {
                Ok(value) => {
                    cx.converted(header, "request_headers.set");
                    set.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
                    set.push((name.to_owned(), text(value).source(&header.source)));
                }
                Err(variable) => {
                    cx.unsupported(header, format!("left out: there is no equivalent of ${variable}"))
                }
            }
        }
    }
    if !has_host && !host.is_empty() {
        cx.report.note(
            "without proxy_set_header Host, nginx sends the name in proxy_pass as Host, and so do these routes (request_headers.set.Host). \
             Remove that line where the server should see the client's Host",
        );
        set.push(("Host".to_owned(), text(host)));
    }
    changes([("remove", list(remove)), ("set", entries(set))])
}

/// The changes of answers. A `Content-Type` is left to the caller.
pub(super) fn response_headers(scope: &Scope<'_>, variables: &Variables, cx: &mut Context) -> Option<Node> {
    let mut add: Vec<(String, Node)> = Vec::new();
    let mut remove = Vec::new();
    for header in scope.all("add_header") {
        let (name, value) = (header.arg(0), header.arg(1));
        if name.eq_ignore_ascii_case("content-type") {
            continue;
        }
        if is_framing(name) || add.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            cx.unsupported(
                header,
                "left out: the gateway adds a header once, and none that frames a message",
            );
            continue;
        }
        match variables.template(value) {
            Err(variable) => {
                cx.unsupported(header, format!("left out: there is no equivalent of ${variable}"))
            }
            Ok(value) => {
                match header.arg(2) {
                    "always" => cx.converted(header, "response_headers.add"),
                    _ => cx.approximated(header, "response_headers.add, to all answers; without `always`, nginx adds it to those of 2xx and 3xx"),
                }
                add.push((name.to_owned(), text(value).source(&header.source)));
            }
        }
    }
    for header in scope.all("proxy_hide_header") {
        cx.converted(header, "response_headers.remove");
        remove.push(text(header.arg(0)).source(&header.source));
    }
    changes([("remove", list(remove)), ("add", entries(add))])
}

/// The content type of an answer of nginx itself.
pub(super) fn content_type(scope: &Scope<'_>, cx: &mut Context) -> Option<Node> {
    let is_type = |header: &&Directive| header.arg(0).eq_ignore_ascii_case("content-type");
    let header = scope.all("add_header").into_iter().find(is_type);
    let (directive, value) = match (header, scope.last("default_type")) {
        (Some(header), _) => (header, header.arg(1)),
        (None, Some(default)) => (default, default.arg(0)),
        (None, None) => return None,
    };
    if value.contains('$') {
        return None;
    }
    cx.converted(directive, "respond.content_type");
    Some(text(value).source(&directive.source))
}

fn entries(all: Vec<(String, Node)>) -> Node {
    all.into_iter().fold(map(), |node, (name, value)| node.with(name, value))
}

fn changes<const N: usize>(parts: [(&str, Node); N]) -> Option<Node> {
    let given = parts.into_iter().filter(|(_, node)| !node.is_empty());
    let node = given.fold(map(), |node, (name, part)| node.with(name, part));
    (!node.is_empty()).then_some(node)
}

/// Whether the gateway sends this header with this value by itself.
fn is_sent_anyway(name: &str, value: &str) -> Option<&'static str> {
    Some(match (name.to_ascii_lowercase().as_str(), value) {
        ("host", "$host" | "$http_host" | "$host:$server_port" | "$http_host:$server_port") => {
            "Host is forwarded"
        }
        ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$remote_addr" | "$http_x_forwarded_for") => {
            "X-Forwarded-For is always sent: extended from trusted proxies, replaced from other clients"
        }
        ("x-forwarded-proto", "$scheme" | "$http_x_forwarded_proto") => "X-Forwarded-Proto is always sent",
        ("x-forwarded-host", "$host" | "$http_host") => "X-Forwarded-Host is always sent",
        ("x-request-id", "$request_id" | "$http_x_request_id") => "X-Request-Id is always sent",
        ("upgrade", "$http_upgrade") => "upgrades such as WebSocket are always forwarded",
        ("connection", _) => "upgrades and kept connections need no setting",
        _ => return None,
    })
}

/// Why a header is the gateway's own business.
fn is_own(name: &str) -> Option<&'static str> {
    is_framing(name).then_some("the gateway frames messages and manages connections itself").or_else(|| {
        ["host", "x-request-id", "traceparent", "tracestate"]
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own))
            .then_some(())?;
        (!name.eq_ignore_ascii_case("host")).then_some("the gateway writes this header itself")
    })
}

fn is_framing(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let framing = [
        "content-length",
        "transfer-encoding",
        "connection",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "keep-alive",
    ];
    framing.contains(&name.as_str()) || name.starts_with("proxy-")
}
