//! Fields and plugins that need no conversion, and those that have no equivalent, each with the reason.

use crate::fields::Field;
use crate::marks::Marks;
use crate::report::Outcome;

/// Plugins without an effect on the result.
const IGNORED: [(&str, &str); 3] = [
    (
        "prometheus statsd datadog zipkin opentelemetry",
        "the gateway has /metrics of its own (`admin`), and `telemetry.otlp` for traces",
    ),
    (
        "file-log http-log tcp-log udp-log syslog loggly kafka-log",
        "access_log writes a line for each request",
    ),
    ("correlation-id", "X-Request-Id is always set"),
];

/// Plugins that this importer converts.
const CONVERTED: &str = "rate-limiting key-auth ip-restriction cors request-size-limiting request-transformer response-transformer request-termination";

/// Plugins that admit the same requests as their routes have without them.
const HARMLESS: &str = "proxy-cache proxy-cache-advanced graphql-proxy-cache-advanced grpc-web grpc-gateway jq canary upstream-timeout \
                        request-transformer-advanced response-transformer-advanced route-transformer-advanced exit-transformer \
                        statsd-advanced kafka-consume";

/// Plugins without an equivalent.
const UNSUPPORTED: [(&str, &str); 12] = [
    ("jwt openid-connect jwt-signer", "tokens: auth.jwt, with the issuer and its keys"),
    ("oauth2 oauth2-introspection", "opaque tokens: auth.introspection"),
    (
        "basic-auth hmac-auth ldap-auth ldap-auth-advanced session mtls-auth vault-auth key-auth-enc header-cert-auth saml opa",
        "use auth.api_key with consumers, or auth.check, a service of yours that decides on requests",
    ),
    ("acl", "groups of consumers: auth.check, or plans of consumers"),
    (
        "rate-limiting-advanced service-protection",
        "limits with `algorithm: sliding_window` (window_type: sliding) or fixed_window: one for each pair of `limit` and `window_size`",
    ),
    ("response-ratelimiting ai-rate-limiting-advanced", "a limit with `cost: {response_header: NAME}`"),
    (
        "pre-function post-function serverless-functions",
        "Lua: use auth.check, a service of yours that decides on requests",
    ),
    ("aws-lambda azure-functions openwhisk", "functions: write an upstream for them"),
    ("proxy-cache proxy-cache-advanced graphql-proxy-cache-advanced", "the gateway has no cache"),
    ("bot-detection", "routes compare headers with exact values only: use auth.check"),
    ("request-validator", "bodies are not read: validate them in the service"),
    ("grpc-web grpc-gateway", "the gateway does not translate gRPC"),
];

/// Whether a plugin without an equivalent may refuse, limit or answer requests: any that is not known to be harmless.
pub(super) fn protects(name: &str) -> bool {
    let harmless = IGNORED.iter().map(|(words, _)| *words).chain([CONVERTED, HARMLESS]);
    !harmless.into_iter().any(|words| listed(words, name))
}

/// Whether a plugin refuses some requests, or may do so.
pub(super) fn restricts(name: &str) -> bool {
    let words = "rate-limiting request-termination ip-restriction request-size-limiting key-auth";
    protects(name) || listed(words, name)
}

/// Says of a plugin of a route what nothing else has said.
pub(super) fn say(field: &Field, name: &str, marks: &mut Marks) {
    if marks.has(field.number) || listed(CONVERTED, name) {
        return;
    }
    match of(name) {
        (Outcome::Ignored, text) => marks.ignored(field.number, text),
        (_, text) => marks.unsupported(field.number, text),
    }
}

fn listed(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

/// What becomes of a plugin that is not converted.
pub(super) fn of(name: &str) -> (Outcome, String) {
    let find = |list: &[(&str, &str)]| {
        list.iter().find(|(words, _)| listed(words, name)).map(|(_, text)| (*text).to_owned())
    };
    if let Some(text) = find(&IGNORED) {
        return (Outcome::Ignored, text);
    }
    (
        Outcome::Unsupported,
        find(&UNSUPPORTED).unwrap_or_else(|| {
            format!("the gateway has no plugin `{name}`: use auth.check, or do it in the service")
        }),
    )
}

/// What becomes of a field that nothing was said about.
pub(super) fn rest(field: &Field) -> (Outcome, String) {
    let ignored = |text: &str| (Outcome::Ignored, text.to_owned());
    let last = field.path.rsplit('.').next().unwrap_or_default();
    let word = last.split('[').next().unwrap_or_default();
    let within = |part: &str| field.path.split(['.', '[']).any(|known| known == part);
    match word {
        _ if field.path.starts_with("_") => ignored("it is about the format of the file"),
        "id" | "tags" | "created_at" | "updated_at" => ignored("it names entities of Kong"),
        _ if within("certificates") || within("snis") || within("ca_certificates") => {
            (Outcome::Unsupported, "write certificates to files, and name them in listen.tls".to_owned())
        }
        "name" if within("plugins") => (Outcome::Converted, "see its config".to_owned()),
        "enabled" if field.says_no() => ignored("it is not enabled"),
        "enabled" => ignored("it is enabled"),
        "retries" => {
            ignored("a request is tried on other servers where that is safe: `retries` of the upstream")
        }
        "write_timeout" => ignored("timeouts.body bounds how long a body may take"),
        "request_buffering" | "response_buffering" => {
            ignored("bodies are forwarded as they arrive, in a bounded amount of memory")
        }
        "tls_verify" => (Outcome::Converted, "tls.verify of the upstream".to_owned()),
        "tls_verify_depth" | "ca_certificates" | "client_certificate" => (
            Outcome::Unsupported,
            "write certificates to files, and name them in upstreams.NAME.tls".to_owned(),
        ),
        "protocols" if within("plugins") => ignored("plugins apply to all protocols of their routes"),
        "config" | "plugins" => ignored("the default"),
        _ if within("healthchecks") => {
            ignored("the defaults of the gateway hold: `health` and `ejection` of the upstream")
        }
        _ if [
            "acls",
            "jwt_secrets",
            "basicauth_credentials",
            "hmacauth_credentials",
            "oauth2_credentials",
            "mtls_auth_credentials",
        ]
        .iter()
        .any(|part| within(part)) =>
        {
            (Outcome::Unsupported, "use auth.api_key with consumers, auth.jwt or auth.check".to_owned())
        }
        _ if within("consumer_groups") || word == "groups" => (
            Outcome::Unsupported,
            "groups of consumers: `plan` of a consumer, and `plans` of limits".to_owned(),
        ),
        _ if within("vaults") || within("keys") || within("key_sets") => (
            Outcome::Unsupported,
            "secrets are read from files or the environment: `{file: PATH}`, `${NAME}`".to_owned(),
        ),
        _ if within("config") => {
            (Outcome::Unsupported, "this setting of the plugin has no equivalent".to_owned())
        }
        _ if within("routes") || within("services") => ignored("no request depends on it"),
        _ => (Outcome::Unsupported, "this importer does not know it".to_owned()),
    }
}
