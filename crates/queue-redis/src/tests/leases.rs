//! Claims of gateways that are gone, and the backlog of a key.

use sluicegate_queue::{End, Message, Order};

use super::common::{BOUNDS, LATER, LIMIT, NOW, accept, id, message, numbers, open, place};
use crate::{LEASE, RedisQueueError};

#[test]
fn a_claim_that_is_not_renewed_is_left_to_others() {
    let (_server, socket) = place();
    let store = open(&socket);
    accept(&store, message(1, "a"));
    let lease = LEASE.as_millis() as u64;
    let claim = |now: u64| store.claim(LIMIT, now, LATER, 5).unwrap().claimed;
    let first = claim(NOW);
    assert_eq!((numbers(&first), first[0].attempt), (vec![1], 1));
    // Gateways look several times a second.
    let watch = |from: u64, to: u64| (from..to).step_by(1_000).all(|now| claim(now).is_empty());
    assert!(watch(NOW, NOW + lease));
    assert_eq!(claim(NOW + lease - 1), []);
    let renew = |claim: u64| store.with(LIMIT, async |queue| queue.renew(&[(id(1), claim)]).await).unwrap();
    assert_eq!(renew(1), [true]);
    assert_eq!(claim(NOW + lease), [], "it was renewed");
    assert!(watch(NOW + lease, NOW + 2 * lease - 1));
    let second = claim(NOW + 2 * lease);
    assert_eq!((numbers(&second), second[0].attempt), (vec![1], 2));
    assert_eq!(renew(1), [false]);
    let end = |claim: u64| store.end(id(1), claim, End::Delivered { answer: vec![1] }, NOW, LATER).unwrap();
    assert!(!end(1), "the attempt is another gateway's now");
    assert!(end(2));
}

/// Only what is delivered leaves the queue: a server whose memory is full must not keep gateways from it.
#[test]
fn a_full_memory_keeps_nobody_from_delivering() {
    let (_server, socket) = place();
    let store = open(&socket);
    accept(&store, message(1, "a"));
    store.set_clock(NOW + 1);
    store.set_max_memory(1);
    let refused = store.with(LIMIT, async |queue| queue.accept(&message(2, "a"), BOUNDS).await);
    assert!(matches!(refused, Err(RedisQueueError::Refused(_))), "{refused:?}");
    let claimed = store.with(LIMIT, async |queue| queue.claim(NOW, 1_000, 5).await).unwrap();
    assert_eq!(numbers(&claimed.claimed), [1]);
    store.with(LIMIT, async |queue| queue.renew(&[(id(1), 1)]).await).unwrap();
    let end = End::Delivered { answer: vec![1] };
    assert!(store.with(LIMIT, async |queue| queue.end(id(1), 1, &end, NOW, 1_000).await).unwrap());
    store.set_max_memory(0);
}

#[test]
fn the_backlog_of_a_key_is_known() {
    let (_server, socket) = place();
    let store = open(&socket);
    let backlog = |key: &str, in_order| store.has_backlog(LIMIT, key.as_bytes(), in_order, NOW).unwrap();
    assert!(!backlog("a", true));
    accept(&store, Message { order: Order::Key, ..message(1, "a") });
    assert!(backlog("a", true) && backlog("a", false) && !backlog("b", true));
    assert_eq!(numbers(&store.claim(LIMIT, NOW, LATER, 1).unwrap().claimed), [1]);
    assert!(backlog("a", true) && !backlog("a", false), "it is being sent");
    assert!(store.end(id(1), 1, End::Delivered { answer: Vec::new() }, NOW, LATER).unwrap());
    assert!(!backlog("a", true));
}
