//! The routes of servers: for each listener the servers by their names, and in each the locations.

use super::access::Lists;
use super::action::{Action, action, is_redirect, returned};
use super::checks;
use super::conditions::{Condition, Methods, condition, excepted, methods};
use super::context::{Context, Scope};
use super::headers::response_headers;
use super::limits::Limits;
use super::listen::Listener;
use super::location::{Location, ordered};
use super::names::{order, server_names};
use super::parse::Directive;
use super::rewrite::redirected;
use super::template::Variables;
use super::units::{name, size, unused};
use super::upstream::Upstreams;
use crate::accepted;
use crate::yaml::{Node, list, map, text};

/// nginx refuses larger bodies unless `client_max_body_size` says otherwise.
pub(super) const MAX_BODY: &str = "1MiB";

/// What the report says of an `if` that the listener decides.
const ALWAYS: &str = "it holds for all requests of the listener";
const NEVER: &str = "it holds for no request of the listener";

/// What the routes of all servers add to.
pub(super) struct Sections<'a> {
    pub(super) limits: Limits<'a>,
    pub(super) upstreams: Upstreams<'a>,
    pub(super) lists: Lists<'a>,
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
                answer_all(&server, denied(), sections, cx);
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

/// The action of a route for which nothing is left that serves it.
fn absent() -> Action {
    Action { fields: vec![("respond".to_owned(), map().with("status", text(404)))], ..Action::default() }
}

#[derive(Clone)]
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

/// What answers the requests of a place that its routes leave.
type Rest = Vec<(Node, Action)>;

/// Adds the routes of a server. `reached` says whether requests for a host come to it.
fn server_routes<'a>(
    server: &Server<'_, 'a>,
    reached: &dyn Fn(&str) -> bool,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) -> Result<(), String> {
    let mut server = server.clone();
    let variables = Variables::of(server.scope, &server.prefix, server.tls);
    cx.converted(server.directive, "routes");
    let (mut answer, mut rest) = (None, Rest::new());
    for found in server.scope.own("if") {
        let (condition, returns) = match condition(found, server.tls) {
            Some(known) => known,
            None => {
                let location = Location::rest(server.scope);
                by_method(&mut server, &location, found, &mut rest, sections, cx);
                continue;
            }
        };
        let says = match condition {
            Condition::Host(host) if !reached(&host) => "no request for this host comes to its server",
            Condition::Host(host) => {
                cx.converted(found, "a route for this host");
                let place = server.place.clone().with("host", text(&host));
                let action = returned(returns, server.scope, &variables, cx);
                answer_all(&Server { place, prefix: host, ..server.clone() }, action, sections, cx);
                continue;
            }
            Condition::NotHosts(hosts) => {
                cx.converted(
                    found,
                    "the routes of its server are for these hosts, and a route after them for others",
                );
                let action = returned(returns, server.scope, &variables, cx);
                let hosts: Vec<_> = hosts.iter().filter(|host| reached(host)).map(text).collect();
                if hosts.is_empty() {
                    answer = answer.or(Some(action));
                } else {
                    rest.push((server.place.clone(), action));
                    server.place.insert("host", list(hosts));
                }
                continue;
            }
            Condition::Always => {
                if answer.is_none() {
                    cx.converted(found, ALWAYS);
                    answer = Some(returned(returns, server.scope, &variables, cx));
                }
                continue;
            }
            Condition::Never => NEVER,
        };
        for directive in [found, returns] {
            cx.ignored(directive, says);
        }
    }
    let returns = server.scope.own("return").into_iter().next();
    let answer = answer.or_else(|| returns.map(|found| returned(found, server.scope, &variables, cx)));
    let answer =
        answer.or_else(|| redirects(&server, &Location::rest(server.scope), &variables, sections, cx));
    if let Some(answer) = answer {
        for location in server.scope.own("location") {
            cx.ignored(location, "its server answers all requests before");
        }
        before_limits(server.scope, cx);
        answer_all(&server, answer, sections, cx);
    } else {
        for location in ordered(server.scope, cx)? {
            location_routes(&server, &location, sections, cx);
        }
    }
    add_rest(&server, &Location::rest(server.scope), rest, sections, cx);
    Ok(())
}

