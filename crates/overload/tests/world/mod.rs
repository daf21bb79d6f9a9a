//! An upstream with a known capacity in virtual time, behind the gate.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use sluicegate_fair_shares::{Answer, Consumer, Cost, Demand, Shares};
use sluicegate_limiter::{Span, Time};
use sluicegate_overload::{Bounds, Class, Entry, Gate, Pool, Priority, Report, Settings, Share};

pub(crate) struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Service {
    Exponential,
    Lognormal,
    /// 90 % take 10 ms, 10 % take 410 ms.
    Bimodal,
}

impl Service {
    /// The seconds within which 99 of 100 requests end when nothing waits.
    pub(crate) fn unloaded(self) -> f64 {
        match self {
            Self::Exponential => 0.23,
            Self::Lognormal => 0.14,
            Self::Bimodal => 0.41,
        }
    }

    /// Seconds, 50 ms on average at speed 1.
    fn time(self, random: &mut Random) -> f64 {
        match self {
            Self::Exponential => random.exponential(0.05),
            Self::Lognormal => {
                let normal = (-2.0 * (1.0 - random.unit()).ln()).sqrt()
                    * (std::f64::consts::TAU * random.unit()).cos();
                0.05 * (0.5 * normal - 0.125).exp()
            }
            Self::Bimodal => {
                if random.unit() < 0.9 {
                    0.01
                } else {
                    0.41
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Requests per second.
    pub(crate) rate: f64,
    pub(crate) critical: f64,
    pub(crate) sheddable: f64,
    /// The part of one consumer; the others have equal parts of the rest. 1 for a single consumer.
    pub(crate) greedy: f64,
    /// How often a refused request is sent again, each time 0.2 s later.
    pub(crate) retries: u32,
}

/// The consumers besides the greedy one.
const OTHERS: u64 = 9;

#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    Arrives,
    /// A request that was refused comes again; it may be refused so many times more.
    Returns(Priority, u32),
    Ends(u64),
    Expires(u64),
    Looks,
    /// A gateway tells the others what it has measured.
    Exchanges(usize),
    /// The first gateway is killed.
    Dies,
}

/// The gateways before the upstream.
#[derive(Clone, Copy)]
pub(crate) struct Gateways {
    pub(crate) count: usize,
    pub(crate) pooled: bool,
    /// When the first one is killed.
    pub(crate) dies: Option<f64>,
}

/// The seconds after which a refused request comes again.
const RETRY: f64 = 0.2;
pub(crate) const ALONE: Gateways = Gateways { count: 1, pooled: false, dies: None };
pub(crate) const FOUR: Gateways = Gateways { count: 4, pooled: true, dies: None };
/// The seconds between two exchanges, and those for which what was told counts.
const EXCHANGE: f64 = 0.2;
const LIFE: f64 = 2.0;

#[derive(Clone, Copy)]
struct One {
    priority: Priority,
    greedy: bool,
    gateway: usize,
    at: f64,
    began: f64,
    retries: u32,
}

/// Counted each second.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Second {
    pub(crate) done: u64,
    pub(crate) came: u64,
    pub(crate) critical_came: u64,
    pub(crate) critical_done: u64,
    /// Those of all consumers but the greedy one.
    pub(crate) others_came: u64,
    pub(crate) others_done: u64,
    pub(crate) limit: u32,
    /// The seconds that the upstream's servers were busy, of those that they could be.
    pub(crate) busy: f64,
    pub(crate) servers: f64,
}

pub(crate) struct Run {
    pub(crate) seconds: Vec<Second>,
    /// How long admitted requests took, of the time that counts.
    pub(crate) took: Vec<f64>,
}

fn at(seconds: f64) -> Time {
    Time::from_nanos(1_795_000_000_000_000_000).plus(Span::from_nanos((seconds * 1e9) as u64))
}

fn settings() -> Settings {
    Settings {
        bounds: Bounds { min: 2, max: 1_000, target: None },
        adaptive: true,
        queue: 500,
        deadline: Span::SECOND,
        reserve: 200_000,
    }
}

/// `servers` and `speed` are those at a second.
pub(crate) fn run(
    seed: u64,
    length: usize,
    service: Service,
    servers: impl Fn(f64) -> usize,
    speed: impl Fn(f64) -> f64,
    load: impl Fn(f64) -> Load,
) -> Run {
    run_with(ALONE, seed, length, service, servers, speed, load)
}

pub(crate) fn run_with(
    gateways: Gateways,
    seed: u64,
    length: usize,
    service: Service,
    servers: impl Fn(f64) -> usize,
    speed: impl Fn(f64) -> f64,
    load: impl Fn(f64) -> Load,
) -> Run {
    let mut random = Random(seed);
    let mut gates: Vec<Gate<u64>> = (0..gateways.count).map(|_| Gate::new(settings(), at(0.0))).collect();
    let mut pools: Vec<Pool> =
        (0..gateways.count).map(|_| Pool::new(settings().bounds, 20.0, 0.0, at(0.0))).collect();
    let mut reply: Vec<(f64, Report)> = vec![(-LIFE, Report::default()); gateways.count];
    let mut alive = 0; // the first that is
    let mut shares: Vec<Shares> = (0..gateways.count).map(|_| Shares::new(at(0.0))).collect();
    let mut events: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
    let mut what: HashMap<u64, What> = HashMap::new();
    let mut number = 0;
    let mut push =
        |events: &mut BinaryHeap<Reverse<(u64, u64)>>, what: &mut HashMap<u64, What>, when: f64, event| {
            number += 1;
            events.push(Reverse(((when * 1e9) as u64, number)));
            what.insert(number, event);
        };
    let mut requests: HashMap<u64, One> = HashMap::new();
    let mut waiting_there: VecDeque<u64> = VecDeque::new();
    let (mut busy, mut last, mut id) = (0_usize, 0.0, 0);
    let mut out = Run { seconds: vec![Second::default(); length + 1], took: Vec::new() };
    push(&mut events, &mut what, 0.0, What::Arrives);
    push(&mut events, &mut what, 0.0, What::Looks);
    if gateways.pooled {
        for one in 0..gateways.count {
            let first = EXCHANGE * one as f64 / gateways.count as f64;
            push(&mut events, &mut what, first, What::Exchanges(one));
        }
    }
    if let Some(dies) = gateways.dies {
        push(&mut events, &mut what, dies, What::Dies);
    }
    while let Some(Reverse((nanos, event))) = events.pop() {
        let now = nanos as f64 / 1e9;
        if now >= length as f64 {
            break;
        }
        let second = now as usize;
        out.seconds[second].busy += (now - last) * busy as f64;
        out.seconds[second].servers += (now - last) * (servers(now) as f64).max(busy as f64);
        last = now;
        let mut begin: Vec<u64> = Vec::new();
        match what.remove(&event).expect("it was pushed") {
            arrives @ (What::Arrives | What::Returns(..)) => {
                let Load { rate, critical, sheddable, greedy, retries } = load(now);
                if arrives == What::Arrives {
                    push(&mut events, &mut what, now + random.exponential(1.0 / rate), What::Arrives);
                }
                let kind = random.unit();
                let priority = match kind {
                    kind if kind < critical => Priority::Critical,
                    kind if kind < critical + sheddable => Priority::Sheddable,
                    _ => Priority::Default,
                };
                let (priority, retries) = match arrives {
                    What::Returns(priority, retries) => (priority, retries),
                    _ => (priority, retries),
                };
                id += 1;
                if arrives == What::Arrives {
                    out.seconds[second].came += 1;
                    out.seconds[second].critical_came += u64::from(priority == Priority::Critical);
                }
                let mut class = Class::from(priority);
                let is_greedy = greedy == 1.0 || random.unit() < greedy;
                let gateway = alive + (random.unit() * (gateways.count - alive) as f64) as usize;
                if greedy < 1.0 {
                    let key = if is_greedy { 0 } else { 1 + (random.unit() * OTHERS as f64) as u64 };
                    let consumer = Consumer { key, weight: 1 };
                    let capacity = gates[gateway].throughput().unwrap_or(u64::MAX);
                    let answer = shares[gateway].ask(at(now), capacity, consumer, Cost::Known(1), || key);
                    class.share = match answer {
                        Answer::Within(taken) if taken.demand != Demand::Far => Share::Modest,
                        Answer::Within(_) => Share::Within,
                        Answer::Above(_) => Share::Above,
                    };
                }
                out.seconds[second].others_came += u64::from(!is_greedy);
                let one = One { priority, greedy: is_greedy, gateway, at: now, began: 0.0, retries };
                requests.insert(id, one);
                match gates[gateway].enter(at(now), class, || id, |id| !requests.contains_key(id)) {
                    Entry::Enters => begin.push(id),
                    Entry::Waits => {
                        let deadline = gates[gateway].deadline(priority).as_nanos() as f64 / 1e9;
                        push(&mut events, &mut what, now + deadline, What::Expires(id));
                    }
                    Entry::Refused => {
                        requests.remove(&id);
                        if retries > 0 {
                            let returns = What::Returns(priority, retries - 1);
                            push(&mut events, &mut what, now + RETRY, returns);
                        }
                    }
                }
            }
            What::Expires(id) => {
                if requests.get(&id).is_some_and(|one| one.began == 0.0) {
                    let One { gateway, priority, retries, .. } = requests[&id];
                    gates[gateway].refuses(at(now));
                    requests.remove(&id);
                    if retries > 0 {
                        push(&mut events, &mut what, now + RETRY, What::Returns(priority, retries - 1));
                    }
                }
            }
            What::Ends(id) => {
                busy -= 1;
                let Some(one) = requests.remove(&id) else { continue };
                if one.gateway < alive {
                    continue; // nobody waits for it any more
                }
                let count = &mut out.seconds[second];
                count.done += 1;
                count.critical_done += u64::from(one.priority == Priority::Critical);
                count.others_done += u64::from(!one.greedy);
                out.took.push(now - one.at);
                let took = Span::from_nanos(((now - one.began) * 1e9) as u64);
                gates[one.gateway].leave(at(now), Some((took, true)), |id| {
                    let there = requests.contains_key(&id);
                    if there {
                        begin.push(id);
                    }
                    there
                });
            }
            What::Looks => {
                out.seconds[second].limit = gates[alive..].iter().map(Gate::limit).sum();
                push(&mut events, &mut what, now + 0.1, What::Looks);
            }
            What::Exchanges(one) if one < alive => {}
            What::Exchanges(one) => {
                let own = gates[one].report(at(now), one as u64, pools[one].limit_and_base());
                reply[one] = (now, own);
                let others =
                    reply.iter().filter(|(at, other)| other.gateway != one as u64 && now - at < LIFE);
                let others: Vec<Report> = others.map(|(_, report)| *report).collect();
                let share = pools[one].exchanged(at(now), &own, &others);
                gates[one].set_share(share);
                gates[one].release(at(now), |id| {
                    let there = requests.contains_key(&id);
                    if there {
                        begin.push(id);
                    }
                    there
                });
                push(&mut events, &mut what, now + EXCHANGE, What::Exchanges(one));
            }
            What::Dies => {
                requests.retain(|_, one| one.gateway > 0 || one.began > 0.0);
                alive = 1;
            }
        }
        for id in begin {
            requests.get_mut(&id).expect("it is there").began = now.max(1e-9);
            waiting_there.push_back(id);
        }
        // First come, first served, in the upstream.
        while busy < servers(now) {
            let Some(id) = waiting_there.pop_front() else { break };
            busy += 1;
            let time = service.time(&mut random) / speed(now);
            push(&mut events, &mut what, now + time, What::Ends(id));
        }
    }
    out
}

impl Run {
    pub(crate) fn done(&self, from: usize, to: usize) -> f64 {
        self.seconds[from..to].iter().map(|second| second.done).sum::<u64>() as f64 / (to - from) as f64
    }

    /// The part of the upstream's capacity that was used.
    pub(crate) fn used(&self, from: usize, to: usize) -> f64 {
        let sum = |of: fn(&Second) -> f64| self.seconds[from..to].iter().map(of).sum::<f64>();
        sum(|second| second.busy) / sum(|second| second.servers)
    }

    pub(crate) fn critical(&self, from: usize, to: usize) -> f64 {
        let sum = |of: fn(&Second) -> u64| self.seconds[from..to].iter().map(of).sum::<u64>() as f64;
        sum(|second| second.critical_done) / sum(|second| second.critical_came)
    }

    pub(crate) fn others(&self, from: usize, to: usize) -> f64 {
        let sum = |of: fn(&Second) -> u64| self.seconds[from..to].iter().map(of).sum::<u64>() as f64;
        sum(|second| second.others_done) / sum(|second| second.others_came)
    }

    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let mut took = self.took.clone();
        took.sort_by(f64::total_cmp);
        took[(took.len() as f64 * part) as usize]
    }
}
