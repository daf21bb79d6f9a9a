//! The last hour of a running gateway, in a fixed amount of memory: a sampler adds what was counted since it looked last. No
//! request pays for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::metrics::{BUCKETS, Metrics, RouteTotals, Totals, quantile};

/// The lengths of slots in seconds, and how many are kept.
const RINGS: [(u64, usize); 2] = [(1, 120), (10, 360)];
/// How often routes are looked at, in seconds, and how many looks are kept: durations are those of the last minute.
const ROUTES_EVERY: u64 = 10;
const ROUTES_KEPT: usize = 7;

/// The last hour.
#[derive(Debug, Default)]
pub struct History(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rings: Option<[Ring; 2]>,
    last: Totals,
    /// The seconds since the epoch at which it was sampled last.
    sampled: Option<u64>,
    /// The most in one second: requests, refused, errors.
    peak: [u64; 3],
    /// The most open connections by listener.
    connections: BTreeMap<String, i64>,
    routes: VecDeque<BTreeMap<String, RouteTotals>>,
}

/// Slots of one length. A slot is overwritten when its place is needed again.
#[derive(Debug)]
struct Ring {
    step: u64,
    /// Which slot each place holds: seconds since the epoch divided by the step.
    held: Vec<Option<u64>>,
    /// Three counts for each place, by limit; the empty name is that of all requests.
    counts: BTreeMap<String, Vec<[u64; 3]>>,
}

impl Ring {
    fn new((step, places): (u64, usize)) -> Self {
        Self { step, held: vec![None; places], counts: BTreeMap::new() }
    }

    /// Adds what was counted in the second before `second`.
    fn add(&mut self, second: u64, more: &BTreeMap<String, [u64; 3]>) {
        let slot = second / self.step;
        let place = (slot % self.held.len() as u64) as usize;
        if self.held[place] != Some(slot) {
            self.held[place] = Some(slot);
            self.counts.values_mut().for_each(|counts| counts[place] = [0; 3]);
        }
        let places = self.held.len();
        for (name, more) in more {
            let counts = match self.counts.get_mut(name) {
                Some(counts) => counts,
                None => self.counts.entry(name.clone()).or_insert_with(|| vec![[0; 3]; places]),
            };
            counts[place].iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        self.counts.retain(|name, _| more.contains_key(name)); // limits that a reload has removed
    }

    /// The slots that begin at `since` or later, up to `now`. Slots in which nothing was sampled are null.
    fn json(&self, since: u64, now: u64) -> Value {
        let last = now / self.step;
        let oldest = (last + 1).saturating_sub(self.held.len() as u64);
        let first = since.div_ceil(self.step).clamp(oldest, last + 1);
        let column = |counts: &[[u64; 3]], which: usize| -> Vec<Option<u64>> {
            let at = |slot: u64| {
                let place = (slot % self.held.len() as u64) as usize;
                (self.held[place] == Some(slot)).then(|| counts[place][which])
            };
            (first..=last).map(at).collect()
        };
        let none = vec![[0; 3]; self.held.len()];
        let all = self.counts.get("").unwrap_or(&none);
        let limits: Map<String, Value> = self
            .counts
            .iter()
            .filter(|(name, _)| !name.is_empty())
            .map(|(name, counts)| {
                let [admitted, refused, shadow] = [0, 1, 2].map(|which| column(counts, which));
                (name.clone(), json!({ "admitted": admitted, "refused": refused, "shadow_refused": shadow }))
            })
            .collect();
        json!({
            "step": self.step,
            "from": first * self.step,
            "requests": column(all, 0),
            "refused": column(all, 1),
            "errors": column(all, 2),
            "limits": limits,
        })
    }
}

/// What was counted since the last look; a counter that is gone or new begins at 0.
fn since_last(now: &Totals, last: &Totals) -> BTreeMap<String, [u64; 3]> {
    let less = |now: &[u64; 3], last: Option<&[u64; 3]>| -> [u64; 3] {
        let last = last.copied().unwrap_or_default();
        std::array::from_fn(|at| now[at].saturating_sub(last[at]))
    };
    let limits = now.limits.iter().map(|(name, counts)| (name.clone(), less(counts, last.limits.get(name))));
    let all = (String::new(), less(&now.requests, Some(&last.requests)));
    limits.chain([all]).collect()
}

impl History {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was counted since it was called last. `second` is the time in seconds since the epoch.
    pub fn sample(&self, metrics: &Metrics, second: u64) {
        let totals = metrics.totals();
        let mut state = self.state();
        let state = &mut *state;
        let rings = state.rings.get_or_insert_with(|| RINGS.map(Ring::new));
        if state.sampled.is_none_or(|sampled| sampled < second) {
            let more = since_last(&totals, &state.last);
            rings.iter_mut().for_each(|ring| ring.add(second - 1, &more));
            let all = more.get("").copied().unwrap_or_default();
            state.peak.iter_mut().zip(all).for_each(|(peak, count)| *peak = count.max(*peak));
        }
        for (name, open) in &totals.connections {
            let peak = state.connections.entry(name.clone()).or_default();
            *peak = (*open).max(*peak);
        }
        state.connections.retain(|name, _| totals.connections.contains_key(name));
        if state.routes.is_empty() || second.is_multiple_of(ROUTES_EVERY) {
            state.routes.push_back(metrics.routes());
            if state.routes.len() > ROUTES_KEPT {
                state.routes.pop_front();
            }
        }
        (state.last, state.sampled) = (totals, Some(second));
    }

