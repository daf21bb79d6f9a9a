//! Random calls, beside a slow and obvious model.

use proptest::prelude::*;
use sluicegate_queue::{Cancelled, DeadLetters, End, Message, Order, State};

use crate::common::{BOUNDS, LATER, LIMIT, NOW, OWNER, id, message, open, place, reopen};

#[derive(Clone, Debug)]
enum Call {
    Accept { consumer: u8, ordered: bool, ttl: u64 },
    Claim(usize),
    End(usize, u8),
    Cancel(usize),
    Pass(u64),
    Expire,
    Retry,
    Reopen,
}

/// A message of the model.
struct Known {
    number: u64,
    key: u8,
    ordered: bool,
    state: State,
    due: u64,
    expires: u64,
    attempts: u32,
    claims: u64,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => (0_u8..4, any::<bool>(), 1_u64..40)
            .prop_map(|(consumer, ordered, ttl)| Call::Accept { consumer, ordered, ttl }),
        5 => (1_usize..4).prop_map(Call::Claim),
        6 => (0_usize..20, 0_u8..5).prop_map(|(at, how)| Call::End(at, how)),
        1 => (0_usize..20).prop_map(Call::Cancel),
        3 => (1_u64..15).prop_map(Call::Pass),
        2 => Just(Call::Expire),
        1 => Just(Call::Retry),
        1 => Just(Call::Reopen),
    ]
}

/// Whether an earlier message of its key has not ended. What was tried again as a dead letter keeps its number.
fn is_blocked(all: &[Known], at: usize) -> bool {
    let one = &all[at];
    one.ordered
        && all.iter().enumerate().any(|(other, known)| {
            other != at && known.ordered && known.key == one.key && is_active(known.state)
        })
}

fn is_active(state: State) -> bool {
    matches!(state, State::Waiting | State::Claimed)
}

/// After one has ended: the first one of its key that is behind waits for its turn.
fn promote(all: &mut [Known], at: usize) {
    let (key, ordered) = (all[at].key, all[at].ordered);
    let next = all
        .iter_mut()
        .filter(|known| ordered && known.ordered && known.key == key && known.state == State::Blocked)
        .min_by_key(|known| known.number);
    if let Some(next) = next {
        next.state = State::Waiting;
    }
}

