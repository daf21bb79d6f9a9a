//! Listeners and their certificates in the dump.

use std::sync::Arc;

use serde_json::{Value, json};

use sluicegate_base::tls::{KeyPair, ListenerFiles};
use sluicegate_config::{CertificateConfig, ListenerConfig, TlsConfig};
use sluicegate_downstream::PER_ADDRESS;

pub(super) fn listener((listener, files): (&ListenerConfig, &Option<ListenerFiles>)) -> Value {
    let mut value = json!(listener);
    value["max_connections_per_ip"] = listener.max_connections_per_ip.unwrap_or(PER_ADDRESS).into();
    if let Some((tls, files)) = listener.tls.as_ref().zip(files.as_ref()) {
        value["tls"]["certificates"] = certificates(tls, files).into();
        if tls.client.is_none() {
            value["tls"]["client_ca"] = Value::Null;
            value["tls"]["client_auth"] = Value::Null;
        }
    }
    value
}

/// The certificates in force of a listener. Of their keys nothing is told but the file.
pub(in crate::admin) fn certificates(tls: &TlsConfig, files: &ListenerFiles) -> Vec<Value> {
    let certificate = |(named, known): (&CertificateConfig, &Arc<KeyPair>)| {
        let mut value = json!(named);
        value["names"] = json!(known.names.texts());
        value["not_before"] = known.not_before.to_string().into();
        value["not_after"] = known.not_after.to_string().into();
        value
    };
    tls.certificates.iter().zip(&files.certificates).map(certificate).collect()
}
