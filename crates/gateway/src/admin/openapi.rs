//! The description of this API in OpenAPI 3.1.

use serde_json::{Value, json};

use sluicegate_upstream::AdminState;

/// The answer of a gateway that asks a service for its rules.
const ELSEWHERE: (&str, &str) = ("501", "The rules are read and changed elsewhere");

/// The schema of the administrative state of a server.
const SERVER_STATE: &str = "#/components/schemas/ServerState";

/// The document.
pub(super) fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluicegate admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "State, metrics and rules of one gateway. Errors are problem+json (RFC 9457).",
        },
        "paths": paths(),
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": { "Rule": rule(), "Rules": rules(), "ServerState": server_state(), "Problem": problem() },
        },
    })
}

fn paths() -> Value {
    json!({
        "/metrics": { "get": text("The metrics, in the text format of Prometheus") },
        "/healthz": { "get": text("The process is alive") },
        "/readyz": { "get": with(text("It serves"), &[("503", "It drains")]) },
        "/status": { "get": object("Version, uptime, stores, the last errors") },
        "/config": { "get": object("The configuration in force, without secrets") },
        "/openapi.json": { "get": object("This document") },
        "/limits": { "get": object("The limits, with the number of their counters") },
        "/live": { "get": with_parameters(
            with(object("The last two minutes and the last hour, routes and connections"), &[
                ("400", "`since` is not a time"),
            ]),
            &[("since", "The `time` of an earlier answer: only what is new is told")],
        ) },
        "/explain": { "get": with_parameters(
            with(object("What would happen to a request, or what happened to a refused one, and why"), &[
                ("400", "It is not said which request, or it is none"),
                ("404", "No request with this id is remembered"),
            ]),
            &[
                ("request", "The id of a request that was refused within the last hour"),
                ("method", "The method; GET if it is not given"),
                ("url", "A URL, or a path with its query"),
                ("header", "A header, `Name: value`; can be repeated"),
                ("from", "The address that the connection comes from"),
                ("listener", "The name of the listener"),
                ("consumer", "The consumer who sends it, by its name, an API key or the digest of one, in place of credentials"),
            ],
        ) },
        "/limits/{limit}/top": {
            "parameters": [in_path("limit")],
            "get": with_parameters(
                with(object("The keys with the most refusals or requests within the last hour"), &[
                    ("400", "A parameter is wrong"),
                    ("404", "There is no such limit"),
                ]),
                &[
                    ("by", "refused, or requests"),
                    ("most", "The number of keys, at most 1,024"),
                    ("key", "Only this key, or the keys of this consumer"),
                ],
            ),
        },
        "/limits/{limit}/bans": {
            "parameters": [in_path("limit")],
            "get": with(object("The keys that the limit bans, and when that ends"), &[
                ("404", "There is no such limit, or it bans nobody"),
            ]),
        },
        "/limits/{limit}/keys/{key}": {
            "parameters": [in_path("limit"), in_path("key")],
            "get": with(object("What a key has left"), &[
                ("400", "The text cannot be a key of the limit"),
                ("404", "There is no such limit, or no such key was seen"),
                ("503", "The store that counts the limit does not answer"),
            ]),
            "delete": secured(with(object("The counter is reset, and a ban ends"), &[
                ("400", "The text cannot be a key of the limit"),
                ("404", "There is no such limit, or no such key was seen"),
                ("503", "The store that counts the limit does not answer"),
            ])),
        },
        "/upstreams/{upstream}/servers/{server}/state": {
            "parameters": [in_path("upstream"), in_path("server")],
            "get": with(body("The administrative state of a server", SERVER_STATE), &[
                ("404", "There is no such upstream or server"),
            ]),
            "put": secured(with(
                json!({
                    "requestBody": { "required": true, "content": { "application/json": { "schema": {
                        "type": "object",
                        "additionalProperties": false,
                        "required": ["state"],
                        "properties": { "state": server_states() },
                    } } } },
                    "responses": body("The state is in force", SERVER_STATE)["responses"],
                }),
                &[
                    ("400", "The body cannot be read"),
                    ("404", "There is no such upstream or server"),
                    ("413", "The body is too large"),
                    ("422", "There is no such state"),
                ],
            )),
        },
        "/queues": { "get": object("The queues of limits: length, bytes, dead letters, the oldest request") },
        "/queues/{limit}/requests": {
            "parameters": [in_path("limit")],
            "get": with_parameters(
                with(object("Requests in the queue of a limit, in the order in which they were accepted"), &[
                    ("400", "A parameter is wrong"),
                    ("404", "There is no such queue"),
                    ("503", "The queue cannot be read"),
                ]),
                &[
                    ("state", "queued, or failed for dead letters"),
                    ("after", "Those after the one with this `number`"),
                    ("most", "The number of requests, at most 1,000"),
                ],
            ),
        },
        "/queues/{limit}/requests/{id}": {
            "parameters": [in_path("limit"), in_path("id")],
            "get": with(object("A queued request and its outcome; the answer of the upstream only with a token"), &[
                ("404", "There is no such queue or request"),
                ("503", "The queue cannot be read"),
            ]),
        },
        "/queues/{limit}/retry": queue_change("Dead letters are queued again"),
        "/queues/{limit}/drop": queue_change("Dead letters are removed, or a request that waits is cancelled"),
        "/reload": {
            "post": secured(with(object("The configuration is in force"), &[("422", "It has errors")])),
        },
        "/rules": {
            "get": with(
                parameters(
                    body("Rules in the order of their ids", "#/components/schemas/Rules"),
                    &[("limit", "of this limit"), ("key", "with this key"), ("after", "after this id"), ("most", "at most so many"), ("patterns", "1: and with patterns that match the key")],
                ),
                &[("400", "A parameter is wrong"), ("404", "The gateway has no rules"), ELSEWHERE, ("503", "They cannot be read")],
            ),
        },
        "/rules/{id}": {
            "parameters": [in_path("id")],
            "get": with(
                one("The rule; ETag is its version"),
                &[("404", "There is none"), ELSEWHERE, ("503", "It cannot be read")],
            ),
            "put": changing(with(one("The rule was there"), &[("201", "It is new")]), true),
            "patch": changing(one("The rule as it is now"), true),
            "delete": changing(json!({ "responses": { "204": { "description": "It is gone" } } }), false),
        },
        "/rules:batch": {
            "post": secured(with(
                json!({
                    "parameters": [in_query("dry_run", "1: nothing is written")],
                    "requestBody": { "required": true, "content": { "application/x-ndjson": { "schema": { "type": "string" } } } },
                    "responses": { "200": lines("A line for each change") },
                }),
                &[
                    ("400", "The body cannot be read"),
                    ("404", "A rule to delete does not exist"),
                    ("412", "A condition does not hold"),
                    ("413", "The body is too large"),
                    ("422", "Lines are wrong"),
                    ELSEWHERE,
                    ("503", "The rules cannot be written"),
                ],
            )),
        },
        "/rules:changes": {
            "get": with(
                json!({
                    "parameters": [
                        in_query("since", "the version after which they begin"),
                        in_query("wait", "how many seconds to wait for the first"),
                    ],
                    "responses": { "200": lines("A line for each change; Rules-Version is the version that they lead to") },
                }),
                &[("400", "A parameter is wrong"), ("410", "These changes are not kept any more"), ELSEWHERE, ("503", "They cannot be read")],
            ),
        },
    })
}

