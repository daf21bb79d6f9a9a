//! The plugins request-transformer and response-transformer.

use crate::accepted;
use crate::fields::Field;
use crate::marks::Marks;
use crate::yaml::{Node, list, map, text};

/// The changes of headers of a plugin, as `request_headers` or `response_headers`.
pub(super) fn headers(config: &Field, field: &str, marks: &mut Marks) -> Node {
    let mut node = map();
    let words = [
        ("remove", "remove", None),
        ("replace", "set", Some("it is set, also where the client or server sent none")),
        ("add", "set", Some("it replaces one that is there; Kong leaves that one")),
        ("append", "add", None),
    ];
    for (word, verb, differs) in words {
        let Some(lines) = config.at(&[word, "headers"]) else { continue };
        let mut lost = None;
        for line in lines.texts() {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let (name, value) = (name.trim(), crate::names::literal(value.trim()));
            let one = if verb == "remove" {
                map().with(verb, list([text(name)]))
            } else {
                map().with(verb, map().with(name, text(&value)))
            };
            if value.contains("$(") {
                lost = Some("templates of Kong: write variables such as {client_ip}".to_owned());
                continue;
            }
            if let Err(why) = accepted::field(None, field, &one) {
                lost = Some(why);
                continue;
            }
            merge(&mut node, verb, name, &value);
        }
        match (lost, differs) {
            (Some(why), _) => marks.unsupported(lines.number, format!("left out: {why}")),
            (None, Some(differs)) => marks.approximated(lines.number, format!("{field}; {differs}")),
            (None, None) => marks.converted(lines.number, field),
        }
    }
    node
}

/// Adds a change to a section of changes.
fn merge(node: &mut Node, verb: &str, name: &str, value: &str) {
    let entries = std::mem::replace(node, map()).into_entries();
    let mut found = false;
    for (key, old) in entries {
        let new = match verb {
            _ if key != verb => old,
            "remove" => {
                found = true;
                old.and(text(name))
            }
            _ => {
                found = true;
                old.with(name, text(value))
            }
        };
        node.insert(key, new);
    }
    if !found {
        node.insert(verb, if verb == "remove" { list([text(name)]) } else { map().with(name, text(value)) });
    }
}
