//! Listeners that decide for other proxies.

use http::StatusCode;

use super::checks::{in_range, value, word};
use super::section::Section;
use crate::model::cost::Cost;
use crate::model::limit::{LimitConfig, Mode};
use crate::model::listener::{ListenerConfig, TlsConfig};
use crate::model::route::{Action, Match};
use crate::model::served::{ServedConfig, ServedProtocol};
use crate::raw::RawConfig;
use crate::raw::listen::RawListenerFields;
use crate::read::at::At;
use crate::read::is_wrong;
use crate::read::report::{Place, Problem, Report};
use crate::{PartSource, parse_network};
use sluicegate_limiter::Quota;

/// How a listener decides for other proxies, if it does.
pub(super) fn served(
    raw: &RawListenerFields,
    tls: Option<&TlsConfig>,
    report: &mut Report,
) -> Option<ServedConfig> {
    let Some(text) = &raw.serve else {
        let callers = raw.callers.as_ref().map(|callers| ("callers", callers.at));
        let deny_status = raw.deny_status.as_ref().map(|status| ("deny_status", status.at));
        for (field, at) in [callers, deny_status].into_iter().flatten().filter(|_| !is_wrong!(raw, serve)) {
            report.error(
                Problem::new(at, format!("`{field}` has no effect without `serve`"))
                    .help("it belongs to a listener that decides for other proxies: `serve: check`"),
            );
        }
        return None;
    };
    let protocol = word(text, "value of `serve`", &ServedProtocol::WORDS, report);
    let texts = raw.callers.as_ref().map_or(&[][..], |callers| &callers.value);
    let callers: Vec<_> = texts.iter().filter_map(|text| value(text, report, parse_network)).collect();
    let certified = tls.and_then(|tls| tls.client.as_ref()).is_some_and(|client| client.required);
    if texts.is_empty() && !certified && !is_wrong!(raw, callers) {
        report.error(
            text.problem(format!("a listener with `serve: {}` needs `callers`", text.value)).help(
                "who may ask names the client: list the addresses of your proxies, such as `callers: [10.0.0.0/8]`, or set `tls.client_ca`",
            ),
        );
    }
    if let Some(on) = raw.proxy_protocol.as_ref().filter(|on| on.value) {
        report.error(
            on.problem("a listener with `serve` cannot have `proxy_protocol`")
                .help("the PROXY header would say who asks; let your proxies connect directly"),
        );
    }
    if let Some((status, protocol)) =
        raw.deny_status.as_ref().zip(protocol).filter(|(_, protocol)| protocol.has_own_limits())
    {
        report.error(
            status
                .problem(format!("`deny_status` has no effect with `serve: {}`", protocol.name()))
                .help("the proxy has the status; in Envoy it is `rate_limited_status`"),
        );
    }
    let deny_status = raw.deny_status.as_ref();
    let deny_status = deny_status.and_then(|status| in_range(status, 400..=599, "deny_status", report));
    let deny_status = deny_status.and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
    Some(ServedConfig { protocol: protocol?, callers, deny_status })
}

/// Whether no listener has a use for routes: all serve limits of their own.
pub(super) fn without_routes(listeners: &Section<ListenerConfig>) -> bool {
    let mut all = listeners.valid().map(|(_, listener)| listener).peekable();
    let has_own_limits = |listener: &ListenerConfig| {
        listener.served.as_ref().is_some_and(|served| served.protocol.has_own_limits())
    };
    listeners.is_complete() && all.peek().is_some() && all.all(has_own_limits)
}

/// Reports listeners with `serve: rls` or `serve: limitador` without limits, and limits that no listener serves.
pub(super) fn check_sections(raw: &RawConfig, listeners: &Section<ListenerConfig>, report: &mut Report) {
    let rls = raw.rls.as_ref().map(|rls| rls.at);
    check_section(ServedProtocol::Rls, (rls, is_wrong!(raw, rls)), "ratelimit/*.yaml", listeners, report);
    let limitador = raw.limitador.as_ref().map(|limitador| limitador.at);
    let limitador = (limitador, is_wrong!(raw, limitador));
    check_section(ServedProtocol::Limitador, limitador, "limits.yaml", listeners, report);
}

