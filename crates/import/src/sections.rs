//! The sections of a gateway.yaml while an importer collects them. What `sluicegate check` would refuse is not added.

use crate::accepted;
use crate::names::{name, unused};
use crate::report::Source;
use crate::yaml::{Node, list, map, text};

/// The parts of the file.
#[derive(Default)]
pub(crate) struct Sections {
    pub(crate) listen: Vec<Node>,
    /// Other fields at the top.
    pub(crate) top: Vec<(String, Node)>,
    lists: Named,
    limits: Named,
    upstreams: Named,
    routes: Named,
}

type Named = Vec<(String, Node)>;

/// A route that is to be added.
#[derive(Clone, Default)]
pub(crate) struct Route {
    pub(crate) matches: Named,
    /// `upstream`, `respond` or `redirect`.
    pub(crate) action: Option<(String, Node)>,
    /// Its other fields.
    pub(crate) fields: Named,
    pub(crate) limits: Vec<Node>,
    pub(crate) source: Option<Source>,
    pub(crate) above: Vec<String>,
}

impl Route {
    /// Sets a field; another one of the same name is replaced.
    pub(crate) fn set(&mut self, name: &str, node: Node) {
        self.fields.retain(|(known, _)| known != name);
        self.fields.push((name.to_owned(), node));
    }

    pub(crate) fn forward(&mut self, upstream: &str) {
        self.action = Some(("upstream".to_owned(), text(upstream)));
    }

    /// The same requests, answered 503: what is not converted must not be forwarded, and must not go to the routes after it.
    pub(crate) fn closed(&self) -> Self {
        let mut closed =
            Self { matches: self.matches.clone(), source: self.source.clone(), ..Self::default() };
        closed.above.push("not converted: the report says why, and what to do instead".to_owned());
        closed.respond(503);
        closed
    }

    pub(crate) fn respond(&mut self, status: u16) {
        self.action = Some(("respond".to_owned(), map().with("status", text(status))));
    }

    /// Adds a change of headers to `request_headers` or `response_headers`: `set`, `add` or `remove`.
    pub(crate) fn header(&mut self, section: &str, change: &str, header: &str, value: Option<Node>) {
        let mut changes = match self.fields.iter().find(|(known, _)| known == section) {
            Some((_, node)) => node.clone().into_entries(),
            None => Vec::new(),
        };
        if !changes.iter().any(|(known, _)| known == change) {
            changes.push((change.to_owned(), if value.is_some() { map() } else { list([]) }));
        }
        let changed = changes.into_iter().fold(map(), |node, (known, inner)| {
            let inner = match &value {
                _ if known != change => inner,
                Some(value) => inner.with(header, value.clone()),
                None => inner.and(text(header)),
            };
            node.with(known, inner)
        });
        self.set(section, changed);
    }
}

impl Sections {
    /// Adds a limit, or finds one that is the same, and returns its name.
    ///
    /// # Errors
    /// The message of `sluicegate check`.
    pub(crate) fn limit(&mut self, wanted: &str, node: Node) -> Result<String, String> {
        let top = map().with("limits", map().with("l", node.clone())).with("lists", section(&self.lists));
        accepted::route(top, map().with("respond", map()).with("limits", list([text("l")])))?;
        Ok(add(&mut self.limits, wanted, node))
    }

    /// Adds an upstream, or finds one that is the same, and returns its name.
    ///
    /// # Errors
    /// The message of `sluicegate check`.
    pub(crate) fn upstream(&mut self, wanted: &str, node: Node) -> Result<String, String> {
        accepted::route(
            map().with("upstreams", map().with("u", node.clone())),
            map().with("upstream", text("u")),
        )?;
        Ok(add(&mut self.upstreams, wanted, node))
    }

    /// Adds a list of addresses, or finds one that is the same, and returns its name.
    ///
    /// # Errors
    /// The message of `sluicegate check`.
    pub(crate) fn list(&mut self, wanted: &str, networks: &[String]) -> Result<String, String> {
        let node = list(networks.iter().map(text));
        let route = map().with("respond", map()).with("allow", list([text("l")]));
        accepted::route(map().with("lists", map().with("l", node.clone())), route)?;
        Ok(add(&mut self.lists, wanted, node))
    }

    /// Adds a field at the top.
    ///
    /// # Errors
    /// The message of `sluicegate check`.
    pub(crate) fn top(&mut self, field: &str, node: Node) -> Result<(), String> {
        accepted::top_field(field, &node)?;
        self.top.push((field.to_owned(), node));
        Ok(())
    }

