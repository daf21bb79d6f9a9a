//! What HAProxy refuses or limits is not open or unlimited in the result.

#![allow(missing_docs, clippy::unwrap_used)]

use sluicegate_import::{Files, Imported, Outcome, haproxy};

/// A machine without files.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        Err(format!("{path}: no such file"))
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

/// A frontend with these lines in front of a backend `b`, and other sections.
fn imported(lines: &str, sections: &str) -> Imported {
    let text = format!(
        "defaults\n  mode http\nfrontend f\n  bind :80\n{lines}\n  default_backend b\nbackend b\n  server s 127.0.0.1:9000\n{sections}"
    );
    let found = haproxy::import_text(&NoFiles, "h.cfg", &text, &|_| None).unwrap();
    sluicegate_config::parse_without_files(&found.yaml)
        .unwrap_or_else(|errors| panic!("{errors}\n{}", found.yaml));
    found
}

fn yaml(lines: &str) -> String {
    imported(lines, "").yaml
}

/// The first route whose `match` has this text; the last route, if there is none such.
fn route<'a>(yaml: &'a str, text: &str) -> &'a str {
    let routes = yaml.split("routes:").nth(1).unwrap();
    let found = routes.split("\n  - ").find(|route| route.contains(text));
    found.unwrap_or_else(|| panic!("no route has {text}:\n{yaml}"))
}

const CLOSED: &str = "deny: [everybody]";

#[test]
fn a_refusal_holds_where_a_part_of_its_condition_cannot_be_written() {
    for rule in [
        "http-request deny if { path_beg /a/ } { hdr_sub(user-agent) x }",
        "http-request deny if { hdr_sub(user-agent) x } { path_beg /a/ }",
        "http-request tarpit if { path_beg /a/ } !{ hdr_sub(user-agent) x }",
        "http-request redirect location /login if { path_beg /a/ } { req.cook(s) -m found }",
        "http-request return status 200 if { path_beg /a/ } { req.cook(s) -m found }",
        "http-request deny if { path_beg /a/ } { url_sub select }",
        "http-request deny if { path_beg /a/ } { url_reg ^/a/[0-9]+$ }",
        "http-request deny if { path_beg /a/ } { sc_get_gpc0(0) gt 0 }",
        "http-request deny if { path_beg /a/ } { nbsrv(b) lt 1 }",
        "http-request lua.guard if { path_beg /a/ }",
        "http-request use-service prometheus-exporter if { path_beg /a/ }",
        "http-response deny if { path_beg /a/ } { res.hdr(x-secret) -m found }",
        "block if { path_beg /a/ }",
        "use_backend %[req.hdr(x)] if { path_beg /a/ }",
        "use_backend b if { path_beg /a/ } { ssl_c_used }",
        "http-request deny if { path_beg /a/ } { hdr_end(host) :8443 }",
        "http-request deny if { path_beg /a/ } { hdr_beg(host) x:8443 }",
        "http-request deny if { path_beg /a/ } { hdr_reg(host) :8443$ }",
        "http-request deny if { path_beg /a/ } { method -m reg ^P }",
        "tcp-request connection reject if { path_beg /a/ } { src_conn_cur ge 1 }",
    ] {
        let found = imported(&format!("  {rule}"), "");
        let closed = route(&found.yaml, "/a/*");
        assert!(closed.contains(CLOSED), "{rule}:\n{}", found.yaml);
        assert!(!route(&found.yaml, "name: b\n").contains("deny"), "{rule}:\n{}", found.yaml);
        let said = found.report.items.iter().any(|item| {
            item.directive == rule
                && item.outcome == Outcome::Unsupported
                && item.text.contains("deny everybody")
        });
        assert!(said, "{rule}: {}", found.report.render());
    }
    assert!(yaml("  http-request deny if { hdr_sub(user-agent) x }").contains(CLOSED));
}

#[test]
fn addresses_that_cannot_be_told_apart_are_refused_together() {
    let found = yaml("  http-request deny if { src 192.0.2.0/24 } !{ src 192.0.2.7 }");
    assert!(found.contains("denied: [192.0.2.0/24]") && found.contains("deny: [denied]"), "{found}");
    let found = yaml("  http-request deny if { path_beg /a/ } { src 192.0.2.0/24 } { hdr_sub(x) y }");
    assert!(route(&found, "/a/*").contains("deny: [denied]"), "{found}");
    let found = yaml("  redirect location /login unless { src 10.0.0.0/8 }");
    assert!(found.contains("allowed: [10.0.0.0/8]") && found.contains("allow: [allowed]"), "{found}");
    let admin = "  use_backend adm if { path_beg /admin/ } { src 10.0.0.0/8 }";
    let found = imported(admin, "backend adm\n  server a 127.0.0.1:9001\n").yaml;
    assert!(route(&found, "/admin/*").contains("deny: [denied]"), "{found}");
}