/// A rule, as it is sent and shown.
fn rule() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let text_or_null = |description: &str| json!({ "type": ["string", "null"], "description": description });
    let count = |description: &str| json!({ "type": "integer", "minimum": 1, "description": description });
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["limit", "key"],
        "properties": {
            "id": text("Its name; the path has it too"),
            "limit": text("The name of the limit"),
            "key": text("A key, or a pattern: merchant-*, 203.0.113.0/24"),
            "rate": text("Such as 500/min"),
            "burst": count("The size of the bucket"),
            "max": count("The number of requests in flight"),
            "mode": { "enum": ["enforce", "shadow", "off"] },
            "exempt": { "type": "boolean", "description": "The limit does not apply to the key" },
            "priority": { "type": "integer", "description": "The highest applies", "default": 0 },
            "from": text_or_null("From when on it is in force (RFC 3339)"),
            "until": text_or_null("Until when"),
            "note": text("Why it exists"),
        },
    })
}

fn rules() -> Value {
    json!({
        "type": "object",
        "properties": {
            "rules": { "type": "array", "items": { "$ref": "#/components/schemas/Rule" } },
            "versions": { "type": "array", "items": { "type": "integer" }, "description": "Of these rules, in their order" },
            "next": { "type": ["string", "null"], "description": "Where the next page begins: `after`" },
            "unreadable": {
                "type": "array",
                "items": { "type": "object", "properties": { "id": { "type": "string" }, "detail": { "type": "string" } } },
                "description": "Rules that cannot be read, if there are any, with the reason",
            },
        },
    })
}

