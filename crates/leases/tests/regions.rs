//! Regions that lend each other parts of a rate, over a network that loses and delays, with gateways that crash, regions that are
//! cut off, and a home store that forgets everything or whose clock jumps. `SEED=n` repeats a run, `SEEDS=10000` makes more.

#[path = "home/mod.rs"]
mod home;
#[path = "world/meter.rs"]
mod meter;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use home::{Asked, Home, WHOLE};
use meter::Meter;
use sluicegate_leases::{ASK_EVERY, RegionShares, SHARE_BOOKED, SHARE_LIFE};
use sluicegate_limiter::{Algorithm, Division, Quota, Rate, Span, Tat, Time, TokenBucket};

const STEP: u64 = 20; // milliseconds
const LIMIT: &str = "l";
const NAMES: [&str; 3] = ["a", "b", "c"];

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most.max(1)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

struct Gateway {
    region: usize,
    name: String,
    shares: RegionShares,
    in_force: u32,
    /// What is put in force at a time, in milliseconds; a reload may take long.
    changes: Vec<(u64, u32)>,
    next_ask: u64,
    demand: u64,
    refused: u64,
    down_until: u64,
    /// Millionths by which its clock is fast.
    drift: i64,
}

impl Gateway {
    fn clock(&self, millis: u64) -> Time {
        at((millis as i64 + millis as i64 * self.drift / 1_000_000) as u64)
    }
}

enum Event {
    Question {
        gateway: usize,
        name: String,
        question: u64,
        sent: Time,
        applied: u32,
        demand: u64,
        refused: u64,
    },
    Answer {
        gateway: usize,
        name: String,
        question: u64,
        sent: Time,
        share: u32,
    },
}

fn at(millis: u64) -> Time {
    Time::from_nanos(1_795_000_000_000_000_000).plus(Span::from_millis(millis))
}

#[derive(Debug, Default, PartialEq)]
struct End {
    over: u64,
    most_lent: u32,
    admitted: u64,
    share_of_a: u32,
    trace: u64,
}

