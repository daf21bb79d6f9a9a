//! Routes in the order in which they are to be tried.

use std::cmp::Reverse;

use crate::marks::Marks;
use crate::sections::{Route, Sections};
use crate::yaml::{map, text};

/// A route before it has its place.
pub(super) struct Candidate {
    pub(super) host: Option<String>,
    /// Whether it is for one listener only: such a route comes before the same one for all.
    pub(super) listener: Option<&'static str>,
    /// Whether its path is exact.
    pub(super) exact: bool,
    /// How long its path is, and how many methods, headers and query parameters it needs.
    pub(super) length: usize,
    pub(super) conditions: [usize; 3],
    pub(super) name: String,
    pub(super) route: Route,
    /// The field to which a refusal of `check` is reported.
    pub(super) number: usize,
}

#[derive(Default)]
pub(super) struct Candidates(pub(super) Vec<Candidate>);

impl Candidates {
    /// Adds the routes: exact hosts first, then the longer paths; and 404 for a host that has no route for all paths.
    pub(super) fn add(&mut self, listeners: &[String], sections: &mut Sections, marks: &mut Marks) {
        // A listener that there is not has no requests.
        self.0.retain(|one| one.listener.is_none_or(|name| listeners.iter().any(|known| known == name)));
        self.fill();
        let rank = |one: &Candidate| {
            let host = match &one.host {
                Some(host) if host.starts_with("*.") => (1, usize::MAX - host.len()),
                Some(_) => (0, 0),
                None => (2, 0),
            };
            (host, !one.exact, Reverse(one.length), Reverse(one.conditions), one.listener.is_none())
        };
        self.0.sort_by_key(rank); // stable: equal ones stay in the order of the objects
        for candidate in self.0.drain(..) {
            let Candidate { host, listener, name, mut route, number, .. } = candidate;
            if let Some(listener) = listener {
                route.matches.insert(0, ("listener".to_owned(), text(listener)));
            }
            if let Some(host) = host {
                route.matches.insert(0, ("host".to_owned(), text(host)));
            }
            let closed = route.closed();
            match sections.route(&name, route) {
                Ok(lost) => lost.iter().for_each(|(field, message)| {
                    marks.unsupported(number, format!("route {name} has no `{field}`: {message}"));
                }),
                Err(message) => {
                    let answered = sections.route(&name, closed).is_ok();
                    let what = if answered { "its requests are answered 503" } else { "left out" };
                    marks.unsupported(number, format!("{what}: {message}"));
                }
            }
        }
    }

    /// A request for a host with rules of its own never reaches the rules of a wildcard, or those for all hosts.
    fn fill(&mut self) {
        let mut hosts: Vec<_> = self.0.iter().filter_map(|one| one.host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        for host in hosts {
            let all = |one: &Candidate| {
                let empty = !one.exact && one.length <= 1 && one.conditions == [0, 0, 0];
                one.listener.is_none() && one.host.as_ref() == Some(&host) && empty
            };
            let wider = |one: &Candidate| match &one.host {
                None => true,
                Some(other) => {
                    *other != host
                        && other
                            .strip_prefix('*')
                            .is_some_and(|end| host.trim_start_matches('*').ends_with(end))
                }
            };
            if !self.0.iter().any(all) && self.0.iter().any(wider) {
                let mut route = Route {
                    above: vec![format!("rules of other hosts do not apply to {host}")],
                    ..Route::default()
                };
                route.action = Some(("respond".to_owned(), map().with("status", text(404))));
                self.0.push(Candidate {
                    name: format!("{host}-rest"),
                    host: Some(host),
                    listener: None,
                    exact: false,
                    length: 0,
                    conditions: [0, 0, 0],
                    route,
                    number: 0,
                });
            }
        }
    }
}
