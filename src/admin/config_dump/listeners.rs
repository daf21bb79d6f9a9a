//! Listeners and their certificates in the dump.

use std::sync::Arc;

use serde_json::{Value, json};

use super::seconds;
use crate::client_connection::PER_ADDRESS;
use crate::tls::{KeyPair, ListenerFiles};
use sluicegate_config::{CertificateConfig, ListenerConfig, TlsConfig};

pub(super) fn listener((listener, files): (&ListenerConfig, &Option<ListenerFiles>)) -> Value {
    json!({
        "name": listener.name,
        "address": listener.address.to_string(),
        "tls": listener.tls.as_ref().zip(files.as_ref()).map(|(tls, files)| json!({
            "certificates": certificates(tls, files),
            "client_ca": tls.client.as_ref().map(|client| client.ca.display().to_string()),
            "client_auth": tls.client.as_ref().map(|client| if client.required { "required" } else { "optional" }),
            "min_version": tls.min_version.name(),
            "handshake_timeout": seconds(tls.handshake_timeout),
        })),
        "proxy_protocol": listener.proxy_protocol,
        "max_connections": listener.max_connections,
        "max_connections_per_ip": listener.max_connections_per_ip.unwrap_or(PER_ADDRESS),
    })
}

/// The certificates in force of a listener. Of their keys nothing is told but the file.
pub(in crate::admin) fn certificates(tls: &TlsConfig, files: &ListenerFiles) -> Vec<Value> {
    let certificate = |(named, known): (&CertificateConfig, &Arc<KeyPair>)| {
        json!({
            "cert": named.cert.display().to_string(),
            "key": named.key.display().to_string(),
            "names": known.names.texts(),
            "not_before": known.not_before.to_string(),
            "not_after": known.not_after.to_string(),
        })
    };
    tls.certificates.iter().zip(&files.certificates).map(certificate).collect()
}
