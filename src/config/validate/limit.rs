//! Limits: keys, quotas, and what can be doubted about them.

use http::HeaderName;
use sluicegate_limiter::{
    Concurrency, FixedWindow, LeakyBucket, QuotaError, Rate, SlidingLog, SlidingWindow, TokenBucket,
};

use super::super::model::{Cost, Exempt, LimitConfig, Mode, OnMissing, Quota, RouteConfig};
use super::super::raw::{RawCount, RawLimit};
use super::super::read::{At, Named, OneOrMany};
use super::super::report::{Report, nearest};
use super::super::values;
use super::{check_name, in_range, missing, value, word};
use crate::client_ip::parse_network;
use crate::key::{KeySpec, Part};

/// Live counters of a limit when nothing else is said.
const MAX_KEYS: u64 = 1_000_000;

/// A limit under its name; `None` where the file's one is wrong, so that references still find it.
pub(super) type Limits = Vec<(String, Option<LimitConfig>)>;

pub(super) fn all(raw: Option<&At<Named<RawLimit>>>, report: &mut Report) -> Limits {
    let mut limits = Vec::new();
    for (name, limit) in raw.map_or(&[][..], |raw| &raw.value.0) {
        check_name(name, "a limit", report);
        limits.push((name.value.clone(), self::limit(name, limit, report)));
    }
    limits
}

fn limit(name: &At<String>, raw: &RawLimit, report: &mut Report) -> Option<LimitConfig> {
    let key = match &raw.key {
        Some(key) => self::key(&key.value, report),
        None => {
            missing(name.at, &format!("the limit `{}`", name.value), "key", "ip", report);
            None
        }
    };
    let quota = quota(name, raw, report);
    let cost = match &raw.cost {
        Some(cost) => self::cost(cost, quota.as_ref(), report),
        None => Some(Cost::Constant(1)),
    };
    let modes = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)];
    let missings = [("shared", OnMissing::Shared), ("skip", OnMissing::Skip), ("deny", OnMissing::Deny)];
    if let Some(scope) = &raw.scope {
        match scope.value.as_str() {
            "local" => {}
            "shared" => report.error(
                scope
                    .problem("a shared scope needs a store, which this version does not have")
                    .help("leave `scope` out: counters live in this process"),
            ),
            _ => _ = word(scope, "scope", &[("local", ())], report),
        }
    }
    Some(LimitConfig {
        name: name.value.clone(),
        key: key?,
        quota: quota?,
        cost: cost?,
        mode: raw.mode.as_ref().map_or(Some(Mode::Enforce), |text| word(text, "mode", &modes, report))?,
        exempt: exempt(raw.exempt.as_ref(), report),
        on_missing: raw
            .on_missing
            .as_ref()
            .map_or(Some(OnMissing::Shared), |text| word(text, "on_missing", &missings, report))?,
        max_keys: raw
            .max_keys
            .as_ref()
            .map_or(Some(MAX_KEYS), |n| in_range(n, 1..=1_000_000_000, "max_keys", report))?
            as usize,
    })
}

fn key(raw: &OneOrMany<At<String>>, report: &mut Report) -> Option<KeySpec> {
    let all = raw.0.iter().map(|text| {
        let alternatives = text.value.split('|').map(|part| self::part(text, part.trim(), report));
        alternatives.collect::<Option<Vec<Part>>>()
    });
    let all: Vec<Option<Vec<Part>>> = all.collect();
    if all.is_empty() {
        return None;
    }
    all.into_iter().collect::<Option<Vec<_>>>().map(KeySpec::new)
}

fn part(text: &At<String>, part: &str, report: &mut Report) -> Option<Part> {
    const PLAIN: [(&str, Part); 7] = [
        ("ip", Part::Ip),
        ("api_key", Part::ApiKey),
        ("global", Part::Global),
        ("host", Part::Host),
        ("method", Part::Method),
        ("path", Part::Path),
        ("route", Part::Route),
    ];
    if let Some((_, known)) = PLAIN.iter().find(|(name, _)| *name == part) {
        return Some(known.clone());
    }
    let later = matches!(part, "user" | "consumer") || part.starts_with("jwt:") || part.starts_with("tls:");
    if later {
        report.error(
            text.problem(format!("the key `{part}` is not available in this version of sluicegate")).help(
                "it needs a verified identity; use ip, api_key, header:NAME, query:NAME or cookie:NAME",
            ),
        );
        return None;
    }
    let named = part.split_once(':').filter(|(_, name)| !name.is_empty());
    match named {
        Some(("path", name)) => return Some(Part::Param(name.to_owned())),
        Some(("query", name)) => return Some(Part::Query(name.to_owned())),
        Some(("cookie", name)) => return Some(Part::Cookie(name.to_owned())),
        Some(("header", name)) => {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                return Some(Part::Header(name));
            }
        }
        _ => {}
    }
    let known =
        ["ip", "api_key", "global", "host", "method", "path", "route", "header:", "query:", "cookie:"];
    let problem = text.problem(format!("unknown key `{part}`"));
    report.error(match nearest(part, known) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help(
            "known keys: ip, api_key, global, host, method, path, path:NAME, route, header:NAME, query:NAME, cookie:NAME",
        ),
    });
    None
}

