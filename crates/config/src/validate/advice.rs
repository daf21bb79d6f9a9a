//! Warnings of what is valid and hurts in production.

use sluicegate_limiter::{Quota, Rate, SlidingWindow, Span};

use super::section::Section;
use crate::language::key_part::{Part, PartSource};
use crate::language::pattern::PathPattern;
use crate::language::values::grouped;
use crate::model::api_key::ApiKeyConfig;
use crate::model::limit::{LimitConfig, Mode, OnMissing};
use crate::model::listener::ClientIpConfig;
use crate::model::route::{Action, Match, RouteConfig};
use crate::raw::RawConfig;
use crate::read::at::At;
use crate::read::report::Report;
use sluicegate_overload::Priority;

/// Segments of paths at which secrets are guessed.
const GUESSED: [&str; 14] = [
    "login",
    "log-in",
    "logon",
    "signin",
    "sign-in",
    "password",
    "passwords",
    "password-reset",
    "reset-password",
    "forgot-password",
    "otp",
    "2fa",
    "mfa",
    "totp",
];
/// More attempts than this within an hour are more than a person needs.
const ATTEMPTS_PER_HOUR: u128 = 3_600;
/// From this rate on, requests that arrive together are no sign of a greedy client.
const HIGH_RATE_PER_SECOND: u128 = 100;
const SECOND: Span = Span::from_secs(1);
const HOUR: Span = Span::from_secs(3_600);

/// What is known of a file besides its limits and routes.
#[derive(Clone, Copy)]
pub(super) struct Known<'k> {
    pub(super) raw: &'k RawConfig,
    pub(super) client_ip: &'k ClientIpConfig,
    pub(super) routes: &'k [RouteConfig],
    /// The names of routes as they are written.
    pub(super) names: &'k [(At<String>, Match)],
    pub(super) api_key: &'k ApiKeyConfig,
    /// Whether requests without a valid token are refused.
    pub(super) token_required: bool,
}

/// Requests within a span at a rate, rounded down.
fn within(rate: Rate, span: Span) -> u128 {
    u128::from(rate.count()) * u128::from(span.as_nanos()) / u128::from(rate.period().as_nanos())
}

fn is_guessed(path: &PathPattern) -> bool {
    let path = path.to_string().to_ascii_lowercase();
    path.split('/').any(|segment| GUESSED.contains(&segment))
}

/// Whether a client cannot choose another value at will.
fn is_bound(part: &Part) -> bool {
    part.is_of_address() || part.source() == PartSource::Route
}

/// Whether a limit refuses a client above its rate, whatever its requests contain.
fn is_guard(limit: &LimitConfig) -> bool {
    limit.mode == Mode::Enforce && would_guard(limit)
}

/// The same, if the limit is enforced.
fn would_guard(limit: &LimitConfig) -> bool {
    limit.when.is_none() && limit.key.parts().all(is_bound)
}

impl Known<'_> {
    fn users(&self, index: usize) -> impl Iterator<Item = &RouteConfig> {
        self.routes.iter().filter(move |route| route.limits.iter().any(|used| used.index == index))
    }
}

/// Warns of what hurts. Nothing is said of a file with errors: what is missing may be what is wrong.
pub(super) fn warnings(limits: &Section<LimitConfig>, known: Known<'_>, report: &mut Report) {
    if !report.errors.is_empty() {
        return;
    }
    let all: Vec<&LimitConfig> = limits.valid().map(|(_, limit)| limit).collect();
    for (index, (name, limit)) in limits.valid().enumerate() {
        bucket(name, limit, report);
        window(
            name,
            limit,
            known.users(index).any(|route| route.matches.paths.patterns.iter().any(is_guessed)),
            report,
        );
        alone(name, limit, known.users(index), &all, report);
        skipped(name, limit, known, index, &all, report);
    }
    for route in known.routes {
        guessing(route, &all, known.names, report);
    }
    prefix(limits, known.raw, known.client_ip, report);
    priorities(known, report);
}

