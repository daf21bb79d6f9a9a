//! Requests by consumer: those with the most traffic by name, all others together, however many there are.
//!
//! Each worker has a table of bounded size that keeps the most frequent names (Space-Saving: Metwally, Agrawal, El Abbadi,
//! "Efficient computation of frequent and top-k elements in data streams", 2005). A scrape takes the counts out of the tables
//! and adds them to those it has shown before, so that no series and no sum ever decreases.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate_base::named_enum::named_enum;

named_enum! {
    /// What became of a request of a consumer.
    ConsumerOutcome {
        /// It was answered by the upstream or by the route.
        Answered = "answered",
        /// A limit or a ban refused it.
        Refused = "refused",
        /// The gateway answered with another error, the client left, or the answer was cut.
        Failed = "failed",
    }
}

/// The longest name; longer ones are cut.
const LONGEST: usize = 128;
/// The label of all consumers that are not shown by name.
const OTHER: &str = "other";
/// After so many requests of a worker its ranks are halved, so that traffic of long ago counts for less.
const HALVED_AFTER: u32 = 1 << 20;

type Counts = [u64; ConsumerOutcome::ALL.len()];

/// The requests of one worker by consumer.
#[derive(Debug)]
pub struct ConsumerCounts(Mutex<Table>);

/// The place of a consumer in the table of a worker, for a request that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    index: u32,
    /// How many names had the place before.
    turn: u32,
}

#[derive(Debug, Default)]
struct Table {
    places: Vec<Place>,
    by_name: HashMap<Box<str>, u32>,
    capacity: usize,
    /// Requests of consumers that have lost their place before the requests ended.
    rest: Counts,
    since_halved: u32,
}

#[derive(Debug)]
struct Place {
    name: Box<str>,
    turn: u32,
    /// At least the number of its requests.
    rank: u64,
    /// Since they were taken out.
    counts: Counts,
}

/// The requests of all workers by consumer, as they are shown.
#[derive(Debug, Default)]
pub(super) struct Consumers {
    most: usize,
    workers: BTreeMap<usize, Arc<ConsumerCounts>>,
    /// Tables of other sizes, in which requests that are in flight will be counted.
    retired: Vec<Arc<ConsumerCounts>>,
    shown: BTreeMap<Box<str>, Counts>,
    rest: Counts,
}

impl ConsumerCounts {
    fn new(capacity: usize) -> Self {
        Self(Mutex::new(Table { capacity, ..Table::default() }))
    }

    /// Finds or makes the place of a consumer.
    pub fn enter(&self, name: &str) -> Seat {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).enter(cut(name))
    }

    /// Counts a request that has ended.
    pub fn count(&self, seat: Seat, outcome: ConsumerOutcome) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = &mut *table;
        let place = table.places.get_mut(seat.index as usize).filter(|place| place.turn == seat.turn);
        place.map_or(&mut table.rest, |place| &mut place.counts)[outcome as usize] += 1;
    }
}

impl Table {
    fn enter(&mut self, name: &str) -> Seat {
        self.since_halved += 1;
        if self.since_halved >= HALVED_AFTER {
            self.since_halved = 0;
            self.places.iter_mut().for_each(|place| place.rank /= 2);
        }
        if let Some(index) = self.by_name.get(name) {
            let place = &mut self.places[*index as usize];
            place.rank += 1;
            return Seat { index: *index, turn: place.turn };
        }
        let (index, turn, rank) = if self.places.len() < self.capacity {
            self.places.push(Place { name: Box::default(), turn: 0, rank: 0, counts: Counts::default() });
            (self.places.len() - 1, 0, 1)
        } else {
            let lowest = self.places.iter().enumerate().min_by_key(|(_, place)| place.rank);
            let Some((index, place)) = lowest else { return Seat { index: u32::MAX, turn: 0 } };
            self.by_name.remove(&place.name);
            (index, place.turn.wrapping_add(1), place.rank + 1)
        };
        let place = &mut self.places[index];
        add(&mut self.rest, &std::mem::take(&mut place.counts));
        (place.name, place.turn, place.rank) = (name.into(), turn, rank);
        let index = index as u32; // there are some thousands at most
        self.by_name.insert(name.into(), index);
        Seat { index, turn }
    }

