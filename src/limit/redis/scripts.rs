//! The scripts as servers know them: by the SHA-1 of their text.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult};

use super::script;
use super::wire::Algorithms;

/// All scripts.
pub(super) struct Scripts {
    /// Checks all limits, then charges all: one script for each kind of algorithms.
    decide: [Script; 6],
    /// Takes charges back.
    pub(super) refund: Script,
    /// Charges late costs.
    pub(super) spend: Script,
    /// Charges what was admitted while the store did not answer.
    pub(super) report: Script,
    /// Prolongs the places of requests in flight.
    pub(super) renew: Script,
}

/// One script.
pub(super) struct Script {
    text: &'static str,
    sha1: String,
}

/// The scripts of this version.
pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    decide: Algorithms::ALL.map(|algorithms| Script::new(script::decide(algorithms))),
    refund: Script::new(script::REFUND),
    spend: Script::new(script::SPEND),
    report: Script::new(script::REPORT),
    renew: Script::new(script::RENEW),
});

impl Scripts {
    /// The script that decides about limits of these algorithms.
    pub(super) fn decide(&self, algorithms: Algorithms) -> &Script {
        &self.decide[algorithms as usize]
    }

    /// Gives the scripts to a server.
    ///
    /// # Errors
    /// When the server does not take them.
    pub(super) async fn load(connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let others = [&SCRIPTS.refund, &SCRIPTS.spend, &SCRIPTS.report, &SCRIPTS.renew];
        let mut pipeline = Pipeline::new();
        for script in SCRIPTS.decide.iter().chain(others) {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text).ignore();
        }
        pipeline.exec_async(connection).await
    }
}

impl Script {
    fn new(text: &'static str) -> Self {
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let sha1 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, sha1 }
    }

    /// A call with these keys; the arguments follow.
    pub(super) fn call<'a>(&self, keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha1).arg(keys.len());
        for key in keys {
            call.arg(key);
        }
        call
    }
}
