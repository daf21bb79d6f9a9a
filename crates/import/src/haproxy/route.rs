//! The routes of all listeners.

use super::listen::Listener;
use super::rules::changes;
use super::tree::{Effect, Leaf};
use crate::accepted;
use crate::marks::Marks;
use crate::names::{name, unused};
use crate::report::Source;
use crate::yaml::{Node, list, map, text};

/// The section `routes`. With `named`, listeners have routes of their own.
pub(super) fn routes(
    listening: &[Listener],
    found: &[Vec<Leaf>],
    named: bool,
    upstreams: &[(String, String, Node)],
    marks: &mut Marks,
) -> Node {
    let mut names: Vec<String> = Vec::new();
    let mut out = Vec::new();
    for (listener, leaves) in listening.iter().zip(found).take(if named { listening.len() } else { 1 }) {
        for leaf in leaves {
            let target = leaf.effect.backend.as_ref().map_or("", |(name, _)| name.as_str());
            let word = match leaf.effect.answer {
                Some((field, ..)) => format!("{} {field}", leaf.place.word()),
                None => format!("{target} {}", leaf.place.word()),
            };
            let word = if named { format!("{} {word}", listener.name) } else { word };
            let taken = |name: &str| names.iter().any(|known| known == name);
            let name = unused(&name(&word), &taken);
            names.push(name.clone());
            let mut place = map();
            if named {
                place.insert("listener", text(&listener.name));
            }
            for (field, value) in leaf.place.node().into_entries() {
                place.insert(field, value);
            }
            let mut node = map().with("name", text(name));
            if !place.is_empty() {
                node.insert("match", place);
            }
            out.push(fields(node, leaf, upstreams, marks).block());
        }
    }
    list(out).block()
}

/// The fields of a route behind its place.
fn fields(mut node: Node, leaf: &Leaf, upstreams: &[(String, String, Node)], marks: &mut Marks) -> Node {
    let Effect { answer, backend, limits, deny, allow, request, response, rewrite, reject } = &leaf.effect;
    let mut upstream = false;
    match (answer, backend) {
        (Some((field, value, source)), _) => node.insert(*field, value.clone().source(source)),
        (None, Some((section, source))) => match upstreams.iter().find(|(known, ..)| known == section) {
            Some((_, name, _)) => {
                upstream = true;
                node.insert("upstream", text(name).source(source));
            }
            None => node.insert("respond", map().with("status", text(503)).source(source)),
        },
        (None, None) => node.insert("respond", map().with("status", text(503)).comment("no backend")),
    }
    let path =
        leaf.place.node().into_entries().into_iter().find(|(key, _)| key == "path").map(|(_, value)| value);
    if upstream {
        if let Some((rewrite, source)) = rewrite {
            match accepted::field(path, "rewrite", rewrite) {
                Ok(()) => node.insert("rewrite", rewrite.clone().source(source)),
                Err(why) => marks.report.note(format!("{source}: the rewrite is left out: {why}")),
            }
        }
        if !request.is_empty() {
            node.insert(
                "request_headers",
                changes(request).comment(sources(request.iter().map(|header| &header.source))),
            );
        }
    }
    if !deny.is_empty() {
        node.insert("deny", list(deny.iter().map(text)));
    }
    if let Some(allow) = allow {
        node.insert("allow", list(allow.iter().map(text)));
    }
    if !limits.is_empty() {
        node.insert("limits", list(limits.iter().map(|(name, source)| text(name).source(source))));
        if let Some(reject) = reject {
            node.insert("reject", reject.clone());
        }
    }
    if !response.is_empty() {
        node.insert(
            "response_headers",
            changes(response).comment(sources(response.iter().map(|header| &header.source))),
        );
    }
    node
}

/// Takes the changes of answers out of the routes if all have the same: they are a section of the file then.
pub(super) fn same_response(found: &mut [Vec<Leaf>]) -> Node {
    let first = found.iter().flatten().next().map(|leaf| leaf.effect.response.clone()).unwrap_or_default();
    if first.is_empty() || found.iter().flatten().any(|leaf| leaf.effect.response != first) {
        return map();
    }
    found.iter_mut().flatten().for_each(|leaf| leaf.effect.response.clear());
    changes(&first).comment(sources(first.iter().map(|header| &header.source)))
}

fn sources<'a>(sources: impl Iterator<Item = &'a Source>) -> String {
    let mut all: Vec<String> = sources.map(ToString::to_string).collect();
    all.dedup();
    all.join(", ")
}
