//! The configuration in force, defaults included. It is built from known fields, and secrets are none of them.

mod cors;
mod listeners;

pub(super) use self::listeners::certificates;

use serde_json::{Map, Value, json};
use sluicegate_limiter::{Quota, Span};

use crate::lists::AddressList;
use crate::snapshot::Snapshot;
use crate::upstream::ServerStatus;
use sluicegate_config::{
    Accept, AccessLogConfig, Action, ApiKeyConfig, ApiKeySource, Balance, Change, Config, Cost, Field,
    HeaderChange, HeaderFamilies, JwtConfig, JwtKeys, LimitConfig, ListConfig, LogFormat, LogTarget, Match,
    PathChange, RedisConfig, RedisServers, RouteConfig, Share, UpstreamConfig,
};
use sluicegate_wire::h2::{AbortReason, FrameBudget};

/// What /config tells.
pub(super) fn config(snapshot: &Snapshot) -> Value {
    let config = &snapshot.config;
    let limits: Map<String, Value> =
        config.limits.iter().map(|l| (l.name.clone(), limit(l, &config.lists))).collect();
    let upstreams: Map<String, Value> =
        config.upstreams.iter().map(|u| (u.name.clone(), upstream(u))).collect();
    json!({
        "generation": snapshot.generation,
        "listen": config.listeners.iter().zip(&config.resources.listeners).map(listeners::listener).collect::<Vec<_>>(),
        "admin": config.admin.as_ref().map(|admin| json!({
            "address": admin.address.to_string(),
            "token": redacted(!admin.token.is_empty()),
            "hosts": admin.hosts,
        })),
        "client_ip": {
            "trusted_proxies": texts(&config.client_ip.trusted_proxies),
            "trusted_lists": names(&config.lists, config.client_ip.trusted_lists.iter().map(|list| list.index)),
            "header": config.client_ip.header.name(),
            "ipv6_prefix": config.client_ip.ipv6_prefix,
        },
        "auth": { "api_key": api_key(&config.api_key), "jwt": config.jwt.as_ref().map(jwt) },
        "store": config.store.as_ref().map(|redis| json!({ "redis": self::redis(redis) })),
        "lists": config.lists.iter().zip(&config.resources.lists).map(|(l, known)| (l.name.clone(), list(l, known))).collect::<Map<_, _>>(),
        "limits": limits,
        "upstreams": upstreams,
        "routes": config.routes.iter().map(|r| route(config, r)).collect::<Vec<_>>(),
        "response_headers": header_changes(&config.answer_headers),
        "cors": config.cors.as_deref().map(cors::cors),
        "access_log": config.access_log.as_ref().map(access_log),
        "trace": {
            "accept": match config.trace.accept {
                Accept::Anybody => "anybody",
                Accept::Trusted => "trusted_proxies",
                Accept::Nobody => "nobody",
            },
            "create": config.trace.create,
            "sampled": percent(config.trace.sampled),
        },
        "workers": config.workers,
        "max_head": config.max_head,
        "max_headers": config.client.max_headers,
        "underscores": if config.client.underscores { "forwarded" } else { "removed" },
        "min_body_rate": config.client.min_body_rate,
        "min_send_rate": config.client.min_send_rate,
        "timeouts": {
            "head": seconds(config.client.head),
            "body": seconds(config.client.body),
            "idle": seconds(config.client.idle),
            "write": seconds(config.client.write),
        },
        "h2": AbortReason::NAMES.iter().zip(&snapshot.flood_limits.budgets).map(h2_budget).collect::<Map<_, _>>(),
        "drain": { "delay": seconds(config.drain.delay), "deadline": seconds(config.drain.deadline) },
    })
}

fn h2_budget((name, budget): (&&str, &FrameBudget)) -> (String, Value) {
    ((*name).to_owned(), budget.floor.into())
}

fn api_key(api_key: &ApiKeyConfig) -> Value {
    let mut value = match &api_key.source {
        ApiKeySource::Header(name) => json!({ "header": name.as_str() }),
        ApiKeySource::Query(name) => json!({ "query": name }),
    };
    if let Some(consumers) = &api_key.consumers {
        value["consumers"] = consumers.file.display().to_string().into();
        value["required"] = consumers.required.into();
        value["forward"] = consumers.forward.into();
    }
    value
}

