//! Why the gateway itself answered a request with an error: one closed set of names, which the access log, problem+json,
//! the metrics and the admin API all use.

use crate::named_enum::named_enum;

named_enum! {
    /// Why the gateway itself answered a request with an error.
    RefusalReason {
        /// A limit has too little left for the request's key (429).
        Limit = "limit",
        /// A limit has banned the request's key (429).
        Ban = "ban",
        /// A limit would have to queue the request, and its queue is full (429) or cannot be written (503).
        Queue = "queue",
        /// Another request with the same `Idempotency-Key` is queued (422).
        Idempotency = "idempotency_key_reused",
        /// `deny` or `allow` excludes the client's address (403).
        List = "list",
        /// An API key or a token is required, and the request has none (401).
        Unauthenticated = "unauthenticated",
        /// The request's API key is unknown, or its token is not valid (401).
        Forbidden = "forbidden",
        /// The external check refuses the request (401, 403, 429).
        Check = "check",
        /// The token introspection or the external check does not answer, and its `on_failure` refuses (503).
        AuthUnavailable = "auth_unavailable",
        /// No route matches (404).
        NoRoute = "no_route",
        /// The request is malformed, or servers could read it in different ways (400).
        Malformed = "malformed",
        /// The gateway does not serve the method (405).
        Method = "method_not_allowed",
        /// The TLS connection was established for another host (421).
        Misdirected = "misdirected",
        /// The client did not send its request in time (408).
        Timeout = "timeout",
        /// The request's body is longer than `max_body` (413).
        TooLarge = "too_large",
        /// The request target is longer than allowed (414).
        UriTooLong = "uri_too_long",
        /// The request's head is longer than `max_head` or `max_headers` (431).
        HeadersTooLarge = "headers_too_large",
        /// `Expect` names something else than `100-continue` (417).
        Expectation = "expectation_failed",
        /// The store does not answer, and a limit has `on_store_failure: closed` (503).
        Store = "store",
        /// The upstream is at its limit of requests in flight, or all its servers are at `max_connections` (503).
        Shed = "shed",
        /// The gateway itself is overloaded (503).
        Overload = "overload",
        /// No server of the upstream gave a valid answer (502).
        Upstream = "upstream",
        /// All servers of the upstream are drained or in maintenance (503).
        UpstreamDrained = "upstream_drained",
        /// No server of the upstream could be reached, or answered, in time (504).
        UpstreamTimeout = "upstream_timeout",
        /// The route's own `respond` has a status of 400 or above.
        Respond = "respond",
    }
}