    /// Takes all counts out.
    fn take(&mut self, mut each: impl FnMut(&str, u64, Counts)) -> Counts {
        for place in &mut self.places {
            each(&place.name, place.rank, std::mem::take(&mut place.counts));
        }
        std::mem::take(&mut self.rest)
    }
}

impl Consumers {
    /// Shows so many by name from now on; none turns the figures off.
    pub(super) fn show(&mut self, most: usize) {
        if most == self.most {
            return;
        }
        self.update();
        self.most = most;
        self.retired.extend(std::mem::take(&mut self.workers).into_values());
    }

    /// The table of a worker; `None` if there are no figures by consumer.
    pub(super) fn worker(&mut self, worker: usize) -> Option<Arc<ConsumerCounts>> {
        let capacity = self.most * 2 + 64; // with more places than are shown, those who are shown are certain
        let table = || Arc::new(ConsumerCounts::new(capacity));
        (self.most > 0).then(|| Arc::clone(self.workers.entry(worker).or_insert_with(table)))
    }

    /// All series: consumer, outcome, count.
    pub(super) fn rows(&mut self) -> Vec<(Vec<String>, u64)> {
        if self.most == 0 {
            return Vec::new();
        }
        self.update();
        let mut series: BTreeMap<&str, Counts> =
            self.shown.iter().map(|(name, counts)| (&**name, *counts)).collect();
        add(series.entry(OTHER).or_default(), &self.rest);
        let row = |(name, counts): (&str, Counts)| {
            let name = name.to_owned();
            ConsumerOutcome::NAMES
                .iter()
                .zip(counts)
                .map(move |(outcome, count)| (vec![name.clone(), (*outcome).to_owned()], count))
        };
        series.into_iter().flat_map(row).collect()
    }

    /// Takes the counts out of the tables, and decides who is shown.
    fn update(&mut self) {
        let mut taken: HashMap<Box<str>, (u64, Counts)> = HashMap::new();
        // Decided before the counts are taken: then nobody counts in those that go.
        let idle: Vec<_> = self.retired.iter().map(|table| Arc::strong_count(table) == 1).collect();
        for table in self.workers.values().chain(&self.retired) {
            let mut table = table.0.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = table.take(|name, rank, counts| {
                let (ranks, all) = taken.entry(name.into()).or_default();
                *ranks += rank;
                add(all, &counts);
            });
            add(&mut self.rest, &rest);
        }
        let mut idle = idle.into_iter();
        self.retired.retain(|_| !idle.next().unwrap_or_default());
        let mut ranked: Vec<(u64, Box<str>)> = Vec::new();
        for (name, counts) in &mut self.shown {
            let (rank, more) = taken.remove(name).unwrap_or_default();
            add(counts, &more);
            ranked.push((rank, name.clone()));
        }
        ranked.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        while ranked.len() > self.most {
            self.hide(&ranked.pop().unwrap_or_default().1);
        }
        let mut candidates: Vec<_> = taken.into_iter().collect();
        candidates
            .sort_unstable_by(|(name, (rank, _)), (other, (others, _))| (others, name).cmp(&(rank, other)));
        for (name, (rank, counts)) in candidates {
            let lowest = ranked.last().map_or(0, |(rank, _)| *rank);
            if ranked.len() >= self.most {
                // Who is shown stays until somebody has clearly more traffic, so that series do not come and go.
                if self.most == 0 || rank <= lowest.saturating_add(lowest / 4) {
                    add(&mut self.rest, &counts);
                    continue;
                }
                self.hide(&ranked.pop().unwrap_or_default().1);
                let at = ranked.partition_point(|(other, _)| *other >= rank);
                ranked.insert(at, (rank, name.clone()));
            } else {
                ranked.push((rank, name.clone()));
            }
            self.shown.insert(name, counts);
        }
    }

    /// From now on this consumer is among the others.
    fn hide(&mut self, name: &str) {
        add(&mut self.rest, &self.shown.remove(name).unwrap_or_default());
    }
}

