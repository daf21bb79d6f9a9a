//! `check` knows the words of other programs and answers with those of this one.

use std::path::Path;

use sluicegate_gateway::resources::{Loaded, parse};

const LISTEN: &str = "listen: [127.0.0.1:8080]\n";
const UPSTREAMS: &str = "upstreams: {api: {servers: [\"http://127.0.0.1:9000\"]}}\n";
const LIMITS: &str = "limits: {one: {key: ip, rate: 10/s}}\n";
const ROUTES: &str = "routes: [{name: all, upstream: api, limits: [one]}]\n";

/// A whole file with these sections instead of the usual ones.
fn file(sections: &str) -> String {
    let mut text = String::from(sections) + "\n";
    for usual in [LISTEN, UPSTREAMS, LIMITS, ROUTES] {
        let key = usual.split(':').next().unwrap();
        if !sections.lines().any(|line| line.starts_with(&format!("{key}:"))) {
            text += usual;
        }
    }
    text
}

fn check(text: &str) -> Loaded {
    parse(text.to_owned(), "gateway.yaml", Path::new(""))
}

/// The only thing that is said of a file: its help.
#[track_caller]
fn help(sections: &str) -> String {
    let loaded = check(&file(sections));
    let all: Vec<_> = loaded.report.errors.iter().chain(&loaded.report.warnings).collect();
    assert_eq!(all.len(), 1, "{sections}\n{}", loaded.rendered);
    all[0].help.clone().unwrap_or_else(|| panic!("{sections}\n{}", loaded.rendered))
}

#[track_caller]
fn helps(place: impl Fn(&str) -> String, table: &[(&str, &str)]) {
    for (word, expected) in table {
        let found = help(&place(word));
        assert!(found.contains(expected), "{word}\nexpected {expected}\nfound {found}");
    }
}

#[test]
fn foreign_words_of_limits() {
    let limit = |more: &str| format!("limits: {{one: {{key: ip, rate: 10/s, {more}}}}}");
    helps(
        limit,
        &[
            ("dry_run: true", "write `mode: shadow`"),
            ("shadow_until: 2026-12-01", "write `mode: shadow`; a rule can end it"),
            ("status: 401", "`cost: {status: 401}` counts only requests that are answered 401"),
            ("only_failed: true", "write `cost: {status: [401, 403]}`"),
            ("skipSuccessfulRequests: true", "write `cost: {status: [401, 403]}`"),
            ("monitor: true", "write `mode: shadow`"),
            ("shadow: true", "write `mode: shadow`"),
            ("mode: dry_run", "write `mode: shadow`"),
            ("mode: monitor", "write `mode: shadow`"),
            ("mode: on", "write `mode: enforce`"),
            ("enabled: false", "write `mode: enforce` or `mode: off`"),
            ("algorithm: GCRA", "write `token_bucket`, which is GCRA here"),
            ("algorithm: leaky", "write `leaky_bucket`"),
            ("algorithm: fixed", "write `fixed_window`"),
            ("algorithm: sliding", "write `sliding_window`"),
            ("algorithm: concurrent", "write `concurrency`"),
            ("capacity: 20", "write `burst: 20`"),
            ("whitelist: [10.0.0.0/8]", "write `exempt: [10.0.0.0/8]`"),
            ("path: /login", "a route names its limits"),
            ("on_missing: reject", "write `deny`"),
            ("only_failures: true", "write `cost: {status: [401, 403]}`"),
            ("shadow_until: 2026-12-04", "write `mode: shadow`"),
            ("status: 401", "`cost: {status: 401}` counts only requests that are answered 401"),
            ("candidate: 10", "write `candidate: 10/s`"),
        ],
    );
    let rate = |fields: &str| format!("limits: {{one: {{key: ip, {fields}}}}}");
    helps(
        rate,
        &[
            ("limit: 10, window: 60s", "write `rate: 10/60s`"),
            ("window: 60, requests: 10", "write `rate: 10/60s`"),
            ("requests: 100, per: minute", "write `rate: 100/min`"),
            ("average: 100, period: 1m", "write `rate: 100/min`"),
            ("requests_per_unit: 5, unit: HOUR", "write `rate: 5/h`"),
            ("rps: 10", "write `rate: 10/s`"),
            ("limit: 10", "write `rate: 10/min`"),
            ("rate: 10r/s burst=20", "write `rate: 10/s` and `burst: 20`"),
        ],
    );
    helps(
        |key| format!("auth: {{api_key: {{{key}}}}}"),
        &[
            ("file: keys.yaml", "write `consumers: consumers.yaml`"),
            ("header_name: X-Key", "write `header: X-Key`"),
            ("query_param: key", "write `query: key`"),
        ],
    );
    let key = |key: &str| format!("limits: {{one: {{key: {key}, rate: 10/s}}}}");
    helps(
        key,
        &[
            ("client_ip", "write `ip`"),
            ("$remote_addr", "write `ip`"),
            ("$binary_remote_addr", "write `ip`"),
            ("remote_address", "write `ip`"),
            ("X-Tenant", "write `header:X-Tenant`"),
            ("$http_x_tenant", "write `header:X-Tenant`"),
            ("$arg_token", "write `query:token`"),
            ("Authorization", "write `header:Authorization`"),
            ("ip + path", "write `[ip, path]`"),
            ("\"ip, path\"", "write `[ip, path]`"),
            ("$remote_addr$uri", "write `[ip, path]`"),
            ("client_ip + X-Tenant", "write `[ip, header:X-Tenant]`"),
            ("apikey", "write `api_key`"),
            ("everyone", "write `global`"),
            ("X-Forwarded-For", "write `ip`"),
            ("tenant", "write `header:X-Tenant`"),
            ("body.user", "bodies are not read to find a key"),
            ("'form:login'", "bodies are not read to find a key"),
            ("$http_x_forwarded_for", "write `ip`"),
            ("json:username", "bodies are not read to find a key"),
            ("banana", "docs/configuration.md#keys"),
        ],
    );
}

