//! What the fuzz targets run, and what has to hold whatever comes in. A plain test runs the same over the corpus.

use std::net::IpAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request};
use prost::Message;
use sluicegate_auth::client_address::resolve;
use sluicegate_base::incoming::{self, Peer};
use sluicegate_config::{ClientIpConfig, ForwardedHeader, Report, normalize};
use sluicegate_gateway::request::limit_selection::LimitSelection;
use sluicegate_gateway::request::matching::{Matching, Step};
use sluicegate_gateway::request::pipeline::evaluate;
use sluicegate_gateway::resources;
use sluicegate_gateway::snapshot::{Opened, Snapshot, SnapshotBuilder};
use sluicegate_import::Files;
use sluicegate_import::nginx::import_text;
use sluicegate_limiter::Time;
use sluicegate_rls::descriptors;
use sluicegate_rls::json;
use sluicegate_rls::limitador::{self, Limits, Question};
use sluicegate_rls::plan::{Domains, Outcome, Planned};
use sluicegate_rls::wire::ratelimit::{Entry, RateLimitDescriptor, RateLimitResponse};
use sluicegate_rls::wire::{decode, frame};
use sluicegate_route::{folded, is_doubtful, is_plain};
use sluicegate_wire::Headers;
use sluicegate_wire::RequestHead;
use sluicegate_wire::headers::is_value;

/// Any text as gateway.yaml: it is read, or there is a report of at least one mistake; and twice the same.
pub fn configuration(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    if text.contains("/dev/") || text.contains("/proc/") {
        return; // a file that is named is read, and these may have no end
    }
    let folder = Path::new("/nonexistent");
    let loaded = resources::parse(text.clone(), "gateway.yaml", folder);
    assert_eq!(loaded.config.is_none(), loaded.rendered.contains(": error: "), "{}", loaded.rendered);
    let again = resources::parse(text, "gateway.yaml", folder);
    assert_eq!(loaded.rendered, again.rendered);
    assert_eq!(loaded.config.is_some(), again.config.is_some());
    if let (Some(one), Some(two)) = (loaded.config, again.config) {
        assert_eq!(one.routes.len(), two.routes.len());
        // What is valid can be in force.
        let snapshot = SnapshotBuilder::default().build(one, Opened::default(), None, Time::from_nanos(1));
        assert_eq!(snapshot.routes.len(), snapshot.config.routes.len());
    }
}

/// Files that nothing can be read from.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("there is no such file".to_owned())
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// Any text as nginx.conf: there is a message, or a valid gateway.yaml and a report with an item for each line that it converted from;
/// and twice the same.
pub fn nginx(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let imported = || import_text(&NoFiles, "nginx.conf", &text);
    let (one, two) = (imported(), imported());
    match (one, two) {
        (Ok(one), Ok(two)) => {
            assert_eq!((&one.yaml, &one.report), (&two.yaml, &two.report));
            if let Err(errors) = sluicegate_config::parse_without_files(&one.yaml) {
                panic!("{errors}\n{}", one.yaml);
            }
            assert!(!one.report.items.is_empty());
        }
        (one, two) => assert_eq!(one.map(|_| ()), two.map(|_| ())),
    }
}

/// Any text as a file of envoyproxy/ratelimit: there is a domain, or a report of at least one mistake; and twice the same.
pub fn rate_limit_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = || {
        let mut report = Report::default();
        let domain = descriptors::parse(&text, &mut report);
        (domain, report.errors.is_empty(), report.render("limits.yaml", &text))
    };
    let ((one, right, said), (_, _, again)) = (read(), read());
    assert_eq!((one.is_some(), &said), (right, &again));
    let Some(domain) = one else { return };
    let mut paths: Vec<_> = domain.rules().iter().map(|rule| rule.path.clone()).collect();
    paths.sort_unstable();
    assert!(paths.windows(2).all(|two| two[0] != two[1]), "{paths:?}");
    assert!(Domains::new(vec![domain.clone(), domain]).is_err());
}

/// Any text as a limits file of limitador, and as a question: it is used or has mistakes, and each limit that applies has counters
/// of its own.
pub fn limitador_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = Question::in_json(data);
    let mut report = Report::default();
    let limits = limitador::parse(&text, &mut report);
    assert_eq!(limits.is_some(), report.errors.is_empty(), "{}", report.render("limits.yaml", &text));
    let Some(limits) = limits else { return };
    let limits = Limits::new(limits).expect("a file has no limit twice");
    let entries = vec![Entry::new("a", "b"), Entry::new("m", "GET")];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    for limit in limits.all() {
        let (namespace, descriptors) = (limit.namespace.clone(), descriptors.clone());
        let applied = limits.applied(&Question { namespace, descriptors, hits: 1, headers: false });
        assert!(applied.windows(2).all(|two| two[0].limit < two[1].limit), "{applied:?}");
    }
}