fn check_section(
    protocol: ServedProtocol,
    (section, is_wrong): (Option<Place>, bool),
    files: &str,
    listeners: &Section<ListenerConfig>,
    report: &mut Report,
) {
    let is_served = |listener: &ListenerConfig| {
        listener.served.as_ref().is_some_and(|served| served.protocol == protocol)
    };
    let (served, word) = (listeners.valid().find(|(_, listener)| is_served(listener)), protocol.name());
    match (served, section) {
        (Some((name, _)), None) if !is_wrong => report.error(
            name.problem(format!(
                "the listener `{}` serves rate limits, and there is no `{word}`",
                name.value
            ))
            .help(format!("such as `{word}: {{files: [{files}]}}`")),
        ),
        (None, Some(at)) if listeners.is_complete() => report.warning(
            Problem::new(at, format!("`{word}` has no effect: no listener serves it")).help(format!(
                "such as `listen: [{{address: 0.0.0.0:8081, serve: {word}, callers: [10.0.0.0/8]}}]`"
            )),
        ),
        _ => {}
    }
}

/// Reports a route with `respond: usage` that a listener with `serve` can match: it is answered without its limits.
pub(super) fn check_usage(
    name: &At<String>,
    action: &Action,
    matches: &Match,
    listeners: &Section<ListenerConfig>,
    report: &mut Report,
) {
    let Some(listener) = listener_of(matches, listeners).filter(|_| matches!(action, Action::Usage)) else {
        return;
    };
    report.error(
        name.problem(format!(
            "the listener `{}` does not answer requests itself, as `respond: usage` does",
            listener.name
        ))
        .help("give the route `match: {listener: …}` of a listener that serves clients"),
    );
}

/// The listener with `serve` that decides by routes with this match.
fn listener_of<'l>(matches: &Match, listeners: &'l Section<ListenerConfig>) -> Option<&'l ListenerConfig> {
    let is_meant =
        |listener: &ListenerConfig| matches.listener.as_ref().is_none_or(|of| of.name == listener.name);
    listeners.valid().map(|(_, listener)| listener).find(|one| one.decides_by_routes() && is_meant(one))
}

/// Reports a limit of a route that a listener with `serve` cannot decide, because it sees neither the response nor the end
/// of a request.
pub(super) fn check_limit(
    name: &At<String>,
    limit: &LimitConfig,
    matches: &Match,
    listeners: &Section<ListenerConfig>,
    report: &mut Report,
) {
    let Some(why) = obstacle(limit) else { return };
    let served = listener_of(matches, listeners);
    if let Some((listener, served)) = served.and_then(|one| Some((one, one.served.as_ref()?))) {
        report.error(
            name.problem(format!(
                "the listener `{}` (serve: {}) cannot decide by the limit `{}`: {why}",
                listener.name,
                served.protocol.name(),
                name.value,
            ))
            .help("use another limit there, and give routes with this one `match: {listener: …}` of a listener that forwards"),
        );
    }
}

/// What a limit needs that only the proxy which forwards a request knows.
fn obstacle(limit: &LimitConfig) -> Option<&'static str> {
    if limit.mode == Mode::Off {
        return None;
    }
    if limit.queue.is_some() {
        return Some("it keeps requests to send them later");
    }
    if limit.penalty.is_some() {
        return Some("requests above it wait in a slower lane");
    }
    if matches!(&limit.cost, Cost::Detailed(cost) if cost.settles()) {
        return Some("its cost depends on the response");
    }
    if limit.key.parts().any(|part| part.source() == PartSource::Certificate) {
        return Some("only the proxy knows the certificate of the client");
    }
    match limit.quota {
        Quota::Concurrency(..) => Some("it counts requests until their end"),
        Quota::LeakyBucket(..) => Some("it delays requests"),
        _ => None,
    }
}
