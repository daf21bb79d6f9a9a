//! What Kong protects or limits is not open or unlimited in the result.

#![allow(missing_docs, clippy::unwrap_used)]

use sluicegate_import::kong::{self, KongImport};

fn imported(text: &str) -> KongImport {
    let found = kong::import_text("kong.yaml", &format!("_format_version: \"3.0\"\n{text}")).unwrap();
    sluicegate_config::parse_without_files(&found.imported.yaml)
        .unwrap_or_else(|errors| panic!("{errors}\n{}", found.imported.yaml));
    found
}

fn yaml(text: &str) -> String {
    imported(text).imported.yaml
}

/// A service `a` with routes, in one line each.
fn service(routes: &str) -> String {
    format!("services: [{{name: a, url: \"http://a:80\", routes: [{routes}]}}]\n")
}

#[test]
fn a_list_does_not_open_what_another_plugin_closes() {
    let plugins = "{name: acl, config: {allow: [g]}}, {name: ip-restriction, config: {deny: [192.0.2.1]}}";
    let found = yaml(&service(&format!("{{name: r, paths: [/r], plugins: [{plugins}]}}")));
    assert!(found.contains("deny: [everybody, denied]"), "{found}");
    let found = yaml(&service("{name: r, paths: [/r], plugins: [{name: ip-restriction, _config: shared}]}"));
    assert!(found.contains("deny: [everybody]"), "{found}");
}

#[test]
fn a_service_that_is_not_enabled_has_no_routes() {
    let found = yaml(
        "services:\n- {name: off, url: \"http://o:80\", enabled: false, routes: [{name: x, paths: [/x]}]}\n- {name: on, url: \"http://p:80\", \
         routes: [{name: y, paths: [/y]}]}\nroutes:\n- {name: z, paths: [/z], service: off}\n",
    );
    assert!(found.contains("/y/*") && !found.contains("/x/*") && !found.contains("/z/*"), "{found}");
    let found = yaml(
        "services:\n- {name: off, url: \"http://o:80\", enabled: no, routes: [{name: x, paths: [/x]}]}\n- {name: on, url: \"http://p:80\", routes: [{name: y, paths: [/y]}]}\n",
    );
    assert!(!found.contains("/x/*"), "{found}");
}

#[test]
fn services_without_names_have_plugins_of_their_own() {
    let one = |count: u32| {
        format!(
            "- url: http://x:80\n  plugins: [{{name: rate-limiting, config: {{minute: {count}}}}}]\n  routes: [{{paths: [/r{count}]}}]\n"
        )
    };
    let found = yaml(&format!("services:\n{}{}", one(5), one(1000)));
    assert!(found.contains("rate: 5/min") && found.contains("rate: 1000/min"), "{found}");
}

#[test]
fn a_plugin_of_a_group_is_not_one_of_everybody() {
    let plugins = "plugins:\n- {name: rate-limiting, config: {minute: 7}}\n- {name: rate-limiting, consumer_group: gold, config: {minute: 7777}}\n";
    let found = yaml(&(service("{name: r, paths: [/r]}") + plugins));
    assert!(found.contains("rate: 7/min") && !found.contains("7777/min"), "{found}");
}

#[test]
fn nobody_is_refused_where_the_consumer_for_it_is_restricted() {
    let consumers = |plugin: &str| {
        format!(
            "plugins: [{{name: key-auth, config: {{anonymous: nobody}}}}]\nconsumers: [{{username: nobody, plugins: [{plugin}]}}]\n"
        )
    };
    let with = |plugin: &str| yaml(&(service("{name: r, paths: [/r]}") + &consumers(plugin)));
    for plugin in ["{name: request-termination}", "{name: rate-limiting, config: {minute: 2}}"] {
        assert!(with(plugin).contains("required: true"), "{plugin}");
    }
    assert!(!with("{name: cors}").contains("required: true"));
}

#[test]
fn a_consumer_that_is_refused_has_no_keys() {
    let consumers = "plugins: [{name: key-auth}]\nconsumers:\n- {username: bad, keyauth_credentials: [{key: k1}], plugins: [{name: request-termination}]}\n\
                     - {username: good, keyauth_credentials: [{key: k2}]}\n";
    let found = imported(&(service("{name: r, paths: [/r]}") + consumers));
    let names: Vec<_> = found.consumers.iter().map(|consumer| consumer.name.as_str()).collect();
    assert_eq!(names, ["good"]);
}

#[test]
fn consumers_with_similar_names_are_two() {
    let consumers = "plugins: [{name: key-auth}]\nconsumers:\n- {username: a b, keyauth_credentials: [{key: k1}]}\n- {username: a-b, keyauth_credentials: [{key: k2}]}\n";
    let found = imported(&(service("{name: r, paths: [/r]}") + consumers));
    let names: Vec<_> = found.consumers.iter().map(|consumer| consumer.name.as_str()).collect();
    assert_eq!(names, ["a-b", "a-b-2"]);
}

