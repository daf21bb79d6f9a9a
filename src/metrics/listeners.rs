//! What is counted of listeners: connections that are not served, handshakes, and how long certificates hold.

use super::exposition::{Scrape, by_label};
use super::families as family;
use super::registry::Series;
use super::worker_counters::Counter;
use crate::config::Config;

/// What one worker counts of one listener.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
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

pub(super) const REFUSALS: [&str; 5] =
    ["listener_full", "address_full", "gateway_full", "out_of_file_descriptors", "no_proxy_header"];
pub(super) const HANDSHAKES: [&str; 5] = ["full", "resumed", "failed", "timeout", "shed"];

impl ListenerMetrics {
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
        let named = |name: &str| config.listeners.iter().find(|listener| listener.name == name);
        let closed = |listener: &str, at: usize| {
            at != Refusal::ProxyHeader as usize || named(listener).is_some_and(|known| known.proxy_protocol)
        };
        let refused = by_label(&series.listeners, &REFUSALS, |stripe| &stripe.refused, closed);
        self.counters(&family::CONNECTIONS_REFUSED, refused);
        let tls = |listener: &str, _| named(listener).is_some_and(|known| known.tls.is_some());
        let handshakes = by_label(&series.listeners, &HANDSHAKES, |stripe| &stripe.handshakes, tls);
        self.counters(&family::HANDSHAKE, handshakes);
        let expiries = config.listeners.iter().flat_map(|listener| {
            let certificates = listener.tls.iter().flat_map(|tls| &tls.certificates);
            certificates.map(|certificate| {
                let labels = vec![listener.name.clone(), certificate.cert.display().to_string()];
                (labels, certificate.known.not_after.as_second() as f64)
            })
        });
        self.gauges(&family::CERTIFICATE_EXPIRY, expiries.collect());
    }
}