    /// Adds a route. Fields that the gateway does not accept are left out, and returned with the reason.
    ///
    /// # Errors
    /// The message of `sluicegate check`, if a route without such a field would match or admit other requests.
    pub(crate) fn route(&mut self, wanted: &str, route: Route) -> Result<Vec<(String, String)>, String> {
        let mut lost = Vec::new();
        let matches = route.matches.iter().fold(map(), |node, (key, value)| node.with(key, value.clone()));
        let (action, target) =
            route.action.clone().unwrap_or(("respond".to_owned(), map().with("status", text(404))));
        let only = |fields: Node| {
            // A listener that the match names is not in this file.
            let matches = matches.clone().into_entries().into_iter().filter(|(key, _)| key != "listener");
            let matches = matches.fold(map(), |node, (key, value)| node.with(key, value));
            let top = map()
                .with("upstreams", map().with("u", map().with("servers", list([text("http://127.0.0.1:1")]))))
                .with("lists", section(&self.lists));
            let action_node = if action == "upstream" { text("u") } else { target.clone() };
            let route = fields
                .into_entries()
                .into_iter()
                .fold(map().with("match", matches).with(&action, action_node), |node, (key, value)| {
                    node.with(key, value)
                });
            accepted::route(top, route)
        };
        only(map())?;
        let mut node = map().with("name", text(""));
        if !matches.is_empty() {
            node.insert("match", matches.clone());
        }
        node.insert(&action, target.clone());
        for (field, value) in &route.fields {
            match only(map().with(field, value.clone())) {
                Ok(()) => node.insert(field, value.clone()),
                Err(message) if matches!(field.as_str(), "allow" | "deny" | "rewrite" | "strip_prefix") => {
                    return Err(message);
                }
                Err(message) => lost.push((field.clone(), message)),
            }
        }
        if !route.limits.is_empty() {
            node.insert("limits", list(route.limits));
        }
        let wanted = name(wanted);
        let name = unused(&wanted, &|name| self.routes.iter().any(|(known, _)| known == name));
        node.insert("name", text(&name));
        let node = route.above.iter().fold(node, |node, line| node.above(line));
        let node = match &route.source {
            Some(source) => node.source(source),
            None => node,
        };
        self.routes.push((name, node.block()));
        Ok(lost)
    }

    /// The text of the file.
    pub(crate) fn finish(mut self, command: &str, path: &str) -> String {
        if self.listen.is_empty() {
            let address = map().with("address", text("0.0.0.0:8080"));
            self.listen.push(address.comment("no address could be converted"));
        }
        if self.routes.is_empty() {
            let route = map().with("name", text("none")).with("respond", map().with("status", text(404)));
            self.routes.push(("none".to_owned(), route.comment("no route could be converted")));
        }
        let routes = self.routes.into_iter().map(|(_, node)| node).collect::<Vec<_>>();
        let file = map().with("listen", list(self.listen));
        let file = self.top.into_iter().fold(file, |node, (key, value)| node.with(key, value));
        let file = file
            .with("lists", section(&self.lists))
            .with("limits", section(&self.limits))
            .with("upstreams", section(&self.upstreams))
            .with("routes", list(routes).block());
        let comment = format!(
            "Converted from {path} by `sluicegate import {command}`. Comments name the lines that parts come from."
        );
        file.file(&[comment])
    }
}

fn section(entries: &Named) -> Node {
    let entries = entries.iter().fold(map(), |node, (name, entry)| node.with(name, entry.clone()));
    if entries.is_empty() { entries } else { entries.block() }
}

/// The name of an entry: that of one that is the same but for comments, or a new one.
fn add(entries: &mut Named, wanted: &str, node: Node) -> String {
    let wanted = name(wanted);
    let same = |one: &Node| map().with("x", one.clone()).plain().file(&[]);
    let begins = |known: &str| {
        known.strip_prefix(wanted.as_str()).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('-').is_some_and(|number| number.parse::<u32>().is_ok())
        })
    };
    if let Some((known, _)) = entries.iter().find(|(known, one)| begins(known) && same(one) == same(&node)) {
        return known.clone();
    }
    let name = unused(&wanted, &|name| entries.iter().any(|(known, _)| known == name));
    entries.push((name.clone(), node));
    name
}
