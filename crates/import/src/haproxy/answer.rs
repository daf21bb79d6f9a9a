//! What HAProxy answers itself: `return`, `deny` and `redirect`.

use super::format::template;
use super::parse::Line;
use crate::accepted;
use crate::files::Files;
use crate::names::literal;
use crate::yaml::{Node, map, text};

/// An answer as `respond` of a route.
pub(super) struct Answer {
    pub(super) status: u16,
    /// Whether the status is written in the rule.
    pub(super) given: bool,
    pub(super) node: Node,
}

/// The arguments of `http-request return`, and of `deny`.
///
/// # Errors
/// What the gateway cannot answer.
pub(super) fn answer(line: &Line, from: usize, default: u16, files: &dyn Files) -> Result<Answer, String> {
    let (mut status, mut given) = (default, false);
    let mut node = map();
    let mut at = from;
    while at < line.words.len() {
        let value = line.word(at + 1);
        match line.word(at) {
            "if" | "unless" => break,
            "status" | "deny_status" => {
                status = value
                    .parse()
                    .ok()
                    .filter(|status| (200..=599).contains(status))
                    .ok_or_else(|| format!("`{value}` is not a status of an answer"))?;
                given = true;
            }
            "content-type" => node.insert("content_type", text(value)),
            "string" => node.insert("body", text(value)),
            "lf-string" if value.contains('%') => {
                return Err(format!("the body of an answer has no variables such as those of `{value}`"));
            }
            "lf-string" => node.insert("body", text(value)),
            "file" | "lf-file" => {
                let body = files.read(value).map_err(|error| format!("cannot read {value}: {error}"))?;
                node.insert("body", text(body));
            }
            "default-errorfiles" => {
                at += 1;
                continue;
            }
            "hdr" => {
                return Err("the gateway adds no headers here: use response_headers of the route".to_owned());
            }
            other => {
                return Err(format!(
                    "`{other}` of its answer has no equivalent: use `respond: {{status, body, content_type}}`"
                ));
            }
        }
        at += 2;
    }
    let whole = node
        .into_entries()
        .into_iter()
        .fold(map().with("status", text(status)), |node, (key, value)| node.with(key, value));
    accepted::field(None, "respond", &whole)?;
    Ok(Answer { status, given, node: whole })
}

/// The same answer as `reject` of a route with limits, in place of the 429 with a problem document.
pub(super) fn reject(respond: &Node, status: u16) -> Option<Node> {
    let mut node = if status == 429 { map() } else { map().with("status", text(status)) };
    for (key, value) in respond.clone().into_entries() {
        if key != "status" {
            let value =
                if key == "body" { text(literal(value.as_text().unwrap_or_default())) } else { value };
            node.insert(key, value);
        }
    }
    (!node.is_empty()).then_some(node)
}

/// `redirect scheme https`, `redirect location URL`, `redirect prefix URL`.
///
/// # Errors
/// What the gateway cannot answer.
pub(super) fn redirect(line: &Line, from: usize) -> Result<Node, String> {
    let (mut status, mut to, mut drop_query) = (302_u16, None, false);
    let mut at = from;
    while at < line.words.len() {
        let value = line.word(at + 1);
        let converted =
            || template(value).map_err(|part| format!("there is no equivalent of {part} in a redirect"));
        match line.word(at) {
            "if" | "unless" => break,
            "code" => status = value.parse().map_err(|_| format!("`{value}` is not a status"))?,
            "scheme" => to = Some(format!("{}://{{host}}{{path}}", converted()?)),
            "prefix" => to = Some(format!("{}{{path}}", converted()?)),
            "location" => {
                let url = converted()?;
                drop_query = drop_query
                    || !(value.contains("%[capture.req.uri]")
                        || value.contains("%[url]")
                        || value.contains("%[pathq]"));
                to = Some(url);
            }
            "drop-query" => {
                drop_query = true;
                at += 1;
                continue;
            }
            "append-slash" | "ignore-empty" => {
                at += 1;
                continue;
            }
            "set-cookie" | "clear-cookie" | "set-cookie-fmt" => {
                return Err("redirects set no cookies".to_owned());
            }
            other => return Err(format!("`{other}` of a redirect has no equivalent")),
        }
        at += 2;
    }
    let mut to = to.ok_or("it names no target")?;
    if drop_query && !to.contains('?') {
        to.push('?');
    }
    let node = map().with("status", text(status)).with("to", text(&to));
    match accepted::field(None, "redirect", &node) {
        Err(_) if to.ends_with('?') => {
            let node = map().with("status", text(status)).with("to", text(to.trim_end_matches('?')));
            accepted::field(None, "redirect", &node).map(|()| node)
        }
        Err(why) => Err(why),
        Ok(()) => Ok(node),
    }
}