/// Adds the routes of a location: its own, and those of what it answers in other ways.
fn location_routes<'a>(
    server: &Server<'_, 'a>,
    location: &Location<'a>,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) {
    let variables = Variables::of(&location.scope, &server.prefix, server.tls);
    let shown = location.shown();
    if location.closed {
        let node = route(server, location, denied(), sections, cx);
        push(server, &shown, node, sections);
        return;
    }
    let (mut own, mut rest, mut answer) = (server.clone(), Rest::new(), None);
    if location.directive.is_some() {
        for found in location.ifs() {
            match condition(found, server.tls) {
                Some((Condition::Always, returns)) => {
                    cx.converted(found, ALWAYS);
                    answer = Some(returned(returns, &location.scope, &variables, cx));
                    break;
                }
                Some((Condition::Never, returns)) => {
                    [found, returns].into_iter().for_each(|directive| cx.ignored(directive, NEVER));
                }
                _ => by_method(&mut own, location, found, &mut rest, sections, cx),
            }
        }
        answer = answer.or_else(|| redirects(&own, location, &variables, sections, cx));
    }
    let action = answer.unwrap_or_else(|| action(location, &variables, &mut sections.upstreams, cx));
    if action.before_limits {
        before_limits(&location.scope, cx);
    }
    let lost = action.lost;
    let excepts = location.directive.and_then(|_| location.scope.own("limit_except").pop());
    if let Some((found, methods)) = excepts.and_then(|found| Some((found, excepted(found)?))) {
        cx.converted(found, "a route for these methods, and one after it for others, with these rules");
        let others = own.place.clone();
        own.place = of_methods(own.place, &methods).unwrap_or_else(|| others.clone());
        // For other methods, nginx does not run the `return` and `rewrite` of the location.
        let other = if action.before_limits { absent() } else { action.clone() };
        let node = route(&own, location, action, sections, cx);
        push(server, &shown, node, sections);
        let closed = checks::close(location, server.scope, server.tls, false, &sections.lists, cx);
        let scope = location.scope.within(found.children());
        let location = Location { scope, closed, ..location.clone() };
        let node = route(&Server { place: others, ..own }, &location, other, sections, cx);
        push(server, &format!("{shown} other methods"), node, sections);
    } else {
        let node = route(&own, location, action, sections, cx);
        push(server, &shown, node, sections);
    }
    match (location.directive, lost) {
        (Some(directive), None) => cx.converted(directive, "a route"),
        (Some(directive), Some(why)) => {
            cx.unsupported(directive, format!("its route answers an error: {why}"))
        }
        (None, _) => {}
    }
    add_rest(server, location, rest, sections, cx);
}

/// Adds the routes of each `rewrite` that redirects, and returns the redirect for all paths that are left.
fn redirects<'a>(
    server: &Server<'_, 'a>,
    location: &Location<'a>,
    variables: &Variables,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) -> Option<Action> {
    for rewrite in location.scope.own("rewrite").into_iter().filter(|rewrite| is_redirect(rewrite)) {
        match redirected(rewrite, &location.kind, variables, cx) {
            Ok((None, action)) => return Some(action),
            Ok((Some(kind), action)) => match location.part(kind) {
                Some(part) => {
                    let node = route(server, &part, action, sections, cx);
                    push(server, &format!("{} redirect", part.shown()), node, sections);
                }
                None => cx
                    .unsupported(rewrite, "its location is inside of an expression: use redirect of a route"),
            },
            Err(why) => cx.unsupported(rewrite, format!("left out: {why}")),
        }
    }
    None
}

/// Adds the routes for what is left, the last first: it is for the fewest requests.
fn add_rest<'a>(
    server: &Server<'_, 'a>,
    location: &Location<'a>,
    rest: Rest,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) {
    for (place, action) in rest.into_iter().rev() {
        let node = route(&Server { place, ..server.clone() }, location, action, sections, cx);
        push(server, &format!("{} others", location.shown()), node, sections);
    }
}

/// Adds the route of a server that answers all requests alike.
fn answer_all<'a>(server: &Server<'_, 'a>, action: Action, sections: &mut Sections<'a>, cx: &mut Context) {
    let node = route(server, &Location::rest(server.scope), action, sections, cx);
    push(server, "", node, sections);
}

