//! What gateways with one store tell each other several times a second: what consumers ask for, where limits have fair shares, and
//! what they measure of upstreams with an adaptive limit.

use std::rc::Rc;
use std::time::Duration;

use sluicegate_fair_shares::Reported;
use sluicegate_overload::{Report, Sums};

use crate::limit::{Limit, Store, capacity};
use crate::process_state::ProcessState;
use sluicegate_upstream::Overload;

/// How often they tell each other.
pub(super) const EXCHANGE: Duration = Duration::from_millis(200);

/// Tells the other gateways what is known here, and takes note of what they tell. Returns whether there is anything to tell.
pub(super) async fn exchange(store: Option<Rc<Store>>, process: &ProcessState) -> bool {
    let snapshot = process.snapshot.load_full();
    let limits: Vec<_> = snapshot.limits.iter().filter(|limit| is_exchanged(limit)).collect();
    let adaptive = snapshot.upstreams.iter().filter_map(|state| {
        let overload = state.overload.as_ref()?;
        state.config.overload.as_ref()?.adaptive.then_some((&state.config.name, overload))
    });
    let upstreams: Vec<_> = adaptive.collect();
    let Some(store) = store else {
        upstreams.iter().for_each(|(_, overload)| overload.alone(process.clock.now(), false));
        return false;
    };
    for limit in &limits {
        shares(&store, limit, process).await;
    }
    for (name, overload) in &upstreams {
        pooled(&store, name, overload, process).await;
    }
    !limits.is_empty() || !upstreams.is_empty()
}

/// What is asked for here of a limit that is divided. Without an answer of the store, what the others told last stands.
async fn shares(store: &Rc<Store>, limit: &Limit, process: &ProcessState) {
    let Some(fair) = &limit.fair else { return };
    let message = {
        let mut shares = fair.shares();
        shares.look(process.clock.now(), capacity(&limit.counted.quota));
        to_text(&shares.report())
    };
    let topic = format!("fair:{}", limit.config.name);
    if let Some(others) = store.exchange(&topic, &message).await {
        fair.shares().set_others(others.iter().filter_map(|text| from_text(text)).collect());
    }
}

/// What is measured here of an upstream. Without an answer of the store for two seconds, the gateway follows the upstream alone.
async fn pooled(store: &Rc<Store>, upstream: &str, overload: &Overload, process: &ProcessState) {
    let own = overload.report(process.clock.now(), store.state().number());
    let others = store.exchange(&format!("overload:{upstream}"), &report_to_text(&own)).await;
    let now = process.clock.now();
    match others {
        Some(others) => {
            let others: Vec<Report> = others.iter().filter_map(|text| report_from_text(text)).collect();
            overload.exchanged(now, &own, &others);
        }
        None => overload.missed(now),
    }
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

fn report_to_text(report: &Report) -> String {
    let Report { gateway, sums, in_flight, waiting, limit, base } = *report;
    let Sums { busy, completed, failed, refused, taken, squares } = sums;
    serde_json::to_string(&(
        gateway,
        (busy, completed, failed, refused, taken, squares),
        in_flight,
        waiting,
        limit,
        base,
    ))
    .unwrap_or_default()
}

fn report_from_text(text: &str) -> Option<Report> {
    type Message = (u64, (f64, u64, u64, u64, f64, f64), u32, u32, f64, f64);
    let (gateway, (busy, completed, failed, refused, taken, squares), in_flight, waiting, limit, base) =
        serde_json::from_str::<Message>(text).ok()?;
    let sums = Sums { busy, completed, failed, refused, taken, squares };
    // A limit below one, or an enormous one, comes from no gateway.
    let is_sound = (1.0..=1e6).contains(&limit) && (0.0..1e6).contains(&base);
    is_sound.then_some(Report { gateway, sums, in_flight, waiting, limit, base })
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

    #[test]
    fn measurements_are_understood() {
        let sums = Sums { busy: 12.5, completed: 1_000, failed: 3, refused: 12, taken: 50.25, squares: 7.5 };
        let report = Report { gateway: u64::MAX, sums, in_flight: 7, waiting: 3, limit: 33.5, base: 0.05 };
        assert_eq!(report_from_text(&report_to_text(&report)), Some(report));
        assert_eq!(report_from_text(&report_to_text(&Report { limit: 0.0, ..report })), None);
        assert_eq!(report_from_text("[1]"), None);
    }
}
