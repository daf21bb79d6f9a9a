//! What a request is told: whether its consumer stays within the fair share.

use std::collections::HashMap;

use sluicegate_limiter::{Span, Time};

use crate::level::level;
use crate::table::{Entry, Table};

/// How often the level is computed.
pub const TICK: Span = Span::from_millis(100);
/// Millionths.
const MILLION: u64 = 1_000_000;
/// The level divides this part of the capacity, so that what is shared fills up again after a burst of small consumers.
/// The rest is for whoever comes while much is left.
const DIVIDED: (u64, u64) = (31, 32);
/// The part of a demand that is kept at each tick; the rest is what was asked for since the last one. Demands are averages of about
/// two seconds: over a shorter time, random arrivals look like more than the share of a consumer that is near it.
const KEPT: f64 = 0.95;
/// The same for averages of less than half a second, which count if they are so many times as large: somebody has begun to ask for much.
const KEPT_LATEST: f64 = 0.75;
const SUDDEN: u64 = 3;
/// The late costs over which the average goes, about.
const SMOOTHED: u64 = 8;
/// The consumers that a gateway reports to the others by name.
const REPORTED: usize = 64;

/// A consumer as one process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// A hash that nobody outside can foresee.
    pub key: u64,
    /// Its weight.
    pub weight: u32,
}

/// What a request is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its consumer stays within the fair share, from which this was taken.
    Within(Taken),
    /// Its consumer has used up the fair share, and has enough for the request again after this time.
    Above(Span),
}

/// The part of what is shared that has to be left for a request, as a divisor: see [`Answer::left`].
const LEFT_ABOVE: u64 = 2;
const LEFT_WITHIN: u64 = 4;

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// This, as is known before.
    Known(u64),
    /// At least this, and what [`Shares::settle`] is told in the end. Until then it counts as what requests of its consumer have cost
    /// so far.
    Late(u64),
}

/// A request whose cost is known late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    key: u64,
    /// What it counts as, until its cost is known.
    counted: u64,
    /// The millionths of tokens that were taken for it.
    tokens: i64,
}

/// What a request has taken of the share of its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    key: u64,
    tokens: i64,
    /// What its consumer asks for.
    pub demand: Demand,
}

/// What a consumer asks for, beside its fair share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Not more than the share.
    Below,
    /// More, but not clearly: of several processes each measures it with few requests.
    Near,
    /// More than four times the share.
    Far,
}

/// What the consumers of one process ask for, as it tells the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Those that ask for the most: the name, the demand in millionths of a token per second, and the weight.
    pub heavy: Vec<(u64, u64, u32)>,
    /// The sum of all other demands, in the same unit.
    pub light: u64,
}

/// A consumer that asks for more than this many times its share clearly asks for more.
const CLEARLY: u64 = 4;

/// What operators are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The fair share of a weight of one, in millionths of a token per second; `None` if there is enough for all.
    pub level: Option<u64>,
    /// The consumers, or hashes of consumers, that ask for anything.
    pub consumers: usize,
}

/// The fair shares of one capacity.
#[derive(Clone, Debug)]
pub struct Shares {
    table: Table,
    level: Option<u64>,
    ticked: Time,
    /// The capacity that the last request asked with: a rule may have changed that of the file.
    capacity: Option<u64>,
    others: Vec<Reported>,
}

impl Answer {
    /// What has to be left of a shared bucket of this size after the request, if it is to be admitted: nothing for consumers that ask
    /// for less than their share, a quarter for others within their share, and half for those above it, so that what nobody
    /// else wants is not lost.
    pub fn left(&self, size: u64) -> u64 {
        match self {
            Self::Within(taken) if taken.demand == Demand::Below => 0,
            Self::Within(_) => size / LEFT_WITHIN,
            Self::Above(_) => size / LEFT_ABOVE,
        }
    }
}

impl Entry {
    /// The size of its bucket: its whole share of one second, because any process may get several of its requests at once, and one
    /// request at least.
    fn size(&self) -> i64 {
        i64::try_from(self.share.max(MILLION)).unwrap_or(i64::MAX / 2)
    }

    fn beside_share(&self) -> Demand {
        match self.demand.saturating_add(self.elsewhere) {
            demand if demand <= self.share => Demand::Below,
            demand if demand / CLEARLY <= self.share => Demand::Near,
            _ => Demand::Far,
        }
    }

