//! The families of `/metrics`: names, types, labels and help. `docs/metrics.md` is written from this table, and a scrape
//! can have no other names or labels.

use prometheus::proto::MetricType;

use super::consumers::ConsumerOutcome;
use super::listeners::{Handshake, Refusal};
use super::otlp::{OUTCOMES, Signal};
use super::worker_counters::UpstreamOutcome;
use sluicegate_auth::Asking;
use sluicegate_base::cut_reason::CutReason;
use sluicegate_base::limit_outcome::LimitOutcome;
use sluicegate_base::own_load::RESOURCES;
use sluicegate_base::queue_event::QueueEvent;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_config::{OnStoreFailure, Priority};
use sluicegate_counters_redis::Operation;
use sluicegate_wire::h2::AbortReason;

/// A metric family.
#[derive(Debug)]
pub struct Family {
    pub(super) name: &'static str,
    pub(super) kind: MetricType,
    pub(super) labels: &'static [Label],
    pub(super) help: &'static str,
}

/// A label of a family.
#[derive(Debug)]
pub(super) struct Label {
    pub(super) name: &'static str,
    pub(super) values: Values,
}

/// The values that a label can have. Clients choose none of them.
#[derive(Debug)]
pub(super) enum Values {
    /// Names of the configuration; the text describes them.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is written into docs/metrics.md"))]
    Of(&'static str),
    /// A closed set of names.
    These(&'static [&'static str]),
}

impl Label {
    /// Whether the label can have this value.
    pub(super) fn allows(&self, value: &str) -> bool {
        match self.values {
            Values::Of(_) => true,
            Values::These(all) => all.contains(&value),
        }
    }
}

const fn of(name: &'static str, description: &'static str) -> Label {
    Label { name, values: Values::Of(description) }
}

/// The priorities of requests.
const PRIORITIES: [&str; 3] =
    [Priority::Critical.name(), Priority::Default.name(), Priority::Sheddable.name()];

