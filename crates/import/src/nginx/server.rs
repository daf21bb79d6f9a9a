//! The routes of servers: for each listener the servers by their names, and in each the locations.

use super::access::Lists;
use super::action::{Action, action, permanent_rewrite, returned};
use super::checks;
use super::conditions::{Condition, condition, methods};
use super::context::{Context, Scope};
use super::headers::response_headers;
use super::limits::Limits;
use super::listen::Listener;
use super::location::{Location, ordered};
use super::names::{order, server_names};
use super::parse::Directive;
use super::template::Variables;
use super::units::{name, size, unused};
use super::upstream::Upstreams;
use crate::accepted;
use crate::yaml::{Node, list, map, text};

/// nginx refuses larger bodies unless `client_max_body_size` says otherwise.
pub(super) const MAX_BODY: &str = "1MiB";

/// What the routes of all servers add to.
pub(super) struct Sections<'a> {
    pub(super) limits: Limits<'a>,
    pub(super) upstreams: Upstreams<'a>,
    pub(super) lists: Lists,
    pub(super) routes: Vec<(String, Node)>,
}

/// Adds the routes of all listeners.
///
/// # Errors
/// A server would have too many routes.
pub(super) fn routes<'a>(
    listeners: &[Listener<'a>],
    servers: &[(&'a Directive, Scope<'a>)],
    sections: &mut Sections<'a>,
    cx: &mut Context,
) -> Result<(), String> {
    let names: Vec<_> = servers.iter().map(|(_, scope)| server_names(scope, cx)).collect();
    let same = |a: &Listener<'_>, b: &Listener<'_>| {
        a.servers == b.servers && a.default == b.default && a.tls == b.tls && a.closed == b.closed
    };
    let one = listeners.iter().all(|listener| same(listener, &listeners[0]));
    for listener in listeners.iter().take(if one { 1 } else { listeners.len() }) {
        for number in listener.servers.iter().filter(|number| **number != listener.default) {
            if names[*number].hosts.is_empty() {
                let why =
                    "no request reaches it: it has no name, and is not the default server of its address";
                cx.ignored(servers[*number].0, why);
            }
        }
        for (number, hosts, lost) in order(listener, &names) {
            let (server, scope) = &servers[number];
            let mut place = map();
            if !one {
                place.insert("listener", text(&listener.name));
            }
            if !hosts.is_empty() {
                place.insert("host", list(hosts));
            }
            let prefix = names[number].first.clone();
            let closed = lost || listener.closed.contains(&number);
            let server = Server { directive: server, scope, place, prefix, tls: listener.tls, closed };
            if lost {
                cx.unsupported(
                    server.directive,
                    "a name of it is left out: hosts that may have it are denied",
                );
                answer_all(&server, denied(), &Variables::of(scope, "", None), sections, cx);
                continue;
            }
            let others: Vec<_> = listener.servers.iter().filter(|other| **other != number).collect();
            let reached = |host: &str| {
                others.iter().all(|other| !names[**other].has(host))
                    && (number == listener.default || names[number].may_match(host))
            };
            server_routes(&server, &reached, sections, cx)?;
        }
    }
    Ok(())
}

/// The action of a route that denies everybody in place of what could not be converted.
fn denied() -> Action {
    let respond = map().with("status", text(403)).comment("not converted");
    Action { fields: vec![("respond".to_owned(), respond)], before_limits: true, ..Action::default() }
}

struct Server<'s, 'a> {
    directive: &'a Directive,
    scope: &'s Scope<'a>,
    /// The `match` of all of its routes.
    place: Node,
    prefix: String,
    tls: bool,
    /// All of its routes deny everybody, because something that it checks could not be converted.
    closed: bool,
}

/// Adds the routes of a server. `reached` says whether requests for a host come to it.
fn server_routes<'a>(
    server: &Server<'_, 'a>,
    reached: &dyn Fn(&str) -> bool,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) -> Result<(), String> {
    let variables = Variables::of(server.scope, &server.prefix, Some(server.tls));
    cx.converted(server.directive, "routes");
    let mut answer = None;
    for found in server.scope.own("if") {
        match condition(found, server.tls) {
            Some((Condition::Host(host), returns)) if !reached(&host) => {
                for directive in [found, returns] {
                    cx.ignored(directive, "no request for this host comes to its server");
                }
            }
            Some((Condition::Host(host), returns)) => {
                cx.converted(found, "a route for this host");
                let place = server.place.clone().with("host", text(&host));
                let action = returned(returns, server.scope, &variables, cx);
                answer_all(&Server { place, prefix: host, ..*server }, action, &variables, sections, cx);
            }
            Some((Condition::Always, returns)) if answer.is_none() => {
                cx.converted(found, "it holds for all requests of the listener");
                answer = Some(returned(returns, server.scope, &variables, cx));
            }
            Some((Condition::Never, returns)) => {
                for directive in [found, returns] {
                    cx.ignored(directive, "it holds for no request of the listener");
                }
            }
            None => by_method(server, &Location::rest(server.scope), found, &variables, sections, cx),
            Some((Condition::Always, _)) => {}
        }
    }
    let returns = || server.scope.own("return").into_iter().next();
    let answer = match answer {
        Some(answer) => Some(answer),
        None => match returns() {
            Some(found) => Some(returned(found, server.scope, &variables, cx)),
            None => permanent_rewrite(server.scope, &variables, cx),
        },
    };
    if let Some(answer) = answer {
        for location in server.scope.own("location") {
            cx.ignored(location, "its server answers all requests before");
        }
        before_limits(server.scope, cx);
        answer_all(server, answer, &variables, sections, cx);
        return Ok(());
    }
    for location in ordered(server.scope, cx)? {
        if location.closed {
            let node =
                route(server, &location, denied(), &Variables::of(&location.scope, "", None), sections, cx);
            push(server, &location.shown(), node, sections);
            continue;
        }
        let variables = Variables::of(&location.scope, &server.prefix, Some(server.tls));
        if location.directive.is_some() {
            for found in location.scope.own("if") {
                by_method(server, &location, found, &variables, sections, cx);
            }
        }
        let action = action(&location, &variables, &mut sections.upstreams, cx);
        if action.before_limits {
            before_limits(&location.scope, cx);
        }
        let shown = location.shown();
        let lost = action.lost;
        let node = route(server, &location, action, &variables, sections, cx);
        match (location.directive, lost) {
            (Some(directive), None) => cx.converted(directive, "a route"),
            (Some(directive), Some(why)) => {
                cx.unsupported(directive, format!("its route answers an error: {why}"))
            }
            (None, _) => {}
        }
        push(server, &shown, node, sections);
    }
    Ok(())
}

