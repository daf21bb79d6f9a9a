//! The world: events in virtual time, from one seed.

mod gateway;
mod meter;
mod store;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sluicegate_leases::{ErrorBudget, Return, Terms, reserved};
use sluicegate_limiter::{Quota, Span, Time};

use gateway::Gateway;
use meter::Meter;
use store::{Granted, Store};

/// One run.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) quota: Quota,
    pub(crate) budget: ErrorBudget,
    pub(crate) strict: bool,
    pub(crate) gateways: u32,
    pub(crate) millis: u64,
    /// Requests arrive in steps of this.
    pub(crate) step: Span,
    /// The requests of all gateways together, as a multiple of the rate.
    pub(crate) load: f64,
    pub(crate) faults: Faults,
}

/// What goes wrong, in thousandths of calls, or of gateways in each tenth of a second.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    lost: u64,
    slow: u64,
    cut: u64,
    crash: u64,
    drift: bool,
    /// Loads change all the time.
    restless: bool,
}

impl Faults {
    pub(crate) const NONE: Self = Self { lost: 0, slow: 0, cut: 0, crash: 0, drift: false, restless: false };
    pub(crate) const ALL: Self = Self { lost: 10, slow: 20, cut: 6, crash: 4, drift: true, restless: true };
}

/// What a run ends with. Settled figures are those from the moment on when all gateways lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    /// The most requests above the limit in any interval.
    pub(crate) over: u64,
    pub(crate) admitted: u64,
    pub(crate) leased: u64,
    pub(crate) calls: u64,
    /// The most tokens that were paid for and could be spent at once.
    pub(crate) most_held: u64,
    pub(crate) asked_settled: u64,
    pub(crate) admitted_settled: u64,
    pub(crate) allowed_settled: u64,
    pub(crate) calls_settled: u64,
}

/// Random numbers (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    pub(crate) fn happens(&mut self, thousandths: u64) -> bool {
        self.below(1_000) < thousandths
    }
}

/// What a gateway sends to the store.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// So many requests of cost 1.
    Exact(u64),
    /// Tokens, all or none.
    Tokens(u64),
    /// Unspent tokens.
    Back(Return),
    /// I am alive.
    Beat,
}

/// What the store answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Exact(Granted),
    Tokens(Granted, u64),
    Beat(u32),
}

enum Event {
    /// Requests arrive.
    Requests {
        gateway: usize,
        life: u32,
    },
    AtStore {
        gateway: usize,
        life: u32,
        call: Call,
        sent: Time,
    },
    Answered {
        gateway: usize,
        life: u32,
        reply: Reply,
        sent: Time,
    },
    Late {
        gateway: usize,
        life: u32,
        sent: Time,
    },
    Beat {
        gateway: usize,
        life: u32,
    },
    Sweep {
        gateway: usize,
        life: u32,
    },
    Starts {
        gateway: usize,
    },
    /// A tenth of a second has passed: loads and faults change.
    Turn,
}

pub(crate) struct World {
    run: Run,
    random: Random,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, usize)>>,
    /// The events by their number.
    queue: Vec<Option<Event>>,
    store: Store,
    gateways: Vec<Gateway>,
    meter: Meter,
    end: End,
    is_quiet: bool,
    settled: Time,
    ends: Time,
    terms: Terms,
}

const BEGIN: Time = Time::from_nanos(1_795_000_000_000_000_000);

impl World {
    pub(crate) fn new(seed: u64, run: Run) -> Self {
        let quota = if run.strict { reserved(run.quota, run.budget) } else { run.quota };
        let terms = Terms::new(&run.quota, run.budget, run.strict).at_least(2);
        let mut random = Random(seed);
        let gateways =
            (0..run.gateways).map(|_| Gateway::new(BEGIN, clock(&mut random, run.faults))).collect();
        let mut world = Self {
            random,
            now: BEGIN,
            events: BinaryHeap::new(),
            queue: Vec::new(),
            store: Store::new(quota),
            gateways,
            meter: Meter::new(&run.quota),
            end: End::default(),
            is_quiet: false,
            settled: BEGIN.plus(Span::from_millis(3_000)),
            ends: BEGIN.plus(Span::from_millis(run.millis)),
            terms,
            run,
        };
        for gateway in 0..world.gateways.len() {
            let life = 0;
            let wait = Span::from_nanos(world.random.below(400_000_000));
            world.after(wait, Event::Beat { gateway, life });
            world.after(wait, Event::Requests { gateway, life });
            world.after(wait, Event::Sweep { gateway, life });
        }
        world.after(Span::ZERO, Event::Turn);
        world
    }

