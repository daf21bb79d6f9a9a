//! Fields that need no conversion, and objects that have no equivalent, each with the reason.

use super::objects::Object;
use crate::fields::Field;
use crate::marks::Marks;
use crate::report::Outcome;

/// Says of an object what concerns all of it.
pub(super) fn object(object: &Object<'_>, marks: &mut Marks) {
    let number = object.field.number;
    let kind = object.kind;
    match kind {
        "Ingress" | "HTTPRoute" | "Gateway" => {}
        "Service" => {
            for leaf in object.field.leaves() {
                if !leaf.path.contains("spec.ports") && !leaf.path.contains("externalName") {
                    marks.ignored(leaf.number, "of a Service, ports and external names are used");
                }
            }
        }
        "Secret" => marks.all(object.field, Outcome::Ignored, "secrets are files here: see the certificates in `listen`"),
        "IngressClass" | "GatewayClass" | "ReferenceGrant" | "Namespace" | "ServiceAccount" | "Deployment" | "EndpointSlice" => {
            marks.ignored(number, format!("a {kind} changes nothing of how requests are routed here"));
        }
        "ConfigMap" => marks.unsupported(
            number,
            "settings of the ingress controller are not read: set timeouts, max_body, client_ip and headers in gateway.yaml",
        ),
        "GRPCRoute" => marks.unsupported(number, "write a route for the path /SERVICE/METHOD and an upstream with protocol: http2"),
        "" => marks.unsupported(number, "it has no `kind`"),
        kind => marks.unsupported(number, format!("the importer reads Ingress, HTTPRoute, Gateway and Service, not {kind}")),
    }
}

/// What becomes of a field that nothing was said of.
pub(super) fn rest(field: &Field) -> (Outcome, String) {
    let path = strip_items(&field.path);
    let ignored = |text: &str| (Outcome::Ignored, text.to_owned());
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| path.starts_with(prefix));
    if path == "kind" || path == "apiVersion" {
        return ignored("it says what the document is");
    }
    if begins(&["status"]) {
        return ignored("the state of the object in the cluster");
    }
    if path == "metadata.name" || path == "metadata.namespace" {
        return (Outcome::Converted, "in names of routes and servers".to_owned());
    }
    if begins(&[
        "metadata.annotations.kubectl.kubernetes.io/",
        "metadata.annotations.meta.helm.sh/",
        "metadata.annotations.kubernetes.io/",
        "metadata.annotations.argocd",
    ]) {
        return ignored("it is for tools of the cluster");
    }
    if let Some(annotation) = path.strip_prefix("metadata.annotations.nginx.ingress.kubernetes.io/") {
        return unknown_annotation(annotation);
    }
    if begins(&["metadata.annotations.cert-manager.io/", "metadata.annotations.acme."]) {
        let text = "certificates come from files: let cert-manager write the secret, and mount it where `certificates` says";
        return (Outcome::Unsupported, text.to_owned());
    }
    if begins(&["metadata.annotations."]) {
        return (Outcome::Unsupported, "the importer reads annotations of ingress-nginx only".to_owned());
    }
    if begins(&["metadata."]) {
        return ignored("it changes nothing of how requests are routed");
    }
    if begins(&["spec.ingressClassName", "spec.gatewayClassName", "spec.listeners"]) && !path.contains("tls")
    {
        return ignored("one gateway serves all of them: each route has its hosts and paths");
    }
    if begins(&["spec.parentRefs", "spec.ports", "spec.rules.name"])
        || path.ends_with(".group")
        || path.ends_with(".kind")
    {
        return ignored("it says which objects belong together; the gateway has one set of routes");
    }
    if begins(&["spec.rules.backendRefs", "spec.rules.filters", "spec.rules.timeouts"]) {
        let text = "the requests of this rule are answered 503, because of another field of it";
        return (Outcome::Unsupported, text.to_owned());
    }
    (
        Outcome::Unsupported,
        "the importer does not know this field: see whether a route has an equivalent".to_owned(),
    )
}

/// A path without the indexes of lists, and without that of a list of objects.
fn strip_items(path: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    for c in path.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out.strip_prefix("items.").map(str::to_owned).unwrap_or(out)
}

/// Annotations of ingress-nginx that are not converted.
fn unknown_annotation(name: &str) -> (Outcome, String) {
    const TABLE: [(&[&str], Outcome, &str); 12] = [
        (
            &[
                "proxy-buffer",
                "proxy-buffering",
                "proxy-request-buffering",
                "proxy-max-temp-file",
                "client-body-buffer",
            ],
            Outcome::Ignored,
            "the gateway forwards bodies as they arrive, in a bounded amount of memory",
        ),
        (
            &["proxy-http-version", "connection-proxy-header"],
            Outcome::Ignored,
            "the gateway keeps connections to servers",
        ),
        (
            &[
                "enable-access-log",
                "enable-rewrite-log",
                "enable-opentelemetry",
                "opentelemetry",
                "enable-opentracing",
            ],
            Outcome::Ignored,
            "see access_log and telemetry",
        ),
        (
            &["ssl-ciphers", "ssl-prefer-server-ciphers"],
            Outcome::Ignored,
            "the gateway has modern ciphers, and nothing to choose",
        ),
        (&["proxy-redirect", "proxy-cookie"], Outcome::Unsupported, "answers are forwarded as they are"),
        (
            &["server-snippet", "configuration-snippet", "stream-snippet", "auth-snippet"],
            Outcome::Unsupported,
            "snippets are nginx: convert what they do with import nginx, or by hand",
        ),
        (
            &["modsecurity", "enable-modsecurity", "enable-owasp"],
            Outcome::Unsupported,
            "the gateway has no web application firewall: keep one before it",
        ),
        (&["mirror"], Outcome::Unsupported, "requests are not copied"),
        (
            &["custom-http-errors", "default-backend"],
            Outcome::Unsupported,
            "answers of servers are forwarded as they are; `reject` of a route replaces refusals",
        ),
        (
            &["limit-rate"],
            Outcome::Unsupported,
            "bandwidth is not limited; a limit with cost: {bytes: response} bounds it over time",
        ),
        (
            &["from-to-www-redirect", "canary", "satisfy", "ssl-passthrough", "proxy-ssl"],
            Outcome::Unsupported,
            "write it by hand: see redirect of routes, weights of servers, and tls of upstreams",
        ),
        (
            &["session-cookie", "affinity"],
            Outcome::Unsupported,
            "the gateway sets no cookies: see balance: {hash: KEY} of upstreams",
        ),
    ];
    let found = TABLE.iter().find(|(names, _, _)| names.iter().any(|prefix| name.starts_with(prefix)));
    found.map_or_else(
        || (Outcome::Unsupported, "the importer does not know this annotation".to_owned()),
        |(_, outcome, text)| (*outcome, (*text).to_owned()),
    )
}
