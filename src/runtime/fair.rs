//! Fair shares over several gateways: each tells the others what its consumers ask for.

use std::rc::Rc;
use std::time::Duration;

use sluicegate_fair_shares::Reported;

use crate::limit::{Limit, Store, capacity};
use crate::process_state::ProcessState;

/// How often they tell each other.
pub(super) const EXCHANGE: Duration = Duration::from_millis(200);

/// Tells the other gateways what is asked for here, of each limit that is divided and shared, and takes note of what they tell.
/// Without an answer of the store, what they told last stands. Returns whether there are such limits.
pub(super) async fn exchange(store: Option<Rc<Store>>, process: &ProcessState) -> bool {
    let snapshot = process.snapshot.load_full();
    let Some(store) = store.filter(|_| snapshot.limits.iter().any(|limit| is_exchanged(limit))) else {
        return false;
    };
    for limit in snapshot.limits.iter().filter(|limit| is_exchanged(limit)) {
        let Some(fair) = &limit.fair else { continue };
        let told = {
            let mut shares = fair.shares();
            shares.look(process.clock.now(), capacity(&limit.counted.quota));
            to_text(&shares.report())
        };
        let topic = format!("fair:{}", limit.config.name);
        if let Some(others) = store.exchange(&topic, &told).await {
            fair.shares().set_others(others.iter().filter_map(|text| from_text(text)).collect());
        }
    }
    true
}

fn is_exchanged(limit: &Limit) -> bool {
    limit.fair.is_some() && limit.config.shared
}

fn to_text(report: &Reported) -> String {
    serde_json::to_string(&(report.light, &report.heavy)).unwrap_or_default()
}

fn from_text(text: &str) -> Option<Reported> {
    let (light, heavy) = serde_json::from_str(text).ok()?;
    Some(Reported { heavy, light })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let report = Reported { heavy: vec![(u64::MAX, 3, 4), (2, 1_000_000, 1)], light: 17 };
        assert_eq!(from_text(&to_text(&report)), Some(report));
        assert_eq!(from_text("[1,[[1,2]]]"), None);
        assert_eq!(from_text(""), None);
    }
}