    /// The last hour as JSON, from `since` on: the `time` of an earlier answer. `most` is the largest number of connections of a
    /// listener.
    pub fn json(&self, metrics: &Metrics, since: u64, most: impl Fn(&str) -> Option<u64>) -> Value {
        let routes = metrics.routes();
        let state = self.state();
        let now = state.sampled.unwrap_or(0);
        let rings: Vec<Value> = match &state.rings {
            Some(rings) if now > 0 => {
                rings.iter().map(|ring| ring.json(since.saturating_sub(ring.step), now - 1)).collect()
            }
            _ => Vec::new(),
        };
        let [requests, refused, errors] = state.peak;
        json!({
            "time": now,
            "rings": rings,
            "peak": { "requests": requests, "refused": refused, "errors": errors },
            "connections": state.last.connections.iter().map(|(name, open)| json!({
                "listener": name,
                "open": open,
                "peak": state.connections.get(name),
                "max": most(name),
            })).collect::<Vec<_>>(),
            "routes": routes.iter().map(|(name, totals)| state.route(name, totals)).collect::<Vec<_>>(),
        })
    }
}

impl State {
    /// A route: its requests so far, the rate since the last look, and durations of the last minute.
    fn route(&self, name: &str, totals: &RouteTotals) -> Value {
        let none = RouteTotals::default();
        let at = |look: Option<&BTreeMap<String, RouteTotals>>| {
            look.and_then(|look| look.get(name)).cloned().unwrap_or_else(|| none.clone())
        };
        // A gateway that is younger than the looks has counted all of it within them.
        let oldest = self.routes.front().filter(|_| self.routes.len() == ROUTES_KEPT);
        let (first, last) = (at(oldest), at(self.routes.back()));
        let before =
            if self.routes.len() > 1 { at(self.routes.get(self.routes.len() - 2)) } else { last.clone() };
        let rate =
            |of: fn(&RouteTotals) -> u64| of(&last).saturating_sub(of(&before)) as f64 / ROUTES_EVERY as f64;
        let durations: [u64; BUCKETS] =
            std::array::from_fn(|bucket| totals.durations[bucket].saturating_sub(first.durations[bucket]));
        let classes: Map<String, Value> = totals
            .classes
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(class, count)| (format!("{}xx", class + 1), (*count).into()))
            .collect();
        json!({
            "route": name,
            "requests": totals.requests(),
            "classes": classes,
            "rate": rate(RouteTotals::requests),
            "received": { "bytes": totals.bytes[0], "rate": rate(|totals| totals.bytes[0]) },
            "sent": { "bytes": totals.bytes[1], "rate": rate(|totals| totals.bytes[1]) },
            "p50": quantile(&durations, 0.5),
            "p99": quantile(&durations, 0.99),
        })
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;

    use super::*;
    use sluicegate_base::limit_outcome::LimitOutcome;

    const BEGUN: u64 = 1_795_000_000;

    fn column(history: &History, metrics: &Metrics, since: u64, ring: usize, name: &str) -> Vec<Option<u64>> {
        let json = history.json(metrics, since, |_| None);
        serde_json::from_value(json["rings"][ring][name].clone()).unwrap()
    }

    /// Seconds are kept for two minutes, tens of seconds for an hour; what was not sampled is a gap, and memory is fixed.
    #[test]
    fn the_last_hour_is_kept() {
        let (history, metrics) = (History::default(), Metrics::default());
        for second in 0..=4_000 {
            (0..second % 3).for_each(|_| metrics.route("api", 0).finish(200, Span::from_millis(2)));
            metrics.limit("l", 1).count(LimitOutcome::Refused);
            if second != 3_950 {
                history.sample(&metrics, BEGUN + second);
            }
        }
        let seconds = column(&history, &metrics, 0, 0, "requests");
        assert_eq!(seconds.len(), 120);
        assert_eq!(seconds[119], Some(1));
        assert_eq!((seconds[69], seconds[70]), (None, Some(2)), "a gap, and what it lacks");
        let tens = column(&history, &metrics, 0, 1, "requests");
        assert_eq!(tens.len(), 360);
        assert!((9..=11).contains(&tens[300].unwrap()), "{:?}", tens[300]);
        assert_eq!(column(&history, &metrics, BEGUN + 4_000, 0, "requests").len(), 1, "what is new");
        let json = history.json(&metrics, 0, |_| None);
        assert_eq!((&json["time"], &json["peak"]["requests"]), (&json!(BEGUN + 4_000), &json!(2)));
        assert_eq!(json["rings"][0]["limits"]["l"]["refused"][119], 1);
        assert_eq!((&json["routes"][0]["route"], &json["routes"][0]["rate"]), (&json!("api"), &json!(1.0)));
        let p50 = json["routes"][0]["p50"].as_f64().unwrap();
        assert!((0.001..0.0025).contains(&p50), "{p50}");
    }
}
