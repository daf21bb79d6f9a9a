//! Consumers with random requests in virtual time, before a token bucket that they share.

use sluicegate_fair_shares::{Answer, Consumer, Cost, Shares};
use sluicegate_limiter::{Span, Time};

const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A token bucket of 200 a second, for all gateways.
struct Bucket {
    tokens: f64,
    at: f64,
}

const RATE: f64 = 200.0;

impl Bucket {
    fn take(&mut self, at: f64, least: f64) -> bool {
        self.tokens = (self.tokens + (at - self.at) * RATE).min(RATE);
        self.at = at;
        let ok = self.tokens >= 1.0 + least;
        self.tokens -= f64::from(u8::from(ok));
        ok
    }
}

struct Gateways {
    shares: Vec<Shares>,
    bucket: Bucket,
    exchanged: f64,
    random: Random,
    /// The seconds for which all requests go to one gateway, then to the next; 0 if each request goes to any of them.
    turn: f64,
}

impl Gateways {
    /// Whether a request is admitted: within the share of its consumer, or while more than half of the bucket is left.
    fn ask(&mut self, at: f64, key: u64, weight: u32) -> bool {
        let now = NOW.plus(Span::from_nanos((at * 1e9) as u64));
        let capacity = RATE as u64 * 1_000_000;
        if self.shares.len() > 1 && at - self.exchanged >= 0.2 {
            self.exchanged = at;
            let reports: Vec<_> = self
                .shares
                .iter_mut()
                .map(|shares| {
                    shares.look(now, capacity);
                    shares.report()
                })
                .collect();
            for (at, shares) in self.shares.iter_mut().enumerate() {
                let others = reports.iter().enumerate().filter(|(other, _)| *other != at);
                shares.set_others(others.map(|(_, report)| report.clone()).collect());
            }
        }
        let gateway = match self.turn {
            0.0 => (self.random.unit() * self.shares.len() as f64) as usize,
            turn => (at / turn) as usize % self.shares.len(),
        };
        let answer =
            self.shares[gateway].ask(now, capacity, Consumer { key, weight }, Cost::Known(1), || key);
        let ok = self.bucket.take(at, answer.left(RATE as u64) as f64);
        if let Answer::Within(taken) = answer
            && !ok
        {
            self.shares[gateway].give_back(taken);
        }
        ok
    }
}

/// What consumers with these rates and weights get: asked and admitted, from 5 s on, by a poisson process each.
fn run((gateways, turn): (usize, f64), seed: u64, seconds: f64, consumers: &[(f64, u32)]) -> Vec<(f64, f64)> {
    let mut all = Gateways {
        shares: (0..gateways).map(|_| Shares::new(NOW)).collect(),
        bucket: Bucket { tokens: RATE, at: 0.0 },
        exchanged: 0.0,
        random: Random(seed),
        turn,
    };
    let sum: f64 = consumers.iter().map(|(rate, _)| rate).sum();
    let (mut at, mut counts) = (0.0, vec![(0.0, 0.0); consumers.len()]);
    while at < seconds {
        at -= (1.0 - all.random.unit()).ln() / sum;
        let mut which = all.random.unit() * sum;
        let one = consumers.iter().position(|(rate, _)| {
            which -= rate;
            which < 0.0
        });
        let one = one.unwrap_or(0);
        let admitted = all.ask(at, one as u64 + 1, consumers[one].1);
        if at >= 5.0 {
            counts[one].0 += 1.0;
            counts[one].1 += f64::from(u8::from(admitted));
        }
    }
    counts.iter().map(|(asked, admitted)| (asked / (seconds - 5.0), admitted / (seconds - 5.0))).collect()
}

/// Nine consumers with 15 requests a second each, and one with twice to a hundred times its share of 65: the nine lose nothing.
#[test]
fn a_greedy_consumer_takes_only_what_others_leave() {
    for (gateways, greedy) in [(1, 150.0), (1, 1_500.0), (4, 150.0), (4, 300.0), (4, 1_500.0), (4, 6_500.0)] {
        for seed in 0..20 {
            let mut consumers = vec![(15.0, 1); 9];
            consumers.push((greedy, 1));
            let got = run((gateways, 0.0), seed, 65.0, &consumers);
            let (asked, admitted) =
                got[..9].iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let all: f64 = got.iter().map(|(_, admitted)| admitted).sum();
            assert!(
                asked - admitted <= 0.005 * asked,
                "{gateways}, {greedy}/s, seed {seed}: {admitted} of {asked}"
            );
            assert!(got[9].1 >= 0.9 * (RATE - asked), "{gateways}, {greedy}/s, seed {seed}: {got:?}");
            assert!(all >= 0.98 * RATE, "{gateways}, {greedy}/s, seed {seed}: {all} in all");
        }
    }
}

/// The same if the requests go to one gateway after another.
#[test]
fn consumers_may_come_to_one_gateway_at_a_time() {
    for seed in 0..20 {
        let got = run((4, 0.125), seed, 65.0, &[(8.0, 1), (800.0, 1)]);
        let (asked, admitted) = got[0];
        assert!(asked - admitted <= 0.005 * asked, "seed {seed}: {admitted} of {asked}");
        assert!(got[1].1 >= 0.9 * (RATE - asked), "seed {seed}: {got:?}");
    }
}

/// All of them ask for too much: they get by weight.
#[test]
fn weights_divide_what_is_scarce() {
    for gateways in [1, 4] {
        for seed in 0..10 {
            let got = run((gateways, 0.0), seed, 45.0, &[(400.0, 4), (400.0, 1), (800.0, 1), (5.0, 1)]);
            let level = (RATE - 5.0) / 6.0;
            for (one, (share, least)) in [(4.0, 0.93), (1.0, 0.93), (1.0, 0.93)].into_iter().enumerate() {
                let (asked, admitted) = got[one];
                let ratio = admitted / (share * level);
                assert!((least..1.3).contains(&ratio), "{gateways}, seed {seed}: {asked}: {ratio}");
            }
            assert!(got[3].1 >= 0.98 * got[3].0, "{gateways}, seed {seed}: {:?}", got[3]);
        }
    }
}

/// A consumer that asks for less than its share leaves the rest to the others, and gets it as soon as it wants it.
#[test]
fn what_is_not_used_is_lent() {
    let got = run((1, 0.0), 3, 45.0, &[(20.0, 1), (1_000.0, 1)]);
    assert!(got[0].1 >= 0.995 * got[0].0 && got[1].1 >= 0.97 * (RATE - got[0].0), "{got:?}");
}

/// A consumer that asks for 60 to 75 % of its share among greedy ones loses next to nothing.
#[test]
fn consumers_near_their_share_lose_next_to_nothing() {
    for (gateways, greedy) in [(1, 1), (1, 3), (1, 9), (4, 1), (4, 3), (4, 9)] {
        for part in [0.6, 0.7, 0.75] {
            // What is divided is 31/32 of the rate.
            let level = RATE * 31.0 / 32.0 / (f64::from(greedy) + part);
            let mut consumers = vec![(level * part, 1)];
            consumers.extend((0..greedy).map(|_| (3.0 * RATE / f64::from(greedy), 1)));
            let lost = |seed| {
                let got = run((gateways, 0.0), seed, 65.0, &consumers)[0];
                1.0 - got.1 / got.0
            };
            let lost: f64 = (0..20).map(lost).sum::<f64>() / 20.0;
            assert!(lost <= 0.005, "{gateways} gateways, {greedy} greedy ones, {part}: {lost} is refused");
        }
    }
}