/// Runs for so many milliseconds. `load` says how many times the whole rate each region asks for at a time.
fn run(seed: u64, millis: u64, floors: [u32; 3], faults: bool, load: impl Fn(u64, usize, u64) -> f64) -> End {
    let mut random = Random(seed);
    let rate = Rate::new(2_000, Span::SECOND).expect("a rate");
    let quota = Quota::TokenBucket(TokenBucket::new(rate, 600).expect("a bucket"), rate, 600);
    let floors: Vec<(String, u32)> = NAMES.iter().map(|name| (*name).to_owned()).zip(floors).collect();
    let all: u64 = floors.iter().map(|(_, floor)| u64::from(*floor)).sum();
    let sizes: Vec<u32> =
        floors.iter().map(|(_, floor)| (u64::from(*floor) * u64::from(WHOLE) / all) as u32).collect();
    let algorithm = |region: usize, share: u32| {
        let part = Division { rate: share, size: sizes[region] }.of(&quota).expect("it is large enough");
        match part {
            Quota::TokenBucket(bucket, ..) => bucket,
            _ => unreachable!("it is divided as it is"),
        }
    };
    let per_region = 1 + random.below(3) as usize;
    let mut born = 0;
    let mut name = move || {
        born += 1;
        format!("gateway-{born}")
    };
    let mut gateways: Vec<Gateway> = (0..3 * per_region)
        .map(|index| Gateway {
            region: index % 3,
            name: name(),
            shares: RegionShares::new(floors[index % 3].1, at(0)),
            in_force: floors[index % 3].1,
            changes: Vec::new(),
            next_ask: random.below(1_000),
            demand: 0,
            refused: 0,
            down_until: 0,
            drift: if faults { random.below(400) as i64 - 200 } else { 0 },
        })
        .collect();
    let mut home = Home::default();
    let (mut home_clock, mut home_down_until) = (1_000_000_i64, 0);
    let mut cut_until = [0_u64; 3];
    let mut buckets: Vec<(Tat, TokenBucket)> =
        (0..3).map(|region| (Tat::default(), algorithm(region, floors[region].1))).collect();
    let mut meter = Meter::new(&quota);
    let mut events: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut what: HashMap<u64, Event> = HashMap::new();
    let mut number = 0_u64;
    let mut end = End::default();

    for now in (0..millis).step_by(STEP as usize) {
        let faulty = faults && now < millis - 40_000;
        if faulty {
            for cut in &mut cut_until {
                if random.one_in(1_500) {
                    *cut = now + random.below(40_000);
                }
            }
            if random.one_in(4_000) {
                match random.below(3) {
                    0 => home = Home::default(),
                    1 => home_clock += random.below(60_000) as i64 - 30_000,
                    _ => home_down_until = now + random.below(30_000),
                }
            }
        }
        // Messages.
        let mut later = Vec::new();
        while let Some(Reverse((due, id))) = events.peek().copied().filter(|Reverse((due, _))| *due <= now) {
            events.pop();
            match what.remove(&id).expect("it was sent") {
                Event::Question { gateway, name, question, sent, applied, demand, refused } => {
                    if due < home_down_until {
                        continue;
                    }
                    let region = gateways[gateway].region;
                    let asked =
                        Asked { region: NAMES[region], gateway: &name, question, applied, demand, refused };
                    let there = (now as i64 + home_clock).max(1) as u64;
                    let life = SHARE_BOOKED.as_nanos() / 1_000_000;
                    if let Some(share) = home.lend(there, life, &floors, &asked) {
                        let delay = 40
                            + random.below(30)
                            + if faulty && random.one_in(20) { random.below(4_000) } else { 0 };
                        if cut_until[region] <= now && !(faulty && random.one_in(50)) {
                            later.push((now + delay, Event::Answer { gateway, name, question, sent, share }));
                        }
                    }
                }
                Event::Answer { gateway, name, question, sent, share } => {
                    let gateway = &mut gateways[gateway];
                    if gateway.name == name && gateway.down_until <= now {
                        gateway.shares.answered(question, sent, HashMap::from([(LIMIT.to_owned(), share)]));
                    }
                }
            }
        }
        // Gateways.
        for (index, gateway) in gateways.iter_mut().enumerate() {
            if faulty && random.one_in(6_000) {
                gateway.down_until = now + 500 + random.below(20_000);
                let floor = floors[gateway.region].1;
                gateway.name = name();
                gateway.shares = RegionShares::new(floor, at(now));
                gateway.in_force = floor;
                gateway.changes.clear();
            }
            if gateway.down_until > now {
                continue;
            }
            while gateway.changes.first().is_some_and(|(due, _)| *due <= now) {
                gateway.in_force = gateway.changes.remove(0).1;
            }
            if now >= gateway.next_ask {
                gateway.next_ask = now + ASK_EVERY.as_nanos() / 1_000_000;
                let share = gateway.shares.share(LIMIT, gateway.clock(now));
                let coming = gateway.changes.last().map_or(gateway.in_force, |(_, share)| *share);
                if share != coming {
                    // To put other numbers in force takes a moment, and sometimes long.
                    let takes =
                        if faulty && random.one_in(30) { random.below(2_500) } else { random.below(60) };
                    let not_before = gateway.changes.last().map_or(0, |(due, _)| *due);
                    gateway.changes.push(((now + takes).max(not_before), share));
                }
                let most = gateway.changes.iter().map(|(_, share)| *share).chain([gateway.in_force]).max();
                let event = Event::Question {
                    gateway: index,
                    name: gateway.name.clone(),
                    question: gateway.shares.ask(),
                    sent: gateway.clock(now),
                    applied: most.expect("there is one"),
                    demand: std::mem::take(&mut gateway.demand),
                    refused: std::mem::take(&mut gateway.refused),
                };
                let delay =
                    40 + random.below(30) + if faulty && random.one_in(20) { random.below(4_000) } else { 0 };
                if cut_until[gateway.region] <= now && !(faulty && random.one_in(50)) {
                    later.push((now + delay, event));
                }
            }
            // Its part of the region's requests, which the store of the region decides.
            let asked = load(seed, gateway.region, now) * 2_000.0 * STEP as f64 / 1_000.0 / per_region as f64;
            let asked = asked as u64 + u64::from(random.below(1_000) < (asked.fract() * 1_000.0) as u64);
            let wanted = algorithm(gateway.region, gateway.in_force);
            let (state, last) = &mut buckets[gateway.region];
            let time = at(now);
            if wanted != *last {
                wanted.rescale(last, state, time);
                *last = wanted;
            }
            let mut admitted = 0;
            for _ in 0..asked {
                if wanted.check(state, time, 1).is_ok() {
                    wanted.charge(state, time, 1);
                    admitted += 1;
                }
            }
            gateway.demand += asked;
            gateway.refused += asked - admitted;
            end.admitted += admitted;
            if admitted > 0 {
                meter.admit(time, admitted);
            }
        }
        for (due, event) in later {
            number += 1;
            events.push(Reverse((due.max(now + 1), number)));
            what.insert(number, event);
        }
        let parts = (0..3).map(|region| {
            let own = gateways.iter().filter(|gateway| gateway.region == region && gateway.down_until <= now);
            own.map(|gateway| gateway.in_force).max().unwrap_or(0)
        });
        let parts: Vec<u32> = parts.collect();
        end.most_lent = end.most_lent.max(parts.iter().sum());
        end.share_of_a = parts[0];
        end.trace =
            parts.iter().fold(end.trace, |trace, part| trace.wrapping_mul(31).wrapping_add(u64::from(*part)));
    }
    end.over = meter.over();
    end
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, count) => 0..count.unwrap_or(200),
    }
}