    fn refill(&mut self, now: Time) {
        let elapsed = u128::from(now.since(self.at).as_nanos());
        let refilled = i64::try_from(elapsed * u128::from(self.rate) / 1_000_000_000).unwrap_or(i64::MAX / 2);
        // What is less than a millionth of a token comes with the next refill.
        if refilled > 0 {
            self.tokens = self.tokens.saturating_add(refilled).min(self.size());
            self.at = now;
        }
    }

    /// What a request counts as.
    fn counted(&self, cost: Cost) -> u64 {
        match cost {
            Cost::Known(cost) => cost,
            Cost::Late(least) => least.max(self.late),
        }
    }

    fn take(&mut self, now: Time, cost: u64) -> Result<i64, Span> {
        self.refill(now);
        let cost = millionths(cost);
        // What costs more than the bucket holds goes when it is full, and is paid off afterwards.
        let lacking = cost.min(self.size()).saturating_sub(self.tokens);
        if lacking <= 0 {
            self.tokens -= cost;
            return Ok(cost);
        }
        let nanos = u128::from(lacking.unsigned_abs()) * 1_000_000_000 / u128::from(self.rate.max(1));
        Err(Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(Span::from_secs(3_600)))
    }
}

impl Shares {
    /// Nobody has asked for anything.
    pub fn new(now: Time) -> Self {
        Self { table: Table::default(), level: None, ticked: now, capacity: None, others: Vec::new() }
    }

    /// A request of this cost comes, of a capacity in millionths of a token per second. `name` is called for a consumer that is not
    /// known: a hash of it that is the same in all processes.
    pub fn ask(
        &mut self,
        now: Time,
        capacity: u64,
        consumer: Consumer,
        cost: Cost,
        name: impl FnOnce() -> u64,
    ) -> Answer {
        self.capacity = Some(capacity);
        if now.since(self.ticked) >= TICK {
            self.tick(now, capacity);
        }
        let Consumer { key, weight } = consumer;
        let level = self.level;
        let entry = self.table.entry(key, || {
            let rate = level.map_or(0, |level| level.saturating_mul(weight.into()));
            let mut entry =
                Entry { name: name().max(1), weight, share: rate, rate, at: now, ..Entry::default() };
            entry.tokens = entry.size();
            entry
        });
        entry.weight = weight;
        let cost = entry.counted(cost);
        entry.asked = entry.asked.saturating_add(cost);
        if level.is_none() {
            return Answer::Within(Taken { key, tokens: 0, demand: Demand::Below });
        }
        let demand = entry.beside_share();
        match entry.take(now, cost) {
            Ok(tokens) => Answer::Within(Taken { key, tokens, demand }),
            Err(wait) => Answer::Above(wait),
        }
    }

    /// What a request would be told now. Nothing is taken, and nothing counts as asked for.
    pub fn preview(&mut self, now: Time, consumer: Consumer, cost: Cost) -> Answer {
        let Consumer { key, .. } = consumer;
        let within = |tokens, demand| Answer::Within(Taken { key, tokens, demand });
        match self.table.find(key).filter(|_| self.level.is_some()) {
            None => within(0, Demand::Below),
            Some(entry) => {
                let demand = entry.beside_share();
                let cost = entry.counted(cost);
                entry.clone().take(now, cost).map_or_else(Answer::Above, |tokens| within(tokens, demand))
            }
        }
    }

    /// Gives back what a request has taken that was refused for another reason.
    pub fn give_back(&mut self, taken: Taken) {
        if let Some(entry) = self.table.find(taken.key) {
            entry.tokens = entry.tokens.saturating_add(taken.tokens).min(entry.size());
        }
    }

    /// What a request counts as whose cost is known late: least at least. `answer` is what it was told.
    pub fn reserved(&mut self, consumer: Consumer, least: u64, answer: &Answer) -> Reserved {
        let key = consumer.key;
        let counted = self.table.find(key).map_or(least, |entry| entry.counted(Cost::Late(least)));
        let tokens = match answer {
            Answer::Within(taken) => taken.tokens,
            Answer::Above(_) => 0,
        };
        Reserved { key, counted, tokens }
    }

