//! nginx.conf, from a file with what it includes, or the output of `nginx -T`.
//!
//! `lexer`, `parse` and `load` read the directives; `context` has what is in force where, and what became of each; `units`, `remainder`,
//! `template` and `key` convert values; `limits`, `upstream`, `access`, `protection`, `checks`, `listen`, `names`, `headers`, `location`, `conditions`, `rewrite`, `action` and `server` convert
//! the parts; `known` explains the rest.

mod access;
mod action;
mod checks;
mod conditions;
mod context;
mod headers;
mod key;
mod known;
mod lexer;
mod limits;
mod listen;
mod load;
mod location;
mod names;
mod parse;
mod protection;
mod remainder;
mod rewrite;
mod server;
mod template;
mod units;
mod upstream;

pub use self::parse::{Block, Directive, ParseError, parse};

use self::access::{Lists, client_ip};
use self::context::{Context, Scope};
use self::limits::Limits;
use self::listen::{listeners, section};
use self::load::{Dump, load};
use self::server::{MAX_BODY, Sections, routes};
use self::upstream::Upstreams;
use crate::accepted;
use crate::files::Files;
use crate::report::Imported;
use crate::yaml::{Node, list, map, text};

/// Converts a configuration of nginx. `path` is its first file.
///
/// # Errors
/// The first mistake of a file, with its line and a caret; or why the first file cannot be read.
pub fn import(files: &dyn Files, path: &str) -> Result<Imported, String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    converted(&load(files, path)?, path, folder)
}

/// Converts the text of one file, or the output of `nginx -T`. What one file includes is read by `files`.
///
/// # Errors
/// The first mistake, with its line and a caret.
pub fn import_text(files: &dyn Files, path: &str, text: &str) -> Result<Imported, String> {
    match Dump::of(text) {
        Some(dump) => import(&dump, dump.first()),
        None => import(&First { files, path, text }, path),
    }
}

/// A text as the first file.
struct First<'a> {
    files: &'a dyn Files,
    path: &'a str,
    text: &'a str,
}

impl Files for First<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        if path == self.path { Ok(self.text.to_owned()) } else { self.files.read(path) }
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        self.files.glob(pattern)
    }
}

fn converted(directives: &[Directive], path: &str, folder: &str) -> Result<Imported, String> {
    let top = Scope::top(directives);
    let mut cx = Context::default();
    let blocks = top.own("http");
    let Some(block) = blocks.first() else {
        return Err(format!(
            "{path}: there is no block `http` in it\n  help: import the file that includes it, usually nginx.conf\n"
        ));
    };
    let http = top.within(block.children());
    let servers: Vec<_> =
        http.own("server").into_iter().map(|server| (server, http.within(server.children()))).collect();
    if servers.is_empty() {
        return Err(format!(
            "{path}: there is no block `server` in its block `http`, nor in what it includes\n"
        ));
    }
    let listeners = listeners(&servers, &mut cx);
    if listeners.is_empty() {
        return Err(format!(
            "{path}: none of its servers listens on an address that the gateway can listen on\n"
        ));
    }
    let scopes: Vec<_> = servers.iter().map(|(_, scope)| scope.clone()).collect();
    let mut sections = Sections {
        limits: Limits::of(&http, &mut cx),
        upstreams: Upstreams::of(&http),
        lists: Lists::of(&http),
        routes: Vec::new(),
    };
    routes(&listeners, &servers, &mut sections, &mut cx).map_err(|why| format!("{path}: {why}\n"))?;
    let listen = section(&listeners, &servers, folder, &mut cx);
    cx.report.note(
        "a path with %2F is answered 400; nginx forwards it. encoded_slash: kept on a route forwards it, too, as GitLab and npm need it",
    );
    let client_ip = client_ip(&http, &scopes, &mut cx);
    let timeouts = timeouts(&http, &scopes, &mut cx);
    let Sections { limits, upstreams, lists, routes } = sections;
    let routes = routes.into_iter().map(|(name, node)| named(&name, node));
    let file = map()
        .with("listen", listen)
        .with("client_ip", client_ip)
        .with("max_body", text(MAX_BODY).comment("the default of nginx"))
        .with_some("response_headers", response_headers(&http, &scopes, &mut cx))
        .with("timeouts", timeouts)
        .with("lists", lists.finish())
        .with("limits", limits.finish(&mut cx))
        .with("upstreams", upstreams.finish(&mut cx))
        .with("routes", list(routes.collect::<Vec<_>>()).block());
    let comment = format!(
        "Converted from {path} by `sluicegate import nginx`. Comments name the lines that parts come from."
    );
    let yaml = file.file(&[comment]);
    let report = cx.finish(directives, &known::rest);
    Ok(Imported { yaml, report })
}

/// A route with its name first.
fn named(name: &str, node: Node) -> Node {
    let comment = node.comment_text();
    let node = node
        .into_entries()
        .into_iter()
        .fold(map().with("name", text(name)), |node, (key, value)| node.with(key, value));
    match comment {
        Some(comment) => node.comment(comment).block(),
        None => node.block(),
    }
}

/// With `server_tokens off`, nobody reads the versions of the servers either: nginx replaces their header Server by its own.
fn response_headers(http: &Scope<'_>, servers: &[Scope<'_>], cx: &mut Context) -> Option<Node> {
    let all = std::iter::once(http).chain(servers).flat_map(|scope| scope.own("server_tokens"));
    let off: Vec<_> = all.filter(|found| found.arg(0) == "off").collect();
    for found in &off {
        cx.converted(found, "response_headers.remove: Server of the servers is not forwarded; the gateway has none of its own");
    }
    let first = off.first()?;
    Some(map().with("remove", list([text("Server")])).source(&first.source))
}

/// The timeouts for clients.
fn timeouts(http: &Scope<'_>, servers: &[Scope<'_>], cx: &mut Context) -> Node {
    let fields = [
        ("client_header_timeout", "head"),
        ("client_body_timeout", "body"),
        ("keepalive_timeout", "idle"),
        ("send_timeout", "write"),
    ];
    let mut node = map();
    for (name, field) in fields {
        for found in servers.iter().flat_map(|server| server.own(name)) {
            cx.approximated(found, format!("the gateway has one timeouts.{field}, that of the block http"));
        }
        let Some(found) = http.last(name) else { continue };
        match units::time(found.arg(0)).filter(|time| time != "0s") {
            Some(time) => match accepted::top_field("timeouts", &map().with(field, text(&time))) {
                Ok(()) => {
                    cx.converted(found, format!("timeouts.{field}"));
                    node.insert(field, text(time).source(&found.source));
                }
                Err(why) => cx.unsupported(found, why),
            },
            None => cx.unsupported(found, "it is not a time; the gateway always has timeouts"),
        }
    }
    node
}
