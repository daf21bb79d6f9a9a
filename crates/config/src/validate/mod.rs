//! Converts the raw configuration into the model: checks values, resolves names, reports all mistakes.

mod advice;
mod api_key;
mod balance;
mod ban;
mod checks;
mod client;
mod client_ip;
mod context;
mod cors;
mod cost;
mod edge;
mod fair;
mod header_settings;
mod http_url;
mod identity_rate;
mod jwt;
mod key;
mod limit;
mod limit_files;
mod lists;
mod log;
mod matching;
mod outside;
mod overload;
mod path;
mod penalty;
mod plan;
mod queue;
mod quota;
mod redis_url;
mod regions;
mod rls;
mod route;
mod rules;
mod section;
mod served;
mod shape;
mod share;
mod shared;
mod store;
mod sync;
mod telemetry;
mod template;
mod tls;
mod underscores;
mod upstream;
mod upstream_tls;
mod uri;

use crate::model::listener::ListenerConfig;
use crate::model::parsed::Parsed;
use crate::model::route::{HeaderFamilies, UpstreamHeaders};
use crate::model::store::{RedisConfig, RedisServers};
use crate::model::{Config, MetricsConfig};
use crate::raw::RawConfig;
use crate::raw::metrics::RawMetrics;
use crate::read::at::{At, Folder};
use crate::read::is_wrong;
use crate::read::report::Report;
use checks::{in_range, max_body, max_head, value};
pub use client_ip::believes_everybody;
use context::{Context, Known};
use header_settings::{header_case, rate_limit_headers};
pub(super) use plan::known as plans;
use section::Section;
pub use shape::FRAMING;

/// The longest request head when nothing else is said.
const MAX_HEAD: u64 = 32 << 10;

