//! Rules in a service of the user's: it is asked for the rules of one key at a time, and for what has changed if it tells.
//!
//! The form is that of the admin API, so that a gateway can be such a service for others.

use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use sluicegate_config::{RulesService, percent_encode};
use sluicegate_rules::{Pattern, Rule, Stored, canonical};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Receiver;
use tokio::task::LocalSet;

use super::store::NoAnswer;
use super::{KeyQuestion, Rules, Unreadable};
use sluicegate_base::boxed_future::spawn_local;
use sluicegate_base::clock::Clock;
use sluicegate_base::http_client::{Bounds, Call, Client, NoReply, Reply};

/// The number of keys that it is asked for at a time.
const IN_FLIGHT: usize = 64;
/// The largest answer in bytes.
const LARGEST: usize = 4 << 20;
/// The most pages that are asked for a key.
const PAGES: usize = 100;
/// How long it may wait for a change before it answers.
const WAIT: Duration = Duration::from_secs(25);
/// How long an answer with changes may take.
const CHANGES_TIMEOUT: Duration = Duration::from_secs(35);
/// How long it is not asked for changes after it gave no answer.
const PAUSE: Duration = Duration::from_secs(1);
/// How long it is not asked for changes after it said that it tells none.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// The header with the version that an answer has told all changes up to.
pub const VERSION: &str = "rules-version";

/// The rules of a page. A gateway says their versions, too, and the id after which the next page begins.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    rules: Vec<&'a RawValue>,
    #[serde(default)]
    versions: Vec<u64>,
    next: Option<String>,
    /// Rules that the service has, but cannot read.
    #[serde(default)]
    unreadable: Vec<serde_json::Value>,
}

/// A change: the rule before and after, or only which key it is about.
#[derive(Deserialize)]
struct Line {
    before: Option<About>,
    after: Option<About>,
    limit: Option<String>,
    key: Option<String>,
    version: Option<u64>,
}

#[derive(Deserialize)]
struct About {
    limit: String,
    key: String,
}

/// The service, on the thread that asks it.
struct Service {
    config: RulesService,
    keys: Client,
    changes: Client,
    headers: HeaderMap,
    clock: Clock,
}

/// Starts the thread that asks the service. It ends with the rules, and so does the channel.
///
/// # Errors
/// If the system has no thread for it.
pub(super) fn start(
    rules: &Arc<Rules>,
    config: &RulesService,
    questions: Receiver<(u64, KeyQuestion)>,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("rules: cannot start a thread: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (clock, rules, config) = (rules.clock, Arc::downgrade(rules), config.clone());
    let run = move || {
        let service = Rc::new(Service::new(config, clock));
        LocalSet::new().block_on(&runtime, async move {
            let following = follow(Weak::clone(&rules), Rc::clone(&service));
            let following = spawn_local(following);
            answer(rules, service, questions).await;
            following.abort();
        });
    };
    std::thread::Builder::new().name("rules".to_owned()).spawn(run).map_err(failed)?;
    Ok(())
}

/// Answers questions until there can be no more.
async fn answer(rules: Weak<Rules>, service: Rc<Service>, mut questions: Receiver<(u64, KeyQuestion)>) {
    let places = Arc::new(Semaphore::new(IN_FLIGHT));
    while let Some((number, question)) = questions.recv().await {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Some(rules) = rules.upgrade() else { return };
        let service = Rc::clone(&service);
        spawn_local(async move {
            let asked = rules.ask_service(number, &question, |limit, keys, text| async move {
                service.rules_of(&limit, &keys, &text).await
            });
            asked.await;
            drop(place);
        });
    }
}

/// Forgets what the service says has changed.
async fn follow(rules: Weak<Rules>, service: Rc<Service>) {
    let mut since = None;
    loop {
        let begun = service.clock.uptime();
        let changes = service.changed_since(since).await;
        let Some(rules) = rules.upgrade() else { return };
        let pause = match changes {
            Ok(Some((text, version))) => {
                let reached = rules.take_changes(&text, version);
                let news = reached != since;
                since = reached;
                match reached {
                    Some(_) if news => Duration::ZERO,
                    // A service that does not wait for a change is asked once a second.
                    Some(_) => PAUSE.saturating_sub(service.clock.uptime().saturating_sub(begun)),
                    None => LONG_PAUSE, // it cannot be asked for the next ones
                }
            }
            Ok(None) => LONG_PAUSE,
            Err(why) => {
                tracing::debug!(why, "no changes of rules are told");
                PAUSE
            }
        };
        drop(rules);
        tokio::time::sleep(pause).await;
    }
}

impl Rules {
    /// Asks again for the keys that changes name. Returns the version that they lead to.
    fn take_changes(&self, text: &str, version: Option<u64>) -> Option<u64> {
        let mut last = None;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let Ok(line) = serde_json::from_str::<Line>(line) else {
                self.forget_all(); // whatever it says
                continue;
            };
            last = line.version.or(last);
            let whole = line.limit.zip(line.key).map(|(limit, key)| About { limit, key });
            for about in line.before.into_iter().chain(line.after).chain(whole) {
                match Pattern::parse(&about.key) {
                    Some(_) => self.forget_all(),
                    // A service may tell about limits that this gateway does not have.
                    None if self.known_limit(&about.limit).is_none() => {}
                    None => self.key_changed(&about.limit, &canonical(&about.key)),
                }
            }
        }
        let reached = version.or(last);
        if let Some(version) = reached {
            self.reached(version);
        }
        reached
    }
}