/// Loads that move between the regions every few seconds.
fn restless(seed: u64, region: usize, now: u64) -> f64 {
    let mut random = Random(seed ^ (now / 7_000) << 8 ^ region as u64);
    [0.0, 0.1, 0.5, 1.0, 2.0][random.below(5) as usize]
}

/// Whatever happens, all regions together never have more than the whole, and admit nothing above the limit.
#[test]
fn regions_together_never_have_more_than_the_whole() {
    for seed in seeds() {
        let floors = [[300_000; 3], [500_000, 200_000, 100_000], [50_000, 50_000, 50_000]][seed as usize % 3];
        let end = run(seed, 180_000, floors, true, restless);
        assert!(end.most_lent <= WHOLE, "SEED={seed}: {end:?}");
        assert_eq!(end.over, 0, "SEED={seed}: {end:?}");
        assert!(end.admitted > 10_000, "SEED={seed}: {end:?}");
    }
}

/// The same seed is the same run.
#[test]
fn a_run_can_be_repeated() {
    let once = run(7, 60_000, [200_000; 3], true, restless);
    assert_eq!(once, run(7, 60_000, [200_000; 3], true, restless));
}

/// What is lent goes where it is needed, and comes back.
#[test]
fn the_pool_follows_the_demand() {
    let floors = [200_000; 3];
    let first_a_then_b = |_, region: usize, now: u64| match (region, now < 60_000) {
        (0, true) | (1, false) => 2.0,
        _ => 0.0,
    };
    let half = run(1, 60_000, floors, false, first_a_then_b);
    assert!(half.share_of_a > 590_000, "{half:?}");
    // 60 % of 2,000 a second, but for the time until it is lent.
    assert!(half.admitted > 1_200 * 60 * 7 / 10, "{half:?}");
    let end = run(1, 60_000 + 2 * SHARE_LIFE.as_nanos() / 1_000_000, floors, false, first_a_then_b);
    assert!(end.share_of_a <= 220_000, "{end:?}");
}
