//! The configuration in force, defaults included. Its parts serialize themselves, without secrets; what is added here is
//! what only the running gateway knows.

mod listeners;

pub(super) use self::listeners::certificates;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::snapshot::Snapshot;
use sluicegate_config::{
    AccessLogConfig, HeaderChanges, LimitConfig, LogFormat, RouteConfig, UpstreamConfig,
};
use sluicegate_upstream::{ServerState, ServerStatus};
use sluicegate_wire::h2::AbortReason;

/// A configuration as `GET /config` shows it: defaults included, secrets redacted.
pub fn config(snapshot: &Snapshot) -> Value {
    let config = &snapshot.config;
    let client = &config.client;
    let lists = config.lists.iter().zip(&config.resources.lists).map(|(list, known)| {
        let file = list.file().map(|file| file.display().to_string());
        (list.name.clone(), json!({ "file": file, "entries": known.len() }))
    });
    let budgets = AbortReason::NAMES.iter().zip(&snapshot.flood_limits.budgets);
    json!({
        "generation": snapshot.generation,
        "listen": config.listeners.iter().zip(&config.resources.listeners).map(listeners::listener).collect::<Vec<_>>(),
        "admin": config.admin,
        "client_ip": config.client_ip,
        "auth": {
            "api_key": config.api_key,
            "jwt": config.jwt,
            "introspection": config.introspection,
            "check": config.check,
        },
        "store": config.store.as_ref().map(|redis| json!({ "redis": redis })),
        "regions": config.regions,
        "priorities": config.priorities,
        "overload": config.overload,
        "rules": config.rules,
        "lists": lists.collect::<Map<_, _>>(),
        "limits": config.limits.iter().map(|l| (l.name.clone(), limit(l))).collect::<Map<_, _>>(),
        "upstreams": config.upstreams.iter().map(|u| (u.name.clone(), upstream(u))).collect::<Map<_, _>>(),
        "routes": config.routes.iter().map(route).collect::<Vec<_>>(),
        "response_headers": HeaderChanges(&config.answer_headers),
        "cors": config.cors.as_deref(),
        "access_log": config.access_log.as_ref().map(access_log),
        "trace": config.trace,
        "telemetry": config.otlp.as_ref().map(|otlp| json!({ "otlp": otlp })),
        "workers": config.workers,
        "max_head": config.max_head,
        "header_case": config.header_case,
        "max_headers": client.max_headers,
        "max_target": client.max_target,
        "underscores": if client.underscores { "forwarded" } else { "removed" },
        "min_body_rate": client.min_body_rate,
        "min_send_rate": client.min_send_rate,
        "timeouts": {
            "head": client.head.as_secs_f64(),
            "body": client.body.as_secs_f64(),
            "idle": client.idle.as_secs_f64(),
            "write": client.write.as_secs_f64(),
            "request": client.request.map(|request| request.as_secs_f64()),
        },
        "h2": budgets.map(|(name, budget)| ((*name).to_owned(), budget.floor.into())).collect::<Map<_, _>>(),
        "drain": config.drain,
    })
}

/// A limit with its defaults.
pub(super) fn limit(limit: &LimitConfig) -> Value {
    let mut value = value(limit);
    if !limit.shared {
        value["on_store_failure"] = Value::Null; // it has no store that could fail
    }
    value
}

fn upstream(upstream: &UpstreamConfig) -> Value {
    let mut value = value(upstream);
    if upstream.max_connections.is_none() {
        value["max_pending"] = Value::Null; // nothing waits
    }
    value
}

fn route(route: &RouteConfig) -> Value {
    let mut value = value(route);
    value["preflight"] = if route.matches.preflight { "exempt" } else { "counted" }.into();
    value
}

fn access_log(log: &AccessLogConfig) -> Value {
    let mut value = value(log);
    if log.format != LogFormat::Json {
        value["fields"] = Value::Null; // the form has fields of its own
    }
    value
}

fn value(part: &impl Serialize) -> Value {
    json!(part)
}

