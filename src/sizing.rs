//! What a given traffic needs: gateways, stores, memory, network and money, computed from figures that were measured.
//!
//! An estimate for people who plan, not a part of the gateway: numbers are floating-point.

use serde::Serialize;
use sluicegate_leases::{ErrorBudget, FEWEST, HOLD, Terms};
use sluicegate_limiter::{Quota, Rate, TokenBucket};

/// How often the keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// All keys alike.
    Uniform,
    /// The k-th busiest key has a k-th of the busiest one's requests (Zipf's law with exponent 1).
    Zipf,
}

/// The traffic, and its limit.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Keys that are in use.
    pub users: u64,
    /// Requests per second, of all keys together.
    pub qps: u64,
    /// The limit of one key.
    pub rate: Rate,
    /// Shared limits of a request, all of this rate.
    pub limits: u32,
    /// How often the keys are used.
    pub demand: Demand,
}

/// What one request, call and key cost. Defaults are those of docs/performance.md and docs/redis.md.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Processor time of a forwarded request, in microseconds.
    pub request_us: f64,
    /// Processor time that a call of the store adds in the gateway, in microseconds.
    pub call_us: f64,
    /// Processor time of a call in the store, for each limit, in microseconds.
    pub store_us: f64,
    /// Bytes of a key in the store.
    pub key_bytes: u64,
    /// Bytes of a key in a gateway.
    pub local_key_bytes: u64,
    /// Bytes of a call on the network, in both directions together.
    pub call_bytes: u64,
    /// Bytes of a request and its answer.
    pub request_bytes: u64,
    /// The part of a processor that is used at the given traffic.
    pub load: f64,
    /// Copies of the store's data.
    pub replicas: u32,
    /// Memory that a store needs for each byte of its keys, while it saves them.
    pub fork: f64,
    /// Cores of a gateway.
    pub cores: u32,
    /// The memory of a store, in GB.
    pub store_gb: f64,
    /// For how long a lease is meant to last, in seconds.
    pub hold: f64,
    /// The part of a limit that may be leased, in millionths.
    pub budget: u32,
    /// Money per core and month, and per GB of memory and month.
    pub core_price: f64,
    /// Money per GB of memory and month.
    pub gb_price: f64,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            request_us: 14.7,
            call_us: 4.8,
            store_us: 10.8,
            key_bytes: 160,
            local_key_bytes: 25,
            call_bytes: 400,
            request_bytes: 2_000,
            load: 0.6,
            replicas: 1,
            fork: 1.5,
            cores: 16,
            store_gb: 32.0,
            hold: HOLD.as_nanos() as f64 / 1e9,
            budget: ErrorBudget::USUAL.millionths(),
            core_price: 25.0,
            gb_price: 3.0,
        }
    }
}

/// What requests in a queue take besides their bodies: in a file, and in the memory of Redis (docs/performance.md).
const QUEUED_FILE_BYTES: u64 = 630;
const QUEUED_REDIS_BYTES: u64 = 1_500;

/// What a queue needs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueueNeed {
    /// The requests that wait.
    pub requests: u64,
    /// The bytes of a body.
    pub body_bytes: u64,
    /// On disk, if it is kept in a file.
    pub file_gb: f64,
    /// Memory, if it is kept in Redis, with replicas.
    pub redis_gb: f64,
}

/// What a queue needs for so many requests with bodies of so many bytes.
pub fn queue(requests: u64, body_bytes: u64, figures: &Figures) -> QueueNeed {
    let gb = |overhead: u64| requests as f64 * (body_bytes + overhead) as f64 / 1e9;
    let copies = f64::from(figures.replicas + 1);
    QueueNeed {
        requests,
        body_bytes,
        file_gb: gb(QUEUED_FILE_BYTES),
        redis_gb: gb(QUEUED_REDIS_BYTES) * figures.fork * copies,
    }
}

/// How requests find a gateway, and how their limits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Layout {
    /// Any gateway; the store decides about each request.
    Exact,
    /// Any gateway; tokens are leased.
    Leased,
    /// The requests of a key reach one of two gateways, which share a store; tokens are leased.
    Pairs,
    /// The requests of a key reach one gateway, which leases tokens.
    Affine,
    /// The requests of a key reach one gateway, which counts alone.
    Local,
}

/// What a layout needs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Need {
    /// The layout.
    pub layout: Layout,
    /// Calls of the store for each request.
    pub calls_per_request: f64,
    /// Gateways.
    pub gateways: u64,
    /// Cores of the stores, as many as there are shards if their memory suffices.
    pub store_cores: u64,
    /// Shards, each a process with a core.
    pub shards: u64,
    /// Memory of all stores, with their replicas.
    pub store_gb: f64,
    /// Memory of the counters in all gateways, if they count alone.
    pub gateway_gb: f64,
    /// Between gateways and stores.
    pub store_gbit: f64,
    /// Between clients, gateways and upstreams.
    pub traffic_gbit: f64,
    /// Money a month.
    pub money: f64,
}