const DESCRIPTORS: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5, name: users}}
  - {key: vip, rate_limit: {unit: minute, requests_per_unit: 50, replaces: [{name: users}]}}
  - {key: staff, rate_limit: {unlimited: true}}
  - {key: trial, value: '*', shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: path
    value: /a/*
    share_threshold: true
    descriptors: [{key: user, quota_mode: true, metadata: {a: 1}, rate_limit: {unit: day, requests_per_unit: 1}}]
";

/// Any bytes as a request for a rate limit, in protobuf or JSON, for an authorization, or in a frame: it is refused, or each of its
/// descriptors has an answer, which reads the same once it is written.
pub fn rate_limit_requests(data: &[u8]) {
    static DOMAINS: OnceLock<Domains> = OnceLock::new();
    let domains = DOMAINS.get_or_init(|| {
        let domain = descriptors::parse(DESCRIPTORS, &mut Report::default()).expect("the file is right");
        Domains::new(vec![domain]).expect("there is one")
    });
    let message = Bytes::copy_from_slice(data);
    let framed = frame::message(&message, data.len()).unwrap_or_default();
    assert!(framed.is_empty() || framed.len() + frame::PREFIX == data.len());
    for bytes in [&message, &framed] {
        if let Ok(request) = decode::authorization(bytes.clone()) {
            let count = request.http().map_or(0, |http| http.header_fields().count());
            assert!(count <= 2 * decode::MAX_HEADERS);
        }
    }
    let requests = [decode::rate_limit(message), decode::rate_limit(framed), json::request(data)];
    for request in requests.into_iter().flatten() {
        let again = decode::rate_limit(request.encode_to_vec().into());
        assert_eq!(again.as_ref(), Ok(&request));
        let Ok(plan) = domains.plan(&request) else { continue };
        for (index, ask) in plan.asks.iter().enumerate() {
            assert_eq!(plan.descriptors[ask.descriptor], Planned::Asked(index));
        }
        let outcome =
            Outcome { admitted: data.len().is_multiple_of(2), remaining: 7, reset: Duration::from_millis(1) };
        let answer = plan.answer(&vec![outcome; plan.asks.len()]).expect("there is one for each");
        assert_eq!(answer.statuses.len(), request.descriptors.len());
        let body = frame::encode(&answer);
        let body = frame::message(&body, body.len()).expect("it is one message");
        assert_eq!(RateLimitResponse::decode(body).as_ref(), Ok(&answer));
        json::response(&answer);
    }
}

const KEYS: &str = "
listen: [127.0.0.1:1]
client_ip: {trusted_proxies: [127.0.0.0/8]}
limits:
  key: {key: api_key | ip, rate: 1000000/h}
  path: {key: [host, path, method], rate: 1000000/h}
  id: {key: \"path:id\", rate: 1000000/h}
  header: {key: \"header:x-tenant | cookie:session | query:q | route\", rate: 1000000/h}
routes:
  - {name: id, match: {path: '/users/{id}'}, upstream: api, limits: [key, path, id, header]}
  - {name: rest, match: {path: /*}, upstream: api, limits: [key, path, header]}
upstreams: {api: {servers: ['http://127.0.0.1:1']}}
";

/// A request of lines: the target, then headers as `name: value`. It is evaluated, the same every time, and each limit that
/// its route has is asked or says why not: no request comes through without a key.
pub fn keys(data: &[u8]) {
    static SNAPSHOT: OnceLock<Snapshot> = OnceLock::new();
    let snapshot = SNAPSHOT.get_or_init(|| {
        let config = resources::parse(KEYS.to_owned(), "gateway.yaml", Path::new("/nonexistent"));
        SnapshotBuilder::default().build(
            config.config.expect("the file is right"),
            Opened::default(),
            None,
            Time::from_nanos(1),
        )
    });
    let mut lines = data.split(|b| *b == b'\n');
    let target = lines.next().unwrap_or_default();
    let Ok(request) = Request::builder().uri(target).body(()) else { return };
    let mut parts = RequestHead::from(request.into_parts().0);
    for line in lines {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = line[colon + 1..].trim_ascii();
        if let Ok(name) = name
            && is_value(value)
        {
            parts.headers.append(name, value);
        }
    }
    if !parts.headers.contains_key("host") {
        parts.headers.append("host", "api.test");
    }
    let request =
        incoming::Request { head: &parts, peer: Peer::plain(0, "127.0.0.1".parse().expect("an address")) };
    let now = Time::from_nanos(1);
    let fingerprints = || {
        let mut matching = Matching::new(snapshot, request, now);
        let step = matching.step(&|_| false);
        let LimitSelection { selected, skipped, .. } = matching.selection;
        match step {
            Step::Decide(found) if found.reject.is_none() => {
                assert!(selected.len() + skipped.len() >= found.route.limits.len());
                Ok(selected.iter().map(|one| one.ask.key).collect::<Vec<_>>())
            }
            Step::Decide(denied) => Err(denied.reject.map(|reject| *reject)),
            Step::Answer(reject) => Err(Some(reject)),
            Step::Refuse(_) | Step::LoadRules { .. } | Step::Ask { .. } => Err(None),
        }
    };
    assert_eq!(fingerprints(), fingerprints());
    if let Ok((_, selection, decision)) = evaluate(snapshot, request, now, false) {
        assert_eq!(selection.selected.len(), decision.verdicts.len());
    }
}

/// Any path: its normal form is its own normal form and has nothing left to resolve; a plain path is read alike by
/// everybody; and what keys are made of is the same for a form and its form.
pub fn paths(data: &[u8]) {
    let path = String::from_utf8_lossy(data);
    let once = folded(&path).into_owned();
    assert_eq!(folded(&once), once, "{path:?}");
    let doubtful = is_doubtful(&path);
    let Ok(normal) = normalize(&path) else {
        assert!(!is_plain(&path), "{path:?}");
        return;
    };
    assert_eq!(normalize(&normal).as_deref(), Ok(&*normal), "{path:?}");
    assert!(normal.starts_with('/') && !normal.contains("//") && !normal.contains('\\'), "{normal:?}");
    assert!(!normal.split('/').any(|segment| matches!(segment, "." | "..")), "{normal:?}");
    assert!(normal.bytes().all(|b| b.is_ascii_graphic()), "{normal:?}");
    let lower = normal.to_ascii_lowercase();
    for hidden in ["%2f", "%5c", "%00", "%0a", "%0d"] {
        assert!(!lower.contains(hidden), "{normal:?}");
    }
    if is_plain(&path) {
        assert_eq!(*normal, *path);
        assert!(!doubtful && folded(&path) == path, "{path:?}");
    }
}

/// The lines of a forwarded-address header, which a client wrote, and what a trusted proxy wrote behind them: the
/// client is whom that proxy saw, and an untrusted peer is itself.
pub fn forwarded(data: &[u8]) {
    let seen = "198.51.100.7";
    let (proxy, stranger): (IpAddr, IpAddr) =
        ("10.0.0.1".parse().expect("an address"), "203.0.113.9".parse().expect("an address"));
    for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded, ForwardedHeader::XRealIp] {
        let config = ClientIpConfig {
            depth: None,
            trusted_proxies: vec!["10.0.0.0/8".parse().expect("a network")],
            trusted_lists: Vec::new(),
            header,
            ipv6_prefix: 64,
        };
        let mut headers = Headers::new();
        for line in data.split(|b| *b == b'\n') {
            if is_value(line) {
                headers.append(config.header.name(), line);
            }
        }
        assert_eq!(resolve(&config, &[], stranger, &headers), stranger);
        resolve(&config, &[], proxy, &headers);
        let wrote = match &config.header {
            ForwardedHeader::Forwarded => format!("for={seen}"),
            _ => seen.to_owned(),
        };
        // On a line of its own, and at the end of the client's last one.
        let mut apart = headers.clone();
        apart.append(config.header.name(), &wrote);
        assert_eq!(resolve(&config, &[], proxy, &apart).to_string(), seen);
        let last = headers.get_all(config.header.name()).next_back().unwrap_or_default();
        let joined = [last, b", ", wrote.as_bytes()].concat();
        let mut one = Headers::new();
        one.append(config.header.name(), &joined);
        assert_eq!(resolve(&config, &[], proxy, &one).to_string(), seen, "{joined:?}");
    }
    let name = HeaderName::from_static("cf-connecting-ip");
    let config = ClientIpConfig {
        depth: None,
        trusted_proxies: vec!["10.0.0.0/8".parse().expect("a network")],
        trusted_lists: Vec::new(),
        header: ForwardedHeader::Single(name.clone()),
        ipv6_prefix: 64,
    };
    let lines: Vec<&[u8]> = data.split(|b| *b == b'\n').filter(|line| is_value(line)).collect();
    let headers: Headers = lines.iter().map(|line| (name.as_str(), *line)).collect();
    assert_eq!(resolve(&config, &[], stranger, &headers), stranger);
    let found = resolve(&config, &[], proxy, &headers);
    if lines.len() != 1 || lines[0].contains(&b',') {
        assert_eq!(found, proxy, "{lines:?}"); // there is not exactly one address
    }
}
