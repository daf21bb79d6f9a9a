//! What becomes of a message.

use crate::common::{BOUNDS, LATER, LIMIT, NOW, OWNER, Store, accept, id, message, numbers, open, place};
use sluicegate_queue::{
    Bounds, Cancelled, DeadLetters, End, Idempotency, Message, Order, Overdue, Refused, State,
};

fn state(file: &Store, number: u64) -> State {
    file.get(id(number)).unwrap().unwrap().state
}

fn claim(file: &Store, now: u64) -> Vec<u64> {
    numbers(&file.claim(LIMIT, now, LATER, 10).unwrap().claimed)
}

#[test]
fn a_message_is_delivered_with_its_answer() {
    let (_folder, path) = place();
    let file = open(&path);
    let first = accept(&file, message(1, "a"));
    assert_eq!((first.id, first.ahead, first.is_duplicate), (id(1), 0, false));
    assert_eq!(accept(&file, message(2, "a")).ahead, 1);
    let claimed = file.claim(LIMIT, NOW, LATER, 1).unwrap().claimed;
    assert_eq!((claimed[0].request.as_slice(), claimed[0].attempt), (&b"request 1"[..], 1));
    assert_eq!(state(&file, 1), State::Claimed);
    assert!(file.end(id(1), 1, End::Delivered { answer: b"200".to_vec() }, NOW + 5, LATER).unwrap());
    let entry = file.get(id(1)).unwrap().unwrap();
    assert_eq!((entry.state, entry.answer.as_deref()), (State::Delivered, Some(&b"200"[..])));
    assert_eq!((entry.ended, entry.attempts), (Some(NOW + 5), 1));
    assert_eq!(file.get(id(2)).unwrap().unwrap().ahead, 0, "the first one has ended");
    assert!(!file.end(id(1), 1, End::Released { until: None }, NOW, LATER).unwrap(), "it has ended");
    let figures = file.figures().unwrap();
    assert_eq!((figures[0].1.length, figures[0].1.bytes, figures[0].1.oldest), (1, 9, Some(NOW)));
}

#[test]
fn a_failed_attempt_waits_and_the_last_one_is_a_dead_letter() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    claim(&file, NOW);
    let again = End::Again { due: NOW + 100, reason: "status 503".to_owned() };
    assert!(file.end(id(1), 1, again, NOW, LATER).unwrap());
    assert_eq!(claim(&file, NOW + 99), [] as [u64; 0]);
    assert_eq!(file.claim(LIMIT, NOW, LATER, 0).unwrap().next_due, Some(NOW + 100));
    let claimed = file.claim(LIMIT, NOW + 100, LATER, 1).unwrap().claimed;
    assert_eq!((numbers(&claimed), claimed[0].attempt), (vec![1], 2));
    assert!(
        !file.end(id(1), 1, End::Released { until: None }, NOW, LATER).unwrap(),
        "that attempt has ended long ago"
    );
    let failed = End::Failed { reason: "status 400".to_owned() };
    assert!(file.end(id(1), 2, failed, NOW + 200, LATER).unwrap());
    let dead = file.list(LIMIT, true, 0, 10).unwrap();
    assert_eq!((dead.len(), dead[0].reason.as_deref()), (1, Some("status 400")));
    assert_eq!(file.figures().unwrap()[0].1.failed, 1);
    assert_eq!(file.retry(DeadLetters::AllOf(LIMIT.to_owned()), NOW + 300, LATER).unwrap(), 1);
    let claimed = file.claim(LIMIT, NOW + 300, LATER, 1).unwrap().claimed;
    assert_eq!((claimed[0].attempt, claimed[0].request.as_slice()), (1, &b"request 1"[..]));
    assert!(file.end(id(1), 3, End::Failed { reason: "again".to_owned() }, NOW, LATER).unwrap());
    assert_eq!(file.drop_failed(DeadLetters::One(id(1))).unwrap(), 1);
    assert_eq!(file.get(id(1)).unwrap(), None);
    let figures = file.figures().unwrap()[0].1;
    assert_eq!((figures.length, figures.bytes, figures.failed), (0, 0, 0));
}

#[test]
fn an_attempt_that_was_not_made_does_not_count() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    for number in 1..=3 {
        let claimed = file.claim(LIMIT, NOW, LATER, 1).unwrap().claimed;
        assert_eq!((claimed[0].claim, claimed[0].attempt), (number, 1));
        let release = |claim| file.end(id(1), claim, End::Released { until: None }, NOW, LATER).unwrap();
        assert!(!release(number - 1), "a call that is repeated does not end the next attempt");
        assert!(release(number));
    }
}

