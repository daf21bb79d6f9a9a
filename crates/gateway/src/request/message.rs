//! A request as it is stored in a queue: what is kept of it, and what is not.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use http::header;
use http_body_util::BodyExt;
use sluicegate_auth::StoredIdentity;
use sluicegate_base::file_watch::sha256;
use sluicegate_base::incoming::Request;
use sluicegate_base::message::RequestId;
use sluicegate_config::{Config, FRAMING, form_decode, secret_parameters};
use sluicegate_downstream::{Connection, RequestBody, RequestBodyError};
use sluicegate_observe::shown_key::ShownKeys;
use sluicegate_upstream::ForwardError;

use super::matching::Matching;
use super::owner::owner;
use super::prefer::{PREFER, without_applied};
use super::verdict::Matched;
use super::view::View;
use crate::queue::{Id, Idempotency, Message, Order, Queue, Sealed, StoredRequest, characters, millis};

/// The header that says which requests are the same.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Header fields by which a trusted proxy says where a request comes from: without them it would come from the proxy.
const OF_PROXY: [&str; 5] = ["forwarded", "host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];

/// What a message is made of.
pub(super) struct Acceptance<'a, 's, 'r> {
    pub(super) view: &'a View,
    pub(super) connection: &'a Connection,
    pub(super) matching: &'a Matching<'s, 'r>,
    pub(super) matched: &'a Matched<'s>,
    pub(super) queue: &'a Arc<Queue>,
    /// The index of the limit in the selection.
    pub(super) at: usize,
    pub(super) request_id: &'a RequestId,
    pub(super) body: Bytes,
}

/// The message for a request that is accepted.
///
/// # Errors
/// If the system gives no random bytes.
pub(super) fn message(accepted: &Acceptance<'_, '_, '_>) -> Result<Message, &'static str> {
    let Acceptance { view, matching, matched, queue, at, .. } = accepted;
    let (snapshot, request) = (&view.snapshot, matching.request);
    let config = &snapshot.config;
    let one = &matching.selection.selected[*at];
    let (head, now) = (request.head, millis(matching.inputs.now));
    let owner = owner(request, &matched.identity, &one.ask.text, config);
    let stored = stored(accepted)?;
    let idempotency = head.headers.only(IDEMPOTENCY_KEY).map(|key| Idempotency {
        key: sha256(&[&owner[..], queue.state.limit().as_bytes(), b"\0", key].concat()),
        content: content(&stored),
    });
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| "the system gives no random bytes")?;
    Ok(Message {
        id: Id(id),
        limit: queue.state.limit().to_owned(),
        key: sha256(&one.ask.text).to_vec(),
        consumer: consumer(accepted),
        owner,
        idempotency,
        order: if queue.config.ordered { Order::Key } else { Order::None },
        accepted: now,
        expires: now.saturating_add(queue.ttl()),
        request: stored.encode(),
    })
}

/// The consumer of the fair queue: the key of the limit, or the client if the limit counts all clients together.
fn consumer(accepted: &Acceptance<'_, '_, '_>) -> String {
    let Acceptance { view, matching, matched, at, .. } = accepted;
    let one = &matching.selection.selected[*at];
    let shown = ShownKeys::new(&view.snapshot.config);
    let of_share = one.fair.as_ref().and_then(|fair| shown.text(&fair.text));
    let of_key = || shown.text(&one.ask.text).filter(|_| !one.limit.config.key.is_constant());
    let identity = &matched.identity;
    let user = || identity.token.as_deref().and_then(|token| token.user()).map(|user| format!("user:{user}"));
    of_share
        .or_else(of_key)
        .or_else(|| identity.consumer().map(|name| format!("consumer:{name}")))
        .or_else(user)
        .unwrap_or_else(|| {
            let ipv6_prefix = view.snapshot.config.client_ip.ipv6_prefix;
            format!("ip:{}", sluicegate_route::keys::mask(matching.request.peer.client, ipv6_prefix))
        })
}