const fn these(name: &'static str, values: &'static [&'static str]) -> Label {
    Label { name, values: Values::These(values) }
}

const POLICIES: [&str; OnStoreFailure::WORDS.len()] = {
    let [(local, _), (open, _), (closed, _)] = OnStoreFailure::WORDS;
    [local, open, closed]
};

const ROUTE: Label = of("route", "the route's name; empty for requests without a route");
const LIMIT: Label = of("limit", "the limit's name");
const UPSTREAM: Label = of("upstream", "the upstream's name");
const LISTENER: Label = of("listener", "the listener's name");

/// Declares the families, in the order of the reference.
macro_rules! families {
    ($($family:ident = $name:literal, $kind:ident, [$($label:expr),*], $help:literal;)*) => {
        $(#[doc = $help] pub const $family: Family =
            Family { name: $name, kind: MetricType::$kind, labels: &[$($label),*], help: $help };)*

        /// All of them.
        #[cfg(test)]
        pub(super) const ALL: &[Family] = &[$($family),*];
    };
}

families! {
    REQUESTS = "sluicegate_requests_total", COUNTER,
        [ROUTE, of("code", "the status; 499 if the client left before there was an answer; `other` for unusual ones")],
        "Requests that have ended.";
    REQUEST_DURATION = "sluicegate_request_duration_seconds", HISTOGRAM, [ROUTE],
        "Time from the head of a request to the end of its answer.";
    REFUSED = "sluicegate_refusals_total", COUNTER, [ROUTE, these("reason", RefusalReason::NAMES)],
        "Requests that the gateway itself answered with an error.";
    CUT = "sluicegate_responses_cut_total", COUNTER, [ROUTE, these("reason", CutReason::NAMES)],
        "Answers that ended before their end, after their status had been sent.";
    REQUEST_BYTES = "sluicegate_request_body_bytes_total", COUNTER, [ROUTE],
        "Bytes of the bodies of requests that have ended.";
    RESPONSE_BYTES = "sluicegate_response_body_bytes_total", COUNTER, [ROUTE],
        "Bytes of the bodies of answers that have ended.";
    CONSUMER_REQUESTS = "sluicegate_consumer_requests_total", COUNTER,
        [of("consumer", "the consumer's name; `other` for those that are not shown by name"), these("outcome", ConsumerOutcome::NAMES)],
        "Requests of consumers that have ended, of those with the most traffic by name; with metrics.by_consumer only.";
    AUTH_CALLS = "sluicegate_auth_calls_total", COUNTER,
        [these("service", &["introspection", "check"]), these("outcome", Asking::NAMES)],
        "Calls of the token introspection and of the external check by outcome; answers from the cache are not counted.";
    DECISIONS = "sluicegate_limit_decisions_total", COUNTER, [LIMIT, these("outcome", LimitOutcome::NAMES)],
        "Requests by the result of the limit.";
    WARNINGS = "sluicegate_limit_warnings_total", COUNTER, [LIMIT],
        "How often a key came to use the part of the limit that `warn` says.";
    FAIR_SHARE = "sluicegate_limit_fair_share", GAUGE, [LIMIT],
        "The fair share of a consumer with a weight of one, in tokens per second: all of the rate while there is enough for everybody.";
    ABOVE_SHARE = "sluicegate_limit_above_share_total", COUNTER, [LIMIT],
        "Requests that were refused because their consumer was above its fair share.";
    DELAY = "sluicegate_limit_delay_seconds", HISTOGRAM, [LIMIT],
        "Time for which a leaky bucket delays requests, without those that are not delayed.";
    KEYS = "sluicegate_limit_keys", GAUGE, [LIMIT],
        "Keys whose counters are not back to zero.";
    ENTRIES = "sluicegate_limit_entries", GAUGE, [LIMIT],
        "Keys in memory, including those whose counters are back to zero and can be replaced.";
    MAX_KEYS = "sluicegate_limit_max_keys", GAUGE, [LIMIT],
        "The most keys in memory, from max_keys.";
    OVERFLOW = "sluicegate_limit_overflow_total", COUNTER, [LIMIT],
        "Requests that used the overflow counter because max_keys keys of the limit were in use.";
    UNREADABLE_COSTS = "sluicegate_limit_unreadable_costs_total", COUNTER, [LIMIT],
        "Answers whose cost, in a header or trailer, is not a whole number: they cost what the request itself costs.";
    LEASED = "sluicegate_limit_leased_tokens_total", COUNTER, [LIMIT],
        "Tokens that this gateway has leased from the store.";
    LEASES_RETURNED = "sluicegate_limit_returned_tokens_total", COUNTER, [LIMIT],
        "Leased tokens that went back to the store unspent.";
    OVERSHOOT = "sluicegate_limit_overshoot_total", COUNTER, [LIMIT],
        "Requests that this gateway admitted above the limit: with leased tokens whose charge no longer counted in the store, and for which it had no room.";
    OVERSHOOT_BOUND = "sluicegate_limit_overshoot_bound", GAUGE, [LIMIT],
        "The most requests of one key that all gateways together admit above a shared limit, in any interval.";
    BANS = "sluicegate_limit_bans_total", COUNTER, [LIMIT],
        "Bans that began on this gateway.";
    BANNED = "sluicegate_limit_banned_keys", GAUGE, [LIMIT],
        "Keys that the limit bans, as far as this gateway knows.";
    UPSTREAM_REQUESTS = "sluicegate_upstream_requests_total", COUNTER,
        [UPSTREAM, these("outcome", UpstreamOutcome::NAMES)],
        "Requests to an upstream by outcome.";
    UPSTREAM_DURATION = "sluicegate_upstream_duration_seconds", HISTOGRAM, [UPSTREAM],
        "Time from sending a request to an upstream to the head of its answer.";
    UPSTREAM_HEALTHY = "sluicegate_upstream_healthy", GAUGE, [UPSTREAM, of("server", "the server's address")],
        "Whether a server is up (1), or down, ejected, without an address, drained or in maintenance (0). The last server gets requests even if it is down.";
    SERVER_READY = "sluicegate_upstream_server_ready", GAUGE, [UPSTREAM, of("server", "the server's address")],
        "Whether a server is ready (1), or an operator has drained it or put it into maintenance (0).";
    SERVER_REQUESTS = "sluicegate_upstream_server_requests_total", COUNTER, [UPSTREAM, of("server", "the server's address")],
        "Requests that were sent to a server, including repeated ones.";
    SERVER_FAILURES = "sluicegate_upstream_server_failures_total", COUNTER, [UPSTREAM, of("server", "the server's address")],
        "Requests to a server that failed because of it: no connection, no or a broken answer, or a status of `ejection.status`.";
    PRESSURE = "sluicegate_overload_pressure", GAUGE, [these("resource", &RESOURCES)],
        "How overloaded the gateway itself is, from 0 to 1: at 1 all requests are refused; with `overload` only.";
    OVERLOAD_SHED = "sluicegate_overload_shed_total", COUNTER, [these("priority", &PRIORITIES)],
        "Requests that were refused because the gateway itself was overloaded, by priority.";
    UPSTREAM_LIMIT = "sluicegate_upstream_in_flight_limit", GAUGE, [UPSTREAM],
        "The requests that the upstream may have in flight, by its `overload`.";
    UPSTREAM_IN_FLIGHT = "sluicegate_upstream_in_flight", GAUGE, [UPSTREAM],
        "The requests that the upstream has in flight, if it has `overload`.";
    UPSTREAM_WAITING = "sluicegate_upstream_queued", GAUGE, [UPSTREAM, these("priority", &PRIORITIES)],
        "Requests that wait for their turn, by priority.";
    UPSTREAM_SHED = "sluicegate_upstream_shed_total", COUNTER, [UPSTREAM, these("priority", &PRIORITIES)],
        "Requests that were refused because the upstream was at its limit, by priority.";
    UPSTREAM_FAIR_SHARE = "sluicegate_upstream_fair_share", GAUGE, [UPSTREAM],
        "The fair share of a consumer with a weight of one, in requests per second: all that the upstream does while there is enough for everybody.";
    UPSTREAM_ABOVE_SHARE = "sluicegate_upstream_above_share_total", COUNTER, [UPSTREAM],
        "Requests that were refused because the upstream was at its limit and their consumer above its fair share.";
    UPSTREAM_PENDING = "sluicegate_upstream_pending", GAUGE, [UPSTREAM],
        "Requests that wait for a connection to a server.";
    UPSTREAM_RETRIES = "sluicegate_upstream_retries_total", COUNTER, [UPSTREAM],
        "Requests that were sent again to another server.";
    UPSTREAM_EJECTIONS = "sluicegate_upstream_ejections_total", COUNTER, [UPSTREAM],
        "Ejections of servers after consecutive failures.";
    UPSTREAM_UNSOLICITED = "sluicegate_upstream_unsolicited_total", COUNTER, [UPSTREAM],
        "Connections on which a server sent bytes that no request asked for.";
    UPSTREAM_PANICS = "sluicegate_upstream_panics_total", COUNTER, [UPSTREAM],
        "Requests that were sent although no server was healthy.";
    CONNECTIONS = "sluicegate_connections", GAUGE, [LISTENER],
        "Open connections of clients.";
    CONNECTIONS_REFUSED = "sluicegate_connections_refused_total", COUNTER,
        [LISTENER, these("reason", Refusal::NAMES)],
        "Connections of clients that were closed without being served.";
    HANDSHAKE = "sluicegate_tls_handshakes_total", COUNTER, [LISTENER, these("outcome", Handshake::NAMES)],
        "TLS handshakes by outcome.";
    CERTIFICATE_EXPIRY = "sluicegate_tls_certificate_expiry_timestamp_seconds", GAUGE,
        [LISTENER, of("certificate", "the certificate's file")],
        "When a certificate in force expires, in seconds since the Unix epoch.";
    H2_CUT = "sluicegate_h2_cut_total", COUNTER, [these("reason", &AbortReason::NAMES)],
        "HTTP/2 connections that were aborted because of the client's behavior.";
    FORWARDED_IGNORED = "sluicegate_forwarded_ignored_total", COUNTER, [],
        "Requests whose header of `client_ip` (X-Forwarded-For) was ignored, because their peer is not a trusted proxy.";
    STORE_UP = "sluicegate_store_up", GAUGE, [],
        "Whether all workers reach the store (1) or not (0).";
    STORE_GATEWAYS = "sluicegate_store_gateways", GAUGE, [],
        "Live gateways that share the store, as far as is known.";
    STORE_OPERATIONS = "sluicegate_store_operations_total", COUNTER, [these("outcome", Operation::NAMES)],
        "Calls to the store by outcome.";
    STORE_DURATION = "sluicegate_store_duration_seconds", HISTOGRAM, [],
        "Time from sending a call to the store to its answer.";
    STORE_FALLBACK = "sluicegate_store_fallback_total", COUNTER, [LIMIT, these("policy", &POLICIES)],
        "Requests that a shared limit decided without the store, by its on_store_failure.";
    STORE_REMEMBERED = "sluicegate_store_remembered_refusals_total", COUNTER, [],
        "Refusals without a call to the store, because an earlier answer is still valid.";
    STORE_DISAGREEMENTS = "sluicegate_store_disagreements_total", COUNTER, [],
        "Answers of the store that contradict the state sent with them: a fault of the gateway or the server.";
    REGION_SHARE = "sluicegate_region_share", GAUGE, [LIMIT],
        "The part of a shared limit's rate that this region may have, 0 to 1.";
    REGION_HOME_UP = "sluicegate_region_home_up", GAUGE, [],
        "Whether the store that lends to regions has answered within ten seconds (1) or not (0).";
    QUEUE_LENGTH = "sluicegate_queue_length", GAUGE, [LIMIT],
        "Requests that wait in the queue of a limit, or are being delivered.";
    QUEUE_BYTES = "sluicegate_queue_bytes", GAUGE, [LIMIT],
        "Bytes of the requests in the queue of a limit, failed ones included.";
    QUEUE_OLDEST = "sluicegate_queue_oldest_seconds", GAUGE, [LIMIT],
        "How long the oldest request in the queue of a limit has waited; 0 if there is none.";
    QUEUE_FAILED = "sluicegate_queue_dead_letters", GAUGE, [LIMIT],
        "Requests of the queue of a limit that were given up, and that nobody has queued again or dropped.";
    QUEUE_EVENTS = "sluicegate_queue_events_total", COUNTER, [LIMIT, these("event", QueueEvent::NAMES)],
        "What happened to the requests of the queue of a limit.";
    RULES_UP = "sluicegate_rules_up", GAUGE, [],
        "Whether the rules can be read (1) or not (0), so that those that were read stay in force.";
    RULES_CACHED = "sluicegate_rules_cached", GAUGE, [],
        "Keys whose rule, or that they have none, is kept in memory.";
    RULES_VERSION = "sluicegate_rules_version", GAUGE, [],
        "The version of the rules, as far as is known.";
    CONFIG_SUCCESSFUL = "sluicegate_config_last_reload_successful", GAUGE, [],
        "Whether the last reload was accepted (1) or refused (0).";
    CONFIG_TIMESTAMP = "sluicegate_config_last_reload_success_timestamp_seconds", GAUGE, [],
        "When the configuration in force was loaded, in seconds since the Unix epoch.";
    CONFIG_GENERATION = "sluicegate_config_generation", GAUGE, [],
        "Number of configurations that have been in force, including this one.";
    ACCESS_LOG_DROPPED = "sluicegate_access_log_dropped_total", COUNTER, [],
        "Lines of the access log that were dropped because they could not be written in time.";
    LOG_DROPPED = "sluicegate_log_dropped_total", COUNTER, [],
        "Lines of the process log that were dropped because they could not be written in time.";
    OTLP_MESSAGES = "sluicegate_otlp_messages_total", COUNTER,
        [these("signal", Signal::NAMES), these("outcome", &OUTCOMES)],
        "Messages to the collector of telemetry.otlp, that it took or that were given up; with telemetry.otlp only.";
    OTLP_DROPPED = "sluicegate_otlp_spans_dropped_total", COUNTER, [],
        "Spans that did not arrive at the collector; with telemetry.otlp only.";
    BUILD_INFO = "sluicegate_build_info", GAUGE, [of("version", "the version of the gateway")],
        "The version of the gateway; the value is 1.";
    PROCESS_CPU = "process_cpu_seconds_total", COUNTER, [],
        "CPU time that the process has used, in user and system mode.";
    PROCESS_RESIDENT = "process_resident_memory_bytes", GAUGE, [],
        "Resident memory of the process.";
    PROCESS_VIRTUAL = "process_virtual_memory_bytes", GAUGE, [],
        "Virtual memory of the process.";
    PROCESS_OPEN_FDS = "process_open_fds", GAUGE, [],
        "Open file descriptors.";
    PROCESS_MAX_FDS = "process_max_fds", GAUGE, [],
        "File descriptors that the process may have open.";
    PROCESS_START = "process_start_time_seconds", GAUGE, [],
        "When the process started, in seconds since the Unix epoch.";
    PROCESS_THREADS = "process_threads", GAUGE, [],
        "Threads of the process.";
}