/// Priorities that change nothing.
fn priorities(known: Known<'_>, report: &mut Report) {
    let Known { raw, .. } = known;
    let header = raw.priorities.as_ref().and_then(|priorities| priorities.value.header.as_ref());
    if let Some(header) = header.filter(|_| !known.client_ip.has_proxies()) {
        let problem = header.problem("`header` has no effect without `trusted_proxies`");
        report.warning(problem.help("name the proxies in front of the gateway; nobody else is believed"));
    }
    let upstreams = raw.upstreams.as_ref().map_or(&[][..], |upstreams| &upstreams.value.0);
    let of_upstream = upstreams
        .iter()
        .any(|(_, upstream)| upstream.as_ref().is_some_and(|upstream| upstream.overload.is_some()));
    if of_upstream || raw.overload.is_some() || header.is_some() {
        return;
    }
    for (route, (name, _)) in known.routes.iter().zip(known.names) {
        if route.priority != Priority::Default {
            let problem = name.problem(format!("the priority of `{}` has no effect", name.value));
            report.warning(
                problem.help(
                    "nothing refuses requests by priority: give its upstream `overload`, or the gateway",
                ),
            );
        }
    }
}

/// A token bucket that holds less than a second of a high rate refuses what arrives together after a short pause.
fn bucket(name: &At<String>, limit: &LimitConfig, report: &mut Report) {
    let Quota::TokenBucket(_, rate, burst) = &limit.quota else { return };
    let second = within(*rate, SECOND);
    if second >= HIGH_RATE_PER_SECOND && u128::from(*burst) < second {
        let second = u64::try_from(second).unwrap_or(u64::MAX);
        let message = format!("`{}` holds less than one second of its rate", name.value);
        report.warning(name.problem(message).help(format!(
            "requests that arrive together after a short pause are refused although the rate is kept; give \
             `burst: {second}` or more"
        )));
    }
}

/// Windows that admit more than their rate where that is what they are for, and strict ones that refuse for too long.
fn window(name: &At<String>, limit: &LimitConfig, guessed: bool, report: &mut Report) {
    let Quota::SlidingWindow(window, _) = &limit.quota else { return };
    let window: &SlidingWindow = window;
    let name_of = &name.value;
    if window.is_strict() && window.slices() == 1 {
        report.warning(name.problem(format!("`{name_of}` may refuse for nearly two of its periods")).help(
            "with `strict: true` the oldest sub-window counts in full; take 10 or more, such as `slices: 10`",
        ));
    }
    let must_hold =
        guessed || limit.ban.is_some() || limit.key.parts().all(|part| matches!(part, Part::Global));
    if !window.is_strict() && must_hold && limit.mode == Mode::Enforce {
        report.warning(name.problem(format!("`{name_of}` may admit nearly twice its rate within one period")).help(
            "a burst at the right moment counts only in part; with `strict: true` and `slices: 10` no period has more",
        ));
    }
}

/// A long fixed window that nothing else limits may be used up at once, twice around its end.
fn alone<'r>(
    name: &At<String>,
    limit: &LimitConfig,
    mut users: impl Iterator<Item = &'r RouteConfig>,
    all: &[&LimitConfig],
    report: &mut Report,
) {
    let Quota::FixedWindow(_, rate) = &limit.quota else { return };
    if rate.period() < HOUR || limit.mode != Mode::Enforce {
        return;
    }
    let enforced = |route: &RouteConfig| {
        route
            .limits
            .iter()
            .filter(|used| all.get(used.index).is_some_and(|one| one.mode == Mode::Enforce))
            .count()
    };
    if let Some(route) = users.find(|route| enforced(route) < 2) {
        let message = format!(
            "all {} requests of `{}` may come at once, and again after its end",
            grouped(rate.count()),
            name.value
        );
        report.warning(name.problem(message).help(format!(
            "put a limit with a short period beside it in `{}`, such as `rate: 10/s`",
            route.name
        )));
    }
}