#[test]
fn messages_whose_order_counts_wait_for_each_other_only() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    assert_eq!(claim(&file, NOW), [1]);
    assert!(file.end(id(1), 1, End::Failed { reason: "no".to_owned() }, NOW, LATER).unwrap());
    let ordered = |number| Message { order: Order::Key, ..message(number, "a") };
    (2..=150).for_each(|number| _ = accept(&file, message(number, "a")));
    (151..=153).for_each(|number| _ = accept(&file, ordered(number)));
    assert_eq!(file.retry(DeadLetters::One(id(1)), NOW, LATER).unwrap(), 1);
    let now = NOW + 1;
    let all = file.claim(LIMIT, now, LATER, 1_000).unwrap().claimed;
    assert_eq!(all.len(), 151, "all but the last two");
    for number in 151..=153 {
        assert_eq!(state(&file, number), State::Claimed, "{number}");
        assert!(file.end(id(number), 1, End::Delivered { answer: Vec::new() }, now, LATER).unwrap());
        let next: &[u64] = if number < 153 { &[number + 1] } else { &[] };
        assert_eq!(claim(&file, now), next);
    }
}

#[test]
fn a_consumer_that_is_paused_can_be_woken() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    assert_eq!(claim(&file, NOW), [1]);
    assert!(file.end(id(1), 1, End::Released { until: Some(NOW + 60_000) }, NOW, LATER).unwrap());
    accept(&file, message(2, "a"));
    accept(&file, message(3, "b"));
    assert_eq!(claim(&file, NOW), [3], "a new message does not end the pause");
    assert_eq!(file.wake(LIMIT).unwrap(), 1);
    assert_eq!(claim(&file, NOW), [1, 2]);
    assert_eq!(file.wake(LIMIT).unwrap(), 0);
}

#[test]
fn only_its_owner_cancels_a_message_and_only_before_it_begins() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    accept(&file, message(2, "b"));
    let cancel = |number, owner| file.cancel(id(number), owner, NOW, LATER).unwrap();
    assert_eq!(cancel(1, [8; 32]), Cancelled::NotFound);
    assert_eq!(cancel(9, OWNER), Cancelled::NotFound);
    assert_eq!(cancel(1, OWNER), Cancelled::Done);
    assert_eq!(cancel(1, OWNER), Cancelled::TooLate(State::Cancelled));
    assert_eq!(claim(&file, NOW), [2]);
    assert_eq!(cancel(2, OWNER), Cancelled::TooLate(State::Claimed));
}

#[test]
fn time_ends_messages_and_they_are_forgotten() {
    let (_folder, path) = place();
    let file = open(&path);
    let mut short = message(1, "a");
    short.expires = NOW + 10;
    accept(&file, short);
    accept(&file, message(2, "a"));
    assert_eq!(file.expire(LIMIT, NOW + 9, NOW + 50, 10).unwrap(), Overdue::default());
    assert_eq!(file.expire(LIMIT, NOW + 10, NOW + 50, 10).unwrap().expired, 1);
    assert_eq!((state(&file, 1), state(&file, 2)), (State::Expired, State::Waiting));
    assert_eq!(claim(&file, NOW + 10), [2]);
    assert_eq!(file.expire(LIMIT, NOW + 50, NOW + 90, 10).unwrap().removed, 1);
    assert_eq!(file.get(id(1)).unwrap(), None);
}

/// Also before anybody has swept the queue.
#[test]
fn a_message_whose_time_is_over_is_not_delivered() {
    let (_folder, path) = place();
    let file = open(&path);
    for number in 1..=3 {
        let expires = if number == 3 { LATER } else { NOW + 10 };
        accept(&file, Message { order: Order::Key, expires, ..message(number, "a") });
    }
    assert_eq!(claim(&file, NOW + 10), [3]);
    assert_eq!((state(&file, 1), state(&file, 2)), (State::Expired, State::Expired));
}

#[test]
fn messages_of_a_key_are_delivered_in_order_also_when_one_has_to_wait() {
    let (_folder, path) = place();
    let file = open(&path);
    let ordered = |number, key: &str| Message { order: Order::Key, ..message(number, key) };
    for (number, key) in [(1, "a"), (2, "a"), (3, "a"), (4, "b")] {
        accept(&file, ordered(number, key));
    }
    assert_eq!(claim(&file, NOW), [1, 4], "2 and 3 are behind 1");
    let again = End::Again { due: NOW + 100, reason: "status 503".to_owned() };
    assert!(file.end(id(1), 1, again, NOW, LATER).unwrap());
    assert_eq!(claim(&file, NOW + 99), [] as [u64; 0]);
    assert_eq!(claim(&file, NOW + 100), [1]);
    assert!(file.end(id(1), 2, End::Failed { reason: "status 400".to_owned() }, NOW, LATER).unwrap());
    assert_eq!(file.cancel(id(3), OWNER, NOW, LATER).unwrap(), Cancelled::Done, "one that is behind, too");
    assert_eq!(claim(&file, NOW + 100), [2]);
    assert_eq!(file.retry(DeadLetters::One(id(1)), NOW, LATER).unwrap(), 1);
    assert_eq!(state(&file, 1), State::Blocked, "2 is in progress");
    assert!(file.end(id(2), 1, End::Delivered { answer: Vec::new() }, NOW, LATER).unwrap());
    assert_eq!(claim(&file, NOW + 100), [1]);
}

