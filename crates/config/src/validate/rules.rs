//! Validates `rules`, and the numbers of a rule.

use std::time::Duration;

use http::HeaderValue;
use sluicegate_limiter::Quota;

use super::checks::{between, in_range, missing, secret, value};
use super::http_url::{Words, ca_needs_tls, http_url};
use super::plan;
use super::shared::check_shared;
use crate::model::limit::{LimitConfig, Mode};
use crate::model::rules::{RulesConfig, RulesService, RulesSource};
use crate::model::store::RedisConfig;
use crate::raw::RawPlan;
use crate::raw::RawPlanFields;
use crate::raw::rules::RawRules;
use crate::raw::scalars::RawCount;
use crate::read::at::{At, Folder};
use crate::read::is_wrong;
use crate::read::report::{Mistake, Place, Problem, Report};

const TTL: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_millis(20);
const MAX_CACHED: u64 = 1_000_000;
const TIMEOUT: Duration = Duration::from_millis(250);
const WORDS: Words = Words {
    example: "https://rules.example.com/rules",
    of: "rules",
    risk: Some("rules that come over http:// can be changed by anybody on the way"),
};

pub(super) fn rules(
    At { at, value: raw }: &At<RawRules>,
    folder: Folder<'_>,
    store: (Option<&RedisConfig>, bool),
    report: &mut Report,
) -> Option<RulesConfig> {
    let hour = (Duration::from_secs(3600), "1h");
    let ttl = raw
        .ttl
        .as_ref()
        .map_or(Some(TTL), |text| between(text, "ttl", (Duration::from_secs(1), "1s"), hour, report));
    let wait = raw.wait.as_ref().map_or(Some(WAIT), |text| {
        between(text, "wait", (Duration::from_millis(1), "1ms"), (Duration::from_secs(1), "1s"), report)
    });
    let max_cached = raw
        .max_cached
        .as_ref()
        .map_or(Some(MAX_CACHED), |count| in_range(count, 1_000..=100_000_000, "max_cached", report));
    let source = source(At { at: *at, value: raw }, folder, store, report);
    Some(RulesConfig { source: source?, ttl: ttl?, wait: wait?, max_cached: max_cached? as usize })
}

/// Where the rules are kept.
fn source(
    At { at, value: raw }: At<&RawRules>,
    folder: Folder<'_>,
    (store, has_store): (Option<&RedisConfig>, bool),
    report: &mut Report,
) -> Option<RulesSource> {
    let in_redis = raw.redis.as_ref().filter(|redis| redis.value);
    for (given, field) in [
        (raw.ca.as_ref().map(|text| text.at), "ca"),
        (raw.token.as_ref().map(|text| text.at), "token"),
        (raw.timeout.as_ref().map(|text| text.at), "timeout"),
    ] {
        if let Some(at) = given.filter(|_| raw.url.is_none() && !is_wrong!(raw, url)) {
            report.error(Problem::new(at, format!("`{field}` means nothing without `url`")));
        }
    }
    let places = [
        raw.file.as_ref().map(|text| text.at),
        in_redis.map(|redis| redis.at),
        raw.url.as_ref().map(|text| text.at),
    ];
    if let Some(second) = places.into_iter().flatten().nth(1) {
        let problem = Problem::new(second, "`rules` are kept in one place");
        report.error(problem.help("give one of `file`, `redis` and `url`"));
        return None;
    }
    if let Some(file) = &raw.file {
        return Some(RulesSource::File(folder.file(file)));
    }
    if let Some(redis) = in_redis {
        if !has_store {
            let problem = redis.problem("`rules.redis` needs a store, and the file has none");
            let help = "such as `store: {redis: {url: redis://127.0.0.1:6379}}`, or keep them in a `file`";
            report.error(problem.help(help));
        }
        return Some(RulesSource::Redis(Box::new(store?.clone())));
    }
    let Some(url) = &raw.url else {
        if !is_wrong!(raw, url) {
            missing(at, "`rules`", ("file", "rules.db"), &raw.wrong, report);
        }
        return None;
    };
    service(raw, url, folder, report).map(|service| RulesSource::Service(Box::new(service)))
}

fn service(
    raw: &RawRules,
    text: &At<String>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<RulesService> {
    let url = value(text, report, |text| match text.contains('?') {
        true => Err(Mistake::new("the URL of rules has no query: the gateway adds one")),
        false => http_url(text, &WORDS),
    })?;
    let ca = raw.ca.as_ref().map(|path| folder.content(path, report));
    ca_needs_tls(raw.ca.as_ref(), &url, report);
    let token = secret(raw.token.as_ref(), folder, report)?;
    if HeaderValue::try_from(format!("Bearer {}", token.reveal())).is_err() {
        report.error(text.problem("the `token` of rules has characters that no header may have"));
        return None;
    }
    let (least, most) = ((Duration::from_millis(10), "10ms"), (Duration::from_secs(10), "10s"));
    let timeout =
        raw.timeout.as_ref().map_or(Some(TIMEOUT), |text| between(text, "timeout", least, most, report));
    Some(RulesService { url, ca: ca.flatten(), token, timeout: timeout? })
}

impl LimitConfig {
    /// The same limit with another quota and mode, without plans and candidate.
    pub fn variant(&self, quota: Quota, mode: Mode) -> Self {
        Self { quota, mode, plans: Vec::new(), candidate: None, ..self.clone() }
    }

    /// The quota of this limit as it would be if the file had another rate: with the burst that the file has, if it has one.
    ///
    /// # Errors
    /// What is wrong with the rate, in the words of `sluicegate check`.
    pub fn with_rate(&self, rate: &str) -> Result<Quota, Vec<String>> {
        self.with_numbers(Some(rate), self.written.burst.as_ref().map(|burst| burst.value.0), None)
    }

    /// The quota of this limit with other numbers: those of a rule. The rate is that of the limit if there is none, and the
    /// burst then too.
    ///
    /// # Errors
    /// What is wrong with the numbers, in the words of `sluicegate check`.
    pub fn with_numbers(
        &self,
        rate: Option<&str>,
        burst: Option<u64>,
        max: Option<u64>,
    ) -> Result<Quota, Vec<String>> {
        let at = Place::START;
        let own = &self.written;
        let fields = RawPlanFields {
            at,
            rate: rate.map(|rate| At { at, value: rate.to_owned() }).or_else(|| own.rate.clone()),
            burst: match (rate, burst) {
                (_, Some(burst)) => Some(At { at, value: RawCount(burst) }),
                (None, None) => own.burst.clone(),
                (Some(_), None) => None,
            },
            max: max.map(|max| At { at, value: RawCount(max) }).or_else(|| own.max.clone()),
            wrong: Vec::new(),
        };
        let mut report = Report::default();
        let name = At { at, value: self.name.clone() };
        let numbers = At { at, value: RawPlan(fields) };
        let quota = plan::special(&name, own, &numbers, Some(&self.cost), &mut report);
        if let Some(quota) = quota.as_ref().filter(|_| self.shared) {
            check_shared(quota, own, &mut report);
        }
        match quota {
            Some(quota) if report.errors.is_empty() => match self.check_parts(&quota) {
                Ok(()) => Ok(quota),
                Err(why) => Err(vec![format!("this is {why}")]),
            },
            _ => Err(report.errors.into_iter().map(sentence).collect()),
        }
    }
}

/// A mistake in one line.
fn sentence(problem: crate::Problem) -> String {
    match problem.help {
        Some(help) => format!("{}: {help}", problem.message),
        None => problem.message,
    }
}