/// Calls a second of each gateway that leases tokens of a key whose limit is reached: the store has little left each time. Up to
/// 590 were measured, with limits of 1,000/s to 20,000/s (docs/scale.md).
const SCARCE_CALLS: f64 = 500.0;
/// Calls for each grant below the limit: one for the tokens, and about one for a request that comes when they are spent.
const CALLS_OF_A_GRANT: f64 = 2.0;
/// The time of a grant, in seconds. Requests that come meanwhile, when the tokens are spent, ask the store themselves.
const GRANT_SECONDS: f64 = 0.002;

/// Groups of keys that are used alike: their number, and the requests per second of each.
fn groups(traffic: &Traffic) -> Vec<(f64, f64)> {
    let (users, qps) = (traffic.users as f64, traffic.qps as f64);
    if traffic.demand == Demand::Uniform {
        return vec![(users, qps / users)];
    }
    // Ranks grow by a tenth from group to group; the first are single.
    let mut groups = Vec::new();
    let mut from = 1.0_f64;
    while from <= users {
        let to = (from * 1.1).floor().max(from + 1.0).min(users + 1.0);
        let weight: f64 = match to - from <= 64.0 {
            true => (from as u64..to as u64).map(|rank| 1.0 / rank as f64).sum(),
            false => ((to - 0.5) / (from - 0.5)).ln(),
        };
        groups.push((to - from, weight));
        from = to;
    }
    let all: f64 = groups.iter().map(|(_, weight)| weight).sum();
    groups.iter().map(|(keys, weight)| (*keys, qps * weight / all / keys)).collect()
}

/// The part of the requests that the limit admits.
pub fn admitted(traffic: &Traffic) -> f64 {
    let most = per_second(traffic.rate);
    let admitted: f64 = groups(traffic).iter().map(|(keys, rate)| keys * rate.min(most)).sum();
    admitted / traffic.qps as f64
}

fn per_second(rate: Rate) -> f64 {
    rate.count() as f64 * 1e9 / rate.period().as_nanos() as f64
}

/// Calls of the store for each request, when the requests of a key reach `reached` of the `gateways` that share a store.
fn calls_per_request(traffic: &Traffic, figures: &Figures, share: u64, reached: f64) -> f64 {
    let most = per_second(traffic.rate);
    let calls = groups(traffic).into_iter().map(|(keys, rate)| {
        // Each gateway that a refused key reaches asks once for each token that becomes free, and refuses without a call between.
        let exact = match rate > most {
            true => rate.min(most * reached),
            false => rate,
        };
        let tokens = (rate.min(most) / reached * figures.hold).min(share as f64).floor();
        let leased = match rate > most {
            true => reached * SCARCE_CALLS,
            false => rate / tokens * (CALLS_OF_A_GRANT + rate / reached * GRANT_SECONDS),
        };
        keys * if tokens < FEWEST as f64 { exact } else { leased.min(exact) }
    });
    calls.sum::<f64>() / traffic.qps as f64
}

/// What the traffic needs, in each layout.
pub fn size(traffic: &Traffic, figures: &Figures) -> Vec<Need> {
    [Layout::Exact, Layout::Leased, Layout::Pairs, Layout::Affine, Layout::Local]
        .map(|layout| need(traffic, figures, layout))
        .into()
}

fn need(traffic: &Traffic, figures: &Figures, layout: Layout) -> Need {
    let qps = traffic.qps as f64;
    let limits = f64::from(traffic.limits);
    let gateways_for = |calls: f64| {
        let cores = qps * (figures.request_us + calls * figures.call_us) / 1e6 / figures.load;
        ((cores / f64::from(figures.cores)).ceil() as u64).max(2)
    };
    // As many as without leases: what these save would change their number, and their number what they save.
    let gateways = gateways_for(1.0);
    let (group, reached) = match layout {
        Layout::Exact | Layout::Leased => (gateways, gateways as f64),
        Layout::Pairs => (2, 2.0),
        Layout::Affine | Layout::Local => (1, 1.0),
    };
    let share = match layout {
        Layout::Exact | Layout::Local => 0,
        _ => share(traffic.rate, figures.budget, u32::try_from(group).unwrap_or(u32::MAX)),
    };
    let calls = match layout {
        Layout::Local => 0.0,
        _ => calls_per_request(traffic, figures, share, reached),
    };
    let gateways = gateways_for(calls);
    let keys_gb = (traffic.users * u64::from(traffic.limits)) as f64 / 1e9;
    let store_gb = match layout {
        Layout::Local => 0.0,
        _ => keys_gb * figures.key_bytes as f64 * f64::from(1 + figures.replicas) * figures.fork,
    };
    let store_cores = (qps * calls * limits * figures.store_us / 1e6 / figures.load).ceil() as u64;
    let copies = u64::from(1 + figures.replicas);
    let shards = match layout {
        Layout::Local => 0,
        _ => store_cores.max((store_gb / copies as f64 / figures.store_gb).ceil() as u64).max(1),
    };
    let gateway_gb = match layout {
        Layout::Local => keys_gb * figures.local_key_bytes as f64,
        _ => 0.0,
    };
    let cores = gateways * u64::from(figures.cores) + shards * copies;
    Need {
        layout,
        calls_per_request: calls,
        gateways,
        store_cores,
        shards,
        store_gb,
        gateway_gb,
        store_gbit: qps * calls * figures.call_bytes as f64 * 8.0 / 1e9,
        traffic_gbit: qps * figures.request_bytes as f64 * 2.0 * 8.0 / 1e9,
        money: cores as f64 * figures.core_price + (store_gb + gateway_gb) * figures.gb_price,
    }
}