fn quota(name: &At<String>, raw: &RawLimit, report: &mut Report) -> Option<Quota> {
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Token,
        Leaky,
        Fixed,
        Log,
        Sliding,
        Concurrency,
    }
    let words = [
        ("token_bucket", Kind::Token),
        ("leaky_bucket", Kind::Leaky),
        ("fixed_window", Kind::Fixed),
        ("sliding_log", Kind::Log),
        ("sliding_window", Kind::Sliding),
        ("concurrency", Kind::Concurrency),
    ];
    let kind =
        raw.algorithm.as_ref().map_or(Some(Kind::Token), |text| word(text, "algorithm", &words, report))?;
    let own = words.iter().find(|(_, k)| *k == kind).map_or("", |(word, _)| *word);
    let mut fits = true;
    let mut only_for =
        |given: Option<crate::config::Place>, field: &str, kinds: &[Kind], report: &mut Report| {
            if let Some(at) = given.filter(|_| !kinds.contains(&kind)) {
                let others: Vec<&str> =
                    words.iter().filter(|(_, kind)| kinds.contains(kind)).map(|(word, _)| *word).collect();
                let message = format!("`{field}` means nothing for {own}");
                report.error(
                    super::Problem::new(at, message).help(format!("it belongs to {}", others.join(" and "))),
                );
                fits = false;
            }
        };
    only_for(raw.burst.as_ref().map(|f| f.at), "burst", &[Kind::Token, Kind::Leaky], report);
    only_for(raw.slices.as_ref().map(|f| f.at), "slices", &[Kind::Sliding], report);
    only_for(raw.count_rejected.as_ref().map(|f| f.at), "count_rejected", &[Kind::Log], report);
    only_for(raw.max_delay.as_ref().map(|f| f.at), "max_delay", &[Kind::Leaky], report);
    only_for(raw.max.as_ref().map(|f| f.at), "max", &[Kind::Concurrency], report);
    let timed = [Kind::Token, Kind::Leaky, Kind::Fixed, Kind::Log, Kind::Sliding];
    only_for(raw.rate.as_ref().map(|f| f.at), "rate", &timed, report);
    only_for(raw.cost.as_ref().map(|f| f.at), "cost", &timed, report);

    let what = format!("the limit `{}`", name.value);
    if kind == Kind::Concurrency {
        let Some(max) = &raw.max else {
            missing(name.at, &what, "max", "8", report);
            return None;
        };
        let made = Concurrency::new(max.value.0);
        let quota = checked(made, max, "max", report).map(|made| Quota::Concurrency(made, max.value.0));
        return quota.filter(|_| fits);
    }
    let Some(text) = &raw.rate else {
        missing(name.at, &what, "rate", "100/min", report);
        return None;
    };
    let rate = value(text, report, values::rate);
    let max_delay = raw.max_delay.as_ref().map(|text| value(text, report, values::span));
    let rate = rate.filter(|_| fits)?;
    let mut quota = Timed { text, rate, raw, max_delay, report };
    match kind {
        Kind::Token => quota.token(),
        Kind::Leaky => quota.leaky(),
        Kind::Fixed => Some(Quota::FixedWindow(FixedWindow::new(rate), rate)),
        Kind::Log => quota.log(),
        Kind::Sliding | Kind::Concurrency => quota.sliding(),
    }
}

/// What the quota of an algorithm with a rate is made of.
struct Timed<'a> {
    text: &'a At<String>,
    rate: Rate,
    raw: &'a RawLimit,
    max_delay: Option<Option<sluicegate_limiter::Span>>,
    report: &'a mut Report,
}

