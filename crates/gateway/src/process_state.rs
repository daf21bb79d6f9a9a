//! What all threads of the gateway share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::diff::Diff;
use crate::limit::{Store, StoreState};
use crate::snapshot::Snapshot;
use crate::store_settings::store_clock;
use sluicegate_base::clock::Clock;
use sluicegate_base::own_load::OwnLoad;
use sluicegate_limiter::Time;
use sluicegate_observe::access_log::LogWriter;
use sluicegate_observe::cut_answers::CutAnswers;
use sluicegate_observe::history::History;
use sluicegate_observe::metrics::Metrics;
use sluicegate_observe::refusals::RefusalLogs;
use sluicegate_observe::telemetry::Spans;
use sluicegate_observe::top::Tops;

/// What all threads of the gateway share.
pub struct ProcessState {
    /// The configuration in force.
    pub snapshot: ArcSwap<Snapshot>,
    /// The generation of [`snapshot`](Self::snapshot), which is cheaper to read.
    pub generation: AtomicU64,
    /// Whether the gateway is draining.
    pub draining: AtomicBool,
    /// All counters.
    pub metrics: Metrics,
    /// The number of workers.
    pub workers: usize,
    /// The clock.
    pub clock: Clock,
    /// The writer of the access log, if there is one.
    pub access_log: ArcSwapOption<LogWriter>,
    /// Where spans go, if they are sent to a collector.
    pub spans: ArcSwapOption<Spans>,
    /// How the configuration came into force, for `GET /status`.
    pub status: Mutex<Status>,
    /// The keys with the most requests.
    pub tops: Tops,
    /// The last hour.
    pub history: History,
    /// What the gateway itself uses.
    pub load: OwnLoad,
    /// The answers that were cut last.
    pub cuts: CutAnswers,
    /// The requests that were refused last.
    pub refusals: RefusalLogs,
}

/// How the configuration came into force.
#[derive(Debug, Default)]
pub struct Status {
    /// The configuration file.
    pub file: String,
    /// When the configuration in force was loaded (RFC 3339).
    pub loaded_at: String,
    /// The report on the last file, if that file was refused.
    pub last_error: Option<String>,
    /// Errors of other files (consumers, address lists, certificates) that were refused, by path.
    pub file_errors: BTreeMap<String, String>,
    /// What the last reload changed; `None` before the first.
    pub last_reload: Option<Diff>,
}

impl ProcessState {
    /// Notes that `header`, which names the client, was ignored, because `peer` is not a trusted proxy; the log says so once a
    /// minute at most.
    #[cold]
    pub fn note_ignored(&self, header: &str, peer: IpAddr, now: Time) {
        let peer = peer.to_canonical();
        if self.metrics.ignored_forwarded.count(peer, now) {
            tracing::warn!(
                "{header} of requests from {peer} is ignored, because {peer} is not a trusted proxy: all clients behind it count as \
                 {peer}. If it is your proxy: `client_ip: {{trusted_proxies: [\"{peer}\"]}}`"
            );
        }
    }

    /// A worker's connection to the store that `state` describes: `before` if it leads there.
    pub fn store(&self, state: &Arc<StoreState>, worker: usize, before: Option<&Rc<Store>>) -> Rc<Store> {
        match before.filter(|before| Arc::ptr_eq(before.state(), state)) {
            Some(same) => {
                same.follow_config();
                Rc::clone(same)
            }
            None => {
                Store::new(Arc::clone(state), store_clock(&self.clock), worker, self.metrics.store(worker))
            }
        }
    }
}
