//! The rules of keys: `/rules`, `/rules/{id}`, `/rules:batch`, `/rules:changes`.

#![allow(clippy::result_large_err, reason = "an answer is made once for each request of an operator")]

mod audit;
mod batch;
mod check;
mod precondition;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Value, json};
use sluicegate_rules::{
    Batch, Changes, Failure, FailureKind, Op, Outcome, Precondition, Rule, Stored, Write, Written, canonical,
};

use self::check::Fault;
use super::body::body;
use super::query::parameter;
use super::{
    Admin, Answer, JSON, NOTHING_HERE, PROBLEM, answer, not_with_that_method, problem, problem_body, reply,
};
use crate::rules::{self, NotWritten, Rules, Unreadable};
use crate::server::ConnectionBudget;
use crate::snapshot::Snapshot;
use sluicegate_config::{Role, percent_encode};

/// The largest body of one rule, in bytes.
const LARGEST_RULE: usize = 64 << 10;
/// The largest body of a batch, in bytes.
const LARGEST_BATCH: usize = 10 << 20;
/// The number of rules of a page.
const PAGE: usize = 1_000;
/// The number of changes in one answer.
const CHANGES: usize = 1_000;
/// How often a change of a part of a rule is tried again when the rule changes meanwhile.
const TRIES: usize = 8;
/// The longest that an answer waits for a change, in seconds.
const LONGEST_WAIT: u64 = 60;
const NDJSON: &str = "application/x-ndjson";

/// Who changes rules, from where, and what is in force.
struct Writer {
    snapshot: Arc<Snapshot>,
    rules: Arc<Rules>,
    actor: String,
    peer: IpAddr,
}

/// What a request is about.
enum Resource<'a> {
    All,
    One(&'a str),
    Batch,
    Changes,
}

impl Admin {
    /// Answers a request whose path begins with `/rules`; `None` if there is nothing.
    pub(super) async fn rules(&self, request: Request<Incoming>, peer: IpAddr) -> Answer {
        let path = request.uri().path().to_owned();
        let id = path.strip_prefix("/rules/").map(sluicegate_config::percent_decode);
        let resource = match (path.as_str(), &id) {
            ("/rules", _) => Resource::All,
            ("/rules:batch", _) => Resource::Batch,
            ("/rules:changes", _) => Resource::Changes,
            (_, Some(id)) if !id.is_empty() => Resource::One(id),
            _ => return problem(StatusCode::NOT_FOUND, NOTHING_HERE),
        };
        let snapshot = self.shared.snapshot.load_full();
        let Some(rules) = snapshot.rules() else {
            let why = "this gateway has no rules: say where they are kept, such as `rules: {file: rules.db}`";
            return problem(StatusCode::NOT_FOUND, why);
        };
        if let Some(why) = rules.source().elsewhere() {
            return problem(StatusCode::NOT_IMPLEMENTED, &why);
        }
        let get = matches!(*request.method(), Method::GET | Method::HEAD);
        if get {
            drop(snapshot); // the answer may wait
            let query = request.uri().query();
            return match resource {
                Resource::All => list(&rules, query).await,
                Resource::Changes => changes(rules, query).await,
                Resource::One(id) => one(&rules, id).await,
                Resource::Batch => not_with_that_method("POST"),
            };
        }
        let actor = match self.actor(&request, Role::Rules) {
            Ok(actor) => actor,
            Err(refusal) => return refusal,
        };
        let by = Writer { snapshot, rules, actor, peer };
        match (resource, request.method()) {
            (Resource::One(id), &Method::PUT) => self.put(&by, id, request).await,
            (Resource::One(id), &Method::PATCH) => self.patch(&by, id, request).await,
            (Resource::One(id), &Method::DELETE) => self.delete(&by, id, &request).await,
            (Resource::Batch, &Method::POST) => self.batch(&by, request).await,
            (Resource::All | Resource::Changes, _) => not_with_that_method("GET, HEAD"),
            (Resource::One(_), _) => not_with_that_method("GET, HEAD, PUT, PATCH, DELETE"),
            (Resource::Batch, _) => not_with_that_method("POST"),
        }
    }