#[test]
fn a_limit_by_credential_of_a_consumer_holds() {
    let consumers = "plugins: [{name: key-auth}]\nconsumers:\n- {username: c, keyauth_credentials: [{key: k}], plugins: [{name: rate-limiting, config: {limit_by: credential, minute: 3}}]}\n";
    let found = yaml(&(service("{name: r, paths: [/r]}") + consumers));
    let limit = found.split("c-minute:").nth(1).unwrap();
    assert!(limit.contains("key: consumer\n") || limit.contains("{key: consumer,"), "{found}");
}

#[test]
fn routes_that_cannot_be_converted_do_not_open_others() {
    let routes = "{name: h, paths: [/h], headers: {x-v: [\"~*v1\"]}}, {name: s, paths: [/s], snis: [a.example]}, {name: all, paths: [/]}, \
                  {name: t, protocols: [tcp], destinations: [{port: 1}]}";
    let found = yaml(&service(routes));
    for path in ["/h.*", "/s.*"] {
        let route = found.split(path).nth(1).unwrap_or_else(|| panic!("{path}: {found}"));
        assert!(route.trim_start_matches(['}', '\n', ' ']).starts_with("respond: {status: 503}"), "{found}");
    }
    assert!(!found.contains("name: t"), "{found}");
}

#[test]
fn a_plugin_that_is_not_known_to_be_harmless_closes() {
    for plugin in
        ["my-auth", "bot-detection", "pre-function", "rate-limiting-advanced", "request-validator", "x"]
    {
        let found = yaml(&service(&format!("{{name: r, paths: [/r], plugins: [{{name: {plugin}}}]}}")));
        assert!(found.contains("deny: [everybody]"), "{plugin}: {found}");
    }
    for plugin in ["prometheus", "proxy-cache", "cors"] {
        let found = yaml(&service(&format!("{{name: r, paths: [/r], plugins: [{{name: {plugin}}}]}}")));
        assert!(!found.contains("deny:"), "{plugin}: {found}");
    }
}

#[test]
fn a_limit_without_a_number_limits() {
    let consumer = |config: &str| {
        format!(
            "plugins: [{{name: key-auth}}, {{name: rate-limiting, config: {{minute: 7}}}}, {{name: rate-limiting, consumer: c, config: {config}}}]\n\
             consumers: [{{username: c, keyauth_credentials: [{{key: k}}]}}]\n"
        )
    };
    for config in ["{}", "{minute: many}", "{second: null}"] {
        let found = yaml(&(service("{name: r, paths: [/r]}") + &consumer(config)));
        assert!(found.contains("rate: 7/min") && !found.contains("consumer:c"), "{config}: {found}");
    }
    let found = yaml(&(service("{name: r, paths: [/r]}") + &consumer("{minute: 9, second: null}")));
    assert!(found.contains("rate: 9/min") && found.contains("consumer:c"), "{found}");
    for plugin in ["{name: rate-limiting}", "{name: rate-limiting, config: {minute: 0}}"] {
        let found = yaml(&service(&format!("{{name: r, paths: [/r], plugins: [{plugin}]}}")));
        assert!(found.contains("deny: [everybody]"), "{plugin}: {found}");
    }
}

#[test]
fn a_group_that_is_refused_has_no_keys() {
    let consumers = "plugins: [{name: key-auth}, {name: request-termination, consumer_group: bad}]\nconsumers:\n\
                     - {username: a, groups: [{name: bad}], keyauth_credentials: [{key: k1}]}\n\
                     - {username: b, keyauth_credentials: [{key: k2}]}\n";
    let found = imported(&(service("{name: r, paths: [/r]}") + consumers));
    let names: Vec<_> = found.consumers.iter().map(|consumer| consumer.name.as_str()).collect();
    assert_eq!(names, ["b"]);
    let consumers = "plugins: [{name: key-auth}]\nconsumer_groups:\n- {id: 1, name: bad, consumers: [{username: b}], plugins: [{name: acl}]}\n\
                     consumers:\n- {username: a, groups: [{id: 1}], keyauth_credentials: [{key: k1}]}\n\
                     - {username: b, keyauth_credentials: [{key: k2}]}\n- {username: c, keyauth_credentials: [{key: k3}]}\n";
    let found = imported(&(service("{name: r, paths: [/r]}") + consumers));
    let names: Vec<_> = found.consumers.iter().map(|consumer| consumer.name.as_str()).collect();
    assert_eq!(names, ["c"]);
}