    /// The request has ended, and its cost is known.
    pub fn settle(&mut self, reserved: Reserved, cost: u64) {
        let is_divided = self.level.is_some();
        let Some(entry) = self.table.find(reserved.key) else { return };
        entry.asked = entry.asked.saturating_add(cost).saturating_sub(reserved.counted);
        if is_divided {
            let tokens = entry.tokens.saturating_add(reserved.tokens).saturating_sub(millionths(cost));
            entry.tokens = tokens.min(entry.size());
        }
        entry.late = match entry.late {
            0 => cost,
            late => late - late / SMOOTHED + cost / SMOOTHED,
        };
    }

    /// Computes the level, if it is time; for when no request comes. The capacity is that of the last request, or else this one.
    pub fn look(&mut self, now: Time, capacity: u64) -> Standing {
        if now.since(self.ticked) >= TICK {
            self.tick(now, self.capacity.unwrap_or(capacity));
        }
        Standing { level: self.level, consumers: self.table.len() }
    }

    fn tick(&mut self, now: Time, capacity: u64) {
        let elapsed = now.since(self.ticked).as_nanos();
        self.ticked = now;
        let ticks = i32::try_from(elapsed / TICK.as_nanos()).unwrap_or(i32::MAX).min(1_000);
        for entry in self.table.all() {
            let asked = u128::from(std::mem::take(&mut entry.asked)) * u128::from(MILLION) * 1_000_000_000;
            let asked = (asked / u128::from(elapsed.max(1))) as f64;
            let averaged = |before: u64, kept: f64| {
                let kept = kept.powi(ticks);
                (before as f64 * kept + asked * (1.0 - kept)) as u64
            };
            entry.usual = averaged(entry.usual, KEPT);
            entry.latest = averaged(entry.latest, KEPT_LATEST);
            let is_sudden = entry.latest / SUDDEN > entry.usual;
            entry.demand = if is_sudden { entry.latest } else { entry.usual };
        }
        let processes = 1 + self.others.len() as u64;
        let mut elsewhere: HashMap<u64, (u64, u32)> = HashMap::new();
        let mut left = capacity / DIVIDED.1 * DIVIDED.0;
        for other in &self.others {
            left = left.saturating_sub(other.light);
            for (name, demand, weight) in &other.heavy {
                elsewhere.entry(*name).or_insert((0, *weight)).0 += demand;
            }
        }
        let of_others = |name: u64| elsewhere.get(&name).map_or(0, |(demand, _)| *demand);
        let mut demands: Vec<(u64, u32)> = Vec::new();
        let mut here: Vec<u64> = Vec::new();
        for entry in self.table.all() {
            demands.push((entry.demand.saturating_add(of_others(entry.name)), entry.weight));
            here.push(entry.name);
        }
        here.sort_unstable();
        let not_here = elsewhere.iter().filter(|(name, _)| here.binary_search(name).is_err());
        demands.extend(not_here.map(|(_, demand)| *demand));
        let before = std::mem::replace(&mut self.level, level(left, &mut demands));
        if let Some(level) = self.level {
            for entry in self.table.all() {
                entry.share = level.saturating_mul(entry.weight.into());
                entry.elsewhere = of_others(entry.name);
                let rate = part(entry.share, entry.demand, entry.elsewhere, processes);
                entry.refill(now);
                entry.rate = rate;
                entry.tokens = match before {
                    Some(_) => entry.tokens.min(entry.size()),
                    None if entry.demand <= rate => entry.size(),
                    None => 0, // it has had more than its share until now
                };
                entry.at = now;
            }
        }
        self.table.clean();
    }

    /// What the other processes report.
    pub fn set_others(&mut self, others: Vec<Reported>) {
        self.others = others;
    }

    /// What to tell the other processes.
    pub fn report(&mut self) -> Reported {
        let mut heavy: Vec<(u64, u64, u32)> = Vec::new();
        let mut light = 0_u64;
        for entry in self.table.all() {
            match entry.name {
                0 => light = light.saturating_add(entry.demand),
                name => heavy.push((name, entry.demand, entry.weight)),
            }
        }
        heavy.sort_unstable_by_key(|(_, demand, _)| std::cmp::Reverse(*demand));
        let rest = heavy.split_off(heavy.len().min(REPORTED));
        light = rest.iter().fold(light, |light, (_, demand, _)| light.saturating_add(*demand));
        Reported { heavy, light }
    }
}

fn millionths(tokens: u64) -> i64 {
    i64::try_from(tokens.saturating_mul(MILLION)).unwrap_or(i64::MAX / 2)
}