fn jwt(jwt: &JwtConfig) -> Value {
    let (kind, keys) = match &jwt.keys {
        JwtKeys::Secret(_) | JwtKeys::PublicKey(_) => ("key", redacted(true).into()),
        JwtKeys::File(file) => ("jwks", json!({ "file": file.display().to_string() })),
        JwtKeys::Url(url) => ("jwks", json!({ "url": url.text, "refresh": seconds(url.refresh) })),
    };
    let forward: Map<String, Value> =
        jwt.forward.iter().map(|(header, claim)| (header.to_string(), claim.as_str().into())).collect();
    json!({
        "header": jwt.header.as_str(),
        "issuer": jwt.issuer,
        "audience": jwt.audience,
        kind: keys,
        "user_claim": jwt.user_claim,
        "leeway": seconds(jwt.leeway),
        "require_exp": jwt.require_exp,
        "required": jwt.required,
        "forward": forward,
    })
}

/// A limit with its defaults.
pub(super) fn limit(limit: &LimitConfig, lists: &[ListConfig]) -> Value {
    json!({
        "key": limit.key.to_string(),
        "algorithm": limit.quota.algorithm(),
        "rate": rate(&limit.quota),
        "zone": limit.zone,
        "capacity": limit.quota.capacity(),
        "plans": limit.plans.iter().map(|(name, plan)| (name.clone(), quota(plan))).collect::<Map<_, _>>(),
        "candidate": limit.candidate.as_ref().map(quota),
        "when": limit.when.as_ref().map(|when| json!({
            "methods": texts(&when.methods),
            "headers": when.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            "keys": when.keys.len(),
        })),
        "cost": match &limit.cost {
            Cost::Constant(cost) => json!(cost),
            Cost::Header(name) => json!(format!("header:{name}")),
            Cost::Detailed(cost) => json!({
                "request": match &cost.request_header {
                    Some(name) => json!(format!("header:{name}")),
                    None => json!(cost.request),
                },
                "methods": cost.methods.iter().map(|(method, cost)| (method.to_string(), json!(cost))).collect::<Map<_, _>>(),
                "status": cost.status,
                "response_header": cost.response_header.as_ref().map(ToString::to_string),
                "routes": cost.routes.iter().map(|(route, cost)| (route.clone(), json!(cost))).collect::<Map<_, _>>(),
                "bytes": match (cost.request_bytes, cost.response_bytes) {
                    (true, true) => Some("both"),
                    (true, false) => Some("request"),
                    (false, true) => Some("response"),
                    (false, false) => None,
                },
                "reserve": cost.reserve,
            }),
        },
        "ban": limit.ban.map(|ban| json!({
            "after": ban.after(),
            "within": (ban.after() > 1).then(|| ban.within().to_string()),
            "for": ban.span().to_string(),
        })),
        "mode": word(&limit.mode),
        "exempt": {
            "networks": texts(&limit.exempt.networks),
            "lists": names(lists, limit.exempt.lists.iter().copied()),
            "keys": limit.exempt.values.len(),
            "consumers": limit.exempt.consumers,
            "plans": limit.exempt.plans.iter().map(|plan| &plan.value).collect::<Vec<_>>(),
        },
        "on_missing": word(&limit.on_missing),
        "scope": if limit.shared { "shared" } else { "local" },
        "on_store_failure": limit.shared.then(|| word(&limit.on_store_failure)),
        "max_keys": limit.max_keys,
    })
}

/// A rate as the file writes it.
fn rate(quota: &Quota) -> Option<String> {
    let rate = quota.rate()?;
    let by_calendar = matches!(quota, Quota::FixedWindow(window, _) if window.calendar().is_some());
    let period = match rate.period() {
        Span::DAY if by_calendar => "day".to_owned(),
        period if by_calendar && period < Span::from_secs(28 * 86_400) => "week".to_owned(),
        _ if by_calendar => "month".to_owned(),
        period => period.to_string(),
    };
    Some(format!("{}/{period}", rate.count()))
}

/// The numbers of a variant of a limit.
fn quota(quota: &Quota) -> Value {
    json!({
        "rate": rate(quota),
        "capacity": quota.capacity(),
    })
}

fn list(list: &ListConfig, known: &AddressList) -> Value {
    let file = list.file().map(|file| file.display().to_string());
    json!({ "file": file, "entries": known.len() })
}