#[test]
fn foreign_words_of_routes_and_upstreams() {
    let route = |more: &str| format!("routes: [{{name: all, upstream: api, limits: [one], {more}}}]");
    helps(
        route,
        &[
            ("path: /v1/*", "write `match: {path: /v1/*}`"),
            ("path: '/v1/{id}'", "write `match: {path: '/v1/{id}'}`"),
            ("paths: [/a, /b]", "write `match: {path: [/a, /b]}`"),
            ("host: api.test", "write `match: {host: api.test}`"),
            ("methods: [GET]", "write `match: {methods: [GET]}`"),
            ("match: /v1/*", "write `match: {path: /v1/*}`"),
            ("match: {path: '~ ^/v[0-9]+/x$'}", "write `path: {regex: '/v[0-9]+/x'}`"),
            ("match: {path: '~* ^/(a|b)/'}", "write `path: {regex: '(?i)/(a|b)/.*'}`"),
            ("match: {path: '~ ^/v1/'}", "write /v1/"),
            ("check: true", "servers are checked by `health` of an upstream"),
            ("strip_path: true", "write `strip_prefix: /v1`"),
            ("rate: 10/s", "it belongs to a limit"),
            ("reject: 503", "write `reject: {status: 503}`"),
        ],
    );
    helps(
        |check| {
            format!(
                "auth: {{check: {{url: \"https://auth.test/\"}}}}\n\
                 routes: [{{name: all, upstream: api, limits: [one], check: {check}}}]"
            )
        },
        &[("true", "write `check: on`"), ("false", "write `check: off`")],
    );
    let upstream = |more: &str| {
        format!(
            "upstreams: {{api: {{servers: [\"http://127.0.0.1:9000\", \"http://127.0.0.1:9001\"], {more}}}}}"
        )
    };
    helps(
        upstream,
        &[
            ("balance: least_conn", "write `least_requests`"),
            ("balance: leastconn", "write `least_requests`"),
            ("balance: ip_hash", "write `{hash: ip}`"),
            ("health: /x", "write `health: {path: /x}`"),
            ("check: true", "write `health: {path: /healthz}`"),
            ("health: {path: /x, interval: 5s}", "write `every: 5s`"),
            ("max_fails: 3", "write `ejection: {failures: 5, for: 10s}`"),
            ("protocol: h2c", "write `http2`"),
        ],
    );
}

#[test]
fn foreign_words_at_the_top() {
    helps(
        str::to_owned,
        &[
            ("trusted_proxies: [10.0.0.0/8]", "write `client_ip: {trusted_proxies: [10.0.0.0/8]}`"),
            ("store: redis://127.0.0.1:6379", "write `store: {redis: {url: redis://127.0.0.1:6379}}`"),
            ("admin: 127.0.0.1:9090", "write `admin: {address: 127.0.0.1:9090}`"),
            ("client_ip: 10.0.0.0/8", "write `client_ip: {trusted_proxies: [10.0.0.0/8]}`"),
            ("access_log: {file: a.log}", "write `path: a.log`"),
            ("store: {url: redis://127.0.0.1}", "write `redis: {url: redis://127.0.0.1:6379}`"),
            ("redis: {host: 127.0.0.1}", "write `store: {redis: {url: redis://127.0.0.1:6379}}`"),
            ("request_timeout: 5s", "is it request_headers"),
            ("banana: 1", "docs/configuration.md#the-file has the keys of gateway.yaml"),
        ],
    );
    // The password of a store is in no report.
    let shown = check(&file("store: redis://:sesame@127.0.0.1:6379")).rendered;
    assert!(!shown.contains("sesame") && shown.contains("write `store: {redis: {url:"), "{shown}");
}

