//! Servers that an operator drains or puts into maintenance: `/upstreams/{upstream}/servers/{server}/state`.

#![allow(clippy::result_large_err, reason = "an answer is made once for each request of an operator")]

use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use super::asking::Asking;
use super::body::body;
use super::{Admin, Answer, not_with_that_method, problem, reply};
use sluicegate_config::{Role, percent_decode};
use sluicegate_upstream::{AdminState, UpstreamState};

/// The largest body, in bytes.
const LARGEST: usize = 1 << 10;
/// The most names that an answer lists.
const LISTED: usize = 10;

/// The body of a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    state: String,
}

/// A server of the configuration in force.
struct Known {
    upstream: Arc<UpstreamState>,
    server: String,
}

impl Admin {
    /// Answers a request for the state of a server.
    pub(super) async fn server_state(
        &self,
        request: Request<Incoming>,
        upstream: &str,
        server: &str,
        peer: IpAddr,
    ) -> Answer {
        match *request.method() {
            Method::GET | Method::HEAD => {
                self.known_server(upstream, server).map_or_else(|e| e, |known| shown(&known))
            }
            Method::PUT => self.set_server_state(request, upstream, server, peer).await.unwrap_or_else(|e| e),
            _ => not_with_that_method("GET, HEAD, PUT"),
        }
    }

    async fn set_server_state(
        &self,
        request: Request<Incoming>,
        upstream: &str,
        server: &str,
        peer: IpAddr,
    ) -> Result<Answer, Answer> {
        let actor = self.actor(&request, Role::All)?;
        let text = body(request, LARGEST).await?;
        let change: Change = serde_json::from_str(&text).map_err(|error| {
            problem(StatusCode::BAD_REQUEST, &format!("the body cannot be read: {error}"))
        })?;
        let state = AdminState::ALL.iter().copied().find(|state| state.name() == change.state);
        let Some(state) = state else {
            let why = format!("`state` is one of {}", AdminState::NAMES.join(", "));
            return Err(problem(StatusCode::UNPROCESSABLE_ENTITY, &why));
        };
        let known = self.known_server(upstream, server)?;
        match known.upstream.set_server_admin(&known.server, state) {
            Some(before) if before != state => {
                let names = (known.upstream.config.name.as_str(), known.server.as_str());
                self.audit_server_state(&Asking { actor, peer }, names, before, state);
            }
            _ => {}
        }
        Ok(shown(&known))
    }

    /// The server with these names, as the path has them.
    fn known_server(&self, upstream: &str, server: &str) -> Result<Known, Answer> {
        let (name, server) = (percent_decode(upstream), percent_decode(server));
        let snapshot = self.shared.snapshot.load_full();
        let Some(upstream) = snapshot.upstreams.iter().find(|state| state.config.name == name) else {
            let all = snapshot.upstreams.iter().map(|state| state.config.name.as_str());
            let why = format!("there is no upstream called `{name}`{}", listed("upstreams", all));
            return Err(problem(StatusCode::NOT_FOUND, &why));
        };
        if upstream.server_admin(&server).is_none() {
            let all = upstream.config.servers.iter().map(|config| config.authority.as_str());
            let why = format!("the upstream `{name}` has no server `{server}`{}", listed("its servers", all));
            return Err(problem(StatusCode::NOT_FOUND, &why));
        }
        Ok(Known { upstream: Arc::clone(upstream), server })
    }
}

/// Names for the end of a message, if they are few.
fn listed<'a>(what: &str, names: impl ExactSizeIterator<Item = &'a str>) -> String {
    match names.len() {
        1..=LISTED => format!("; {what}: {}", names.collect::<Vec<_>>().join(", ")),
        _ => "; see `GET /status`".to_owned(),
    }
}

fn shown(known: &Known) -> Answer {
    let Some(admin) = known.upstream.server_admin(&known.server) else {
        return problem(StatusCode::NOT_FOUND, "there is no such server");
    };
    reply(&json!({
        "upstream": known.upstream.config.name,
        "server": known.server,
        "state": admin.state.name(),
        "in_flight": admin.in_flight,
    }))
}