fn names(lists: &[ListConfig], indices: impl Iterator<Item = usize>) -> Vec<String> {
    indices.map(|index| lists[index].name.clone()).collect()
}

fn redis(redis: &RedisConfig) -> Value {
    let mut value = json!({
        "username": redis.username,
        "password": redacted(redis.password.is_some()),
        "database": redis.database,
        "tls": redis.tls.as_ref().map(|tls| json!({
            "ca": if tls.ca.is_some() { "private" } else { "system" },
            "own_certificate": tls.client.is_some(),
        })),
        "timeout": seconds(redis.timeout),
        "prefix": redis.prefix,
    });
    match &redis.servers {
        RedisServers::Single(address) => value["server"] = address.to_string().into(),
        RedisServers::Cluster(nodes) => value["cluster"] = texts(nodes).into(),
        RedisServers::Sentinel { master, nodes, username, password } => {
            value["sentinel"] = json!({
                "master": master,
                "nodes": texts(nodes),
                "username": username,
                "password": redacted(password.is_some()),
            });
        }
    }
    value
}

fn upstream(upstream: &UpstreamConfig) -> Value {
    json!({
        "servers": upstream.servers.iter().map(|s| json!({
            "url": format!("{}://{}", if s.tls { "https" } else { "http" }, s.authority), "weight": s.weight,
        })).collect::<Vec<_>>(),
        "timeouts": {
            "connect": seconds(upstream.connect),
            "response": seconds(upstream.response),
            "idle": seconds(upstream.idle),
            "tunnel": seconds(upstream.tunnel),
        },
        "protocol": word(&upstream.protocol),
        "tls": upstream.tls.as_ref().map(|tls| json!({
            "ca": if tls.ca.is_some() { "private" } else { "system" },
            "own_certificate": tls.client.is_some(),
            "server_name": tls.server_name.as_ref().map(|name| name.to_str()),
            "verify": tls.verify,
        })),
        "proxy_protocol": upstream.proxy_protocol.as_ref().map(word),
        "balance": match &upstream.balance {
            Balance::RoundRobin => json!("round_robin"),
            Balance::LeastRequests => json!("least_requests"),
            Balance::Random => json!("random"),
            Balance::Hash(key) => json!({ "hash": key.to_string() }),
        },
        "resolve": seconds(upstream.resolve),
        "health": upstream.health.as_ref().map(|health| json!({
            "path": health.path.as_str(),
            "host": health.host.as_ref().and_then(|host| host.to_str().ok()),
            "every": seconds(health.every),
            "timeout": seconds(health.timeout),
            "healthy": health.healthy,
            "unhealthy": health.unhealthy,
            "status": health.status.iter().map(|s| format!("{}-{}", s.start(), s.end())).collect::<Vec<_>>(),
        })),
        "ejection": upstream.ejection.as_ref().map(|ejection| json!({
            "failures": ejection.failures,
            "for": seconds(ejection.span),
            "max": seconds(ejection.max),
            "share": format!("{}%", ejection.share),
            "status": ejection.status.iter().map(|status| status.as_u16()).collect::<Vec<_>>(),
        })),
        "retries": {
            "attempts": upstream.retries.attempts,
            "budget": format!("{}%", upstream.retries.budget),
        },
        "max_connections": upstream.max_connections,
        "max_pending": upstream.max_connections.map(|_| upstream.max_pending),
    })
}

/// What /status tells of a server.
pub(super) fn server(server: &ServerStatus) -> Value {
    json!({
        "server": server.server,
        "healthy": server.healthy,
        "addresses": server.addresses.iter().map(|address| json!({
            "address": address.address.to_string(),
            "answers": address.answers,
            "trouble": address.trouble,
            "ejected": address.ejected,
        })).collect::<Vec<_>>(),
    })
}

