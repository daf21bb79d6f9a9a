//! Which server of an upstream a request goes to.

use std::cell::Cell;
use std::rc::Rc;

use sluicegate_config::Balance;

/// A server has too many requests of a key when it has a quarter more than its share of all, in hundredths …
const BOUND: u64 = 125;
/// … but never below so many: few requests say nothing of a load.
const FEW: u64 = 4;

/// A server among others.
pub(super) struct Place {
    /// Its share.
    pub(super) weight: u64,
    /// Tells it from others, the same on every gateway.
    pub(super) identity: u64,
    /// Requests that this worker has there.
    pub(super) in_flight: Rc<Cell<u32>>,
    /// How much its turn is due.
    due: Cell<i64>,
}

/// Numbers that nobody has to guess right. Xorshift, one for each worker.
pub(super) struct Dice(Cell<u64>);

impl Place {
    pub(super) fn new(weight: u64, identity: u64, in_flight: Rc<Cell<u32>>) -> Self {
        Self { weight: weight.max(1), identity, in_flight, due: Cell::new(0) }
    }

    fn load(&self) -> u64 {
        u64::from(self.in_flight.get())
    }

    /// Whether it has less for its weight than another: a / b < c / d without a division.
    fn has_less(&self, other: &Self) -> bool {
        self.load() * other.weight < other.load() * self.weight
    }
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Cell::new(mixed(seed) | 1))
    }

    fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        ((u128::from(x) * u128::from(bound)) >> 64) as u64 // less than `bound`
    }
}

/// One of `fit`, which are indices into `places`; `None` if there is none. `key` is the hash of what requests are
/// kept together by, if this one has it.
pub(super) fn choose(
    balance: &Balance,
    places: &[Place],
    fit: &[usize],
    key: Option<u64>,
    dice: &Dice,
) -> Option<usize> {
    match (balance, key) {
        (_, _) if fit.len() <= 1 => fit.first().copied(),
        (Balance::RoundRobin, _) => turn(places, fit.iter().copied()),
        (Balance::LeastRequests, _) | (Balance::Hash(_), None) => least(places, fit),
        (Balance::Random, _) => one_of_two(places, fit, dice),
        (Balance::Hash(_), Some(key)) => by_key(places, fit, key),
    }
}

/// Smooth weighted round robin: 2:1 gives a b a a b a …, spread as evenly as it can be.
fn turn(places: &[Place], fit: impl Iterator<Item = usize>) -> Option<usize> {
    let (mut total, mut first) = (0, None::<usize>);
    for index in fit {
        let place = &places[index];
        place.due.set(place.due.get() + place.weight as i64); // weights are small
        total += place.weight as i64;
        if first.is_none_or(|first| places[first].due.get() < place.due.get()) {
            first = Some(index);
        }
    }
    let chosen = first?;
    places[chosen].due.set(places[chosen].due.get() - total);
    Some(chosen)
}

/// The one with the fewest requests for its weight; those that are equal take turns.
fn least(places: &[Place], fit: &[usize]) -> Option<usize> {
    let least = fit.iter().copied().reduce(|a, b| if places[b].has_less(&places[a]) { b } else { a })?;
    turn(places, fit.iter().copied().filter(|index| !places[least].has_less(&places[*index])))
}

/// Of two that are drawn by weight the one with fewer requests for its weight.
fn one_of_two(places: &[Place], fit: &[usize], dice: &Dice) -> Option<usize> {
    let draw = |but: Option<usize>| {
        let drawn = || fit.iter().copied().filter(|index| Some(*index) != but);
        let mut left = dice.below(drawn().map(|index| places[index].weight).sum());
        drawn().find(|index| {
            let weight = places[*index].weight;
            let found = left < weight;
            left = left.saturating_sub(weight);
            found
        })
    };
    let first = draw(None)?;
    let second = draw(Some(first))?;
    Some(if places[second].has_less(&places[first]) { second } else { first })
}

/// Weighted rendezvous hashing: every server draws a number for the key, the highest has it. So a server that goes
/// takes only its own keys along. A server above its bound is passed over.
fn by_key(places: &[Place], fit: &[usize], key: u64) -> Option<usize> {
    let (mut load, mut weight) = (1, 0);
    for place in fit.iter().map(|index| &places[*index]) {
        load += place.load();
        weight += place.weight;
    }
    let has_room = |place: &Place| {
        let bound = (BOUND * load * place.weight).div_ceil(100 * weight);
        place.load() < bound.max(FEW)
    };
    let score = |place: &Place| {
        let drawn = mixed(key ^ place.identity) >> 11; // as many bits as a f64 holds
        let drawn = (drawn as f64 + 0.5) / (1_u64 << 53) as f64;
        -(place.weight as f64) / drawn.ln()
    };
    let best = |all: &mut dyn Iterator<Item = usize>| {
        let scored = all.map(|index| (score(&places[index]), index));
        scored.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, index)| index)
    };
    best(&mut fit.iter().copied().filter(|index| has_room(&places[*index])))
        .or_else(|| best(&mut fit.iter().copied()))
}