/// The tokens that one of so many gateways may lease of a token bucket whose size is its rate's count.
fn share(rate: Rate, budget: u32, gateways: u32) -> u64 {
    let (Ok(bucket), Some(budget)) =
        (TokenBucket::new(rate, rate.count()), ErrorBudget::from_millionths(budget))
    else {
        return 0;
    };
    let quota = Quota::TokenBucket(bucket, rate, rate.count());
    Terms::new(&quota, budget, false).at_least(FEWEST).share(gateways)
}

#[cfg(test)]
mod tests {
    use sluicegate_limiter::Span;

    use super::*;

    fn traffic(users: u64, qps: u64, per_minute: u64, demand: Demand) -> Traffic {
        let rate = Rate::new(per_minute, Span::from_secs(60)).expect("a rate");
        Traffic { users, qps, rate, limits: 1, demand }
    }

    /// Key by key, without groups.
    fn slow(traffic: &Traffic, figures: &Figures, share: u64, reached: f64) -> f64 {
        let all: f64 = (1..=traffic.users).map(|rank| 1.0 / rank as f64).sum();
        let most = per_second(traffic.rate);
        let calls = (1..=traffic.users).map(|rank| {
            let rate = traffic.qps as f64 / all / rank as f64;
            let exact = if rate > most { rate.min(most * reached) } else { rate };
            let tokens = (rate.min(most) / reached * figures.hold).min(share as f64).floor();
            match (tokens < 2.0, rate > most) {
                (true, _) => exact,
                (_, true) => exact.min(reached * 500.0),
                _ => exact.min(rate / tokens * (2.0 + rate / reached * 0.002)),
            }
        });
        calls.sum::<f64>() / traffic.qps as f64
    }

    #[test]
    fn groups_of_keys_say_what_single_keys_do() {
        for (users, qps, per_minute, hold, reached) in [
            (100_000, 1_000_000, 60_000_000, 1.0, 8.0),
            (100_000, 100_000, 100, 10.0, 1.0),
            (3_000, 50_000, 600, 0.05, 4.0),
        ] {
            let traffic = traffic(users, qps, per_minute, Demand::Zipf);
            let figures = Figures { hold, ..Figures::default() };
            let (fast, slow) = (
                calls_per_request(&traffic, &figures, 1_000, reached),
                slow(&traffic, &figures, 1_000, reached),
            );
            assert!((fast / slow - 1.0).abs() < 0.02, "{users} keys: {fast} and {slow}");
        }
    }

    #[test]
    fn a_hundred_million_users() {
        let needs = size(&traffic(100_000_000, 100_000_000, 100, Demand::Uniform), &Figures::default());
        let exact = &needs[0];
        // 100 M x 10.8 us / 0.6 of a core; 160 bytes x 100 M x 2 copies x 1.5.
        assert_eq!((exact.shards, exact.store_gb), (1_800, 48.0));
        // 100 M x (14.7 + 4.8) us / 0.6 of a core / 16 cores.
        assert_eq!(exact.gateways, 204);
        // A limit of 100 leases 5 tokens, and a key comes once a second: there is nothing to lease for.
        assert!(needs[1..4].iter().all(|need| (need.calls_per_request - 1.0).abs() < 1e-9));
        assert_eq!((needs[4].shards, needs[4].gateways), (0, 154));
    }

    #[test]
    fn fewer_gateways_for_a_key_need_fewer_calls() {
        let needs = size(&traffic(100_000_000, 100_000_000, 6_000_000, Demand::Zipf), &Figures::default());
        let calls: Vec<f64> = needs.iter().map(|need| need.calls_per_request).collect();
        assert!(calls.windows(2).all(|pair| pair[0] > pair[1]), "{calls:?}");
    }

    #[test]
    fn one_key_is_a_traffic_too() {
        for demand in [Demand::Uniform, Demand::Zipf] {
            let needs = size(&traffic(1, 1, 60, demand), &Figures::default());
            assert!(needs.iter().all(|need| need.gateways == 2 && need.money.is_finite()));
        }
    }
}
