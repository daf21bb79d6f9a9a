//! `proxy_set_header`, `add_header` and their relatives.

use super::context::{Context, Scope};
use super::listen::has_unusual_port;
use super::parse::Directive;
use super::template::Variables;
use crate::accepted;
use crate::report::Source;
use crate::yaml::{Node, list, map, text};

/// The changes of one kind that are found so far; each is one that the gateway accepts.
struct Changes {
    field: &'static str,
    remove: Vec<(String, Node)>,
    write: Vec<(String, Node)>,
}

impl Changes {
    const fn new(field: &'static str) -> Self {
        Self { field, remove: Vec::new(), write: Vec::new() }
    }

    /// Removes a header.
    ///
    /// # Errors
    /// Why the gateway does not.
    fn remove(&mut self, name: &str, source: &Source) -> Result<(), String> {
        accepted::field(None, self.field, &map().with("remove", list([text(name)])))?;
        self.write.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if !self.remove.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            self.remove.push((name.to_owned(), text(name).source(source)));
        }
        Ok(())
    }

    /// Sets or adds a header.
    ///
    /// # Errors
    /// Why the gateway does not.
    fn write(&mut self, how: &str, name: &str, value: &str, source: &Source) -> Result<(), String> {
        accepted::field(None, self.field, &map().with(how, map().with(name, text(value))))?;
        self.write.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.write.push((name.to_owned(), text(value).source(source)));
        Ok(())
    }

    fn node(self, how: &str) -> Option<Node> {
        let remove = list(self.remove.into_iter().map(|(_, node)| node));
        let write = self.write.into_iter().fold(map(), |all, (name, value)| all.with(name, value));
        let given = [("remove", remove), (how, write)].into_iter().filter(|(_, node)| !node.is_empty());
        let node = given.fold(map(), |node, (name, part)| node.with(name, part));
        (!node.is_empty()).then_some(node)
    }
}

/// The changes of requests. `host` is what nginx sends as Host unless it is set.
pub(super) fn request_headers(
    scope: &Scope<'_>,
    prefix: &str,
    host: &str,
    variables: &Variables,
    cx: &mut Context,
) -> Option<Node> {
    let mut changes = Changes::new("request_headers");
    let mut has_host = false;
    // Another header names the client, so that the gateway does not add it to X-Forwarded-For.
    let is_other = scope.last("set_real_ip_from").is_some()
        && !scope
            .last("real_ip_header")
            .is_some_and(|header| header.arg(0).eq_ignore_ascii_case("x-forwarded-for"));
    for header in scope.all(&format!("{prefix}_set_header")) {
        let (name, value) = (header.arg(0), header.arg(1));
        has_host |= name.eq_ignore_ascii_case("host");
        if value.is_empty() {
            match is_own(name) {
                Some(why) => cx.ignored(header, why),
                None => match changes.remove(name, &header.source) {
                    Ok(()) => cx.converted(header, "request_headers.remove"),
                    Err(why) => cx.unsupported(header, format!("left out: {why}")),
                },
            }
        } else if is_other
            && name.eq_ignore_ascii_case("x-forwarded-for")
            && value == "$proxy_add_x_forwarded_for"
            && changes.write("set", name, "{client_ip}", &header.source).is_ok()
        {
            cx.approximated(
                header,
                "X-Forwarded-For is the client alone; nginx adds it to what the request has there",
            );
        } else if name.eq_ignore_ascii_case("host") && value == "$host" && !has_unusual_port(scope) {
            cx.converted(header, "Host is forwarded");
        } else if let Some(why) = is_sent_anyway(name, value) {
            cx.converted(header, why);
        } else if let Some(why) = is_own(name) {
            cx.ignored(header, why);
        } else {
            let set = variables
                .template(value)
                .map_err(|variable| format!("there is no equivalent of ${variable}"))
                .and_then(|value| changes.write("set", name, &value, &header.source));
            match set.map_err(|why| (why, changes.remove(name, &header.source))) {
                Ok(()) => cx.converted(header, "request_headers.set"),
                // nginx replaces what the client says, so that the server can rely on it.
                Err((why, Ok(()))) => cx.unsupported(
                    header,
                    format!("{why}, so the header is removed from requests (request_headers.remove)"),
                ),
                Err((why, Err(_))) => cx.unsupported(header, format!("left out: {why}")),
            }
        }
    }
    let off = scope.last(&format!("{prefix}_pass_request_headers")).filter(|found| found.arg(0) == "off");
    if let Some(off) = off {
        let removed = ["Authorization", "Cookie"].map(|name| changes.remove(name, &off.source));
        cx.unsupported(
            off,
            match removed.iter().all(Result::is_ok) {
                true => "Authorization and Cookie are removed from requests; name the others that the server must not see in request_headers.remove",
                false => "headers are forwarded: name those that the server must not see in request_headers.remove",
            },
        );
    }
    if !has_host && !host.is_empty() {
        cx.report.note(
            "without proxy_set_header Host, nginx sends the name in proxy_pass as Host, and so do these routes (request_headers.set.Host). \
             Remove that line where the server should see the client's Host",
        );
        changes.write.push(("Host".to_owned(), text(host)));
    }
    changes.node("set")
}

/// The changes of answers. A `Content-Type` is left to the caller.
pub(super) fn response_headers(scope: &Scope<'_>, variables: &Variables, cx: &mut Context) -> Option<Node> {
    let mut changes = Changes::new("response_headers");
    for header in scope.all("proxy_hide_header") {
        match changes.remove(header.arg(0), &header.source) {
            Ok(()) => cx.converted(header, "response_headers.remove"),
            Err(why) => cx.unsupported(header, format!("left out: {why}")),
        }
    }
    for header in scope.all("add_header") {
        let (name, value) = (header.arg(0), header.arg(1));
        if name.eq_ignore_ascii_case("content-type") {
            continue;
        }
        if value.is_empty() {
            cx.ignored(header, "nginx does not send a header without a value");
            continue;
        }
        if changes.write.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            cx.unsupported(header, "left out: the gateway adds a header once");
            continue;
        }
        let added = variables
            .template(value)
            .map_err(|variable| format!("there is no equivalent of ${variable}"))
            .and_then(|value| changes.write("add", name, &value, &header.source));
        match (added, header.arg(2)) {
            (Err(why), _) => cx.unsupported(header, format!("left out: {why}")),
            (Ok(()), "always") => cx.converted(header, "response_headers.add"),
            (Ok(()), _) => cx.approximated(header, "response_headers.add, to all answers; without `always`, nginx adds it to those of 2xx and 3xx"),
        }
    }
    changes.node("add")
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

/// Whether the gateway sends this header with this value by itself.
fn is_sent_anyway(name: &str, value: &str) -> Option<&'static str> {
    Some(match (name.to_ascii_lowercase().as_str(), value) {
        ("host", "$http_host" | "$host:$server_port" | "$http_host:$server_port") => "Host is forwarded",
        ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$http_x_forwarded_for") => {
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