    async fn put(&self, by: &Writer, id: &str, request: Request<Incoming>) -> Answer {
        let (dry_run, precondition) = match asked(&request) {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        let text = match body(request, LARGEST_RULE).await {
            Ok(text) => text,
            Err(refusal) => return refusal,
        };
        let rule = match Rule::from_json(&text) {
            Ok(mut rule) => {
                if rule.id.is_empty() {
                    id.clone_into(&mut rule.id);
                }
                if rule.id != id {
                    return unprocessable(vec![Fault::new("id", format!("the path says `{id}`"))]);
                }
                rule
            }
            Err(detail) => return problem(StatusCode::BAD_REQUEST, &detail),
        };
        self.write_one(by, rule, precondition, dry_run).await
    }

    async fn patch(&self, by: &Writer, id: &str, request: Request<Incoming>) -> Answer {
        let (dry_run, precondition) = match asked(&request) {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        let text = match body(request, LARGEST_RULE).await {
            Ok(text) => text,
            Err(refusal) => return refusal,
        };
        let patch: Value = match serde_json::from_str(&text) {
            Ok(patch) => patch,
            Err(error) => return problem(StatusCode::BAD_REQUEST, &format!("this is not JSON: {error}")),
        };
        let mut answered = not_found(id);
        for _ in 0..TRIES {
            let stored = match read(&by.rules, id).await {
                Ok(Some(stored)) => stored,
                Ok(None) => return not_found(id),
                Err(refusal) => return refusal,
            };
            let rule = match stored.rule.patched(&patch) {
                Ok(rule) => rule,
                Err(detail) => return problem(StatusCode::UNPROCESSABLE_ENTITY, &detail),
            };
            let conditional = !matches!(precondition, Precondition::None);
            let version =
                if conditional { precondition.clone() } else { Precondition::Version(vec![stored.version]) };
            answered = self.write_one(by, rule, version, dry_run).await;
            if conditional || answered.status() != StatusCode::PRECONDITION_FAILED {
                break;
            }
        }
        answered
    }

    async fn write_one(&self, by: &Writer, rule: Rule, precondition: Precondition, dry_run: bool) -> Answer {
        let rule = match check::in_stored_form(&by.snapshot, rule) {
            Ok(rule) => rule,
            Err(fault) => return unprocessable(vec![fault]),
        };
        let faults = check::faults(&by.snapshot, &rule);
        if !faults.is_empty() {
            return unprocessable(faults);
        }
        let write = Write { op: Op::Put { pattern: check::is_pattern(&rule), rule }, precondition };
        match self.write(by, vec![write], dry_run).await {
            Ok(written) => match written.results.into_iter().next() {
                Some(outcome) if dry_run => reply(&self.dry(&by.snapshot, &outcome).await),
                Some(Outcome { before, after: Some(after), .. }) => {
                    let status = if before.is_some() { StatusCode::OK } else { StatusCode::CREATED };
                    shown(status, &after)
                }
                _ => problem(StatusCode::INTERNAL_SERVER_ERROR, "nothing was written"),
            },
            Err(refusal) => refusal,
        }
    }

    async fn delete(&self, by: &Writer, id: &str, request: &Request<Incoming>) -> Answer {
        let (dry_run, precondition) = match asked(request) {
            Ok(asked) => asked,
            Err(refusal) => return refusal,
        };
        let write = Write { op: Op::Delete { id: id.to_owned() }, precondition };
        match self.write(by, vec![write], dry_run).await {
            Ok(written) if dry_run => match written.results.first() {
                Some(outcome) => reply(&self.dry(&by.snapshot, outcome).await),
                None => not_found(id),
            },
            Ok(_) => answer(StatusCode::NO_CONTENT, JSON, ""),
            Err(refusal) => refusal,
        }
    }

    /// What a change would do.
    async fn dry(&self, snapshot: &Snapshot, outcome: &Outcome) -> Value {
        let rule = |stored: &Option<Stored>| stored.as_ref().map(json_of);
        json!({
            "dry_run": true,
            "before": rule(&outcome.before),
            "after": rule(&outcome.after),
            "keys": self.affected(snapshot, outcome).await,
        })
    }

    /// Writes changes, all or none, and applies them to this gateway before it answers.
    async fn write(&self, by: &Writer, changes: Vec<Write>, dry_run: bool) -> Result<Written, Answer> {
        let at = u64::try_from(self.shared.clock.wall().as_millisecond()).unwrap_or_default();
        let batch = Batch { actor: by.actor.clone(), at, dry_run, changes };
        let rules = Arc::clone(&by.rules);
        let written = sluicegate_base::boxed_future::spawn_blocking(move || {
            rules.patterns_fit(&batch.changes).map_err(NotWritten::TooManyPatterns)?;
            let written = rules.source().write(batch)?;
            if !dry_run {
                apply(&rules, &written);
                rules.written(written.version);
            }
            Ok(written)
        });
        match written.await {
            Ok(Ok(written)) => {
                if !dry_run {
                    self.audit(by, &written);
                }
                Ok(written)
            }
            Ok(Err(error)) => Err(refused(&error)),
            Err(error) => Err(problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())),
        }
    }
}

/// Has requests from now on decided by the changed rules.
fn apply(rules: &Rules, written: &Written) {
    let mut patterns = false;
    for outcome in &written.results {
        for stored in outcome.before.iter().chain(&outcome.after) {
            match check::is_pattern(&stored.rule) {
                true => patterns = true,
                false => rules.key_changed(&stored.rule.limit, &stored.rule.key),
            }
        }
    }
    if patterns && let Err(error) = rules.patterns_changed() {
        tracing::error!("{error}");
    }
}

/// Whether a request is a dry run, and on which condition it writes.
fn asked(request: &Request<Incoming>) -> Result<(bool, Precondition), Answer> {
    let dry_run = match parameter(request.uri().query(), "dry_run").as_deref() {
        None | Some("0" | "false") => false,
        Some("" | "1" | "true") => true,
        Some(_) => return Err(problem(StatusCode::BAD_REQUEST, "`dry_run` is 1 or 0")),
    };
    let precondition =
        precondition::of(request.headers()).map_err(|detail| problem(StatusCode::BAD_REQUEST, &detail))?;
    Ok((dry_run, precondition))
}

/// Runs what reads the store on another thread.
async fn reading<T: Send + 'static>(
    rules: &Arc<Rules>,
    read: impl FnOnce(&Rules) -> Result<T, Unreadable> + Send + 'static,
) -> Result<T, Answer> {
    let rules = Arc::clone(rules);
    let away =
        |why: String| problem(StatusCode::SERVICE_UNAVAILABLE, &format!("the rules cannot be read: {why}"));
    match sluicegate_base::boxed_future::spawn_blocking(move || read(&rules)).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(why)) => Err(away(why)),
        Err(error) => Err(away(error.to_string())),
    }
}

