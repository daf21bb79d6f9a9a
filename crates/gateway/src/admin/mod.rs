//! The API for operators: state, metrics, reload, pardon. On an address of its own.

mod actor;
mod asking;
mod audit;
mod body;
mod config_dump;
mod connections;
mod expected_series;
mod explain;
mod hosts;
mod keys;
mod live;
mod openapi;
mod page;
mod query;
mod queues;
mod rules;
mod scrape;
mod servers;

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Map, Value, json};
use sluicegate_limiter::Division;
use tokio::sync::{mpsc, oneshot};

use crate::limit::Store;
use crate::limit::counting_in_force;
use crate::process_state::ProcessState;
use sluicegate_auth::client_address;
use sluicegate_config::Role;
use sluicegate_observe::metrics;

use self::asking::Asking;
pub use self::config_dump::config as effective_config;
pub use self::scrape::otlp as otlp_metrics;

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";
const NOTHING_HERE: &str =
    "there is nothing here; /openapi.json describes this API, and / is a page for browsers";
/// Asks for a reload; the answer is the generation in force, or the report on the file.
pub type ReloadRequest = oneshot::Sender<Result<u64, String>>;

/// The API on one address.
pub struct Admin {
    /// What all threads share.
    pub shared: Arc<ProcessState>,
    /// Where reloads are asked for.
    pub reloads: mpsc::Sender<ReloadRequest>,
    /// The way to the store.
    pub store: Rc<RefCell<Option<Rc<Store>>>>,
}

type Answer = Response<Full<Bytes>>;

impl Admin {
    /// Answers a request that came from `peer` to the address `own`.
    async fn respond(
        &self,
        request: Request<Incoming>,
        own: IpAddr,
        peer: IpAddr,
    ) -> Result<Answer, Infallible> {
        let snapshot = self.shared.snapshot.load_full();
        let listed = snapshot.config.admin.as_ref().map(|admin| &admin.hosts[..]).unwrap_or_default();
        if !hosts::are_own(request.uri(), request.headers(), own, listed) {
            let why = "this API does not answer under that host: list it in admin.hosts";
            return Ok(problem(StatusCode::MISDIRECTED_REQUEST, why));
        }
        // The page is the same everywhere, and asks for the token itself.
        let open = matches!(request.uri().path(), "/" | "/healthz" | "/readyz");
        let reads_need_token = snapshot.config.admin.as_ref().is_some_and(|admin| admin.reads_need_token);
        if reads_need_token
            && !open
            && let Err(refusal) = self.actor(&request, Role::Read)
        {
            return Ok(refusal);
        }
        drop(snapshot);
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let get = matches!(*request.method(), Method::GET | Method::HEAD);
        Ok(match (request.method(), parts.as_slice()) {
            (_, [""]) if get => answer(StatusCode::OK, "text/html; charset=utf-8", page::PAGE.as_str()),
            (_, ["metrics"]) if get => self.metrics(),
            (_, ["healthz"]) if get => answer(StatusCode::OK, "text/plain", "ok\n".to_owned()),
            (_, ["readyz"]) if get => self.ready(),
            (_, ["status"]) if get => reply(&self.status()),
            (_, ["config"]) if get => reply(&config_dump::config(&self.shared.snapshot.load())),
            (_, [first, ..]) if first.starts_with("rules") => self.rules(request, peer).await,
            (_, ["queues", rest @ ..]) => self.queues(request, rest, peer).await,
            (_, ["upstreams", upstream, "servers", server, "state"]) => {
                self.server_state(request, upstream, server, peer).await
            }
            (_, ["live"]) if get => self.live(request.uri().query()),
            (_, ["limits", limit, "top"]) if get => self.top(limit, request.uri().query()).await,
            (_, ["limits", limit, "bans"]) if get => self.bans(limit),
            (_, ["explain"]) if get => self.explain(request.uri().query()).await,
            (_, ["openapi.json"]) if get => reply(&openapi::document()),
            (_, ["limits"]) if get => reply(&self.limits()),
            (_, ["limits", limit, "keys", key]) if get => self.key(limit, key).await,
            (&Method::DELETE, ["limits", limit, "keys", key]) => match self.actor(&request, Role::All) {
                Ok(actor) => self.pardon(limit, key, &Asking { actor, peer }).await,
                Err(refusal) => refusal,
            },
            (&Method::POST, ["reload"]) => match self.actor(&request, Role::All) {
                Ok(_) => self.reload().await,
                Err(refusal) => refusal,
            },
            (
                _,
                [
                    "" | "metrics" | "healthz" | "readyz" | "status" | "config" | "limits" | "openapi.json"
                    | "explain" | "live",
                ],
            ) => not_with_that_method("GET, HEAD"),
            (_, ["limits", _, "top" | "bans"]) => not_with_that_method("GET, HEAD"),
            (_, ["limits", _, "keys", _]) => not_with_that_method("GET, HEAD, DELETE"),
            (_, ["reload"]) => not_with_that_method("POST"),
            (_, ["limits", _, "bans", _]) => {
                problem(StatusCode::NOT_FOUND, "DELETE /limits/{limit}/keys/{key} ends the ban of a key")
            }
            _ => problem(StatusCode::NOT_FOUND, NOTHING_HERE),
        })
    }

