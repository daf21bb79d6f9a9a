//! What is counted of listeners: connections that are not served, handshakes, and how long certificates hold.

use super::collect::{Scrape, by_label};
use super::metrics::Series;
use super::stripe::Counter;
use crate::config::Config;

/// What one worker counts of one listener.
#[derive(Debug, Default)]
pub struct ListenerStripe {
    refused: [Counter; REFUSALS.len()],
    handshakes: [Counter; HANDSHAKES.len()],
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The listener has as many as it may.
    Listener,
    /// The client's address has as many as it may.
    Address,
    /// The gateway has as many as it has file descriptors for.
    Gateway,
    /// There were no file descriptors left.
    OutOfFiles,
    /// It does not begin with a PROXY header.
    ProxyHeader,
}

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Well.
    Full,
    /// Well, going on from an earlier one.
    Resumed,
    /// With an error of either side.
    Failed,
    /// Not in time.
    TimedOut,
    /// It was given up because there were too many at once.
    Shed,
}

const REFUSALS: [&str; 5] =
    ["listener_full", "address_full", "gateway_full", "out_of_file_descriptors", "no_proxy_header"];
const HANDSHAKES: [&str; 5] = ["full", "resumed", "failed", "timeout", "shed"];

impl ListenerStripe {
    /// Counts a connection that is not served.
    pub fn refused(&self, why: Refusal) {
        self.refused[why as usize].add(1);
    }

    /// Counts a handshake.
    pub fn handshake(&self, outcome: Handshake) {
        self.handshakes[outcome as usize].add(1);
    }
}

impl Scrape {
    /// The series of listeners.
    pub(super) fn listeners(&mut self, series: &Series, config: &Config) {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let refused = by_label(&series.listeners, "listener", "reason", |stripe| {
            named(&REFUSALS).into_iter().zip(&stripe.refused).collect()
        });
        let help = "Connections of clients that were closed at once.";
        self.counters("sluicegate_connections_refused_total", help, refused);
        let handshakes = by_label(&series.listeners, "listener", "outcome", |stripe| {
            named(&HANDSHAKES).into_iter().zip(&stripe.handshakes).collect()
        });
        self.counters("sluicegate_tls_handshakes_total", "Handshakes of TLS by outcome.", handshakes);
        let expiries = config.listeners.iter().flat_map(|listener| {
            let certificates = listener.tls.iter().flat_map(|tls| &tls.certificates);
            certificates.map(|certificate| {
                let file = certificate.cert.display().to_string();
                let labels = vec![("listener", listener.name.clone()), ("certificate", file)];
                (labels, certificate.known.not_after.as_second() as f64)
            })
        });
        self.gauges(
            "sluicegate_tls_certificate_expiry_timestamp_seconds",
            "When certificates in force expire, in seconds since the epoch.",
            expiries.collect(),
        );
    }
}