/// The configuration as far as it is valid; mistakes are in the report.
pub(super) fn config(raw: &RawConfig, folder: Folder<'_>, report: &mut Report) -> Parsed {
    let listeners = edge::listeners(raw, folder, report);
    let certified =
        |(_, listener): (_, &ListenerConfig)| listener.tls.as_ref().is_some_and(|tls| tls.client.is_some());
    let admin = raw.admin.as_ref().and_then(|admin| edge::admin(&admin.value, &listeners, folder, report));
    let raw_auth = raw.auth.as_ref().map(|auth| &auth.value);
    let auth_wrong = is_wrong!(raw, auth);
    let plans = plans(raw);
    let raw_api_key = raw_auth.and_then(|auth| auth.api_key.as_ref());
    let api_key = api_key::api_key(raw_api_key, folder, report);
    let jwt = raw_auth.and_then(|auth| auth.jwt.as_ref()).and_then(|raw| jwt::jwt(raw, folder, report));
    let raw_introspection = raw_auth.and_then(|auth| auth.introspection.as_ref());
    let introspection = raw_introspection.and_then(|raw| outside::introspection(raw, folder, report));
    let raw_check = raw_auth.and_then(|auth| auth.check.as_ref());
    let check = raw_check.and_then(|raw| outside::check(raw, folder, report));
    // Whether the file wants a section, rightly written or not.
    let wants =
        |name: &str, given: bool| raw_auth.map_or(auth_wrong, |auth| given || auth.wrong.contains(&name));
    let checked = wants("check", raw_check.is_some());
    let tokens = wants("introspection", raw_introspection.is_some());
    let store = raw.store.as_ref().and_then(|store| store::store(store, folder, report));
    let has_store = raw.store.is_some() || is_wrong!(raw, store);
    let rules =
        raw.rules.as_ref().and_then(|raw| rules::rules(raw, folder, (store.as_ref(), has_store), report));
    let lists = lists::lists(raw, folder, report);
    let (client_ip, proxy_files) = client_ip::client_ip(raw.client_ip.as_ref(), folder, &lists, report);
    let access = lists::file_access(raw, &lists, report);
    let limits = Section::new("limit", is_wrong!(raw, limits));
    let context = Context {
        folder,
        lists: &lists,
        store: has_store,
        redis: store.as_ref(),
        gateways: store.as_ref().map_or(1, |store| store.gateways),
        consumers: raw_auth.map_or(auth_wrong, |auth| {
            api_key::has_consumers(auth.api_key.as_ref()) || is_wrong!(auth, api_key)
        }),
        checked,
        tokens: tokens || wants("jwt", raw_auth.is_some_and(|auth| auth.jwt.is_some())),
        certified: !listeners.is_complete() || listeners.valid().any(certified),
    };
    let limits = limits
        .read(raw.limits.as_ref(), report, |name, raw, report| limit::limit(name, raw, context, report));
    queue::check_streams(&limits, report);
    let request_head = raw.max_head.as_ref().and_then(|text| max_head(text, report)).unwrap_or(MAX_HEAD);
    let upstreams = Section::new("upstream", is_wrong!(raw, upstreams));
    let upstreams = upstreams.read(raw.upstreams.as_ref(), report, |name, raw, report| {
        upstream::upstream(name, raw, (folder, context), request_head, report)
    });
    let client = client::client(raw, report);
    let families = rate_limit_headers(raw.headers.as_ref(), HeaderFamilies::ALL, report);
    let max_body = raw.max_body.as_ref().and_then(|text| max_body(text, report));
    let names = template::Names {
        matches: None,
        consumers: context.consumers,
        checked: context.checked,
        tokens: context.tokens,
        certified: context.certified,
    };
    let of_jwt = jwt.iter().flat_map(|jwt| &jwt.forward);
    let of_answers = introspection.iter().flat_map(|introspection| &introspection.forward);
    let claim_headers: Vec<_> = of_jwt.chain(of_answers).map(|(name, _)| name.clone()).collect();
    let claim_headers = &claim_headers[..];
    let requests =
        shape::headers(raw.request_headers.as_ref(), shape::Of::Requests, claim_headers, names, report);
    let answers =
        shape::headers(raw.response_headers.as_ref(), shape::Of::Answers, claim_headers, names, report);
    let cors = cors::cors(raw.cors.as_ref(), report);
    let known = Known {
        cors: cors.as_ref(),
        names,
        claim_headers,
        checked,
        requests: &requests,
        answers: &answers,
        listeners: &listeners,
        lists: &lists,
        access: &access,
        limits: &limits,
        upstreams: &upstreams,
        headers: families,
        max_body,
        timeout: client.request,
        in_cluster: matches!(&store, Some(RedisConfig { servers: RedisServers::Cluster(_), .. })),
    };
    let (routes, matches) = route::all(raw, &known, report);
    cost::routes(raw, &routes, report);
    limit::warnings(&limits, &routes, &client_ip, &api_key, report);
    lists::warnings(&lists, &access, &routes, &limits, &client_ip.trusted_lists, report);
    upstream::warnings(&upstreams, &routes, report);

    let token_required = jwt.as_ref().is_some_and(|jwt| jwt.required)
        || introspection.as_ref().is_some_and(|introspection| introspection.required);
    let of_file = advice::Known {
        raw,
        client_ip: &client_ip,
        routes: &routes,
        names: &matches,
        api_key: &api_key,
        token_required,
    };
    advice::warnings(&limits, of_file, report);

    let workers = raw.workers.as_ref().and_then(|n| in_range(n, 1..=256, "workers", report));
    let of_jwt = jwt.iter().map(|jwt| &jwt.header);
    let token_headers: Vec<_> =
        of_jwt.chain(introspection.iter().map(|introspection| &introspection.header)).collect();
    let access_log = log::access_log(raw.access_log.as_ref(), folder, (&api_key, &token_headers), report);
    let trace = log::trace(raw.trace.as_ref(), report);
    let rls = raw.rls.as_ref().and_then(|raw| rls::rls(raw, (folder, context), &limits, report));
    let limitador =
        raw.limitador.as_ref().and_then(|raw| rls::limitador(raw, (folder, context), &limits, report));
    served::check_sections(raw, &listeners, report);
    let regions = raw.regions.as_ref().and_then(|raw| regions::regions(raw, has_store, folder, report));
    let mut limits = limits.into_valid();
    if let Some((regions, raw)) = regions.as_ref().zip(raw.regions.as_ref()) {
        regions::divide(regions, raw.at, &mut limits, report);
    }
    let priorities = overload::priorities(
        raw.priorities.as_ref(),
        &plans,
        context.consumers || context.checked || context.tokens,
        report,
    );
    let config = Config {
        overload: raw.overload.as_ref().and_then(|raw| overload::own(&raw.value, report)),
        priorities,
        cors,
        answer_headers: answers,
        access_log,
        trace,
        client_ip,
        listeners: listeners.into_valid(),
        admin,
        api_key,
        jwt,
        introspection,
        check,
        store,
        regions,
        rules,
        metrics: metrics(raw.metrics.as_ref(), report),
        otlp: telemetry::otlp(raw.telemetry.as_ref(), folder, report),
        lists: lists.into_valid().into_iter().chain(proxy_files).collect(),
        plans,
        limits,
        rls,
        limitador,
        upstreams: upstreams.into_valid(),
        routes,
        workers: workers.map(|n| n as usize),
        client,
        max_head: request_head as usize,
        header_case: header_case(raw.header_case.as_ref(), report),
        h2: client::h2(raw, report),
        drain: client::drain(raw, report),
    };
    Parsed { config, matches }
}

fn metrics(raw: Option<&At<RawMetrics>>, report: &mut Report) -> MetricsConfig {
    let by_consumer = raw.and_then(|raw| raw.value.by_consumer.as_ref());
    let by_consumer = by_consumer.and_then(|count| in_range(count, 0..=1_000, "by_consumer", report));
    MetricsConfig { by_consumer: by_consumer.unwrap_or(0) as usize }
}

impl HeaderFamilies {
    const ALL: Self =
        Self { x_ratelimit: true, ietf: true, retry_after: true, upstream: UpstreamHeaders::Replace };
}