/// Whoever leaves out the key of such a limit is not limited at all.
fn skipped(
    name: &At<String>,
    limit: &LimitConfig,
    known: Known<'_>,
    index: usize,
    all: &[&LimitConfig],
    report: &mut Report,
) {
    let required = |part: &Part| match part.source() {
        PartSource::ApiKey | PartSource::Consumer => {
            known.api_key.consumers.as_ref().is_some_and(|known| known.required)
        }
        PartSource::Token => known.token_required,
        PartSource::Address | PartSource::Nothing | PartSource::Route | PartSource::PathParameter => true,
        PartSource::Header
        | PartSource::Query
        | PartSource::Cookie
        | PartSource::Certificate
        | PartSource::Question => false,
    };
    let skips = limit.on_missing == OnMissing::Skip && limit.mode == Mode::Enforce && limit.when.is_none();
    if !skips || limit.key.parts().all(required) {
        return;
    }
    let open = |route: &&RouteConfig| {
        matches!(route.action, Action::Forward { .. })
            && !route.limits.iter().any(|used| {
                used.index != index
                    && all
                        .get(used.index)
                        .is_some_and(|other| other.on_missing != OnMissing::Skip || is_guard(other))
            })
    };
    if let Some(route) = known.users(index).find(open) {
        let message = format!("whoever sends no key of `{}` is not limited in `{}`", name.value, route.name);
        report.warning(
            name.problem(message)
                .help("put a limit with `key: ip` beside it, or leave out `on_missing: skip`"),
        );
    }
}

/// A route at which passwords are guessed, without a limit that slows that down.
fn guessing(route: &RouteConfig, all: &[&LimitConfig], names: &[(At<String>, Match)], report: &mut Report) {
    let forwards = matches!(route.action, Action::Forward { .. });
    let Some(path) = route.matches.paths.patterns.iter().find(|path| forwards && is_guessed(path)) else {
        return;
    };
    let Some((name, _)) = names.iter().find(|(name, _)| name.value == route.name) else { return };
    let guards = route.limits.iter().filter_map(|used| all.get(used.index)).filter(|limit| is_guard(limit));
    let slowest = guards.filter_map(|limit| limit.quota.rate()).map(|rate| within(rate, HOUR)).min();
    let message = match slowest {
        Some(attempts) if attempts <= ATTEMPTS_PER_HOUR => return,
        Some(attempts) => {
            let attempts = grouped(u64::try_from(attempts).unwrap_or(u64::MAX));
            format!("one client can try {attempts} passwords an hour at `{path}`")
        }
        None => format!("nothing limits how often a client tries passwords at `{path}`"),
    };
    let slow =
        |limit: &LimitConfig| limit.quota.rate().is_some_and(|rate| within(rate, HOUR) <= ATTEMPTS_PER_HOUR);
    let mut used = route.limits.iter().filter_map(|used| all.get(used.index));
    let help = match used.find(|limit| limit.mode == Mode::Shadow && would_guard(limit) && slow(limit)) {
        Some(limit) => format!("`{}` refuses nobody while it has `mode: shadow`", limit.name),
        None => "add a limit such as `{key: ip, algorithm: sliding_window, rate: 10/min, slices: 10, strict: true}`"
            .to_owned(),
    };
    report.warning(name.problem(message).help(help));
}

/// A client with an IPv6 network has as many counters as it likes if each of its addresses is a client.
fn prefix(limits: &Section<LimitConfig>, raw: &RawConfig, client_ip: &ClientIpConfig, report: &mut Report) {
    let by_address = limits.valid().find(|(_, limit)| limit.key.parts().any(|part| matches!(part, Part::Ip)));
    let written = raw.client_ip.as_ref().and_then(|client_ip| client_ip.value.ipv6_prefix.as_ref());
    if let (Some((name, _)), Some(bits)) = (by_address, written)
        && client_ip.ipv6_prefix > 64
    {
        let message = format!("one client can have many counters of `{}`", name.value);
        report.warning(bits.problem(message).help(
            "whoever has an IPv6 network of 64 bits, which is usual, has 2^64 addresses; leave out `ipv6_prefix`, or use 64 or less",
        ));
    }
}