/// Says that a `return` answers before the limits of its block.
fn before_limits(scope: &Scope<'_>, cx: &mut Context) {
    for found in ["limit_req", "limit_conn"].iter().flat_map(|name| scope.own(name)) {
        cx.ignored(found, "`return` answers before nginx evaluates limits");
    }
}

/// Adds the route of an `if` that answers some methods. One that answers all other methods makes the place smaller.
fn by_method<'a>(
    server: &mut Server<'_, 'a>,
    location: &Location<'a>,
    found: &'a Directive,
    rest: &mut Rest,
    sections: &mut Sections<'a>,
    cx: &mut Context,
) {
    let Some(Methods { all, others, returns }) = methods(found) else { return };
    let variables = Variables::of(&location.scope, &server.prefix, server.tls);
    let action = returned(returns, &location.scope, &variables, cx);
    let Some(place) = of_methods(server.place.clone(), &all) else {
        let says = "no request with such a method comes here, because of an `if` before it";
        [found, returns].into_iter().for_each(|directive| cx.ignored(directive, says));
        return;
    };
    if others {
        cx.converted(found, "the routes here are for these methods, and a route after them for others");
        rest.push((std::mem::replace(&mut server.place, place), action));
        return;
    }
    cx.converted(found, "a route for these methods");
    let node = route(&Server { place, ..server.clone() }, location, action, sections, cx);
    push(server, &format!("{} {}", location.shown(), all.join(" ")), node, sections);
}

/// A place for some methods only; `None` if it has none of them.
fn of_methods(place: Node, methods: &[String]) -> Option<Node> {
    let known = place.clone().into_entries().into_iter().find(|(field, _)| field == "methods");
    let methods = methods.iter().map(text);
    let kept: Vec<_> = match known.map(|(_, known)| known.into_items()) {
        Some(known) => methods.filter(|method| known.contains(method)).collect(),
        None => methods.collect(),
    };
    (!kept.is_empty()).then(|| place.with("methods", list(kept)))
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
    sections: &mut Sections<'a>,
    cx: &mut Context,
) -> Node {
    let variables = Variables::of(&location.scope, &server.prefix, server.tls);
    let limited = !action.before_limits;
    let mut node = map();
    let place = server.place.clone().with_some("path", location.path());
    if !place.is_empty() {
        node.insert("match", place);
    }
    let checked =
        !action.harmless && checks::close(location, server.scope, server.tls, !limited, &sections.lists, cx);
    let lists = if server.closed || location.closed || checked {
        sections.lists.closed()
    } else {
        let lists = if limited { sections.lists.apply(&location.scope, cx) } else { Vec::new() };
        sections.lists.with_geos(lists, server.scope, location, cx)
    };
    for (field, list) in lists {
        node.insert(field, list);
    }
    for (field, value) in action.fields {
        insert(&mut node, location, server.directive, &field, value, cx);
    }
    let scope = &location.scope;
    let (mut lost, mut has_limits) = (Vec::new(), false);
    if limited {
        let applied = sections.limits.apply(scope, &server.prefix, cx);
        lost.extend(applied.lost);
        has_limits = !applied.names.is_empty();
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
    if let Some(changes) = response_headers(scope, &variables, cx) {
        insert(&mut node, location, server.directive, "response_headers", changes, cx);
    }
    max_body(scope, &mut node, cx);
    let place = location.directive.unwrap_or(server.directive);
    let node = node.source(&place.source);
    if lost.is_empty() {
        return node;
    }
    let now = if has_limits { "has fewer limits now" } else { "has no limit now" };
    let those: Vec<_> = lost.iter().map(|limit| format!("`{}` of {}", limit.shown(), limit.source)).collect();
    let those = those.join(" and ");
    cx.open(place, format!("this {} {now}: {those} could not be converted", place.name));
    node.comment(format!("it {now}: {those} could not be converted"))
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
    // What does not depend on the path is checked once for all routes that have the same.
    let path = || location.path().filter(|_| matches!(field, "redirect" | "rewrite" | "strip_prefix"));
    let checked = if field == "upstream" { Ok(()) } else { accepted::field(path(), field, &value) };
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