impl Service {
    fn new(config: RulesService, clock: Clock) -> Self {
        let client =
            |timeout| Client::new(&config.url, config.ca.as_ref(), Bounds { timeout, largest: LARGEST });
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, application/x-ndjson"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static("sluicegate"));
        let token = config.token.reveal();
        if !token.is_empty()
            && let Ok(mut value) = HeaderValue::try_from(format!("Bearer {token}"))
        {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Self { keys: client(config.timeout), changes: client(CHANGES_TIMEOUT), headers, clock, config }
    }

    async fn ask(&self, client: &Client, target: String) -> Result<Reply, NoAnswer> {
        let target: Uri =
            target.parse().map_err(|_| NoAnswer::Unusable("the path of its URL is none".to_owned()))?;
        let call = Call {
            method: Method::GET,
            target: Some(target),
            headers: self.headers.clone(),
            body: Bytes::new(),
        };
        let at = |why: String| format!("{}: {why}", self.config.url.text);
        client.ask(&call, self.clock).await.map_err(|error| match error {
            NoReply::Away(why) => NoAnswer::Away(at(why)),
            NoReply::Unreadable(why) => NoAnswer::Unusable(at(why)),
        })
    }

    /// The rules of a limit for one of these keys or for a pattern; `text` is one of them, or a text that the patterns match.
    async fn rules_of(&self, limit: &str, keys: &[String], text: &str) -> Result<Vec<Stored>, NoAnswer> {
        let at = |why: String| format!("{}: {why}", self.config.url.text);
        let (limit_text, key_text) = (percent_encode(limit), percent_encode(text));
        let first = format!("{}?limit={limit_text}&key={key_text}&patterns=1", self.config.url.path);
        let (mut target, mut all) = (first.clone(), Vec::new());
        for _ in 0..PAGES {
            let Some(body) = self.page(target).await? else { return Ok(all) };
            let unusable = |why| NoAnswer::Unusable(at(why));
            let (rules, next) = rules_in(&body, limit, keys).map_err(unusable)?;
            all.extend(rules);
            let Some(next) = next else { return Ok(all) };
            target = format!("{first}&after={}", percent_encode(&next));
        }
        Err(NoAnswer::Unusable(at(format!("it has more than {PAGES} pages of rules for one key"))))
    }

    /// The body of an answer; `None` if there is nothing.
    async fn page(&self, target: String) -> Result<Option<Bytes>, NoAnswer> {
        let reply = self.ask(&self.keys, target).await?;
        let at = |why: String| format!("{}: {why}", self.config.url.text);
        match reply.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::NO_CONTENT => return Ok(None),
            status if status.is_client_error() && status != StatusCode::UNAUTHORIZED => {
                return Err(NoAnswer::Unusable(at(format!("it answered with status {}", status.as_u16()))));
            }
            status => return Err(NoAnswer::Away(at(format!("it answered with status {}", status.as_u16())))),
        }
        let broken = || NoAnswer::Unusable(at("its answer breaks off, or is larger than 4 MiB".to_owned()));
        reply.body.map(Some).ok_or_else(broken)
    }