    fn metrics(&self) -> Answer {
        let snapshot = self.shared.snapshot.load_full();
        match scrape::text(
            (&self.shared.metrics, &self.shared.load),
            &snapshot,
            self.shared.clock.now(),
            self.now(),
        ) {
            Ok(text) => answer(StatusCode::OK, metrics::TEXT_FORMAT, text),
            Err(error) => {
                problem(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot write metrics: {error}"))
            }
        }
    }

    /// The gateway's milliseconds.
    fn now(&self) -> u64 {
        u64::try_from(self.shared.clock.uptime().as_millis()).unwrap_or(u64::MAX)
    }

    fn ready(&self) -> Answer {
        match !self.shared.draining.load(Ordering::Relaxed) {
            true => answer(StatusCode::OK, "text/plain", "ready\n".to_owned()),
            false => problem(StatusCode::SERVICE_UNAVAILABLE, "the gateway is going down"),
        }
    }

    async fn reload(&self) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let _ = self.reloads.send(sender).await; // a closed channel closes the answer's too
        match receiver.await {
            Err(_) => problem(StatusCode::SERVICE_UNAVAILABLE, "the gateway is going down"),
            Ok(Ok(generation)) => reply(&json!({ "generation": generation })),
            Ok(Err(report)) => {
                let mut body = problem_body(StatusCode::UNPROCESSABLE_ENTITY, "the file is not in force");
                body["report"] = report.into();
                answer(StatusCode::UNPROCESSABLE_ENTITY, PROBLEM, body.to_string())
            }
        }
    }

