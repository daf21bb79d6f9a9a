//! The priority of a request, and its place among those that its upstream has in flight.

use std::hash::BuildHasher;

use http::{StatusCode, header};

use super::RequestContext;
use crate::request::View;
use crate::respond::LocalError;
use crate::snapshot::Snapshot;
use sluicegate_auth::Identity;
use sluicegate_base::boxed_future::boxed_future;
use sluicegate_base::message::LocalResponse;
use sluicegate_config::{PrioritiesConfig, Priority};
use sluicegate_fair_shares::{Answer, Consumer, Cost, Demand};
use sluicegate_overload::{Class, Share};
use sluicegate_upstream::{Entered, ForwardError, Response};
use sluicegate_wire::RequestHead;

/// The seconds within which those come back that are refused because the gateway has too much to do.
const RETRY_WITHIN: u64 = 5;

impl RequestContext {
    /// How important the request is: as a trusted proxy says, or else its consumer, its plan, or its route.
    fn priority(&self, snapshot: &Snapshot, head: &RequestHead, identity: &Identity<'_>) -> Priority {
        let config = &snapshot.config;
        let PrioritiesConfig { plans, consumers, header, .. } = &config.priorities;
        let value = header.as_ref().filter(|_| self.trusts_peer).and_then(|header| head.headers.only(header));
        value
            .and_then(|value| Priority::named(value.trim_ascii()))
            .or_else(|| consumers.get(identity.consumer()?).copied())
            .or_else(|| identity.priority())
            .or_else(|| plans.get(identity.plan()?).copied())
            .unwrap_or_else(|| {
                self.route.map_or_else(Priority::default, |route| config.routes[route].priority)
            })
    }

    /// The response to a request that is refused because the gateway itself has too much to do; `None` for all others.
    #[inline]
    pub(crate) fn shed_by_load(
        &self,
        view: &View,
        head: &RequestHead,
        identity: &Identity<'_>,
    ) -> Option<LocalResponse> {
        match view.process.load.pressure() {
            0 => None,
            pressure => self.shed_under(view, pressure, head, identity),
        }
    }

    #[cold]
    fn shed_under(
        &self,
        view: &View,
        pressure: u32,
        head: &RequestHead,
        identity: &Identity<'_>,
    ) -> Option<LocalResponse> {
        let priority = self.priority(&view.snapshot, head, identity);
        let number = self.connection().worker.random_u64();
        if !sluicegate_overload::is_refused(pressure, priority, number) {
            return None;
        }
        view.process.load.count_refused(priority as usize);
        Some(self.refuse_overloaded(LocalError::GatewayOverloaded, RETRY_WITHIN, head))
    }

    /// Whether the upstream has `overload`, or the priority of the request is a header.
    #[inline]
    pub(crate) fn is_bounded(&self, view: &View, upstream: usize) -> bool {
        let overload = &view.upstream(upstream).state().overload;
        overload.is_some() || view.snapshot.config.priorities.header.is_some()
    }

    /// Takes a place among the requests that the upstream has in flight, or waits for one.
    ///
    /// # Errors
    /// The response, if the request is refused.
    pub(crate) async fn take_place(
        &mut self,
        view: &View,
        upstream: usize,
        head: &mut RequestHead,
        identity: &Identity<'_>,
    ) -> Result<(), LocalResponse> {
        let priority = self.priority(&view.snapshot, head, identity);
        let PrioritiesConfig { header, forward, .. } = &view.snapshot.config.priorities;
        if let Some(header) = header {
            head.headers.remove(header);
            if *forward {
                head.headers.insert(header, priority.name());
            }
        }
        let Some(overload) = &view.upstream(upstream).state().overload else { return Ok(()) };
        let clock = *self.connection().worker.clock();
        let class = Class { priority, share: self.share(view, upstream, identity) };
        let place = match overload.enter(class, clock) {
            Entered::Now(place) => Ok(place),
            Entered::Waits(waiting) => {
                self.connection().queued.set(true); // so that a client that leaves is noticed at once
                let turn = boxed_future(|| waiting.turn()).await;
                self.connection().queued.set(false);
                self.exchange.set_released(clock.now());
                turn
            }
            Entered::Refused(within) => Err(within),
        };
        match place {
            Ok(place) => self.exchange.hold_place(place),
            Err(within) => {
                if let Some(fair) =
                    view.upstream(upstream).state().fair.as_ref().filter(|_| class.share == Share::Above)
                {
                    fair.count_above();
                }
                return Err(self.refuse_overloaded(LocalError::UpstreamOverloaded, within, head));
            }
        }
        Ok(())
    }

    /// Whether the consumer of the request has its fair share of what the upstream can handle.
    fn share(&self, view: &View, upstream: usize, identity: &Identity<'_>) -> Share {
        let state = view.upstream(upstream).state();
        let (Some(fair), Some(overload)) = (&state.fair, &state.overload) else {
            return Share::Modest;
        };
        let capacity = overload.throughput().unwrap_or(u64::MAX);
        let key = view.snapshot.secret.hash_one(identity.consumer());
        let consumer = Consumer { key, weight: fair.config().weight(identity.plan()) };
        let now = self.connection().worker.clock().now();
        match fair.shares().ask(now, capacity, consumer, Cost::Known(1), || key) {
            Answer::Within(taken) if taken.demand != Demand::Far => Share::Modest,
            Answer::Within(_) => Share::Within,
            Answer::Above(_) => Share::Above,
        }
    }

    #[cold]
    fn refuse_overloaded(
        &self,
        error: fn(u8) -> LocalError,
        within: u64,
        head: &RequestHead,
    ) -> LocalResponse {
        // Clients that are told different times do not come back together.
        let seconds = 1 + self.connection().worker.random_u64() % (within + 1);
        let error = error(u8::try_from(seconds).unwrap_or(u8::MAX));
        self.refused(error.reason(), Some(error.detail()));
        let response = error.response_to(head, self.id());
        self.log_failure(response.status, error.detail());
        response
    }

    /// The upstream has answered, or failed.
    pub(crate) fn upstream_answered(&self, result: &Result<Response, ForwardError>) {
        match result {
            Ok(response) => {
                let is_overloaded =
                    [StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT].contains(&response.status);
                let streams = || response.headers.only(header::CONTENT_TYPE).is_some_and(is_stream);
                if self.exchange.set_answered_well(!is_overloaded)
                    && (response.status == StatusCode::SWITCHING_PROTOCOLS || streams())
                {
                    // It may go on for hours without any work for the upstream.
                    self.exchange.leave_place();
                }
            }
            Err(ForwardError::ResponseTimeout | ForwardError::ConnectTimeout | ForwardError::Busy) => {
                self.exchange.set_answered_well(false);
            }
            // Something is broken, here or there: that says nothing of how much the upstream can handle.
            Err(_) => {}
        }
        if let Err(error) = result {
            self.is_unsent.set(error.found_no_server());
        }
    }
}

/// Whether answers of this type go on for as long as the client wants.
fn is_stream(content_type: &[u8]) -> bool {
    let kind = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let grpc = b"application/grpc"; // also application/grpc+proto
    kind.eq_ignore_ascii_case(b"text/event-stream")
        || kind.get(..grpc.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(grpc))
}
