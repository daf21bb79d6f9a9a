//! `POST /rules:batch`: many changes, all or none. A line is a rule, which is put, or `{"delete": "ID"}`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};
use sluicegate_rules::{Op, Outcome, Precondition, Rule, Stored, Write};

use super::check::{self, Fault};
use super::{Admin, Answer, LARGEST_BATCH, NDJSON, Writer, answer, asked, body, problem, problem_body};
use crate::admin::PROBLEM;
use crate::snapshot::Snapshot;

/// The number of errors in an answer.
const ERRORS: usize = 100;

impl Admin {
    pub(super) async fn batch(&self, by: &Writer, request: Request<Incoming>) -> Answer {
        let dry_run = match asked(&request) {
            Ok((dry_run, Precondition::None)) => dry_run,
            Ok(_) => {
                let why = "a batch has no conditions of its own; a line can have `if_match`";
                return problem(StatusCode::BAD_REQUEST, why);
            }
            Err(refusal) => return refusal,
        };
        let text = match body(request, LARGEST_BATCH).await {
            Ok(text) => text,
            Err(refusal) => return refusal,
        };
        let (snapshot, most) = (Arc::clone(&by.snapshot), by.rules.source().largest_batch());
        let read =
            sluicegate_base::boxed_future::spawn_blocking(move || changes(&snapshot, &text, most)).await;
        let writes = match read {
            Ok(Ok(writes)) => writes,
            Ok(Err(errors)) => return malformed(errors),
            Err(error) => return problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        };
        match self.write(by, writes, dry_run).await {
            Ok(written) => {
                let lines = written.results.iter().enumerate().map(|(index, outcome)| line(index, outcome));
                answer(StatusCode::OK, NDJSON, lines.collect::<String>())
            }
            Err(refusal) => refusal,
        }
    }
}

/// The changes of a batch.
///
/// # Errors
/// The lines that are wrong, and why.
fn changes(snapshot: &Snapshot, text: &str, most: usize) -> Result<Vec<Write>, Vec<(usize, Vec<Fault>)>> {
    let mut errors = Vec::new();
    let mut writes = Vec::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (index, line) in lines {
        if writes.len() >= most || errors.len() >= ERRORS {
            if writes.len() >= most {
                errors.push((index, vec![Fault::new("", format!("a batch has at most {most} lines"))]));
            }
            break;
        }
        match change(snapshot, line) {
            Ok(write) => writes.push(write),
            Err(faults) => errors.push((index, faults)),
        }
    }
    if errors.is_empty() { Ok(writes) } else { Err(errors) }
}

fn change(snapshot: &Snapshot, line: &str) -> Result<Write, Vec<Fault>> {
    let wrong = |detail: String| vec![Fault::new("", detail)];
    let mut value: Value =
        serde_json::from_str(line).map_err(|error| wrong(format!("this is not JSON: {error}")))?;
    if let Ok(Keys { twice: Some(key) }) = serde_json::from_str(line) {
        return Err(wrong(format!("the line has `{key}` twice")));
    }
    let precondition = match value.as_object_mut().and_then(|line| line.remove("if_match")) {
        None | Some(Value::Null) => Precondition::None,
        Some(Value::Number(version)) if version.is_u64() => {
            Precondition::Version(version.as_u64().into_iter().collect())
        }
        Some(_) => return Err(vec![Fault::new("if_match", "a version is a whole number")]),
    };
    if let Some(id) = value.get("delete") {
        let Some(id) = id.as_str() else {
            return Err(vec![Fault::new("delete", "the id of a rule is a text")]);
        };
        if value.as_object().is_some_and(|line| line.len() > 1) {
            return Err(vec![Fault::new("delete", "a line that deletes has `if_match` beside it at most")]);
        }
        return Ok(Write { op: Op::Delete { id: id.to_owned() }, precondition });
    }
    let rule = Rule::from_json(&value.to_string()).map_err(wrong)?;
    let rule = check::in_stored_form(snapshot, rule).map_err(|fault| vec![fault])?;
    let faults = check::faults(snapshot, &rule);
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(Write { op: Op::Put { pattern: check::is_pattern(&rule), rule }, precondition })
}

fn malformed(errors: Vec<(usize, Vec<Fault>)>) -> Answer {
    let detail = format!("nothing was written: {} lines are wrong", errors.len());
    let mut body = problem_body(StatusCode::UNPROCESSABLE_ENTITY, &detail);
    let all = errors.iter().flat_map(|(index, faults)| faults.iter().map(move |fault| (index, fault)));
    body["errors"] = all
        .map(|(index, fault)| {
            let mut error = fault.json();
            error["line"] = json!(index + 1);
            error
        })
        .collect();
    answer(StatusCode::UNPROCESSABLE_ENTITY, PROBLEM, body.to_string())
}

fn line(index: usize, outcome: &Outcome) -> String {
    let (id, version) = match (&outcome.after, &outcome.before) {
        (Some(after), _) => (after.rule.id.as_str(), Some(after.version)),
        (None, before) => (before.as_ref().map_or("", |before| before.rule.id.as_str()), None),
    };
    let status = match (&outcome.before, &outcome.after) {
        (None, Some(_)) => 201,
        (_, None) => 204,
        _ => 200,
    };
    let etag = version.map(|version| format!("\"{version}\""));
    let rule = |stored: &Option<Stored>| stored.as_ref().map(|stored| stored.rule.clone());
    let changed = rule(&outcome.before) != rule(&outcome.after);
    format!("{}\n", json!({ "index": index, "id": id, "status": status, "etag": etag, "changed": changed }))
}

/// The keys of a JSON object: whether one of them is there twice, of which readers keep the last one without a word.
struct Keys {
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfObject;
        impl<'de> Visitor<'de> for OfObject {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let (mut seen, mut twice) = (BTreeSet::new(), None);
                while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    if !seen.insert(key.clone()) {
                        twice.get_or_insert(key);
                    }
                }
                Ok(Keys { twice })
            }
        }
        deserializer.deserialize_map(OfObject)
    }
}
