//! Idle HTTP/1.1 connections to an endpoint. The one used last is reused first, so that the others reach the idle timeout. If a
//! server sends unsolicited bytes, that is logged and counted, and its connections are not reused for a minute: the bytes could
//! be taken for the response to the next request.

use std::cell::RefCell;
use std::sync::Arc;

use super::connect::IdleState;
use super::endpoint_state::EndpointState;
use super::h1_connection::H1Connection;
use super::upstream_state::{PersistentState, UpstreamState};

/// The most idle connections of one worker to one endpoint.
const MOST_IDLE: usize = 1024;

/// The idle connections of one worker to an endpoint.
pub(super) struct Pool {
    idle: RefCell<Vec<Idle>>,
    endpoint: Arc<EndpointState>,
    persistent: Arc<PersistentState>,
    /// The name of the upstream.
    upstream: String,
}

struct Idle {
    h1_connection: Box<H1Connection>,
    /// When it is not used any more, in the worker's milliseconds.
    until: u64,
}

impl Pool {
    pub(super) fn new(endpoint: &Arc<EndpointState>, upstream: &UpstreamState) -> Self {
        Self {
            idle: RefCell::default(),
            endpoint: Arc::clone(endpoint),
            persistent: Arc::clone(upstream.persistent()),
            upstream: upstream.config.name.clone(),
        }
    }

    /// Takes an idle connection that is open and silent, if there is one. `now` is in the worker's milliseconds, here and below.
    pub(super) fn take(&self, now: u64) -> Option<Box<H1Connection>> {
        loop {
            let Idle { mut h1_connection, until } = self.idle.borrow_mut().pop()?;
            if now >= until {
                continue;
            }
            match h1_connection.idle_state() {
                IdleState::Silent if self.endpoint.keeps_connections(now) => return Some(h1_connection),
                IdleState::Silent => {}
                IdleState::Closed => {
                    let (upstream, server) = (&self.upstream, &self.endpoint.authority);
                    tracing::debug!(upstream, server, "an idle upstream connection was closed by the server");
                }
                IdleState::Unsolicited => self.unsolicited(now),
            }
        }
    }

    /// Adds a connection that becomes idle, for so many milliseconds.
    pub(super) fn keep(&self, h1_connection: Box<H1Connection>, now: u64, millis: u32) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MOST_IDLE && self.endpoint.keeps_connections(now) {
            idle.push(Idle { h1_connection, until: now.saturating_add(millis.into()) });
        }
    }

    /// Drops connections whose time is over, that are closed, or on which unsolicited bytes arrived.
    pub(super) fn reap(&self, now: u64) {
        let is_kept = self.endpoint.keeps_connections(now);
        let mut unsolicited = 0;
        self.idle.borrow_mut().retain_mut(|kept| {
            let state = kept.h1_connection.idle_state();
            unsolicited += u32::from(state == IdleState::Unsolicited);
            is_kept && state == IdleState::Silent && now < kept.until
        });
        (0..unsolicited).for_each(|_| self.unsolicited(now));
    }

    /// The server has sent bytes on an idle connection, or after the end of a response.
    #[cold]
    pub(super) fn unsolicited(&self, now: u64) {
        self.persistent.unsolicited();
        if self.endpoint.stop_keeping_connections(now) {
            let (name, server, address) = (&self.upstream, &self.endpoint.authority, &self.endpoint.address);
            tracing::warn!(
                "{name}: {server} ({address}) sends bytes that no request asked for; its connections are not kept for a minute"
            );
        }
        self.idle.borrow_mut().clear();
    }
}