    pub(crate) fn run(mut self) -> End {
        while let Some(Reverse((time, _, number))) = self.events.pop() {
            if time > self.ends {
                break;
            }
            self.now = time;
            if let Some(event) = self.queue[number].take() {
                self.happens(event);
            }
        }
        Self::ended(self.end, self.meter)
    }

    fn ended(mut end: End, meter: Meter) -> End {
        end.over = meter.over();
        end
    }

    fn after(&mut self, wait: Span, event: Event) {
        let number = self.queue.len();
        self.queue.push(Some(event));
        self.events.push(Reverse((self.now.plus(wait), number as u64, number)));
    }

    fn lives(&self, gateway: usize, life: u32) -> bool {
        self.gateways[gateway].life == life && self.gateways[gateway].is_up
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Requests { gateway, life } if self.lives(gateway, life) => {
                self.requests(gateway);
                self.after(self.run.step, Event::Requests { gateway, life });
            }
            Event::Beat { gateway, life } if self.lives(gateway, life) => {
                self.send(gateway, Call::Beat);
                self.after(Span::from_millis(500), Event::Beat { gateway, life });
            }
            Event::Sweep { gateway, life } if self.lives(gateway, life) => {
                let now = self.gateways[gateway].clock(self.now);
                for unspent in self.gateways[gateway].lease.reclaim(now) {
                    self.send(gateway, Call::Back(unspent));
                }
                self.after(Span::from_millis(100), Event::Sweep { gateway, life });
            }
            Event::AtStore { gateway, life, call, sent } => self.at_store(gateway, life, call, sent),
            Event::Answered { gateway, life, reply, sent } if self.lives(gateway, life) => {
                self.answered(gateway, reply, sent);
            }
            Event::Late { gateway, life, sent } if self.lives(gateway, life) => {
                self.gateways[gateway].late(sent);
            }
            Event::Starts { gateway } => {
                let clock = clock(&mut self.random, self.run.faults);
                let life = self.gateways[gateway].life + 1;
                self.gateways[gateway] = Gateway::new(self.now, clock);
                self.gateways[gateway].life = life;
                self.after(Span::ZERO, Event::Beat { gateway, life });
                self.after(Span::ZERO, Event::Requests { gateway, life });
                self.after(Span::ZERO, Event::Sweep { gateway, life });
            }
            Event::Turn => {
                self.turn();
                self.after(Span::from_millis(100), Event::Turn);
            }
            _ => {} // of a gateway that has crashed
        }
    }

    /// Loads change; gateways crash, and are cut off from the store.
    fn turn(&mut self) {
        let Faults { cut, crash, .. } = self.run.faults;
        // One gateway has most of the requests, another one each second; some pause.
        let favourite = (self.now.since(BEGIN).as_nanos() / 1_000_000_000) as usize % self.gateways.len();
        let all = self.gateways.len() as u64;
        let mut shares: Vec<u64> = match self.run.faults.restless {
            true => self.gateways.iter().map(|_| self.random.below(100)).collect(),
            false => (1..=all).map(|number| 100 / number).collect(),
        };
        shares[favourite] += 300;
        let sum: u64 = shares.iter().sum();
        // At times there are so few requests that buckets fill, while gateways hold tokens.
        if self.run.faults.restless && self.random.happens(250) {
            self.is_quiet = !self.is_quiet;
        }
        let per_step = self.per_step() * if self.is_quiet { 0.2 } else { 1.0 };
        for (gateway, share) in shares.into_iter().enumerate() {
            self.gateways[gateway].load = per_step * share as f64 / sum as f64;
            if self.random.happens(cut) {
                let millis = 50 + self.random.below(2_500);
                self.gateways[gateway].cut_until = self.now.plus(Span::from_millis(millis));
            }
            if self.gateways[gateway].is_up && self.random.happens(crash) {
                self.gateways[gateway].is_up = false;
                let millis = 10 + self.random.below(3_000);
                self.after(Span::from_millis(millis), Event::Starts { gateway });
            }
        }
    }

    fn per_step(&self) -> f64 {
        let rate = self.run.quota.rate().expect("it has a rate");
        self.run.load * rate.count() as f64 * self.run.step.as_nanos() as f64
            / rate.period().as_nanos() as f64
    }

    fn requests(&mut self, at: usize) {
        self.gateways[at].due += self.gateways[at].load;
        let count = self.gateways[at].due as u64;
        self.gateways[at].due -= count as f64;
        let is_settled = self.now >= self.settled;
        for _ in 0..count {
            self.end.asked_settled += u64::from(is_settled);
            let wanted = self.gateways[at].request(self.now, &self.terms);
            match wanted.admitted {
                true => self.admitted(1, true),
                false if wanted.exact => {
                    let waiting = std::mem::take(&mut self.gateways[at].waiting);
                    self.gateways[at].exact_in_flight = Some(self.now);
                    self.send(at, Call::Exact(waiting));
                }
                false => {}
            }
            if let Some(tokens) = wanted.tokens {
                self.send(at, Call::Tokens(tokens));
            }
        }
        let held: u64 =
            self.gateways.iter().filter(|gateway| gateway.is_up).map(|gateway| gateway.held(self.now)).sum();
        self.end.most_held = self.end.most_held.max(held);
    }

    fn admitted(&mut self, count: u64, leased: bool) {
        self.end.admitted += count;
        self.end.leased += if leased { count } else { 0 };
        if self.now >= self.settled {
            self.end.admitted_settled += count;
        }
        self.meter.admit(self.now, count);
        let rate = self.run.quota.rate().expect("it has a rate");
        let since = self.ends.since(self.settled).as_nanos();
        self.end.allowed_settled =
            (u128::from(since) * u128::from(rate.count()) / u128::from(rate.period().as_nanos())) as u64;
    }

    /// Sends a call, which arrives later, or never.
    fn send(&mut self, gateway: usize, call: Call) {
        let Faults { lost, slow, .. } = self.run.faults;
        self.end.calls += 1;
        self.end.calls_settled += u64::from(self.now >= self.settled);
        let (life, sent) = (self.gateways[gateway].life, self.now);
        if matches!(call, Call::Exact(_) | Call::Tokens(_)) {
            self.after(Span::from_millis(50), Event::Late { gateway, life, sent });
        }
        if self.random.happens(lost) || self.gateways[gateway].cut_until > self.now {
            return;
        }
        let wait = self.delay(slow);
        self.after(wait, Event::AtStore { gateway, life, call, sent });
    }

    fn delay(&mut self, slow: u64) -> Span {
        let usual = 50_000 + self.random.below(150_000);
        let slow = if self.random.happens(slow) { self.random.below(200_000_000) } else { 0 };
        Span::from_nanos(usual + slow)
    }

    fn at_store(&mut self, gateway: usize, life: u32, call: Call, sent: Time) {
        let reply = match call {
            Call::Exact(requests) => {
                let granted = self.store.requests(self.now, requests);
                Some(Reply::Exact(granted))
            }
            Call::Tokens(tokens) => Some(Reply::Tokens(self.store.tokens(self.now, tokens), tokens)),
            Call::Back(unspent) => {
                self.store.give_back(self.now, &unspent);
                None
            }
            Call::Beat => {
                let name = (gateway, life);
                Some(Reply::Beat(self.store.beat(self.now, name)))
            }
        };
        // Requests of an exact call count when the store has decided them, if somebody still waits for the answer.
        if let Some(reply) = reply {
            let Faults { lost, slow, .. } = self.run.faults;
            if self.random.happens(lost) || self.gateways[gateway].cut_until > self.now {
                return;
            }
            let wait = self.delay(slow);
            self.after(wait, Event::Answered { gateway, life, reply, sent });
        }
    }

    fn answered(&mut self, at: usize, reply: Reply, sent: Time) {
        let gateway = &mut self.gateways[at];
        match reply {
            Reply::Beat(count) => {
                let [sent, now] = [sent, self.now].map(|time| gateway.clock(time));
                gateway.membership.answered(sent, now, count);
            }
            Reply::Exact(granted) if gateway.exact_in_flight == Some(sent) => {
                gateway.exact_in_flight = None;
                gateway.learn(self.now, &granted);
                self.meter_at(granted.at, granted.admitted);
            }
            Reply::Tokens(granted, tokens) if gateway.tokens_in_flight == Some(sent) => {
                gateway.tokens_in_flight = None;
                gateway.granted(sent, self.now, &granted, tokens, &self.terms);
            }
            // Nobody waits any more: what was charged goes back.
            Reply::Exact(granted) | Reply::Tokens(granted, _) => {
                let charged = granted.admitted;
                if charged > 0 {
                    self.send(at, Call::Back(Return { tokens: charged, receipt: granted.receipt }));
                }
            }
        }
    }

    /// Requests that the store has decided at `at` are admitted then: it is the store's clock that counts.
    fn meter_at(&mut self, at: Time, count: u64) {
        let now = std::mem::replace(&mut self.now, at);
        self.admitted(count, false);
        self.now = now;
    }
}

/// By how much a gateway's clock is ahead, and how many millionths it is faster.
fn clock(random: &mut Random, faults: Faults) -> (u64, i64) {
    match faults.drift {
        true => (random.below(3_600_000_000_000), random.below(400) as i64 - 200),
        false => (0, 0),
    }
}