    fn status(&self) -> Value {
        let status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": self.shared.clock.uptime().as_secs_f64(),
            "config_file": status.file,
            "generation": self.shared.snapshot.load().generation,
            "loaded_at": status.loaded_at,
            "last_reload": status.last_reload.as_ref().map(|diff| json!({
                "at": status.loaded_at,
                "summary": diff.summary(),
                "diff": diff,
            })),
            "last_reload_error": status.last_error,
            "file_errors": status.file_errors,
            "consumers": self.shared.snapshot.load().config.known_consumers().map(|(consumers, known)| json!({
                "file": consumers.file.display().to_string(),
                "consumers": known.len(),
                "keys": known.keys(),
                "last_reload_error": status.file_errors.get(&consumers.file.display().to_string()),
            })),
            "lists": self.shared.snapshot.load().config.all_lists().map(|(list, known)| json!({
                "name": list.name,
                "file": list.file().map(|file| file.display().to_string()),
                "entries": known.len(),
                "last_reload_error": list.file().and_then(|file| {
                    status.file_errors.get(&file.display().to_string())
                }),
            })).collect::<Vec<_>>(),
            "tls": self.shared.snapshot.load().config.tls_of_listeners().map(|(listener, tls, files)| json!({
                "listener": listener.name,
                "certificates": config_dump::certificates(tls, files),
            })).collect::<Vec<_>>(),
            "refusals": self.shared.metrics.refusals().iter().map(|(route, reason, count)| json!({
                "route": route,
                "reason": reason.name(),
                "count": count,
            })).collect::<Vec<_>>(),
            "upstreams": self.shared.snapshot.load().upstreams.iter().map(|state| json!({
                "name": state.config.name,
                "pending": state.waiting(),
                "overload": state.overload.as_ref().map(|overload| overload.status()),
                "servers": state.status(self.now()).iter().map(config_dump::server).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "ignored_forwarded": self.ignored_forwarded(),
            "draining": self.shared.draining.load(Ordering::Relaxed),
            "connections": self.shared.metrics.open_connections(),
            "store": self.shared.snapshot.load().store.as_ref().map(|state| {
                let status = state.status();
                json!({
                    "kind": "redis",
                    "up": status.up,
                    "gateways": status.gateways,
                    "trouble": status.trouble,
                    "limits": self.shared_limits(status.gateways),
                })
            }),
            "regions": self.regions(),
            "rules": self.shared.snapshot.load().rules().map(|rules| json!({
                "source": rules.source().describe(),
                "largest_batch": rules.source().largest_batch(),
                "version": rules.version(),
                "cached": rules.cached(),
                "trouble": rules.trouble(),
            })),
            "queues": self.known_queues(),
            "jwt": self.shared.snapshot.load().jwt.as_ref().map(|jwt| {
                let status = jwt.keys().status();
                json!({ "keys": status.keys, "trouble": status.trouble })
            }),
            "introspection": self.shared.snapshot.load().introspection.as_ref().map(|introspection| {
                json!({ "trouble": introspection.trouble() })
            }),
            "check": self.shared.snapshot.load().check.as_ref().map(|check| json!({ "trouble": check.trouble() })),
        })
    }

    /// Requests whose header that names the client was ignored; null if there were none, or if their peer is trusted now.
    fn ignored_forwarded(&self) -> Value {
        let snapshot = self.shared.snapshot.load();
        let (client_ip, lists) = (&snapshot.config.client_ip, &snapshot.config.resources.lists);
        let Some(ignored) = self.shared.metrics.ignored_forwarded.status() else { return Value::Null };
        if client_address::trusts(client_ip, lists, ignored.peer) {
            return Value::Null;
        }
        json!({
            "header": client_ip.header.name(),
            "peer": ignored.peer.to_string(),
            "requests": ignored.requests,
            "seconds_ago": self.shared.clock.now().since(ignored.last).as_nanos() as f64 / 1e9,
        })
    }

    /// The region of the gateway, and its parts of the limits in millionths.
    fn regions(&self) -> Value {
        let snapshot = self.shared.snapshot.load_full();
        let Some(regions) = &snapshot.config.regions else { return Value::Null };
        let limits = snapshot.limits.iter().map(|limit| &limit.config).filter_map(|limit| {
            let Division { rate, size } = limit.division?;
            Some((limit.name.clone(), json!({ "lent": limit.is_lent(), "rate": rate, "size": size })))
        });
        let now = self.shared.clock.now();
        json!({
            "name": regions.name,
            "floor": regions.floor(),
            "pool": regions.pool(),
            "home_up": regions.home.as_ref().map(|_| self.shared.metrics.is_lent(now)),
            "limits": limits.collect::<Map<_, _>>(),
        })
    }

    /// How the limits are counted that the store counts, by name.
    fn shared_limits(&self, gateways: u32) -> Value {
        let snapshot = self.shared.snapshot.load_full();
        let shared = snapshot.limits.iter().filter(|limit| limit.config.shared);
        shared.map(|limit| (limit.config.name.clone(), json!(counting_in_force(limit, gateways)))).collect()
    }

    fn limits(&self) -> Value {
        let snapshot = self.shared.snapshot.load_full();
        let now = self.shared.clock.now();
        let gateways = snapshot.store.as_ref().map_or(1, |state| state.gateways());
        let limits = snapshot.limits.iter().map(|limit| {
            let mut value = config_dump::limit(&limit.config);
            value["name"] = limit.config.name.clone().into();
            value["keys"] = snapshot.keys(limit, now).into();
            value["banned"] = limit.counted.bans.as_ref().map(|bans| bans.banned(now)).into();
            value["entries"] =
                limit.all().map(|limit| limit.counted.counters.entries()).sum::<usize>().into();
            value["counting"] = json!(counting_in_force(limit, gateways));
            value["overflowed"] =
                limit.all().map(|limit| limit.counted.counters.overflowed()).sum::<u64>().into();
            value
        });
        limits.collect()
    }
}

fn reply(value: &Value) -> Answer {
    answer(StatusCode::OK, JSON, format!("{value:#}\n"))
}

fn problem_body(status: StatusCode, detail: &str) -> Value {
    json!({ "type": "about:blank", "title": status.canonical_reason(), "status": status.as_u16(), "detail": detail })
}

fn problem(status: StatusCode, detail: &str) -> Answer {
    answer(status, PROBLEM, problem_body(status, detail).to_string())
}

fn not_with_that_method(allowed: &'static str) -> Answer {
    let mut refusal = problem(StatusCode::METHOD_NOT_ALLOWED, "this is not served with that method");
    refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    refusal
}

fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(policy) = HeaderValue::from_str(&page::PAGE_POLICY) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
