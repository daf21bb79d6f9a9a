//! Load balancing: chooses the endpoint for a request.

use std::cell::Cell;
use std::rc::Rc;

use sluicegate_config::Balance;

/// Consistent hashing with bounded loads: the most requests of an endpoint, in percent of its share.
const LOAD_BOUND: u64 = 125;
/// The smallest bound, in requests.
const MIN_BOUND: u64 = 4;

/// An endpoint with what the choice depends on.
pub(super) struct Candidate {
    pub(super) weight: u64,
    /// See `EndpointState::identity`.
    pub(super) identity: u64,
    /// Requests in flight from this worker.
    pub(super) in_flight: Rc<Cell<u32>>,
    /// The state of smooth weighted round robin.
    current_weight: Cell<i64>,
}

/// Random numbers that may be predictable (xorshift).
pub(super) struct RandomSource(Cell<u64>);

impl Candidate {
    pub(super) fn new(weight: u64, identity: u64, in_flight: Rc<Cell<u32>>) -> Self {
        Self { weight: weight.max(1), identity, in_flight, current_weight: Cell::new(0) }
    }

    fn load(&self) -> u64 {
        u64::from(self.in_flight.get())
    }

    /// Whether it has fewer requests per weight than another. Compares without a division.
    fn is_less_loaded(&self, other: &Self) -> bool {
        self.load() * other.weight < other.load() * self.weight
    }
}

impl RandomSource {
    pub(super) fn new(seed: u64) -> Self {
        Self(Cell::new(mix(seed) | 1))
    }

    /// A number below `bound`.
    fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        ((u128::from(x) * u128::from(bound)) >> 64) as u64
    }
}

/// Chooses one of `eligible`, which are indices into `candidates`; `None` if it is empty. `key` is the hash for consistent
/// balancing, if the request has one.
pub(super) fn choose(
    balance: &Balance,
    candidates: &[Candidate],
    eligible: &[usize],
    key: Option<u64>,
    random: &RandomSource,
) -> Option<usize> {
    match (balance, key) {
        (_, _) if eligible.len() <= 1 => eligible.first().copied(),
        (Balance::RoundRobin, _) => round_robin(candidates, eligible.iter().copied()),
        (Balance::LeastRequests, _) | (Balance::Hash(_), None) => least_requests(candidates, eligible),
        (Balance::Random, _) => two_random_choices(candidates, eligible, random),
        (Balance::Hash(_), Some(key)) => rendezvous_hash(candidates, eligible, key),
    }
}

/// Smooth weighted round robin, as in nginx: weights 2:1 give a b a a b a …
fn round_robin(candidates: &[Candidate], eligible: impl Iterator<Item = usize>) -> Option<usize> {
    let (mut total, mut first) = (0, None::<usize>);
    for index in eligible {
        let candidate = &candidates[index];
        candidate.current_weight.set(candidate.current_weight.get() + candidate.weight as i64);
        total += candidate.weight as i64;
        if first.is_none_or(|first| candidates[first].current_weight.get() < candidate.current_weight.get()) {
            first = Some(index);
        }
    }
    let chosen = first?;
    candidates[chosen].current_weight.set(candidates[chosen].current_weight.get() - total);
    Some(chosen)
}

/// The candidate with the fewest requests per weight; round robin among equals.
fn least_requests(candidates: &[Candidate], eligible: &[usize]) -> Option<usize> {
    let least = eligible
        .iter()
        .copied()
        .reduce(|a, b| if candidates[b].is_less_loaded(&candidates[a]) { b } else { a })?;
    round_robin(
        candidates,
        eligible.iter().copied().filter(|index| !candidates[least].is_less_loaded(&candidates[*index])),
    )
}

/// Draws two candidates by weight and returns the one with fewer requests per weight.
fn two_random_choices(candidates: &[Candidate], eligible: &[usize], random: &RandomSource) -> Option<usize> {
    let draw = |excluded: Option<usize>| {
        let drawn = || eligible.iter().copied().filter(|index| Some(*index) != excluded);
        let mut left = random.below(drawn().map(|index| candidates[index].weight).sum());
        drawn().find(|index| {
            let weight = candidates[*index].weight;
            let found = left < weight;
            left = left.saturating_sub(weight);
            found
        })
    };
    let first = draw(None)?;
    let second = draw(Some(first))?;
    Some(if candidates[second].is_less_loaded(&candidates[first]) { second } else { first })
}