/// What one of several processes may give a consumer of its share, if so much is asked for here and at the others.
fn part(share: u64, here: u64, others: u64, processes: u64) -> u64 {
    let total = here.saturating_add(others);
    let fair = match share.checked_sub(total) {
        // There is enough: what is left may be asked for anywhere.
        Some(left) => here + left / processes,
        None => (u128::from(share) * u128::from(here) / u128::from(total.max(1))) as u64,
    };
    // A consumer may turn to another process at any time.
    fair.max(if processes > 1 { share / (4 * processes) } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(1_795_000_000_000_000_000);
    const C: u64 = 100 * MILLION;

    fn ask(shares: &mut Shares, millis: u64, key: u64, weight: u32) -> bool {
        let now = NOW.plus(Span::from_millis(millis));
        matches!(shares.ask(now, C, Consumer { key, weight }, Cost::Known(1), || key), Answer::Within(_))
    }

    /// Two that ask for ten times the capacity each, one with three times the weight.
    #[test]
    fn weights_divide_the_capacity() {
        let mut shares = Shares::new(NOW);
        let mut admitted = [0_u32; 2];
        for milli in 0..20_000 {
            for (at, weight) in [(0, 1), (1, 3)] {
                let within = ask(&mut shares, milli, at as u64 + 1, weight);
                admitted[at] += u32::from(within && milli >= 10_000);
            }
        }
        // 31/32 of 100 tokens a second, for 10 s.
        assert!(admitted[0].abs_diff(242) <= 3 && admitted[1].abs_diff(727) <= 8, "{admitted:?}");
    }

    #[test]
    fn without_shortage_nobody_is_held_back() {
        let mut shares = Shares::new(NOW);
        assert!((0..5_000).all(|milli| milli % 11 != 0 || ask(&mut shares, milli, 1, 1)));
        assert_eq!(shares.look(NOW.plus(Span::from_secs(6)), C), Standing { level: None, consumers: 1 });
        assert_eq!(shares.look(NOW.plus(Span::from_secs(600)), C).consumers, 0);
    }

    /// A rule may have changed the rate of the file.
    #[test]
    fn a_look_divides_what_the_last_request_asked_for() {
        let mut shares = Shares::new(NOW);
        for milli in 0..1_000 {
            ask(&mut shares, milli, 1, 1);
            let now = NOW.plus(Span::from_millis(milli));
            shares.look(now, 1_000 * C);
        }
        let standing = shares.look(NOW.plus(Span::from_millis(1_100)), 1_000 * C);
        assert!(standing.level.is_some_and(|level| level < C), "{standing:?}");
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut shares = Shares::new(NOW);
        (0..1_000).for_each(|milli| _ = ask(&mut shares, milli, 1, 1));
        let (now, one) = (NOW.plus(Span::from_millis(1_050)), Consumer { key: 1, weight: 1 });
        let Answer::Within(taken) = shares.ask(now, C, one, Cost::Known(1), || 1) else {
            panic!("nothing is left")
        };
        while let Answer::Within(_) = shares.ask(now, C, one, Cost::Known(1), || 1) {}
        shares.give_back(taken);
        assert!(matches!(shares.ask(now, C, one, Cost::Known(1), || 1), Answer::Within(_)));
    }

    #[test]
    fn processes_divide_a_share_by_what_is_asked_for_there() {
        assert_eq!(part(100, 50, 150, 4), 25);
        assert_eq!(part(100, 10, 10, 4), 30); // 80 are left
        assert_eq!(part(100, 0, 900, 4), 6); // it may come here
        assert_eq!(part(100, 900, 0, 1), 100);
        assert_eq!(part(100, 100, 200, 1), 33);
    }

    #[test]
    fn a_report_names_the_heaviest() {
        let mut shares = Shares::new(NOW);
        for milli in 0..100 {
            for key in 1..=70 {
                for _ in 0..(if key == 70 { 3 } else { 1 }) {
                    ask(&mut shares, milli, key, 1);
                }
            }
        }
        shares.look(NOW.plus(Span::from_millis(100)), C);
        let report = shares.report();
        assert_eq!((report.heavy.len(), report.heavy[0].0, report.heavy[0].1), (64, 70, 750 * MILLION));
        assert_eq!(report.light, 6 * 250 * MILLION);
    }
}
