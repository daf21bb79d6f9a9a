//! Tests of whole configurations.

use super::*;

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

fn imported(text: &str) -> Imported {
    let text = format!("defaults\n  mode http\n{text}");
    let imported = import_text(&NoFiles, "h.cfg", &text, &|_| None).unwrap();
    sluicegate_config::parse_without_files(&imported.yaml)
        .unwrap_or_else(|errors| panic!("{errors}\n{}", imported.yaml));
    imported
}

#[test]
fn negations_become_the_order_of_routes() {
    let found = imported(
        "frontend f\n  bind :80\n  acl api path_beg /api/\n  acl get method GET\n  http-request deny if api !get\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:9000\n",
    );
    let routes = found.yaml.split("routes:\n").nth(1).unwrap();
    let expected = "  - name: b-api-GET\n    match: {path: /api/*, methods: [GET]}\n    upstream: b  # h.cfg:8\n  - name: api-respond\n    \
                    match: {path: /api/*}\n    respond: {status: 403}  # h.cfg:7\n  - name: b\n    upstream: b  # h.cfg:8\n";
    assert_eq!(routes, expected);
}

#[test]
fn nothing_but_tcp_is_a_message() {
    let error = import_text(&NoFiles, "h.cfg", "listen x\n  bind :80\n  server s 127.0.0.1:1\n", &|_| None)
        .unwrap_err();
    assert!(error.contains("nothing in it that the gateway can listen on"), "{error}");
}

/// A frontend with these lines, and the sections behind it.
fn with(lines: &str, sections: &str) -> Imported {
    imported(&format!(
        "frontend f\n  bind :80\n{lines}  default_backend b\nbackend b\n  server s 127.0.0.1:9000\n{sections}"
    ))
}

#[test]
fn each_alternative_of_an_expression_for_hosts_is_denied() {
    let found = with("  http-request deny if { hdr_reg(host) -i ^admin\\.|^internal\\. }\n", "");
    assert!(found.yaml.contains(r"host: {regex: '(?:admin\..*|internal\..*)'}"), "{}", found.yaml);
}

#[test]
fn a_client_is_exempt_of_the_counters_that_do_not_track_it() {
    let rules = "  stick-table type ip size 1m expire 10m store http_req_rate(10s)\n  http-request track-sc0 src unless { src 10.0.0.0/8 }\n  \
                 http-request track-sc1 hdr(x-key) table keys\n  http-request deny if { sc_http_req_rate(0) gt 20 }\n  \
                 http-request deny if { sc_http_req_rate(1) gt 5 }\n";
    let keys = "backend keys\n  stick-table type string len 32 size 1m expire 10m store http_req_rate(10s)\n";
    let found = with(rules, keys).yaml;
    let limits = found.split("limits:\n").nth(1).unwrap();
    assert!(limits.contains("rate: 20/10s, count_rejected: true, exempt: [10.0.0.0/8]"), "{found}");
    assert_eq!(limits.matches("10.0.0.0/8").count(), 1, "{found}");
}

#[test]
fn a_refusal_with_another_answer_is_a_refusal() {
    let found = with("  http-request deny deny_status 401 hdr X-Reason no if { path_beg /secret }\n", "");
    assert!(found.yaml.contains("respond: {status: 401}"), "{}", found.yaml);
    let found = with("  http-request return status 403 if { src 192.0.2.0/24 }\n", "");
    assert!(found.yaml.contains("deny: [denied]"), "{}", found.yaml);
    let limited = "  stick-table type ip size 1m expire 10m store http_req_rate(10s)\n  http-request track-sc0 src\n  \
                   http-request return status 429 lf-string %[src] if { sc_http_req_rate(0) gt 20 }\n";
    assert!(with(limited, "").yaml.contains("rate: 20/10s"));
}

