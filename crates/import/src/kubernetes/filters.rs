//! Filters of an HTTPRoute.

use crate::fields::Field;
use crate::marks::Marks;
use crate::names::{escaped, literal};
use crate::report::Outcome;
use crate::sections::Route;
use crate::yaml::{Node, boolean, list, map, text};

/// Applies a filter to a route. Whether it could be converted, or can be left out: requests must not be forwarded without it
/// otherwise.
pub(super) fn apply(filter: &Field, prefix: Option<&str>, route: &mut Route, marks: &mut Marks) -> bool {
    if let Some(kind) = filter.get("type") {
        marks.converted(kind.number, "the kind of the filter");
    }
    match filter.text_of("type").unwrap_or_default() {
        "RequestHeaderModifier" => headers(filter, "requestHeaderModifier", "request_headers", route, marks),
        "ResponseHeaderModifier" => {
            headers(filter, "responseHeaderModifier", "response_headers", route, marks)
        }
        "RequestRedirect" => return redirect(filter, prefix, route, marks),
        "URLRewrite" => return rewrite(filter, prefix, route, marks),
        "CORS" => return cors(filter, route, marks),
        "RequestMirror" => {
            if let Some(field) = filter.get("requestMirror") {
                marks.unsupported(field.number, "requests are not copied");
            }
        }
        _ => return false,
    }
    true
}

fn headers(filter: &Field, name: &str, section: &str, route: &mut Route, marks: &mut Marks) {
    for (change, field) in filter.get(name).map(Field::entries).unwrap_or_default() {
        marks.all(field, Outcome::Converted, &format!("{section}.{change}"));
        if change == "remove" {
            field.texts().into_iter().for_each(|header| route.header(section, change, header, None));
        }
        for item in field.items().iter().filter(|_| matches!(change.as_str(), "set" | "add")) {
            if let (Some(header), Some(value)) = (item.text_of("name"), item.text_of("value")) {
                route.header(section, change, header, Some(text(literal(value))));
            }
        }
    }
}

fn redirect(filter: &Field, prefix: Option<&str>, route: &mut Route, marks: &mut Marks) -> bool {
    let Some(field) = filter.get("requestRedirect") else { return false };
    marks.all(field, Outcome::Converted, "redirect");
    let scheme = field.text_of("scheme").unwrap_or("{scheme}");
    let host = field.text_of("hostname").unwrap_or("{host}");
    let port = match field.text_of("port") {
        Some("80") if scheme == "http" => String::new(),
        Some("443") if scheme == "https" => String::new(),
        Some(port) => format!(":{port}"),
        None => String::new(),
    };
    let path = match field.get("path") {
        None => "{path}".to_owned(),
        Some(path) => match (path.text_of("replaceFullPath"), path.text_of("replacePrefixMatch"), prefix) {
            (Some(full), _, _) => literal(full),
            (None, Some(new), Some(_)) => {
                if let Some(field) = path.get("replacePrefixMatch") {
                    let said =
                        "redirect; the prefix alone is redirected to the new one with a slash at its end";
                    marks.approximated(field.number, said);
                }
                format!("{}/{{rest}}", literal(new.trim_end_matches('/')))
            }
            _ => return false,
        },
    };
    let to = match (scheme, host, port.as_str()) {
        ("{scheme}", "{host}", "") => path,
        (scheme, host, port) => format!("{scheme}://{host}{port}{path}"),
    };
    let status = field.text_of("statusCode").unwrap_or("302");
    route.action = Some(("redirect".to_owned(), map().with("status", text(status)).with("to", text(to))));
    true
}

fn rewrite(filter: &Field, prefix: Option<&str>, route: &mut Route, marks: &mut Marks) -> bool {
    let Some(field) = filter.get("urlRewrite") else { return false };
    if let Some(host) = field.get("hostname") {
        marks.converted(host.number, "request_headers.set.Host");
        route.header("request_headers", "set", "Host", host.text().map(text));
    }
    let Some(path) = field.get("path") else { return true };
    let node = match (path.text_of("replaceFullPath"), path.text_of("replacePrefixMatch"), prefix) {
        (Some(full), _, _) => text(literal(full)),
        (None, Some(new), Some(prefix)) => replaced(prefix, new),
        _ => return false,
    };
    marks.all(path, Outcome::Converted, "rewrite");
    route.set("rewrite", node);
    true
}

/// A prefix that is replaced by another one; a slash between it and the rest stays one slash.
pub(super) fn replaced(prefix: &str, new: &str) -> Node {
    let new = new.trim_end_matches('/');
    let dollars = new.replace('$', "$$");
    let (pattern, to) = match (prefix.is_empty(), new.is_empty()) {
        (_, true) => (format!("^{}/?", escaped(prefix)), "/".to_owned()),
        (true, false) => ("^/?".to_owned(), format!("{dollars}/")),
        (false, false) => (format!("^{}", escaped(prefix)), dollars),
    };
    map().with("match", text(pattern)).with("to", text(to))
}

fn cors(filter: &Field, route: &mut Route, marks: &mut Marks) -> bool {
    let Some(field) = filter.get("cors") else { return false };
    marks.all(field, Outcome::Converted, "cors");
    let mut node = map();
    for (key, target) in [
        ("allowOrigins", "origins"),
        ("allowMethods", "methods"),
        ("allowHeaders", "headers"),
        ("exposeHeaders", "expose"),
    ] {
        let values = field.get(key).map(Field::texts).unwrap_or_default();
        match values.as_slice() {
            [] => {}
            ["*"] if target == "origins" => node.insert(target, text("*")),
            ["*"] => {} // the default: what is asked for
            values => node.insert(target, list(values.iter().map(text))),
        }
    }
    if field.is_true("allowCredentials") {
        node.insert("credentials", boolean(true));
    }
    if let Some(seconds) = field.text_of("maxAge") {
        node.insert("max_age", text(format!("{seconds}s")));
    }
    route.set("cors", node);
    true
}