async fn read(rules: &Arc<Rules>, id: &str) -> Result<Option<Stored>, Answer> {
    let id = id.to_owned();
    reading(rules, move |rules| rules.source().get(&id)).await
}

async fn list(rules: &Arc<Rules>, query: Option<&str>) -> Answer {
    let [limit, key, after] = ["limit", "key", "after"].map(|name| parameter(query, name));
    let most = match parameter(query, "most").map(|most| most.parse::<usize>()) {
        None => PAGE,
        Some(Ok(most @ 1..=PAGE)) => most,
        Some(_) => return problem(StatusCode::BAD_REQUEST, &format!("`most` is between 1 and {PAGE}")),
    };
    let key = key.map(|key| canonical(&key));
    let (of_limit, of_key) = (limit.clone(), key.clone());
    let with_patterns = parameter(query, "patterns").is_some();
    let found = reading(rules, move |rules| {
        if let (true, Some(limit), Some(key)) = (with_patterns, &of_limit, &of_key) {
            let mut found = rules.rules_for(limit, key)?;
            found.retain(|read| after.as_ref().is_none_or(|after| rules::id(read) > after.as_str()));
            return Ok(found);
        }
        rules.source().page((of_limit.as_deref(), of_key.as_deref()), after.as_deref(), most + 1)
    });
    let mut found = match found.await {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let more = found.len() > most;
    found.truncate(most);
    let next = found.last().filter(|_| more).map(|last| rules::id(last).to_owned());
    let (mut all, mut versions, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for read in &found {
        match read {
            Ok(stored) => {
                all.push(json_of(stored));
                versions.push(stored.version);
            }
            Err((id, why)) => unreadable.push(json!({ "id": id, "detail": why })),
        }
    }
    let mut body = json!({ "rules": all, "versions": versions, "next": next });
    if !unreadable.is_empty() {
        body["unreadable"] = unreadable.into();
    }
    let mut response = reply(&body);
    if let Some(next) = next {
        let mut link = format!("</rules?after={}&most={most}", percent_encode(&next));
        let patterns = with_patterns.then(|| "1".to_owned());
        for (name, value) in [("limit", limit), ("key", key), ("patterns", patterns)] {
            if let Some(value) = value {
                link = format!("{link}&{name}={}", percent_encode(&value));
            }
        }
        if let Ok(link) = HeaderValue::try_from(link + ">; rel=\"next\"") {
            response.headers_mut().insert(header::LINK, link);
        }
    }
    response
}

async fn one(rules: &Arc<Rules>, id: &str) -> Answer {
    match read(rules, id).await {
        Ok(Some(stored)) => shown(StatusCode::OK, &stored),
        Ok(None) => not_found(id),
        Err(refusal) => refusal,
    }
}

/// The changes since a version, a line each.
async fn changes(rules: Arc<Rules>, query: Option<&str>) -> Answer {
    let since = match parameter(query, "since").map_or(Ok(0), |since| since.parse::<u64>()) {
        Ok(since) => since,
        Err(_) => return problem(StatusCode::BAD_REQUEST, "`since` is a version, a whole number"),
    };
    let wait = match parameter(query, "wait").map_or(Ok(0), |wait| wait.parse::<u64>()) {
        Ok(seconds @ 0..=LONGEST_WAIT) => Duration::from_secs(seconds),
        _ => return problem(StatusCode::BAD_REQUEST, &format!("`wait` is at most {LONGEST_WAIT} seconds")),
    };
    // Connections that wait take no other's place, so that only a part of all may do that. A client that is not made to wait asks
    // again after a while.
    let may_wait = !wait.is_zero() && rules.waiting() < ConnectionBudget::of_admin() / 2;
    let mut known = Some(rules);
    if let Some(rules) = known.take_if(|rules| may_wait && rules.version() == since) {
        // Rules that are kept elsewhere from now on end meanwhile, and with them the lock of their file.
        let (change, weak) = (rules.next_change(since), Arc::downgrade(&rules));
        drop(rules);
        let _ = tokio::time::timeout(wait, change).await; // then there is none
        known = weak.upgrade();
    }
    let Some(rules) = known else {
        let why = "the rules are kept elsewhere by now: ask again";
        return problem(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let found = reading(&rules, move |rules| rules.source().changes(since, CHANGES)).await;
    let list = match found {
        Ok(Changes::List(list)) => list,
        Ok(Changes::Trimmed) => {
            let why =
                format!("the changes since version {since} are not kept any more: read `GET /rules` again");
            return up_to(problem(StatusCode::GONE, &why), rules.version());
        }
        Err(refusal) => return refusal,
    };
    let mut text = String::new();
    let last = list.last().map_or(since, |last| last.version);
    for change in list {
        let id = change.after.as_ref().or(change.before.as_ref()).map(|rule| &rule.id);
        let line = json!({
            "version": change.version, "id": id, "at": change.at, "actor": change.actor,
            "before": change.before, "after": change.after,
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    up_to(answer(StatusCode::OK, NDJSON, text), last)
}

/// An answer with the version to which it tells the changes.
fn up_to(mut answer: Answer, version: u64) -> Answer {
    answer.headers_mut().insert(rules::VERSION, version.into());
    answer
}

/// A rule with its version.
fn shown(status: StatusCode, stored: &Stored) -> Answer {
    let mut response = answer(status, JSON, format!("{:#}\n", json_of(stored)));
    response.headers_mut().insert(header::ETAG, precondition::etag(stored.version));
    response
}

fn json_of(stored: &Stored) -> Value {
    serde_json::to_value(&stored.rule).unwrap_or_default()
}

fn not_found(id: &str) -> Answer {
    problem(StatusCode::NOT_FOUND, &format!("there is no rule `{id}`"))
}

fn unprocessable(faults: Vec<Fault>) -> Answer {
    let detail = faults.iter().map(Fault::text).collect::<Vec<_>>().join("; ");
    let mut body = problem_body(StatusCode::UNPROCESSABLE_ENTITY, &detail);
    body["errors"] = faults.iter().map(Fault::json).collect();
    answer(StatusCode::UNPROCESSABLE_ENTITY, PROBLEM, body.to_string())
}

/// The answer to changes that were not written.
fn refused(error: &NotWritten) -> Answer {
    let nothing = |why: &str| format!("nothing was written: {why}");
    let failures = match error {
        NotWritten::Failed(failures) => failures,
        NotWritten::Busy(why) => return problem(StatusCode::TOO_MANY_REQUESTS, &nothing(why)),
        NotWritten::Refused(why) => return problem(StatusCode::SERVICE_UNAVAILABLE, &nothing(why)),
        NotWritten::Unknown(why) => return problem(StatusCode::SERVICE_UNAVAILABLE, why),
        NotWritten::TooManyPatterns(why) => return unprocessable(vec![Fault::new("key", why.as_str())]),
    };
    let Some(first) = failures.first() else {
        return problem(StatusCode::INTERNAL_SERVER_ERROR, "nothing was written");
    };
    let status = match first.kind {
        FailureKind::NotFound => StatusCode::NOT_FOUND,
        FailureKind::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
    };
    let mut body = problem_body(status, &described(first));
    if let FailureKind::PreconditionFailed(current) = &first.kind {
        body["current"] = current.as_ref().map(|stored| json_of(stored)).into();
    }
    body["errors"] = failures
        .iter()
        .map(|failure| json!({ "line": failure.index + 1, "detail": described(failure) }))
        .collect();
    let mut response = answer(status, PROBLEM, body.to_string());
    if let FailureKind::PreconditionFailed(Some(current)) = &first.kind {
        response.headers_mut().insert(header::ETAG, precondition::etag(current.version));
    }
    response
}

fn described(failure: &Failure) -> String {
    match &failure.kind {
        FailureKind::NotFound => "there is no such rule".to_owned(),
        FailureKind::PreconditionFailed(Some(current)) => {
            format!("the rule has version {} by now; read it again", current.version)
        }
        FailureKind::PreconditionFailed(None) => "there is no such rule any more".to_owned(),
    }
}