#[test]
fn longer_names_than_a_guarded_prefix_do_not_reach_an_open_route() {
    let found =
        yaml(&service("{name: adm, paths: [/admin], plugins: [{name: key-auth}]}, {name: all, paths: [/]}"));
    let longer = found.split(r#"regex: "/admin[^/].*""#).nth(1).unwrap_or_else(|| panic!("{found}"));
    assert!(longer.starts_with("}}\n    respond: {status: 503}"), "{found}");
    assert!(found.find("[^/]") < found.find("name: all"), "{found}");
    let found = yaml(&service(
        "{name: adm, paths: [/adm], methods: [GET], plugins: [{name: key-auth}]}, {name: open, paths: [/admin]}",
    ));
    assert!(found.contains(r#"match: {path: {regex: "/adm[^/].*"}, methods: [GET]}"#), "{found}");
    // Nothing is less restricted behind it.
    let routes = service("{name: adm, paths: [/admin]}, {name: all, paths: [/]}");
    assert!(!yaml(&(routes + "plugins: [{name: key-auth}]\n")).contains("[^/]"));
}

#[test]
fn routes_by_expressions_and_names_of_tls_are_closed() {
    let all = "{name: all, paths: [/]}";
    let found =
        yaml(&service(&format!("{{name: e, expression: 'http.path ^= \"/e\" && net.port == 1'}}, {all}")));
    assert!(found.contains("match: {path: {regex: /e.*}}\n    respond: {status: 503}"), "{found}");
    assert!(found.find("name: e\n") < found.find("name: all"), "{found}");
    let found = yaml(&service("{name: s, snis: [a.example]}, {name: get, methods: [GET]}"));
    assert!(found.contains("- name: s  # kong.yaml:2\n    respond: {status: 503}"), "{found}");
    let found =
        yaml(&service(&format!("{{name: e, expression: 'http.path == \"/e\" || net.port == 1'}}, {all}")));
    assert!(found.contains("- name: e  # kong.yaml:2\n    respond: {status: 503}"), "{found}");
}

#[test]
fn combinations_of_headers_are_not_cut_off() {
    let values = |letter: char| (0..9).map(|n| format!("{letter}{n}")).collect::<Vec<_>>().join(", ");
    let route =
        format!("{{name: h, paths: [/h], headers: {{x-a: [{}], x-b: [{}]}}}}", values('a'), values('b'));
    let found = yaml(&service(&format!("{route}, {{name: all, paths: [/]}}")));
    assert!(found.contains("match: {path: {regex: /h.*}}\n    respond: {status: 503}"), "{found}");
}

#[test]
fn longer_names_do_not_reach_a_route_that_needs_no_key() {
    let open = "{name: all, paths: [/], plugins: [{name: key-auth, config: {anonymous: nobody}}]}";
    let rest = "plugins: [{name: key-auth}]\nconsumers: [{username: nobody}]\n";
    let found = yaml(&(service(&format!("{{name: adm, paths: [/admin]}}, {open}")) + rest));
    assert!(found.contains(r#"regex: "/admin[^/].*""#), "{found}");
}

#[test]
fn a_key_with_an_end_is_left_out() {
    let consumers = "plugins: [{name: key-auth}]\nconsumers:\n- {username: a, keyauth_credentials: [{key: k1, ttl: 60}]}\n\
                     - {username: b, keyauth_credentials: [{key: k2, ttl: 0}]}\n";
    let found = imported(&(service("{name: r, paths: [/r]}") + consumers));
    let names: Vec<_> = found.consumers.iter().map(|consumer| consumer.name.as_str()).collect();
    assert_eq!(names, ["b"]);
}

#[test]
fn clients_cannot_write_the_headers_of_key_auth() {
    let found = yaml(&(service("{name: r, paths: [/r]}") + "plugins: [{name: key-auth}]\n"));
    assert!(
        found.contains("X-Consumer-Username: \"{consumer}\"") && found.contains("- X-Consumer-ID"),
        "{found}"
    );
}

#[test]
fn an_answer_on_demand_is_not_called_converted() {
    let plugin = "{name: request-termination, config: {trigger: stop}}";
    let report = imported(&service(&format!("{{name: r, paths: [/r], plugins: [{plugin}]}}")))
        .imported
        .report
        .render();
    assert!(report.contains("Kong answers only those that have the header"), "{report}");
}

#[test]
fn a_plugin_for_what_is_not_there_is_reported() {
    let found =
        imported(&(service("{name: r, paths: [/r]}") + "plugins: [{name: key-auth, route: other}]\n"));
    assert!(!found.imported.yaml.contains("auth:"), "{}", found.imported.yaml);
    let report = found.imported.report.render();
    assert!(report.contains("the route or service that it is for is not in this file"), "{report}");
}