#[test]
fn plans_are_rates() {
    let text = "auth: {jwt: {jwks: {url: \"https://id.test/keys\"}, audience: web, issuer: x, plan_claim: plan}}\n\
                limits: {one: {key: ip, rate: 10/min, plans: {free: 10}}}";
    assert_eq!(help(text), "write `plans: {free: {rate: 10/min}}`");
    let text = text.replace("free: 10", "free: 10r/s burst=20");
    assert_eq!(help(&text), "write `rate: 10/s` and `burst: 20`");
}

#[test]
fn foreign_words_of_api_keys() {
    helps(
        |field| format!("auth: {{api_key: {{{field}}}}}"),
        &[
            ("keys: keys.yaml", "write `consumers: consumers.yaml`; `sluicegate consumers add NAME`"),
            ("key_names: X-Key", "write `header: X-Key`"),
        ],
    );
}

/// Of a key that is not known only those are named that have something in common with it.
#[test]
fn no_help_is_a_list_of_all_keys() {
    for section in [
        "banana: 1",
        "limits: {one: {key: ip, rate: 1/s, banana: 1}}",
        "routes: [{upstream: api, banana: 1}]",
    ] {
        let help = help(section);
        assert!(help.len() < 120 && help.contains("docs/configuration.md#"), "{help}");
    }
}

/// A route that is wrong hides no other, whatever is wrong with it, and one that hides many is told of once.
#[test]
fn one_wrong_route_has_one_message() {
    let others: String =
        (0..6).map(|n| format!(", {{name: r{n}, match: {{path: /r{n}}}, upstream: api}}")).collect();
    for wrong in
        ["path: /v1/*", "banana: /v1/*", "match: /v1/*", "match: {banana: 1}", "match: {paths: /v1/*}"]
    {
        let loaded = check(&file(&format!(
            "routes: [{{name: first, upstream: api, limits: [one], {wrong}}}{others}]"
        )));
        let found = (loaded.report.errors.len(), loaded.report.warnings.len());
        assert_eq!(found, (1, 0), "{wrong}\n{}", loaded.rendered);
    }
    let loaded = check(&file(&format!("routes: [{{name: first, upstream: api, limits: [one]}}{others}]")));
    assert_eq!(loaded.report.warnings.len(), 1, "{}", loaded.rendered);
    let warning = &loaded.report.warnings[0];
    assert_eq!(warning.message, "no request reaches the routes `r0`, `r1`, `r2`, `r3`, `r4`, 1 more");
    // The limit by address is what is wrong: the limit beside it can still not be escaped.
    let text = "limits: {guard: {key: client_ip, rate: 10/s}, one: {key: \"header:X-Tenant\", rate: 10/s}}\n\
                routes: [{name: all, upstream: api, limits: [guard, one]}]";
    assert_eq!(help(text), "write `ip`");
}

/// Whoever divides a limit by what nobody verifies is warned, as of such a key.
#[test]
fn shares_by_what_clients_choose_are_doubtful() {
    let text = |by: &str| format!("limits: {{one: {{key: global, rate: 10/s, fair: {{by: {by}}}}}}}");
    assert!(help(&text("\"header:X-Tenant\"")).contains("nothing verifies the key of `fair.by`"));
    assert_eq!(check(&file(&text("ip"))).rendered, "");
}

/// All ways to write a group of an expression, with a digit or a letter behind it.
#[test]
fn groups_in_a_rewrite() {
    let rewrite = |pattern: &str, to: &str| {
        format!(
            "routes: [{{name: all, upstream: api, limits: [one], rewrite: {{match: '{pattern}', to: '{to}'}}}}]"
        )
    };
    for to in [
        "/x/$1/",
        "/x/${1}0",
        "/x/$${1}0",
        "/x/{1}0",
        "/x/${id}0",
        "/x/$${id}0",
        "/x/{id}0",
        "/x/$id/",
        "/x/$$",
    ] {
        let loaded = check(&file(&rewrite("^/(?<id>v[0-9])", to)));
        assert_eq!(loaded.rendered, "", "{to}");
    }
    helps(
        |to| rewrite("^/(?<id>v[0-9])", to),
        &[
            ("/x/$10", "for the group 1 and `0` write ${1}0"),
            ("/x/$id0", "for the group id and `0` write ${id}0"),
            ("/x/${2}", "groups are counted from $1"),
            ("/x/{host}", "variables such as {host} are for a rewrite without `match`"),
            ("/x/{id", "a brace that stays is %7B"),
        ],
    );
}