impl Timed<'_> {
    fn burst(&self) -> u64 {
        self.raw.burst.as_ref().map_or(self.rate.count(), |burst| burst.value.0)
    }

    fn at_burst<T>(&mut self, made: Result<T, QuotaError>) -> Option<T> {
        match &self.raw.burst {
            Some(burst) => checked(made, burst, "burst", self.report),
            None => checked(made, self.text, "rate", self.report),
        }
    }

    fn token(&mut self) -> Option<Quota> {
        let burst = self.burst();
        let made = TokenBucket::new(self.rate, burst);
        self.at_burst(made).map(|made| Quota::TokenBucket(made, self.rate, burst))
    }

    fn leaky(&mut self) -> Option<Quota> {
        let max_delay = match self.max_delay {
            Some(None) => return None, // wrong, and reported
            Some(Some(span)) => Some(span),
            None => None,
        };
        let burst = self.burst();
        let made = LeakyBucket::new(self.rate, burst, max_delay);
        self.at_burst(made).map(|made| Quota::LeakyBucket(made, self.rate, burst))
    }

    fn log(&mut self) -> Option<Quota> {
        let count_rejected = self.raw.count_rejected.as_ref().is_some_and(|f| f.value);
        let made = SlidingLog::new(self.rate, count_rejected);
        checked(made, self.text, "rate", self.report).map(|made| Quota::SlidingLog(made, self.rate))
    }

    fn sliding(&mut self) -> Option<Quota> {
        let one = At { at: self.text.at, value: RawCount(1) };
        let slices = self.raw.slices.as_ref().unwrap_or(&one);
        let made = SlidingWindow::new(self.rate, u32::try_from(slices.value.0).unwrap_or(u32::MAX));
        checked(made, slices, "slices", self.report).map(|made| Quota::SlidingWindow(made, self.rate))
    }
}

fn checked<T, U>(made: Result<T, QuotaError>, field: &At<U>, name: &str, report: &mut Report) -> Option<T> {
    made.map_err(|error| report.error(field.problem(format!("`{name}`: {error}")))).ok()
}

fn cost(text: &At<String>, quota: Option<&Quota>, report: &mut Report) -> Option<Cost> {
    if let Some(name) = text.value.strip_prefix("header:") {
        let name = At { at: text.at, value: name.to_owned() };
        return super::header_name(&name, report).map(Cost::Header);
    }
    let cost = value(text, report, |text| {
        values::count(text)
            .map_err(|_| format!("expected a number or header:NAME as the cost, found `{text}`"))
    })?;
    if cost == 0 {
        report.error(text.problem("a cost is at least 1").help("use `mode: off` to count nothing"));
        return None;
    }
    let capacity = quota?.capacity();
    if cost > capacity {
        let message = format!("a cost of {cost} can never be admitted: the limit holds {capacity}");
        report.error(text.problem(message).help("raise `burst` (or the rate), or lower the cost"));
        return None;
    }
    Some(Cost::Constant(cost))
}

fn exempt(raw: Option<&At<Vec<At<String>>>>, report: &mut Report) -> Exempt {
    let mut exempt = Exempt::default();
    for text in raw.map_or(&[][..], |raw| &raw.value) {
        match parse_network(&text.value) {
            Ok(network) => exempt.networks.push(network),
            Err(message)
                if text.value.contains('/') && text.value.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                report.error(text.problem(message));
            }
            Err(_) => exempt.values.push(text.value.clone()),
        }
    }
    exempt
}

/// What works, but perhaps not as meant.
pub(super) fn doubts(
    raw: Option<&At<Named<RawLimit>>>,
    limits: &Limits,
    routes: &[RouteConfig],
    report: &mut Report,
) {
    for (index, (name, _)) in raw.map_or(&[][..], |raw| &raw.value.0).iter().enumerate() {
        let Some(limit) = limits.get(index).and_then(|(_, limit)| limit.as_ref()) else { continue };
        // Routes speak of valid limits only, in the same order.
        let valid = limits[..index].iter().filter(|(_, limit)| limit.is_some()).count();
        let users: Vec<&RouteConfig> = routes.iter().filter(|route| route.limits.contains(&valid)).collect();
        if users.is_empty() && report.errors.is_empty() {
            report.warning(
                name.problem(format!("no route uses the limit `{}`", name.value))
                    .help("add it to the `limits` of a route"),
            );
        }
        let unverified =
            |part: &Part| matches!(part, Part::ApiKey | Part::Header(_) | Part::Query(_) | Part::Cookie(_));
        let by_address = |limit: &LimitConfig| {
            limit.mode == Mode::Enforce
                && limit.key.parts().all(|part| matches!(part, Part::Ip | Part::Global))
        };
        let guarded = |route: &RouteConfig| {
            route.limits.iter().any(|used| {
                limits.iter().filter_map(|(_, limit)| limit.as_ref()).nth(*used).is_some_and(by_address)
            })
        };
        if limit.key.parts().any(unverified) && users.iter().any(|route| !guarded(route)) {
            report.warning(
                name.problem(format!("a client can escape `{}` by changing what it sends", name.value))
                    .help("nothing verifies this key; put a limit with `key: ip` (or `global`) beside it"),
            );
        }
    }
}