fn add(sum: &mut Counts, more: &Counts) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// A name that is not longer than allowed.
fn cut(name: &str) -> &str {
    let end = (0..=LONGEST.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(rows: &[(Vec<String>, u64)], name: &str) -> u64 {
        rows.iter().filter(|(labels, _)| labels[0] == name).map(|(_, count)| count).sum()
    }

    fn request(table: &ConsumerCounts, name: &str, outcome: ConsumerOutcome) {
        table.count(table.enter(name), outcome);
    }

    #[test]
    fn consumers_are_shown_by_name_and_outcome() {
        let mut consumers = Consumers::default();
        assert!(consumers.worker(0).is_none() && consumers.rows().is_empty());
        consumers.show(2);
        let (one, two) = (consumers.worker(0).unwrap(), consumers.worker(1).unwrap());
        for (table, name, count) in
            [(&one, "acme", 5), (&two, "acme", 3), (&one, "bolt", 4), (&two, "corp", 1)]
        {
            (0..count).for_each(|_| request(table, name, ConsumerOutcome::Answered));
        }
        request(&one, "acme", ConsumerOutcome::Refused);
        let rows = consumers.rows();
        assert_eq!((of(&rows, "acme"), of(&rows, "bolt"), of(&rows, "other")), (9, 4, 1));
        assert!(rows.contains(&(vec!["acme".into(), "refused".into()], 1)), "{rows:?}");
        assert_eq!(consumers.rows(), rows, "a scrape changes nothing");
        (0..50).for_each(|_| request(&two, "corp", ConsumerOutcome::Failed));
        let rows = consumers.rows();
        assert_eq!(
            (of(&rows, "corp"), of(&rows, "bolt"), of(&rows, "other")),
            (50, 0, 5),
            "corp has more traffic"
        );
        consumers.show(1);
        assert_eq!(consumers.rows().iter().map(|(_, count)| count).sum::<u64>(), 64);
        let long = "ä".repeat(100);
        assert_eq!(cut(&long).len(), LONGEST);
    }

    #[test]
    fn a_request_of_a_consumer_that_lost_its_place_is_counted_with_the_others() {
        let mut consumers = Consumers::default();
        consumers.show(1);
        let table = consumers.worker(0).unwrap();
        let seat = table.enter("early");
        (0..1_000).for_each(|number| request(&table, &format!("c{number}"), ConsumerOutcome::Answered));
        table.count(seat, ConsumerOutcome::Answered);
        assert_eq!(consumers.rows().iter().map(|(_, count)| count).sum::<u64>(), 1_001);
    }

    proptest! {
        /// The sum of all series is the number of requests, no series decreases while it is shown, the others never do, and
        /// who has more than its share of all requests is shown.
        #[test]
        fn nothing_is_lost(
            names in proptest::collection::vec(0..400_u32, 1..3_000),
            heavy in 0..400_u32,
            most in 1..5_usize,
            every in 50..500_usize,
        ) {
            let mut consumers = Consumers::default();
            consumers.show(most);
            let tables = [consumers.worker(0).unwrap(), consumers.worker(1).unwrap()];
            let mut before: BTreeMap<String, u64> = BTreeMap::new();
            let mut sent = 0;
            for (turn, name) in names.iter().enumerate() {
                for name in [*name, heavy] {
                    request(&tables[turn % 2], &name.to_string(), ConsumerOutcome::Answered);
                    sent += 1;
                }
                if turn % every == 0 {
                    let rows = consumers.rows();
                    prop_assert_eq!(rows.iter().map(|(_, count)| count).sum::<u64>(), sent);
                    let mut now: BTreeMap<String, u64> = BTreeMap::new();
                    rows.iter().for_each(|(labels, count)| *now.entry(labels[0].clone()).or_default() += count);
                    prop_assert!(now.len() <= most + 1);
                    for (name, count) in &now {
                        prop_assert!(before.get(name).is_none_or(|before| before <= count), "{} decreases", name);
                    }
                    before = now;
                }
            }
            let rows = consumers.rows();
            prop_assert_eq!(rows.iter().map(|(_, count)| count).sum::<u64>(), sent);
            prop_assert!(names.len() < 50 || of(&rows, &heavy.to_string()) > 0, "the heaviest is not shown");
        }
    }
}