/// Ends a message. A consumer that has no message waiting is not paused any more.
fn finish(all: &mut [Known], pauses: &mut [u64; 4], at: usize, state: State) {
    let was = std::mem::replace(&mut all[at].state, state);
    let key = all[at].key;
    if was == State::Waiting && !all.iter().any(|known| known.key == key && known.state == State::Waiting) {
        pauses[usize::from(key)] = 0;
    }
    if was != State::Blocked {
        promote(all, at);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_file_does_what_the_model_does(calls in prop::collection::vec(call(), 1..60)) {
        let (_folder, path) = place();
        let mut file = open(&path);
        let (mut all, mut now): (Vec<Known>, u64) = (Vec::new(), NOW);
        // Until when a consumer has no turn.
        let mut pauses = [0_u64; 4];
        for call in calls {
            match call {
                Call::Accept { consumer, ordered, ttl } => {
                    let (number, expires) = (all.len() as u64, now + ttl);
                    let order = if ordered { Order::Key } else { Order::None };
                    let known = Known {
                        number, key: consumer, ordered, state: State::Waiting, due: now, expires, attempts: 0,
                        claims: 0,
                    };
                    all.push(known);
                    if is_blocked(&all, all.len() - 1) {
                        all.last_mut().unwrap().state = State::Blocked;
                    }
                    let message = Message {
                        order, accepted: now, expires, ..message(number, &format!("c{consumer}"))
                    };
                    file.accept(message, BOUNDS).unwrap().unwrap();
                }
                Call::Claim(max) => {
                    let claimed = file.claim(LIMIT, now, LATER, max).unwrap().claimed;
                    prop_assert!(claimed.len() <= max);
                    // Those whose time is over have ended, which may have let others of their key wait.
                    while let Some(at) = all.iter().position(|known| {
                        known.state == State::Waiting
                            && known.expires <= now
                            && file.get(id(known.number)).unwrap().unwrap().state == State::Expired
                    }) {
                        finish(&mut all, &mut pauses, at, State::Expired);
                    }
                    let is_full = claimed.len() == max;
                    for one in claimed {
                        let known = &mut all[u128::from_be_bytes(one.id.0) as usize];
                        prop_assert!(known.state == State::Waiting && known.due <= now && now < known.expires);
                        prop_assert!(pauses[usize::from(known.key)] <= now, "a consumer without a turn has one");
                        known.state = State::Claimed;
                        known.attempts += 1;
                        known.claims += 1;
                        prop_assert_eq!((one.attempt, one.claim), (known.attempts, known.claims));
                    }
                    let is_due = |known: &Known| {
                        known.state == State::Waiting && known.due <= now && pauses[usize::from(known.key)] <= now
                    };
                    prop_assert!(is_full || !all.iter().any(is_due), "a message that is due is left");
                }
                Call::End(at, how) => {
                    let Some(at) = (!all.is_empty()).then(|| at % all.len()) else { continue };
                    let (attempt, claim) = (all[at].attempts, all[at].claims);
                    let reason = "reason".to_owned();
                    let end = match how {
                        0 => End::Delivered { answer: vec![1] },
                        1 => End::Again { due: now + 5, reason },
                        2 => End::Failed { reason },
                        3 => End::Released { until: None },
                        _ => End::Released { until: Some(now + 7) },
                    };
                    let was_taken = all[at].state == State::Claimed;
                    let number = id(all[at].number);
                    let earlier = file.end(number, claim.saturating_sub(1), end.clone(), now, LATER).unwrap();
                    prop_assert!(!earlier, "a claim that has ended ends again");
                    let ended = file.end(number, claim, end, now, LATER).unwrap();
                    prop_assert_eq!(ended, was_taken);
                    if was_taken {
                        match how {
                            0 => finish(&mut all, &mut pauses, at, State::Delivered),
                            1 => (all[at].state, all[at].due) = (State::Waiting, now + 5),
                            2 => finish(&mut all, &mut pauses, at, State::Failed),
                            _ => (all[at].state, all[at].attempts) = (State::Waiting, attempt - 1),
                        }
                        if how == 4 {
                            pauses[usize::from(all[at].key)] = now + 7;
                        }
                    }
                }
                Call::Cancel(at) => {
                    let Some(at) = (!all.is_empty()).then(|| at % all.len()) else { continue };
                    let state = all[at].state;
                    let waits = matches!(state, State::Waiting | State::Blocked);
                    let expected = if waits { Cancelled::Done } else { Cancelled::TooLate(state) };
                    prop_assert_eq!(file.cancel(id(all[at].number), OWNER, now, LATER).unwrap(), expected);
                    if waits {
                        finish(&mut all, &mut pauses, at, State::Cancelled);
                    }
                }
                Call::Pass(millis) => now += millis,
                Call::Expire => {
                    file.expire(LIMIT, now, LATER, 1_000).unwrap();
                    for at in 0..all.len() {
                        let waits = matches!(all[at].state, State::Waiting | State::Blocked);
                        if waits && all[at].expires <= now {
                            finish(&mut all, &mut pauses, at, State::Expired);
                        }
                    }
                }
                Call::Retry => {
                    file.retry(DeadLetters::AllOf(LIMIT.to_owned()), now, now + 20).unwrap();
                    for at in 0..all.len() {
                        if all[at].state != State::Failed {
                            continue;
                        }
                        let behind = all[at].ordered && all.iter().any(|known| {
                            known.ordered && known.key == all[at].key && !known.state.has_ended()
                        });
                        let known = &mut all[at];
                        known.state = if behind { State::Blocked } else { State::Waiting };
                        (known.due, known.expires, known.attempts) = (now, now + 20, 0);
                    }
                }
                Call::Reopen => {
                    file = reopen(file, &path);
                    all.iter_mut().filter(|k| k.state == State::Claimed).for_each(|k| k.state = State::Waiting);
                }
            }
            for known in &all {
                let entry = file.get(id(known.number)).unwrap().unwrap();
                prop_assert_eq!((entry.state, entry.attempts), (known.state, known.attempts));
            }
            let figures = file.figures().unwrap();
            let length = all.iter().filter(|known| !known.state.has_ended()).count() as u64;
            let failed = all.iter().filter(|known| known.state == State::Failed).count() as u64;
            let found = figures.first().map_or((0, 0), |(_, figures)| (figures.length, figures.failed));
            prop_assert_eq!(found, (length, failed));
        }
    }
}