/// Weighted rendezvous hashing with bounded loads: each candidate gets a score for the key, and the highest score below its
/// bound wins. The removal of a candidate moves only its own keys.
fn rendezvous_hash(candidates: &[Candidate], eligible: &[usize], key: u64) -> Option<usize> {
    let (mut load, mut weight) = (1, 0);
    for candidate in eligible.iter().map(|index| &candidates[*index]) {
        load += candidate.load();
        weight += candidate.weight;
    }
    let has_room = |candidate: &Candidate| {
        let bound = (LOAD_BOUND * load * candidate.weight).div_ceil(100 * weight);
        candidate.load() < bound.max(MIN_BOUND)
    };
    let score = |candidate: &Candidate| {
        let drawn = mix(key ^ candidate.identity) >> 11; // the 53 bits that an f64 holds
        let drawn = (drawn as f64 + 0.5) / (1_u64 << 53) as f64;
        -(candidate.weight as f64) / drawn.ln()
    };
    let best = |all: &mut dyn Iterator<Item = usize>| {
        let scored = all.map(|index| (score(&candidates[index]), index));
        scored.reduce(|a, b| if b.0 > a.0 { b } else { a }).map(|(_, index)| index)
    };
    best(&mut eligible.iter().copied().filter(|index| has_room(&candidates[*index])))
        .or_else(|| best(&mut eligible.iter().copied()))
}

/// A number with no likeness to `number` (SplitMix64's last step).
pub(super) fn mix(number: u64) -> u64 {
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

    fn candidates(weights: &[u64]) -> Vec<Candidate> {
        let candidate = |(at, weight): (usize, &u64)| Candidate::new(*weight, mix(at as u64), Rc::default());
        weights.iter().enumerate().map(candidate).collect()
    }

    fn all(candidates: &[Candidate]) -> Vec<usize> {
        (0..candidates.len()).collect()
    }

    fn hash() -> Balance {
        Balance::Hash(KeySpec::new(vec![vec![Part::Ip]]))
    }

    /// How many of some requests each gets; `stay` if they do not end meanwhile.
    fn spread(balance: &Balance, weights: &[u64], count: u64, stay: bool) -> Vec<u32> {
        let (candidates, random) = (candidates(weights), RandomSource::new(7));
        let mut spread = vec![0; weights.len()];
        for key in 0..count {
            let chosen = choose(balance, &candidates, &all(&candidates), Some(mix(key)), &random).unwrap();
            spread[chosen] += 1;
            if stay {
                candidates[chosen].in_flight.set(candidates[chosen].in_flight.get() + 1);
            }
        }
        spread
    }

    #[test]
    fn turns_follow_the_weights() {
        let turns = |weights: &[u64], count: usize| -> Vec<usize> {
            let candidates = candidates(weights);
            (0..count).map(|_| round_robin(&candidates, 0..weights.len()).unwrap()).collect()
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
        let (candidates, random) = (candidates(&[1, 1, 2]), RandomSource::new(1));
        for (candidate, load) in candidates.iter().zip([2, 1, 3]) {
            candidate.in_flight.set(load);
        }
        let eligible = all(&candidates);
        assert_eq!(choose(&Balance::LeastRequests, &candidates, &eligible, None, &random), Some(1));
        assert_eq!(choose(&hash(), &candidates, &eligible, None, &random), Some(1), "without a key");
        assert_eq!(choose(&Balance::LeastRequests, &candidates, &[0, 2], None, &random), Some(2));
        assert_eq!(choose(&Balance::Random, &candidates, &[0, 1], None, &random), Some(1));
        assert_eq!(choose(&Balance::Random, &candidates, &[], None, &random), None);
    }

    proptest! {
        /// A server that goes takes only its own keys along, and a key that stays is where it was.
        #[test]
        fn a_server_that_goes_moves_only_its_own_keys(
            weights in prop::collection::vec(1_u64..20, 2..12), gone in 0_usize..12, seed: u64,
        ) {
            let (candidates, random) = (candidates(&weights), RandomSource::new(1));
            let gone = gone % weights.len();
            let (before, after): (Vec<_>, Vec<_>) = (all(&candidates), all(&candidates).into_iter().filter(|i| *i != gone).collect());
            for key in (0..200).map(|key| mix(seed ^ key)) {
                let was = choose(&hash(), &candidates, &before, Some(key), &random).unwrap();
                let is = choose(&hash(), &candidates, &after, Some(key), &random).unwrap();
                prop_assert!(was == gone || was == is);
            }
        }

        /// Nobody has much more than its share, even if all requests have the same key.
        #[test]
        fn no_key_overloads_a_server(weights in prop::collection::vec(1_u64..5, 2..8), key: u64, count in 1_u64..500) {
            let (candidates, random) = (candidates(&weights), RandomSource::new(1));
            for _ in 0..count {
                let chosen = choose(&hash(), &candidates, &all(&candidates), Some(key), &random).unwrap();
                candidates[chosen].in_flight.set(candidates[chosen].in_flight.get() + 1);
            }
            let total: u64 = weights.iter().sum();
            for candidate in &candidates {
                let bound = (count * candidate.weight * LOAD_BOUND).div_ceil(100 * total).max(MIN_BOUND);
                prop_assert!(candidate.load() <= bound, "{} of {count}, at most {bound}", candidate.load());
            }
        }
    }
}
