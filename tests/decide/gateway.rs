//! The gateway without its sockets: requests are decided at times that the test chooses.

use sluicegate_base::incoming::{Peer, Request};
use sluicegate_gateway::request::early_reject::EarlyReject;
use sluicegate_gateway::request::pipeline::evaluate;
use sluicegate_gateway::resources;
use sluicegate_gateway::snapshot::{Opened, Snapshot, SnapshotBuilder};
use sluicegate_limiter::Time;
use sluicegate_wire::RequestHead;

/// A configuration in force, and the folder of its files.
pub(crate) struct Gateway {
    pub(crate) snapshot: Snapshot,
    _folder: tempfile::TempDir,
}

/// A request that was decided.
pub(crate) struct Evaluated {
    /// The indices of the limits that apply to it, and have its key.
    pub(crate) limits: Vec<usize>,
    pub(crate) admitted: bool,
}

impl Gateway {
    /// A gateway with this gateway.yaml and these files beside it, which starts at `now`.
    pub(crate) fn new(text: &str, files: &[(&str, &str)], now: Time) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let loaded = resources::parse(text.to_owned(), "gateway.yaml", folder.path());
        let config = loaded.config.unwrap_or_else(|| panic!("{}", loaded.rendered));
        Self {
            snapshot: SnapshotBuilder::default().build(config, Opened::default(), None, now),
            _folder: folder,
        }
    }

    /// Decides a GET request of `api.test`.
    pub(crate) fn evaluate(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        now: Time,
    ) -> Result<Evaluated, EarlyReject> {
        let mut request = http::Request::builder().uri(path).header("host", "api.test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let head: RequestHead = request.body(()).unwrap().into_parts().0.into();
        let peer = Peer::plain(0, "203.0.113.9".parse().unwrap());
        let (_, selection, decision) = evaluate(&self.snapshot, Request { head: &head, peer }, now, true)?;
        let limits = selection.selected.iter().map(|selected| selected.index).collect();
        Ok(Evaluated { limits, admitted: decision.admitted })
    }
}

/// So many seconds after the epoch.
pub(crate) fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}