#[test]
fn what_cannot_be_compared_is_said() {
    for (line, outcome) in [
        ("http-request deny if { url_sub select }", Outcome::Approximated),
        ("http-request deny if { hdr(x-role) guest }", Outcome::Approximated),
        ("http-request deny if { dst_port ge 80 }", Outcome::Unsupported),
        ("http-request deny if { dst_port 80:90 }", Outcome::Unsupported),
        ("http-request deny if { ssl_fc 0 }", Outcome::Unsupported),
        ("http-request del-header X-Auth- -m beg", Outcome::Unsupported),
        ("rate-limit sessions 50", Outcome::Unsupported),
    ] {
        let report = with(&format!("  {line}\n"), "").report;
        let found = report.items.iter().find(|item| item.directive == line).unwrap();
        assert_eq!(found.outcome, outcome, "{line}");
    }
    assert!(with("  http-request deny if { urlp(a) -i x }\n", "").yaml.contains("(?i)x"));
}

#[test]
fn a_counter_whose_condition_has_no_equivalent_counts_all() {
    let track = "http-request track-sc0 src if { hdr_sub(user-agent) bot }";
    let deny = "http-request deny if { sc_http_req_rate(0) gt 20 }";
    let lines =
        format!("  stick-table type ip size 1m expire 10m store http_req_rate(10s)\n  {track}\n  {deny}\n");
    let found = with(&lines, "");
    let of = |line: &str| found.report.items.iter().find(|item| item.directive == line).unwrap().outcome;
    assert_eq!((of(track), of(deny)), (Outcome::Approximated, Outcome::Converted));
    assert!(found.yaml.contains("rate: 20/10s"), "{}", found.yaml);
}

#[test]
fn an_exception_that_cannot_be_written_closes() {
    let lines = "  http-request set-header X-A 1 if { path_dir app }\n  http-request deny unless { path_beg /pub/ }\n";
    let found = with(lines, "").yaml;
    let app = found.split("app(?:").nth(1).unwrap().split("- name").next().unwrap();
    assert!(app.contains("deny: [everybody]"), "{found}");
}

#[test]
fn a_backend_for_refused_clients_refuses_them() {
    let found =
        with("  use_backend bad if { src 192.0.2.0/24 }\n", "backend bad\n  http-request deny\n").yaml;
    assert!(found.contains("upstream: b  # h.cfg:6\n    deny: [denied]"), "{found}");
}

#[test]
fn allow_does_not_end_redirect_rules() {
    let found = with(
        "  http-request allow if { path /free }\n  http-request deny\n  redirect scheme https if !{ ssl_fc }\n",
        "",
    );
    assert!(found.yaml.contains("match: {path: /free}\n    redirect:"), "{}", found.yaml);
}

#[test]
fn a_backend_that_is_disabled_answers_503() {
    let found =
        with("  use_backend d if { path_beg /d/ }\n", "backend d\n  disabled\n  server s 127.0.0.1:9001\n")
            .yaml;
    assert!(found.contains("match: {path: /d/*}\n    respond: {status: 503}"), "{found}");
    assert!(!found.contains("9001"), "{found}");
}

#[test]
fn the_least_number_of_connections_holds() {
    let rule = |count: u32| format!("  tcp-request connection reject if {{ src_conn_cur gt {count} }}\n");
    let found = with(&(rule(10) + &rule(100)), "").yaml;
    assert!(found.contains("max_connections_per_ip: 10"), "{found}");
}

/// A machine with a list of certificates.
struct List;

impl Files for List {
    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            "list" => Ok("a.pem\na.pem [ca-file ca.pem verify required] admin.example.com\n".to_owned()),
            _ => Ok(String::new()),
        }
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn the_least_version_of_tls_holds_for_all_listeners() {
    let text = "global\n  ssl-default-bind-options ssl-min-ver TLSv1.3 no-tls-tickets\ndefaults\n  mode http\nfrontend f\n  \
                bind :443 ssl crt a.pem\n  default_backend b\nbackend b\n  server s 127.0.0.1:9000\n";
    let found = import_text(&List, "h.cfg", text, &|_| None).unwrap();
    assert!(found.yaml.contains("min_version: 1.3"), "{}", found.yaml);
}

#[test]
fn certificates_of_clients_for_some_hosts_are_not_forgotten() {
    let text = "defaults\n  mode http\nfrontend f\n  bind :80\n  bind :443 ssl crt-list list\n  default_backend b\nbackend b\n  \
                server s 127.0.0.1:9000\n";
    let found = import_text(&List, "h.cfg", text, &|_| None).unwrap();
    assert!(!found.yaml.contains(":443"), "{}", found.yaml);
    assert!(found.report.render().contains("list asks for certificates of clients"));
}