/// Adds the route of a server that answers all requests alike.
fn answer_all<'a>(
    server: &Server<'_, 'a>,
    action: Action,
    variables: &Variables,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) {
    let location = Location::rest(server.scope);
    let node = route(server, &location, action, variables, sections, cx);
    push(server, "", node, sections);
}

/// Says that a `return` answers before the limits of its block.
fn before_limits(scope: &Scope<'_>, cx: &mut Context) {
    for found in ["limit_req", "limit_conn"].iter().flat_map(|name| scope.own(name)) {
        cx.ignored(found, "`return` answers before nginx evaluates limits");
    }
}

/// Adds the route of an `if` that answers some methods.
fn by_method<'a>(
    server: &Server<'_, 'a>,
    location: &Location<'a>,
    found: &'a Directive,
    variables: &Variables,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) {
    let Some((methods, returns)) = methods(found) else { return };
    cx.converted(found, "a route for these methods");
    let action = returned(returns, &location.scope, variables, cx);
    let place = server.place.clone().with("methods", list(methods.iter().map(text)));
    let server = Server { place, prefix: server.prefix.clone(), ..*server };
    let node = route(&server, location, action, variables, sections, cx);
    push(&server, &format!("{} {}", location.shown(), methods.join(" ")), node, sections);
}

/// Adds a route under a name of its own.
fn push(server: &Server<'_, '_>, shown: &str, node: Node, sections: &mut Sections<'_>) {
    let mut wanted = name(&format!("{} {shown}", server.prefix));
    if server.prefix.is_empty() && shown.is_empty() {
        "default".clone_into(&mut wanted);
    }
    let taken = |name: &str| sections.routes.iter().any(|(known, _)| known == name);
    let name = unused(&wanted, &taken);
    sections.routes.push((name, node));
}

/// The fields of a route after its name.
fn route<'a>(
    server: &Server<'_, 'a>,
    location: &Location<'a>,
    action: Action,
    variables: &Variables,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) -> Node {
    let limited = !action.before_limits;
    let mut node = map();
    let place = server.place.clone().with_some("path", location.path());
    if !place.is_empty() {
        node.insert("match", place);
    }
    let checked = !action.harmless && checks::close(&location.scope, server.scope, server.tls, !limited, cx);
    let lists = match server.closed || location.closed || checked {
        true => sections.lists.closed(),
        false if limited => sections.lists.apply(&location.scope, cx),
        false => Vec::new(),
    };
    for (field, list) in lists {
        node.insert(field, list);
    }
    for (field, value) in action.fields {
        insert(&mut node, location, server.directive, &field, value, cx);
    }
    let scope = &location.scope;
    if limited {
        let applied = sections.limits.apply(scope, &server.prefix, cx);
        if !applied.names.is_empty() {
            node.insert("limits", list(applied.names));
            if let Some(status) = applied.status {
                insert(
                    &mut node,
                    location,
                    server.directive,
                    "reject",
                    map().with("status", text(status)),
                    cx,
                );
            }
        }
    }
    if let Some(changes) = response_headers(scope, variables, cx) {
        insert(&mut node, location, server.directive, "response_headers", changes, cx);
    }
    max_body(scope, &mut node, cx);
    let source = location.directive.map_or(&server.directive.source, |directive| &directive.source);
    node.source(source)
}

/// Adds a field that the gateway accepts.
fn insert(
    node: &mut Node,
    location: &Location<'_>,
    server: &Directive,
    field: &str,
    value: Node,
    cx: &mut Context,
) {
    let action = matches!(field, "upstream" | "respond" | "redirect");
    let checked = if field == "upstream" { Ok(()) } else { accepted::field(location.path(), field, &value) };
    match checked {
        Ok(()) => node.insert(field, value),
        Err(why) => {
            let directive = location.directive.unwrap_or(server);
            cx.unsupported(directive, format!("{field} of its route is left out: {why}"));
            if action {
                node.insert("respond", map().with("status", text(404)).comment("not converted"));
            }
        }
    }
}

fn max_body(scope: &Scope<'_>, node: &mut Node, cx: &mut Context) {
    let Some(found) = scope.last("client_max_body_size") else { return };
    match size(found.arg(0)).as_deref() {
        Some("0") => {
            cx.converted(found, "max_body of its routes: 1024GiB, in place of unlimited");
            node.insert("max_body", text("1024GiB"));
        }
        Some(MAX_BODY) => cx.converted(found, "max_body"),
        Some(size) => match accepted::field(None, "max_body", &text(size)) {
            Ok(()) => {
                cx.converted(found, format!("max_body: {size} of its routes"));
                node.insert("max_body", text(size));
            }
            Err(why) => cx.unsupported(found, why),
        },
        None => cx.unsupported(found, "it is not a size"),
    }
}
