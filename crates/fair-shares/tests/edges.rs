//! Buckets of consumers at single instants.
#![allow(missing_docs)]

use sluicegate_fair_shares::{Answer, Consumer, Cost, Shares};
use sluicegate_limiter::{Span, Time};

const MILLION: u64 = 1_000_000;
/// 100 tokens a second.
const CAPACITY: u64 = 100 * MILLION;

fn at(millis: u64) -> Time {
    Time::from_nanos(1_795_000_000_000_000_000).plus(Span::from_millis(millis))
}

fn ask(shares: &mut Shares, millis: u64, key: u64, cost: u64) -> Answer {
    shares.ask(at(millis), CAPACITY, Consumer { key, weight: 1 }, Cost::Known(cost), || key)
}

fn is_within(answer: Answer) -> bool {
    matches!(answer, Answer::Within(_))
}

/// Shares among which one consumer, 1, asks for ten times the capacity, a request each millisecond, until `millis`.
fn in_shortage(millis: u64) -> Shares {
    let mut shares = Shares::new(at(0));
    (0..millis).for_each(|milli| _ = ask(&mut shares, milli, 1, 1));
    shares
}

/// Whoever has had more than its share until a shortage is noticed begins with nothing, and gets its rate from then on.
#[test]
fn who_took_too_much_begins_a_shortage_with_nothing() {
    let mut shares = Shares::new(at(0));
    let answers: Vec<bool> = (0..2_000).map(|milli| is_within(ask(&mut shares, milli, 1, 1))).collect();
    let begun = answers.iter().position(|within| !within).expect("a shortage");
    let soon = answers[begun..begun + 200].iter().filter(|within| **within).count();
    assert!((15..=25).contains(&soon), "{soon} of 200 ms, of 97 a second");
    assert_eq!(begun % 100, 0, "the first request after the tick is above the share");
}

/// A request that costs more than a bucket holds goes when the bucket is full, and is paid off afterwards.
#[test]
fn a_cost_above_the_bucket_goes_when_it_is_full() {
    let mut shares = in_shortage(2_000);
    let level = shares.look(at(2_000), CAPACITY).level.expect("a shortage");
    assert!(level < 200 * MILLION);
    assert!(is_within(ask(&mut shares, 2_000, 2, 200)));
    let Answer::Above(wait) = ask(&mut shares, 2_000, 2, 1) else { panic!("it has to pay off first") };
    assert!((Span::SECOND..Span::from_secs(5)).contains(&wait), "{wait}");
}

/// What is given back after its bucket is full again is lost.
#[test]
fn what_is_given_back_never_overfills_a_bucket() {
    let mut shares = in_shortage(2_000);
    let Answer::Within(taken) = ask(&mut shares, 2_000, 2, 30) else { panic!("a full bucket") };
    (2_000..4_000).for_each(|milli| _ = ask(&mut shares, milli, 1, 1));
    let level = shares.look(at(4_000), CAPACITY).level.expect("a shortage");
    shares.give_back(taken);
    let most = usize::try_from(level / MILLION).expect("a small number");
    let within = (0..1_000).filter(|_| is_within(ask(&mut shares, 4_000, 2, 1))).count();
    assert!((most - 1..=most).contains(&within), "{within} of a bucket of {most}");
}