/// The administrative state of a server.
fn server_state() -> Value {
    json!({
        "type": "object",
        "properties": {
            "upstream": { "type": "string" },
            "server": { "type": "string", "description": "HOST:PORT as configured" },
            "state": server_states(),
            "in_flight": { "type": "integer", "description": "The requests in flight to the server" },
        },
    })
}

fn server_states() -> Value {
    json!({
        "enum": AdminState::NAMES,
        "description": "drain: no new requests, health checks go on; maintenance: no health checks, too",
    })
}

fn problem() -> Value {
    json!({
        "type": "object",
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "errors": { "type": "array", "items": { "type": "object" } },
        },
    })
}

/// An operation that answers 200 with content of this type.
fn answering(description: &str, content: &str, schema: &Value) -> Value {
    json!({ "responses": { "200": { "description": description, "content": { content: { "schema": schema } } } } })
}

fn text(description: &str) -> Value {
    answering(description, "text/plain", &json!({ "type": "string" }))
}

fn object(description: &str) -> Value {
    answering(description, "application/json", &json!({}))
}

fn body(description: &str, schema: &str) -> Value {
    answering(description, "application/json", &json!({ "$ref": schema }))
}

fn one(description: &str) -> Value {
    body(description, "#/components/schemas/Rule")
}

fn lines(description: &str) -> Value {
    let content = json!({ "application/x-ndjson": { "schema": { "type": "string" } } });
    json!({ "description": description, "content": content })
}

/// Adds answers with a problem, or without content.
fn with(mut operation: Value, answers: &[(&str, &str)]) -> Value {
    for (status, description) in answers {
        let mut answer = json!({ "description": description });
        if *status >= "400" {
            let schema = json!({ "$ref": "#/components/schemas/Problem" });
            answer["content"] = json!({ "application/problem+json": { "schema": schema } });
        }
        operation["responses"][status] = answer;
    }
    operation
}

/// Adds parameters of the query.
fn with_parameters(mut operation: Value, parameters: &[(&str, &str)]) -> Value {
    operation["parameters"] =
        parameters.iter().map(|(name, description)| in_query(name, description)).collect();
    operation
}

/// An operation that needs a token.
fn secured(mut operation: Value) -> Value {
    operation["security"] = json!([{ "token": [] }]);
    with(operation, &[("401", "There is no valid token"), ("403", "The token does not allow it")])
}

/// A change of one rule.
fn changing(mut operation: Value, has_body: bool) -> Value {
    operation["parameters"] = json!([
        in_query("dry_run", "1: nothing is written; the answer says what would change"),
        in_header("If-Match", "The version that the rule must have"),
        in_header("If-None-Match", "*: the rule must not exist"),
    ]);
    if has_body {
        let schema = json!({ "$ref": "#/components/schemas/Rule" });
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    secured(with(
        operation,
        &[
            ("400", "The body or a header cannot be read"),
            ("404", "There is no such rule"),
            ("412", "A condition does not hold"),
            ("413", "The body is too large"),
            ("422", "The rule is wrong"),
            ELSEWHERE,
            ("503", "The rules cannot be written"),
        ],
    ))
}

fn parameters(mut operation: Value, names: &[(&str, &str)]) -> Value {
    operation["parameters"] = names.iter().map(|(name, description)| in_query(name, description)).collect();
    operation
}

fn in_path(name: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
}

fn in_query(name: &str, description: &str) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": { "type": "string" } })
}

fn in_header(name: &str, description: &str) -> Value {
    json!({ "name": name, "in": "header", "description": description, "schema": { "type": "string" } })
}

/// A change of one request of a queue, or of all dead letters.
fn queue_change(what: &str) -> Value {
    json!({
        "parameters": [in_path("limit")],
        "post": secured(with(
            json!({
                "requestBody": { "required": true, "content": { "application/json": { "schema": {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": { "id": { "type": "string" }, "all": { "type": "boolean" } },
                } } } },
                "responses": object(what)["responses"],
            }),
            &[
                ("400", "The body cannot be read, or does not say which requests"),
                ("404", "There is no such queue or request"),
                ("409", "The request is in another state"),
                ("413", "The body is too large"),
                ("503", "The queue cannot be written"),
            ],
        )),
    })
}