#[test]
fn an_expression_inside_a_place_closes_the_place() {
    let rules =
        "  http-request set-header X-A 1 if { path_beg /api/ }\n  http-request deny if { path_reg \\.git }";
    let found = yaml(rules);
    assert!(route(&found, "/api/*").contains(CLOSED), "{found}");
    assert!(route(&found, r"\.git").contains("status: 403"), "{found}");
}

#[test]
fn tests_that_one_route_cannot_make_together_close_the_place() {
    let long = format!("/{}/", "a".repeat(4_000));
    let found = yaml(&format!("  http-request deny if {{ path_beg {long} }} {{ path_end .git }}"));
    assert!(route(&found, &format!("{long}*")).contains(CLOSED), "{found}");
    assert!(!route(&found, "name: b\n").contains("deny"), "{found}");
}

const TABLE: &str =
    "  stick-table type ip size 1m expire 10m store http_req_rate(10s),conn_rate(10s),conn_cur\n";

#[test]
fn a_limit_holds_where_a_part_of_its_condition_cannot_be_written() {
    let limited = |track: &str, deny: &str| yaml(&format!("{TABLE}  {track}\n  {deny}"));
    let track = "http-request track-sc0 src";
    let above = "{ sc_http_req_rate(0) gt 20 }";
    for (track, deny) in [
        (track, format!("http-request deny if {above} {{ hdr_sub(user-agent) x }}")),
        (track, format!("http-request deny if {above} {{ src 192.0.2.0/24 }}")),
        (track, format!("http-request deny if {above} !{{ sc_conn_cur(0) gt 3 }}")),
        (track, format!("use_backend b if {above}")),
        (track, format!("http-request redirect location /slow if {above}")),
        ("http-request track-sc0 src if { hdr_sub(user-agent) x }", format!("http-request deny if {above}")),
        ("http-request track-sc0 src if { src 192.0.2.0/24 }", format!("http-request deny if {above}")),
        ("tcp-request connection track-sc0 src", "http-request deny if { sc_conn_rate(0) gt 20 }".to_owned()),
    ] {
        let found = limited(track, &deny);
        assert!(
            found.contains("rate: 20/10s") && found.contains("limits:\n      - f"),
            "{track}; {deny}:\n{found}"
        );
    }
    let found = limited("http-request track-sc0 req.body", &format!("http-request deny if {above}"));
    assert!(found.contains(CLOSED), "{found}");
}

#[test]
fn the_end_of_tcp_rules_is_not_that_of_others() {
    let found = imported("  tcp-request content accept if HTTP\n  tcp-request content reject\n", "");
    assert!(!found.yaml.contains("403") && !found.yaml.contains("deny"), "{}", found.yaml);
    let unsupported = |item: &sluicegate_import::Item| item.outcome == Outcome::Unsupported;
    assert!(!found.report.items.iter().any(unsupported), "{}", found.report.render());
    let found = yaml("  tcp-request content reject if { path_beg /bad/ } WAIT_END");
    assert!(route(&found, "/bad/*").contains("status: 403"), "{found}");
    let rules = "  tcp-request connection track-sc0 src\n  tcp-request content accept if { src 10.0.0.0/8 }\n  \
                 http-request deny if { sc_http_req_rate(0) gt 20 }";
    let found = yaml(&(TABLE.to_owned() + rules));
    assert!(found.contains("rate: 20/10s") && !found.contains("exempt"), "{found}");
}

#[test]
fn connections_that_a_listener_cannot_tell_apart_are_limited_together() {
    let found = yaml("  tcp-request connection reject if { src 192.0.2.0/24 } { src_conn_cur gt 10 }");
    assert!(found.contains("max_connections_per_ip: 10"), "{found}");
    let found = yaml("  tcp-request connection reject if { src 192.0.2.0/24 } or { src_conn_cur gt 10 }");
    assert!(found.contains("deny: [denied") || found.contains(CLOSED), "{found}");
}

#[test]
fn a_header_that_is_compared_differently_is_refused_in_all_its_forms() {
    let found = yaml("  http-request deny if { hdr(x-role) -i guest }");
    assert!(route(&found, "x-role").contains("headers: {x-role: \"*\"}"), "{found}");
    let found = yaml("  http-request deny unless { hdr(x-key) -i one }");
    assert!(route(&found, "x-key").contains("headers: {x-key: one}"), "{found}");
    let found = yaml("  http-request deny unless { url /login }");
    assert!(route(&found, "name").contains(CLOSED), "{found}");
}

#[test]
fn beyond_the_most_routes_requests_are_refused() {
    let rules: String = (0..12)
        .map(|n| format!("  http-request set-header X-{n} 1 if {{ hdr(x-{n}) -m found }}\n"))
        .collect();
    let found = imported(&format!("{rules}  http-request deny if {{ path_beg /a/ }}"), "");
    let routes: Vec<_> = found.yaml.split("routes:\n").nth(1).unwrap().split("  - name").skip(1).collect();
    for pair in routes.windows(2) {
        let denied = pair[1].contains(CLOSED) || pair[1].contains("403") || pair[0].contains("/a/*");
        assert!(denied, "{}", pair[1]);
    }
    assert!(found.report.render().contains("more combinations"), "{}", found.report.render());
}

