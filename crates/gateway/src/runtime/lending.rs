//! Asks the home store once a second which part of each rate this region may have.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_counters_redis::{Region, Settings, ShareAsk};
use sluicegate_leases::{RegionShares, SHARE_LIFE};
use sluicegate_limiter::Time;

use crate::limit::{Store, StoreState};
use crate::process_state::ProcessState;
use crate::store_settings::{settings, store_clock};
use sluicegate_config::RegionsConfig;

/// What the gateway knows of its region.
#[derive(Default)]
pub(super) struct Lending {
    config: Option<RegionsConfig>,
    home: Option<Rc<Store>>,
    shares: RegionShares,
    /// By limit: admitted and refused requests at the last question.
    counted: BTreeMap<String, [u64; 3]>,
}

/// A question to the home store.
struct Question {
    home: Rc<Store>,
    config: RegionsConfig,
    number: u64,
    sent: Time,
    asks: Vec<ShareAsk>,
}

impl Lending {
    /// Connects to the home store of a configuration, if it has another one than before.
    pub(super) fn follow(&mut self, config: Option<&RegionsConfig>, process: &ProcessState) {
        if self.config.as_ref() == config {
            return;
        }
        if let Some(home) = self.home.take() {
            home.close();
        }
        let floor = config.map_or(0, RegionsConfig::floor);
        self.config = config.cloned();
        self.shares = RegionShares::new(floor, process.clock.now());
        process.metrics.lent_until.store(0, Ordering::Release);
        self.home = config.and_then(|config| config.home.as_ref()).map(|home| {
            let state = Arc::new(StoreState::new(Settings { is_home: true, ..settings(home) }));
            Store::new(state, store_clock(&process.clock), process.workers, Arc::new(()))
        });
    }

    /// The part of the rate of a limit, in the units of [`RegionShares`]; `None` if these are not the regions that are asked for.
    pub(super) fn share(&self, regions: &RegionsConfig, limit: &str, now: Time) -> Option<u32> {
        (self.config.as_ref() == Some(regions)).then(|| self.shares.share(limit, now))
    }

    /// What to ask the home store now; `None` without one.
    fn question(&mut self, process: &ProcessState) -> Option<Question> {
        let home = Rc::clone(self.home.as_ref()?);
        let config = self.config.clone()?;
        let counted = process.metrics.totals().limits;
        let snapshot = process.snapshot.load();
        let lent = snapshot.limits.iter().map(|limit| &limit.config).filter(|limit| limit.is_lent());
        let asks = lent.map(|limit| {
            let of = |all: &BTreeMap<String, [u64; 3]>| all.get(&limit.name).copied().unwrap_or_default();
            let (now, before) = (of(&counted), of(&self.counted));
            let [admitted, refused] = [0, 1].map(|which| now[which].saturating_sub(before[which]));
            ShareAsk {
                limit: limit.name.clone(),
                applied: limit.division.map_or(0, |division| division.rate),
                demand: admitted + refused,
                refused,
            }
        });
        let asks: Vec<ShareAsk> = asks.collect();
        self.counted = counted;
        let number = self.shares.ask();
        (!asks.is_empty()).then(|| Question { home, config, number, sent: process.clock.now(), asks })
    }

    fn answered(&mut self, question: &Question, parts: Vec<u32>, process: &ProcessState) {
        let limits = question.asks.iter().map(|ask| ask.limit.clone());
        let shares: HashMap<String, u32> = limits.zip(parts).collect();
        if self.shares.answered(question.number, question.sent, shares) {
            process.metrics.lent_until.store(question.sent.plus(SHARE_LIFE).as_nanos(), Ordering::Release);
        }
    }
}

impl Question {
    async fn ask(&self) -> Option<Vec<u32>> {
        let region = Region { name: &self.config.name, floors: &self.config.floors };
        self.home.ask_shares(region, self.number, &self.asks).await
    }
}

/// Asks the home store, if there is one.
pub(super) async fn ask_home(lending: &RefCell<Lending>, process: &ProcessState) {
    let Some(question) = lending.borrow_mut().question(process) else { return };
    if let Some(parts) = question.ask().await {
        lending.borrow_mut().answered(&question, parts, process);
    }
}
