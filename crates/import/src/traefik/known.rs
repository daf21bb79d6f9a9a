//! Fields that need no conversion, and those that have no equivalent, each with the reason.

use crate::fields::Field;
use crate::report::Outcome;

/// Sections by the beginning of their path.
const TABLE: [(&[&str], Outcome, &str); 14] = [
    (&["tcp.", "udp."], Outcome::Unsupported, "the gateway serves HTTP only"),
    (&["providers."], Outcome::Ignored, "gateway.yaml is the configuration, and reloads by itself"),
    (&["api.", "ping."], Outcome::Ignored, "see `admin`: its page, its health checks, its metrics"),
    (&["log."], Outcome::Ignored, "the gateway logs to standard error"),
    (
        &["accessLog."],
        Outcome::Approximated,
        "the gateway writes a line for each request to standard output: see access_log",
    ),
    (
        &["metrics.", "tracing."],
        Outcome::Approximated,
        "metrics are at /metrics of `admin`: see metrics, trace and telemetry",
    ),
    (
        &["certificatesResolvers."],
        Outcome::Unsupported,
        "certificates come from files: see `certificates` of a listener",
    ),
    (&["global.", "experimental.", "core.", "hub."], Outcome::Ignored, "it is about Traefik itself"),
    (
        &["http.serversTransports.", "serversTransport."],
        Outcome::Unsupported,
        "see tls and timeouts of upstreams: set them as this transport does",
    ),
    (
        &["tls.options."],
        Outcome::Unsupported,
        "see min_version and client_ca of a listener; ciphers are modern, and nothing to choose",
    ),
    (&["tls."], Outcome::Unsupported, "see `certificates` of a listener"),
    (&["entryPoints."], Outcome::Unsupported, "see `listen`, `timeouts` and `client_ip`"),
    (&["http.middlewares."], Outcome::Ignored, "no router uses it here"),
    (&["http.services."], Outcome::Ignored, "no router uses it here"),
];

/// What becomes of a field that nothing was said of. `used` has the paths of the services and middlewares that routers use.
pub(super) fn rest(field: &Field, used: &[String]) -> (Outcome, String) {
    let path = format!("{}.", field.path);
    if used.iter().any(|used| path.starts_with(used)) {
        return (Outcome::Unsupported, "the importer does not know this field".to_owned());
    }
    if path.starts_with("http.routers.") {
        return router(&path);
    }
    let found = TABLE.iter().find(|(prefixes, _, _)| prefixes.iter().any(|prefix| path.starts_with(prefix)));
    found.map_or_else(
        || (Outcome::Unsupported, "the importer does not know this field".to_owned()),
        |(_, outcome, text)| (*outcome, (*text).to_owned()),
    )
}

fn router(path: &str) -> (Outcome, String) {
    let (outcome, text) = match path {
        path if path.contains(".tls.certResolver") => {
            (Outcome::Unsupported, "certificates come from files: see `certificates` of the listener")
        }
        path if path.contains(".tls.domains") => {
            (Outcome::Ignored, "the gateway chooses the certificate by the names in it")
        }
        path if path.contains(".tls.options") => {
            (Outcome::Unsupported, "see min_version and client_ca of a listener")
        }
        path if path.contains(".tls.") => {
            (Outcome::Converted, "the routes are those of the listeners with TLS")
        }
        path if path.contains(".observability.") => (Outcome::Ignored, "see access_log, metrics and trace"),
        _ => (Outcome::Unsupported, "the importer does not know this field of a router"),
    };
    (outcome, text.to_owned())
}