fn stored(accepted: &Acceptance<'_, '_, '_>) -> Result<StoredRequest, &'static str> {
    let Acceptance { view, connection, matching, matched, queue, request_id, body, .. } = accepted;
    let (config, request) = (&view.snapshot.config, matching.request);
    let head = request.head;
    let shown = ShownKeys::new(config);
    let mut sealed = Sealed::default();
    let mut keys = Vec::new();
    for one in matching.selection.selected.iter().filter(|one| !one.candidate) {
        let key = (one.limit.config.name.clone(), BASE64_STANDARD.encode(&one.ask.text));
        let is_secret =
            sluicegate_route::keys::parts_of(&one.ask.text).any(|(part, _)| shown.is_secret(&part));
        if is_secret { &mut sealed.keys } else { &mut keys }.push(key);
    }
    let host = head.target.authority().filter(|_| !head.headers.contains_key(header::HOST));
    let mut headers: Vec<(String, String)> =
        host.map(|host| ("host".to_owned(), host.to_owned())).into_iter().collect();
    for (name, value) in head.headers.iter() {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        if is_credential(name, config) {
            if queue.config.keep_credentials {
                sealed.headers.push((name.to_owned(), characters(value)));
            }
            continue;
        }
        if !is_kept(name, queue, request) {
            continue;
        }
        let value = match name {
            PREFER => match without_applied(value) {
                Some(value) => characters(&value),
                None => continue,
            },
            _ => characters(value),
        };
        headers.push((name.to_owned(), value));
    }
    let certificate = |tls: &sluicegate_base::tls::TlsSession| {
        tls.client.as_ref().map(|client| (client.subject.clone(), client.fingerprint.clone()))
    };
    let whole = head.target.path_and_query();
    let target = without_secrets(whole, config);
    if queue.config.keep_credentials && target != whole {
        sealed.target = Some(whole.to_owned());
    }
    Ok(StoredRequest {
        method: head.method.as_str().to_owned(),
        target,
        headers,
        request_id: request_id.as_str().to_owned(),
        listener: connection.listener.id.clone(),
        peer: connection.peer,
        tls: connection.tls.as_deref().map(certificate),
        identity: StoredIdentity::of(&matched.identity),
        keys,
        sealed: match &queue.seal {
            Some(seal) => sealed.encode(seal)?,
            None => None,
        },
        body: body.clone(),
    })
}

/// Whether a header field without a credential is stored.
fn is_kept(name: &str, queue: &Queue, request: Request<'_>) -> bool {
    if FRAMING.contains(&name) {
        return false;
    }
    let wanted = &queue.config.headers;
    wanted.is_empty()
        || ["content-type", "content-encoding", IDEMPOTENCY_KEY].contains(&name)
        || (name == "host" || request.peer.trusted) && OF_PROXY.contains(&name)
        || wanted.iter().any(|wanted| wanted == name)
}

/// Whether a header proves who the client is.
fn is_credential(name: &str, config: &Config) -> bool {
    ["authorization", "proxy-authorization", "cookie"].contains(&name)
        || config.api_key.source.header.as_ref().is_some_and(|header| header == name)
        || config.token_headers().any(|header| header == name)
}

/// A path and query without the parameters that prove who the client is.
fn without_secrets(target: &str, config: &Config) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let secrets = secret_parameters(&config.api_key);
    let is_secret = |pair: &&str| {
        let name = form_decode(pair.split('=').next().unwrap_or_default());
        secrets.iter().any(|secret| secret.as_bytes() == name.as_ref())
    };
    let left: Vec<&str> = query.split('&').filter(|pair| !is_secret(pair)).collect();
    if left.is_empty() { path.to_owned() } else { format!("{path}?{}", left.join("&")) }
}

/// A digest of what makes two requests the same.
fn content(stored: &StoredRequest) -> [u8; 32] {
    let StoredRequest { method, target, body, .. } = stored;
    sha256(&[method.as_bytes(), b" ", target.as_bytes(), b"\n", body].concat())
}

/// The whole body.
///
/// # Errors
/// If it is longer than `max`, or is not complete.
pub(super) async fn read_body(mut body: RequestBody, max: u64) -> Result<Bytes, ForwardError> {
    let announced = http_body::Body::size_hint(&body).exact().unwrap_or(0);
    if announced > max {
        return Err(ForwardError::TooLarge);
    }
    let mut whole = BytesMut::with_capacity(usize::try_from(announced).unwrap_or(0));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error {
            RequestBodyError::Slow => ForwardError::ClientSlow,
            _ => ForwardError::ClientBroken,
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if (whole.len() + data.len()) as u64 > max {
            return Err(ForwardError::TooLarge);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}