/// What /status tells of a server.
pub(super) fn server(server: &ServerStatus) -> Value {
    json!({
        "server": server.server,
        "state": server.state.name(),
        "healthy": server.is_up(),
        "in_use": server.in_use,
        "weight": server.weight,
        "requests": server.requests,
        "failed": server.failed,
        "addresses": server.addresses.iter().map(|address| json!({
            "address": address.address.to_string(),
            "state": address.state.name(),
            "answers": address.answers,
            "trouble": address.trouble,
            "failing_seconds": address.failing_for,
            "ejected": address.state == ServerState::Ejected,
            "last_check": address.last_check.as_ref().map(|check| json!({
                "at": check.at.to_string(),
                "ok": check.failure.is_none(),
                "status": check.status,
                "seconds": check.took.as_secs_f64(),
                "error": check.failure,
            })),
            "requests": address.requests,
            "in_flight": address.in_flight,
            "failed": address.failed,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Source;
    use crate::snapshot::{Opened, SnapshotBuilder};
    use sluicegate_limiter::Time;

    fn shown(file: &str) -> Value {
        let loaded = Source::File(format!("../../tests/config/good/{file}").into()).load().unwrap();
        config(&SnapshotBuilder::default().build(
            loaded.config.unwrap(),
            Opened::default(),
            None,
            Time::from_nanos(0),
        ))
    }

    #[test]
    fn the_store_is_shown_without_its_secrets() {
        let one = shown("store.yaml");
        let redis = &one["store"]["redis"];
        assert_eq!((&redis["server"], &redis["username"]), (&json!("redis.internal:6379"), &json!("app")));
        assert_eq!((&redis["password"], &redis["database"]), (&json!("(redacted)"), &json!(2)));
        assert_eq!(redis["tls"], json!({ "ca": "private", "own_certificate": true }));
        assert_eq!((&redis["timeout"], &redis["prefix"]), (&json!(0.02), &json!("sluicegate:eu-1")));
        let cluster = shown("store-cluster.yaml");
        assert_eq!(cluster["store"]["redis"]["cluster"][1], "[2001:db8::1]:6379");
        assert_eq!(cluster["store"]["redis"]["password"], "");
        let sentinel = shown("store-sentinel.yaml");
        assert_eq!(sentinel["store"]["redis"]["sentinel"]["nodes"][0], "10.0.0.1:26379");
        let url = shown("store-in-the-url.yaml");
        for config in [one, cluster, sentinel, url, shown("store-socket.yaml")] {
            let text = config.to_string();
            assert!(
                !text.contains("sesame") && !text.contains("ses@me") && !text.contains("PRIVATE"),
                "{text}"
            );
        }
    }

    #[test]
    fn listeners_are_shown_without_their_keys() {
        let listen = &shown("tls.yaml")["listen"][0];
        let tls = &listen["tls"];
        assert_eq!(tls["certificates"][0]["names"], json!(["api.example.com", "*.example.com"]));
        assert_eq!((&tls["client_auth"], &tls["min_version"]), (&json!("optional"), &json!("1.3")));
        assert_eq!((&listen["proxy_protocol"], &listen["max_connections"]), (&json!(true), &json!(20_000)));
        assert!(!listen.to_string().contains("PRIVATE"));
        let plain = &shown("smallest.yaml")["listen"][0];
        assert_eq!((&plain["tls"], &plain["max_connections_per_ip"]), (&Value::Null, &json!(1_000)));
    }

    #[test]
    fn limits_say_where_they_are_counted() {
        let limits = &shown("store.yaml")["limits"];
        let of = |name: &str| (limits[name]["scope"].clone(), limits[name]["on_store_failure"].clone());
        assert_eq!(of("shared-by-default"), (json!("shared"), json!("closed")));
        assert_eq!(of("shared"), (json!("shared"), json!("open")));
        assert_eq!(of("counted-here-meanwhile"), (json!("shared"), json!("local")));
        assert_eq!(of("alone"), (json!("local"), Value::Null));
        let without = shown("algorithms.yaml");
        assert!(without["store"].is_null());
        assert!(without["limits"].as_object().unwrap().values().all(|limit| limit["scope"] == "local"));
    }
}