#[test]
fn servers_that_are_down_close_nothing() {
    for rule in ["use_backend b if { nbsrv(b) lt 1 }", "use_backend b if !{ srv_is_up(b/s) }"] {
        let found = imported(&format!("  {rule}"), "");
        assert!(
            !found.yaml.contains("deny") && found.yaml.matches("upstream: b").count() == 1,
            "{}",
            found.yaml
        );
        assert!(
            found.report.render().contains("as if all servers were healthy"),
            "{}",
            found.report.render()
        );
    }
    let found =
        imported("  use_backend c if { nbsrv(c) gt 0 }", "backend c\n  server c 127.0.0.1:9001\n").yaml;
    assert!(found.contains("upstream: c") && !found.contains("upstream: b"), "{found}");
}

#[test]
fn what_rules_above_have_changed_is_not_tested_as_it_was() {
    for (change, test) in [
        (r"replace-path /v1(/.*) \1", "path_beg /b/"),
        ("set-header x-role a", "hdr(x-role) -m found"),
        ("set-header Host b", "hdr(host) c"),
    ] {
        let rules = format!(
            "  http-request {change} if {{ hdr(x-old) -m found }}\n  http-request deny if {{ {test} }}"
        );
        let found = yaml(&rules);
        assert!(route(&found, "x-old").contains(CLOSED), "{change}: {found}");
        assert!(found.matches(CLOSED).count() == 1 && found.contains("status: 403"), "{change}: {found}");
    }
    let found = yaml("  http-request set-src hdr(x-client)\n  http-request deny if { src 192.0.2.1 }");
    assert!(found.contains(CLOSED), "{found}");
}

#[test]
fn servers_do_not_take_headers_of_clients_for_those_of_rules() {
    for rule in [
        "set-header x-role %[ssl_c_s_dn(cn)]",
        "set-header x-role guest if !{ src 10.0.0.0/8 }",
        "set-header x-role guest if !{ req.cook(s) -m found }",
        "del-header x-role if !{ src 10.0.0.0/8 }",
    ] {
        let found = yaml(&format!("  http-request {rule}"));
        assert!(found.contains("request_headers: {remove: [x-role]}"), "{rule}: {found}");
    }
    let found = yaml("  http-request add-header x-role %[ssl_c_s_dn(cn)]");
    assert!(!found.contains("x-role"), "{found}");
}

#[test]
fn the_last_default_backend_of_a_frontend_serves() {
    let text = "defaults\n  mode http\n  default_backend open\nfrontend f\n  bind :80\n  default_backend x\n  default_backend b\n\
                backend b\n  server b 127.0.0.1:1\nbackend open\n  server o 127.0.0.1:2\nbackend x\n  server x 127.0.0.1:3\n";
    let found = haproxy::import_text(&NoFiles, "h.cfg", text, &|_| None).unwrap();
    assert!(
        found.yaml.contains("upstream: b") && found.yaml.matches("upstream: ").count() == 1,
        "{}",
        found.yaml
    );
}

#[test]
fn requests_without_the_key_count_by_that_of_the_next_rule() {
    let track = "  http-request track-sc0 req.hdr(x-key)\n  http-request track-sc0 src\n";
    let found = yaml(&format!("{TABLE}{track}  http-request deny if {{ sc_http_req_rate(0) gt 20 }}"));
    assert!(found.contains(r#"key: "header:x-key | ip""#) && !found.contains("on_missing"), "{found}");
    let track = "  http-request track-sc0 req.hdr(x-key)\n  http-request track-sc0 base32+src\n";
    let found = yaml(&format!("{TABLE}{track}  http-request deny if {{ sc_http_req_rate(0) gt 20 }}"));
    assert!(found.contains("key: [host, path, ip]") && !found.contains("on_missing"), "{found}");
}

#[test]
fn hosts_and_queries_are_compared_as_they_are_written() {
    let denied = |test: &str, place: &str| {
        let found = yaml(&format!("  http-request deny if {{ {test} }}"));
        assert!(route(&found, place).contains("status: 403") && !found.contains(CLOSED), "{test}: {found}");
    };
    denied(r"hdr_reg(host) -i ^Admin\.", r"host: {regex: '(?i)Admin\..*'}");
    denied(r"hdr_reg(host) ^admin\.x(:[0-9]+)?$", r"host: {regex: 'admin\.x'}");
    denied("url_beg /search?q=", "path: /search}");
    denied("url_param(id) -m reg ^[0-9]+$", r#"query: {id: {regex: "[0-9]+"}}"#);
}

#[test]
fn paths_with_spaces_are_of_no_request() {
    let found = yaml("  http-request deny if { path \"/a b\" }");
    assert!(!found.contains("403") && !found.contains("deny"), "{found}");
}