#[test]
fn a_repeated_request_is_one_message() {
    let (_folder, path) = place();
    let file = open(&path);
    let repeated = |number, content| {
        let idempotency = Some(Idempotency { key: [1; 32], content: [content; 32] });
        Message { idempotency, ..message(number, "a") }
    };
    accept(&file, message(1, "a"));
    assert_eq!(accept(&file, repeated(2, 5)).id, id(2));
    let again = accept(&file, repeated(3, 5));
    assert_eq!((again.id, again.ahead, again.is_duplicate), (id(2), 1, true));
    assert_eq!(file.accept(repeated(4, 6), BOUNDS).unwrap(), Err(Refused::Conflict));
    assert_eq!(claim(&file, NOW), [1, 2]);
    assert!(file.end(id(2), 1, End::Delivered { answer: Vec::new() }, NOW, LATER).unwrap());
    let delivered = accept(&file, repeated(5, 5));
    assert_eq!((delivered.id, delivered.state, delivered.ahead), (id(2), State::Delivered, 0));
}

#[test]
fn a_request_that_was_cancelled_or_has_expired_can_be_made_again() {
    let (_folder, path) = place();
    let file = open(&path);
    let repeated = |number, expires| {
        let idempotency = Some(Idempotency { key: [1; 32], content: [number as u8; 32] });
        Message { idempotency, expires, ..message(number, "a") }
    };
    accept(&file, repeated(1, LATER));
    assert_eq!(file.cancel(id(1), OWNER, NOW, LATER).unwrap(), Cancelled::Done);
    let again = accept(&file, repeated(2, NOW + 5));
    assert_eq!((again.id, again.is_duplicate), (id(2), false));
    assert_eq!(claim(&file, NOW + 5), [] as [u64; 0]);
    assert_eq!(state(&file, 2), State::Expired);
    assert_eq!(accept(&file, repeated(3, LATER)).id, id(3));
    assert_eq!(claim(&file, NOW + 5), [3]);
}

/// A caller that does not know whether its call has succeeded repeats it, and harms nobody who shares the commit.
#[test]
fn a_call_that_is_repeated_stores_one_message() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    assert!(accept(&file, message(1, "a")).is_duplicate);
    let of_another = Message { owner: [8; 32], ..message(1, "a") };
    assert_eq!(file.accept(of_another, BOUNDS).unwrap(), Err(Refused::Conflict));
    assert_eq!(claim(&file, NOW), [1]);
}

#[test]
fn dead_letters_are_queued_again_in_parts() {
    let (_folder, path) = place();
    let file = open(&path);
    (1..=1_500).for_each(|number| _ = accept(&file, message(number, "a")));
    for claimed in file.claim(LIMIT, NOW, LATER, 1_500).unwrap().claimed {
        let failed = End::Failed { reason: "status 400".to_owned() };
        assert!(file.end(claimed.id, 1, failed, NOW, LATER).unwrap());
    }
    let page = file.list(LIMIT, true, 0, 1_400).unwrap();
    assert_eq!(file.list(LIMIT, true, page[1_399].number, 1_400).unwrap().len(), 100);
    let retry = || file.retry(DeadLetters::AllOf(LIMIT.to_owned()), NOW, LATER).unwrap();
    assert_eq!([retry(), retry(), retry()], [1_000, 500, 0]);
}

#[test]
fn a_full_queue_refuses_and_dead_letters_fill_it() {
    let (_folder, path) = place();
    let file = open(&path);
    let bounds = |max_length, max_bytes| Bounds { max_length, max_bytes };
    let put = |number, bounds| file.accept(message(number, "a"), bounds).unwrap();
    assert!(put(1, bounds(2, 1_000)).is_ok());
    assert_eq!(put(2, bounds(2, 17)), Err(Refused::Full { length: 1 }), "18 bytes");
    assert!(put(2, bounds(2, 18)).is_ok());
    assert_eq!(put(3, bounds(2, 1_000)), Err(Refused::Full { length: 2 }));
    assert_eq!(claim(&file, NOW), [1, 2]);
    assert!(file.end(id(1), 1, End::Failed { reason: "poison".to_owned() }, NOW, LATER).unwrap());
    assert_eq!(put(3, bounds(2, 1_000)), Err(Refused::Full { length: 1 }), "nothing is lost for a new one");
    assert!(file.end(id(2), 1, End::Delivered { answer: Vec::new() }, NOW, LATER).unwrap());
    assert!(put(3, bounds(2, 1_000)).is_ok());
}