/// A number with no likeness to `number` (SplitMix64's last step).
pub(super) fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use sluicegate_config::{KeySpec, Part};

    fn places(weights: &[u64]) -> Vec<Place> {
        let place = |(at, weight): (usize, &u64)| Place::new(*weight, mixed(at as u64), Rc::default());
        weights.iter().enumerate().map(place).collect()
    }

    fn all(places: &[Place]) -> Vec<usize> {
        (0..places.len()).collect()
    }

    fn hash() -> Balance {
        Balance::Hash(KeySpec::new(vec![vec![Part::Ip]]))
    }

    /// How many of some requests each gets; `stay` if they do not end meanwhile.
    fn spread(balance: &Balance, weights: &[u64], count: u64, stay: bool) -> Vec<u32> {
        let (places, dice) = (places(weights), Dice::new(7));
        let mut spread = vec![0; weights.len()];
        for key in 0..count {
            let chosen = choose(balance, &places, &all(&places), Some(mixed(key)), &dice).unwrap();
            spread[chosen] += 1;
            if stay {
                places[chosen].in_flight.set(places[chosen].in_flight.get() + 1);
            }
        }
        spread
    }

    #[test]
    fn turns_follow_the_weights() {
        let turns = |weights: &[u64], count: usize| -> Vec<usize> {
            let places = places(weights);
            (0..count).map(|_| turn(&places, 0..weights.len()).unwrap()).collect()
        };
        assert_eq!(turns(&[1], 2), [0, 0]);
        assert_eq!(turns(&[1, 1], 4), [0, 1, 0, 1]);
        assert_eq!(turns(&[2, 1], 6), [0, 1, 0, 0, 1, 0]);
        assert_eq!(turns(&[200, 100], 3), [0, 1, 0]);
        assert_eq!(turns(&[5, 1, 1], 7), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn all_ways_follow_the_weights() {
        assert_eq!(spread(&Balance::RoundRobin, &[3, 1], 400, false), [300, 100]);
        assert_eq!(spread(&Balance::LeastRequests, &[3, 1], 400, false), [300, 100]);
        assert_eq!(spread(&Balance::LeastRequests, &[3, 1], 400, true), [300, 100]);
        // The better of two is nearly always the one with fewer, so what stays is spread by weight.
        let random = spread(&Balance::Random, &[3, 1, 1], 5_000, true);
        assert!((2_900..=3_100).contains(&random[0]), "{random:?}");
        let keys = spread(&hash(), &[3, 1], 40_000, false);
        assert!((29_300..=30_700).contains(&keys[0]), "{keys:?}");
    }

    #[test]
    fn the_least_loaded_is_asked() {
        let (places, dice) = (places(&[1, 1, 2]), Dice::new(1));
        for (place, load) in places.iter().zip([2, 1, 3]) {
            place.in_flight.set(load);
        }
        let fit = all(&places);
        assert_eq!(choose(&Balance::LeastRequests, &places, &fit, None, &dice), Some(1));
        assert_eq!(choose(&hash(), &places, &fit, None, &dice), Some(1), "without a key");
        assert_eq!(choose(&Balance::LeastRequests, &places, &[0, 2], None, &dice), Some(2));
        assert_eq!(choose(&Balance::Random, &places, &[0, 1], None, &dice), Some(1));
        assert_eq!(choose(&Balance::Random, &places, &[], None, &dice), None);
    }

    proptest! {
        /// A server that goes takes only its own keys along, and a key that stays is where it was.
        #[test]
        fn a_server_that_goes_moves_only_its_own_keys(
            weights in prop::collection::vec(1_u64..20, 2..12), gone in 0_usize..12, seed: u64,
        ) {
            let (places, dice) = (places(&weights), Dice::new(1));
            let gone = gone % weights.len();
            let (before, after): (Vec<_>, Vec<_>) = (all(&places), all(&places).into_iter().filter(|i| *i != gone).collect());
            for key in (0..200).map(|key| mixed(seed ^ key)) {
                let was = choose(&hash(), &places, &before, Some(key), &dice).unwrap();
                let is = choose(&hash(), &places, &after, Some(key), &dice).unwrap();
                prop_assert!(was == gone || was == is);
            }
        }

        /// Nobody has much more than its share, even if all requests have the same key.
        #[test]
        fn no_key_overloads_a_server(weights in prop::collection::vec(1_u64..5, 2..8), key: u64, count in 1_u64..500) {
            let (places, dice) = (places(&weights), Dice::new(1));
            for _ in 0..count {
                let chosen = choose(&hash(), &places, &all(&places), Some(key), &dice).unwrap();
                places[chosen].in_flight.set(places[chosen].in_flight.get() + 1);
            }
            let total: u64 = weights.iter().sum();
            for place in &places {
                let bound = (count * place.weight * BOUND).div_ceil(100 * total).max(FEW);
                prop_assert!(place.load() <= bound, "{} of {count}, at most {bound}", place.load());
            }
        }
    }
}