    /// The changes after a version, and the version that they lead to; `None` if the service tells none.
    async fn changed_since(&self, since: Option<u64>) -> Result<Option<(String, Option<u64>)>, Unreadable> {
        let wait = WAIT.as_secs();
        let since = since.map_or_else(String::new, |version| format!("since={version}&"));
        let reply =
            self.ask(&self.changes, format!("{}:changes?{since}wait={wait}", self.config.url.path)).await;
        let reply = reply.map_err(NoAnswer::why)?;
        let version = reply.headers.get(VERSION).and_then(|value| value.to_str().ok()?.parse().ok());
        match reply.status {
            StatusCode::OK | StatusCode::NO_CONTENT => {
                let body = reply.body.ok_or("its answer breaks off, or is larger than 4 MiB")?;
                Ok(Some((String::from_utf8_lossy(&body).into_owned(), version)))
            }
            // Some changes are lost: a line that names no key has all of them asked for again.
            StatusCode::GONE => Ok(Some(("gone".to_owned(), version))),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Ok(None),
            status => Err(format!("it answered with status {}", status.as_u16())),
        }
    }
}

/// The rules of an answer that can be for one of the keys, and after which id there are more. A service may send more than it was
/// asked for.
fn rules_in(body: &[u8], limit: &str, keys: &[String]) -> Result<(Vec<Stored>, Option<String>), String> {
    let page: Page<'_> = serde_json::from_slice(body)
        .map_err(|error| format!("its answer is not {{\"rules\": [...]}}: {error}"))?;
    if let Some(first) = page.unreadable.first() {
        return Err(format!("it cannot read a rule itself: {first}"));
    }
    let mut rules = Vec::new();
    for (index, text) in page.rules.into_iter().enumerate() {
        let mut rule = Rule::from_json(text.get()).map_err(|why| format!("a rule cannot be read: {why}"))?;
        rule.key = canonical(&rule.key);
        if rule.limit == limit && (keys.contains(&rule.key) || Pattern::parse(&rule.key).is_some()) {
            rules.push(Stored { rule, version: page.versions.get(index).copied().unwrap_or(0) });
        }
    }
    Ok((rules, page.next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::parse;

    #[test]
    fn unknown_limits_that_others_name_are_not_remembered() {
        let folder = tempfile::TempDir::new().unwrap();
        let text = "listen: [127.0.0.1:8080]\nrules: {file: rules.db}\nroutes: [{respond: {status: 200}}]\n";
        let config = parse(text.to_owned(), "gateway.yaml", folder.path()).config.unwrap();
        let rules = Rules::open(config.rules.as_ref().unwrap(), Clock::start(), None).unwrap();
        rules.limit("known");
        for number in 0..100 {
            assert_eq!(rules.rules_for(&format!("asked-{number}"), "k"), Ok(Vec::new()));
            let line = format!(r#"{{"limit":"told-{number}","key":"k","version":{number}}}"#);
            assert_eq!(rules.take_changes(&line, None), Some(number));
        }
        let names: Vec<String> = rules.limits.lock().unwrap().keys().cloned().collect();
        assert_eq!(names, ["known"]);
    }

    #[test]
    fn rules_of_other_keys_and_limits_are_left_out() {
        let of = |limit: &str, key: &str| {
            format!(r#"{{"id":"{limit}-x","limit":"{limit}","key":"{key}","exempt":true}}"#)
        };
        let all =
            [of("l", "k"), of("l", "other"), of("m", "k"), of("l", "k*"), of("l", "api_key:k")].join(",");
        let body = format!(r#"{{"rules":[{all}],"next":null}}"#);
        let keys = ["k".to_owned(), "api_key:k".to_owned()];
        let (found, _) = rules_in(body.as_bytes(), "l", &keys).unwrap();
        let found: Vec<&str> = found.iter().map(|stored| stored.rule.key.as_str()).collect();
        assert_eq!(found, ["k", "k*", "api_key:k"]);
        for wrong in ["", "[]", r#"{"rules":{}}"#, r#"{"rules":[{"id":1}]}"#, r#"{"rules":[7]}"#] {
            assert!(rules_in(wrong.as_bytes(), "l", &keys).is_err(), "{wrong}");
        }
    }
}
