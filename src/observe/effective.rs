//! The configuration in force, defaults included. It is built from known fields, and secrets are none of them.

use serde_json::{Map, Value, json};

use crate::config::{
    Action, ApiKeyConfig, ApiKeySource, Balance, Config, Cost, HeaderFamilies, JwtConfig, JwtKeys,
    LimitConfig, ListConfig, Match, Quota, RedisConfig, RedisServers, RouteConfig, UpstreamConfig,
};
use crate::forward::ServerStatus;
use crate::snapshot::Snapshot;

/// What /config tells.
pub(super) fn config(snapshot: &Snapshot) -> Value {
    let config = &snapshot.config;
    let limits: Map<String, Value> =
        config.limits.iter().map(|l| (l.name.clone(), limit(l, &config.lists))).collect();
    let upstreams: Map<String, Value> =
        config.upstreams.iter().map(|u| (u.name.clone(), upstream(u))).collect();
    json!({
        "generation": snapshot.generation,
        "listen": config.listeners.iter().map(|l| json!({
            "name": l.name, "address": l.address.to_string(),
        })).collect::<Vec<_>>(),
        "admin": config.admin.as_ref().map(|admin| json!({
            "address": admin.address.to_string(),
            "token": redacted(!admin.token.is_empty()),
        })),
        "client_ip": {
            "trusted_proxies": texts(&config.client_ip.trusted_proxies),
            "header": config.client_ip.header.name(),
            "ipv6_prefix": config.client_ip.ipv6_prefix,
        },
        "auth": { "api_key": api_key(&config.api_key), "jwt": config.jwt.as_ref().map(jwt) },
        "store": config.store.as_ref().map(|redis| json!({ "redis": self::redis(redis) })),
        "lists": config.lists.iter().map(|l| (l.name.clone(), list(l))).collect::<Map<_, _>>(),
        "limits": limits,
        "upstreams": upstreams,
        "routes": config.routes.iter().map(|r| route(config, r)).collect::<Vec<_>>(),
        "workers": config.workers,
        "max_head": config.max_head,
        "drain": seconds(config.drain),
    })
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
        JwtKeys::Fixed(_) => ("key", redacted(true).into()),
        JwtKeys::File { path, .. } => ("jwks", json!({ "file": path.display().to_string() })),
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
        "rate": limit.quota.rate().map(|rate| format!("{}/{}", rate.count(), rate.period())),
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
            "lists": names(lists, &limit.exempt.lists),
            "keys": limit.exempt.values.len(),
            "consumers": limit.exempt.consumers,
            "plans": limit.exempt.plans,
        },
        "on_missing": word(&limit.on_missing),
        "scope": if limit.shared { "shared" } else { "local" },
        "on_store_failure": limit.shared.then(|| word(&limit.on_store_failure)),
        "max_keys": limit.max_keys,
    })
}

/// The numbers of a variant of a limit.
fn quota(quota: &Quota) -> Value {
    json!({
        "rate": quota.rate().map(|rate| format!("{}/{}", rate.count(), rate.period())),
        "capacity": quota.capacity(),
    })
}

fn list(list: &ListConfig) -> Value {
    let file = list.file.as_ref().map(|file| file.display().to_string());
    json!({ "file": file, "entries": list.known.len() })
}

fn names(lists: &[ListConfig], indices: &[usize]) -> Vec<String> {
    indices.iter().map(|index| lists[*index].name.clone()).collect()
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
            "url": format!("http://{}", s.authority), "weight": s.weight,
        })).collect::<Vec<_>>(),
        "timeouts": {
            "connect": seconds(upstream.connect),
            "response": seconds(upstream.response),
            "idle": seconds(upstream.idle),
        },
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
            "ejected": address.ejected,
        })).collect::<Vec<_>>(),
    })
}

fn route(config: &Config, route: &RouteConfig) -> Value {
    let mut value = json!({
        "name": route.name,
        "match": matches(config, &route.matches),
        "deny": names(&config.lists, &route.access.deny),
        "allow": names(&config.lists, &route.access.allow),
        "preflight": if route.matches.preflight { "exempt" } else { "counted" },
        "limits": route.limits.iter().map(|index| config.limits[*index].name.clone()).collect::<Vec<_>>(),
        "headers": families(route.headers),
        "max_body": route.max_body,
    });
    match &route.action {
        Action::Forward { upstream, original_path } => {
            value["upstream"] = config.upstreams[*upstream].name.clone().into();
            value["forward_path"] = if *original_path { "original" } else { "normalized" }.into();
        }
        Action::Usage => value["respond"] = "usage".into(),
        Action::Respond { status, .. } => value["respond"] = json!({ "status": status.as_u16() }),
    }
    if let Some(reject) = &route.reject {
        value["reject"] = json!({ "status": reject.status.as_u16(), "body": reject.body });
    }
    value
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
    use std::path::Path;

    use super::*;
    use crate::config::load;
    use crate::snapshot::Lineage;
    use sluicegate_limiter::Time;

    fn shown(file: &str) -> Value {
        let loaded = load(&Path::new("tests/config/good").join(file)).unwrap();
        config(&Lineage::default().next(loaded.config.unwrap(), None, Time::from_nanos(0)))
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