fn route(config: &Config, route: &RouteConfig) -> Value {
    let mut value = json!({
        "name": route.name,
        "match": matches(config, &route.matches),
        "deny": names(&config.lists, route.access.deny.iter().copied()),
        "allow": names(&config.lists, route.access.allow.iter().copied()),
        "preflight": if route.matches.preflight { "exempt" } else { "counted" },
        "cors": route.cors.as_deref().map(cors::cors),
        "limits": route.limits.iter().map(|index| config.limits[*index].name.clone()).collect::<Vec<_>>(),
        "headers": families(route.headers),
        "max_body": route.max_body,
        "timeout": route.timeout.map(seconds),
    });
    match &route.action {
        Action::Forward { upstream, original_path, overrides } => {
            value["upstream"] = config.upstreams[*upstream].name.clone().into();
            value["forward_path"] = if *original_path { "original" } else { "normalized" }.into();
            value["override_headers"] = if *overrides { "forwarded" } else { "removed" }.into();
        }
        Action::Usage => value["respond"] = "usage".into(),
        Action::Redirect { status, to } => {
            value["redirect"] = json!({ "status": status.as_u16(), "to": to.text });
        }
        Action::Respond { status, .. } => value["respond"] = json!({ "status": status.as_u16() }),
    }
    match &route.shape.path {
        PathChange::Keep => {}
        PathChange::Strip(prefix) => value["strip_prefix"] = prefix.as_str().into(),
        PathChange::Template(template) => value["rewrite"] = template.text.as_str().into(),
        PathChange::Regex { pattern, .. } => value["rewrite"] = json!({ "match": pattern.as_str() }),
    }
    value["request_headers"] = header_changes(&route.shape.request);
    value["response_headers"] = header_changes(&route.shape.answer);
    if let Some(reject) = &route.reject {
        value["reject"] = json!({ "status": reject.status.as_u16(), "body": reject.body });
    }
    value
}

/// Which headers are changed. What they are set to may be a secret.
fn header_changes(changes: &[HeaderChange]) -> Value {
    let of = |wanted: fn(&Change) -> bool| {
        let all = changes.iter().filter(|change| wanted(&change.change));
        all.map(|change| change.name.as_str()).collect::<Vec<_>>()
    };
    json!({
        "remove": of(|change| matches!(change, Change::Remove)),
        "set": of(|change| matches!(change, Change::Set(_))),
        "add": of(|change| matches!(change, Change::Add(_))),
    })
}

fn access_log(log: &AccessLogConfig) -> Value {
    let fields = log.fields.iter().map(|field| match field {
        Field::Known(known) => known.name().to_owned(),
        Field::Header(name) => format!("header:{name}"),
    });
    json!({
        "path": match &log.target {
            LogTarget::Stdout => "stdout".to_owned(),
            LogTarget::File(path) => path.display().to_string(),
        },
        "format": word(&log.format),
        "fields": (log.format == LogFormat::Json).then(|| fields.collect::<Vec<_>>()),
        "redact": log.redact,
        "sample": {
            "ok": percent(log.sample.ok),
            "refused": percent(log.sample.refused),
            "error": percent(log.sample.error),
        },
        "buffer": log.buffer,
    })
}

fn percent(share: Share) -> String {
    format!("{}%", share.percent())
}

fn matches(config: &Config, matches: &Match) -> Value {
    let headers = matches.headers.iter().map(|(name, value)| {
        let shown = if value.is_some() { "(redacted)" } else { "*" };
        (name.to_string(), Value::from(shown))
    });
    json!({
        "listener": matches.listener.map(|index| config.listeners[index].name.clone()),
        "host": texts(&matches.hosts),
        "path": texts(&matches.paths),
        "methods": texts(&matches.methods),
        "headers": headers.collect::<Map<_, _>>(),
        "spelling": if matches.exact_spelling { "exact" } else { "loose" },
    })
}

fn families(families: HeaderFamilies) -> Vec<&'static str> {
    let all = [
        (families.x_ratelimit, "x-ratelimit"),
        (families.ietf, "ietf"),
        (families.retry_after, "retry-after"),
    ];
    all.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect()
}

fn texts<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn word(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}").to_lowercase()
}

/// What stands for a secret that is set.
fn redacted(is_set: bool) -> &'static str {
    if is_set { "(redacted)" } else { "" }
}

fn seconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Source;
    use crate::snapshot::SnapshotBuilder;
    use sluicegate_limiter::Time;

    fn shown(file: &str) -> Value {
        let loaded = Source::File(format!("tests/config/good/{file}").into()).load().unwrap();
        config(&SnapshotBuilder::default().build(loaded.config.unwrap(), None, Time::from_nanos(0)))
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
