//! Servers that are killed, frozen, emptied, or have forgotten what they confirmed.

use std::time::{Duration, Instant};

use sluicegate_rules_redis::{Event, ReadError, WriteError};

use crate::common::{Events, PATIENT, Server, Store, batch, but_outages, delete, put, rule, run_test};

/// The longest time in which a connection is opened.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

fn is_away(event: &Event) -> bool {
    matches!(event, Event::Away(_))
}

fn mentions(reply: &[Event], key: &str) -> bool {
    reply.iter().any(|event| match event {
        Event::Keys(keys) => keys.iter().any(|(_, changed)| changed == key),
        Event::Everything => true,
        _ => false,
    })
}

fn until_back(events: &Events) -> Vec<Event> {
    events.until(|event| *event == Event::Back)
}

/// Waits until a new store of an empty server is not away.
fn until_ready(events: &Events) {
    if events.until_version(0).iter().any(is_away) {
        until_back(events);
    }
}

#[test]
fn a_frozen_server_holds_nobody_up_and_what_was_missed_is_told() {
    let server = Server::start();
    run_test(async {
        let timeout = Duration::from_millis(250);
        let (Store(a), _) = server.store_within(timeout);
        let (Store(b), events) = server.store_within(timeout);
        until_ready(&events);
        server.signal("STOP");
        let begun = Instant::now();
        let (mut reply, mut calls, mut fastest) = (Vec::new(), 0, Duration::MAX);
        while calls < 3 || !reply.iter().any(is_away) {
            assert!(begun.elapsed() < PATIENT, "{reply:?}");
            let called = Instant::now();
            let read = b.exact("api", &["k".into()]).await;
            assert!(matches!(read, Err(ReadError::Away(_))), "{read:?}");
            let written = a.write(batch([put(rule("a", &format!("k{calls}"), ""))])).await;
            assert!(matches!(written, Err(WriteError::Away(_) | WriteError::Unanswered(_))), "{written:?}");
            assert!(called.elapsed() < PATIENT, "{:?}", called.elapsed());
            fastest = fastest.min(called.elapsed());
            calls += 1;
            reply.extend(events.waiting());
        }
        assert!(fastest < Duration::from_secs(1), "twice a quarter of a second took {fastest:?}");
        server.signal("CONT");
        let thawed = Instant::now();
        while a.version().await.is_err() {
            assert!(thawed.elapsed() < PATIENT);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let version = loop {
            if let Ok(written) = a.write(batch([put(rule("b", "after", ""))])).await {
                break written.version;
            }
            assert!(thawed.elapsed() < PATIENT);
        };
        reply.extend(events.until(|event| matches!(event, Event::At(head) if head.version >= version)));
        assert!(mentions(&reply, "after"), "{reply:?}");
        println!("thawed, all is told after {:?}", thawed.elapsed());
        if !reply.contains(&Event::Back) {
            reply.extend(until_back(&events));
        }
        assert!(matches!(reply[0], Event::Away(_)), "{reply:?}");
    });
}

#[test]
fn a_server_that_is_killed_is_away_at_once_and_has_another_epoch_when_it_is_back() {
    let mut server = Server::start();
    run_test(async {
        let (a, events) = server.store_within(PATIENT);
        until_ready(&events);
        a.write(batch([put(rule("a", "k", ""))])).await.unwrap();
        let before = a.version().await.unwrap();
        server.kill();
        events.until(is_away);
        // Calls wait for the first attempt to connect again; it fails, and then they do so at once.
        let called = Instant::now();
        assert!(matches!(a.0.get("a").await, Err(ReadError::Away(_))));
        assert!(matches!(a.0.write(batch([delete("a")])).await, Err(WriteError::Away(_))));
        assert!(called.elapsed() < PATIENT / 2, "{:?}", called.elapsed());
        server.again();
        events.until(|event| *event == Event::Everything);
        until_back(&events);
        let after = a.version().await.unwrap();
        assert!(after.epoch != before.epoch && after.version == 0);
        assert_eq!(a.get("a").await.unwrap(), None);
    });
}

#[test]
fn a_connection_that_is_cut_misses_nothing() {
    let server = Server::start();
    run_test(async {
        let a = server.store();
        let (_b, events) = server.store_within(PATIENT);
        until_ready(&events);
        for round in 1..=5 {
            server.wait_for_listeners(2);
            server.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let key = format!("k{round}");
            a.write(batch([put(rule("a", &key, ""))])).await.unwrap();
            let written = Instant::now();
            let reply = events.until_version(round);
            assert!(mentions(&reply, &key), "{reply:?}");
            if !reply.contains(&Event::Back) {
                until_back(&events);
            }
            // A read whose connection is cut waits for the next one, unless that cannot be opened in its time.
            server.command::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            let keys = [key];
            let mut read = a.0.exact("api", &keys).await;
            if (CONNECT_TIMEOUT..PATIENT).contains(&written.elapsed()) {
                read = a.exact("api", &keys).await;
            }
            assert_eq!(read.unwrap().len(), 1);
        }
    });
}

#[test]
fn an_emptied_server_has_another_epoch() {
    let server = Server::start();
    run_test(async {
        let (a, events) = server.store_within(PATIENT);
        events.until_version(0);
        a.write(batch([put(rule("a", "k", ""))])).await.unwrap();
        events.until_version(1);
        server.command::<()>(&["FLUSHALL"]);
        // Nothing is said about it: the next check finds it, within a second and a little.
        let emptied = Instant::now();
        assert_eq!(events.next_but_outages().1, Event::Everything);
        assert!(emptied.elapsed() < PATIENT, "{:?}", emptied.elapsed());
        events.until_version(0);
        server.command::<()>(&["FLUSHALL"]);
        // A batch says it at once.
        let version = a.write(batch([put(rule("a", "k", ""))])).await.unwrap().version;
        assert_eq!(version, 1);
        let reply = but_outages(events.until_version(1));
        assert!(mentions(&reply, "k"), "{reply:?}");
        assert_eq!(reply[0], Event::Everything);
    });
}

#[test]
fn a_history_that_lost_batches_is_noticed_even_if_it_has_the_same_version_again() {
    let server = Server::start();
    run_test(async {
        let (a, events) = server.store_within(PATIENT);
        events.until_version(0);
        for n in 1..=3 {
            a.write(batch([put(rule("a", &format!("k{n}"), ""))])).await.unwrap();
        }
        events.until_version(3);
        // What a replica that became the master has, if it had not received the last batch, and others wrote another one.
        server.command::<()>(&["HSET", "test:{rules}:meta", "mark", "of another batch"]);
        assert_eq!(events.next_but_outages().1, Event::Everything);
        events.until_version(3);
        server.command::<()>(&["HSET", "test:{rules}:meta", "mark", "of yet another", "version", "2"]);
        let reply = but_outages(events.until_version(2));
        assert_eq!(reply[0], Event::Everything);
        // The log has a version 3 already, which is of the other history.
        a.write(batch([put(rule("a", "k4", ""))])).await.unwrap();
        let reply = events.until_version(3);
        assert!(mentions(&reply, "k4"), "{reply:?}");
        assert!(
            matches!(a.changes(2, 9).await.unwrap(), sluicegate_rules::Changes::List(changes) if changes.len() == 1)
        );
        assert_eq!(a.changes(1, 9).await.unwrap(), sluicegate_rules::Changes::Trimmed);
    });
}

#[test]
fn what_is_missed_while_nothing_is_heard_is_found_within_a_second() {
    let server = Server::start();
    run_test(async {
        let (a, events) = server.store_within(PATIENT);
        events.until_version(0);
        // A batch whose message is lost.
        a.write(batch([put(rule("a", "k", ""))])).await.unwrap();
        events.until_version(1);
        let log = "redis.call('XADD', KEYS[2], '2-0', 'b', '', 'a', ARGV[1], 't', '1', 'w', '', 'p', redis.call('HGET', KEYS[1], 'mark'))
                   redis.call('HSET', KEYS[1], 'version', '2', 'mark', 'x')";
        let body = "-{\"id\":\"b\",\"limit\":\"api\",\"key\":\"lost\"}";
        server.command::<()>(&["EVAL", log, "2", "test:{rules}:meta", "test:{rules}:log", body]);
        let reply = but_outages(events.until_version(2));
        assert_eq!(reply[0], Event::Keys(vec![("api".into(), "lost".into())]));
    });
}
