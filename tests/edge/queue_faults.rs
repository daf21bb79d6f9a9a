//! Queued requests on days when the machine is at fault: a full disk, a clock that is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::queue::{file, location, outcome, post};
use crate::harness::{Setup, Upstream, deadline, faketime, until};

/// While the disk is full nothing is accepted, and the gateway says so; what was accepted is delivered, also then and after a kill.
#[test]
fn a_full_disk_loses_nothing_that_was_accepted() {
    let is_down = Arc::new(AtomicBool::new(true));
    let of_upstream = Arc::clone(&is_down);
    let upstream = Upstream::scripted(move |exchange| {
        let body = exchange.body().unwrap_or_default();
        let status = if of_upstream.load(Ordering::SeqCst) { 503 } else { 200 };
        exchange.answer(status, &[], &body);
    });
    let limit = "key: global, rate: 50/s, burst: 1, accept: 202, queue: {file: queue.db, max_attempts: 100}";
    let gateway = Setup::default().upstream(&upstream).file_size(1 << 20).start(&file("", limit));
    let mut accepted = Vec::new();
    let refused = until("the disk is full", || {
        let body = format!("{:0>8000}", accepted.len());
        let answer = post(&gateway, "/", &[], body.as_bytes());
        match answer.status {
            202 => accepted.push((location(&answer), body)),
            200 | 503 if answer.header("content-type") != Some("application/problem+json") => {}
            _ => return Some(answer),
        }
        None
    });
    assert_eq!((refused.status, &refused.problem()["reason"]), (503, &"queue".into()), "{}", refused.text());
    assert!(gateway.times_logged("the queue cannot be used: ") >= 1);
    assert!(accepted.len() > 3, "{}", accepted.len());
    outcome(&gateway, &accepted[0].0, &[], "queued");
    gateway.limit_file_size(None);
    until("requests are accepted again", || {
        let body = format!("again {}", accepted.len());
        let answer = post(&gateway, "/", &[], body.as_bytes());
        (answer.status == 202).then(|| accepted.push((location(&answer), body)))
    });
    let mut gateway = gateway;
    gateway.signal("KILL");
    gateway.ended(deadline());
    let gateway = gateway.again();
    is_down.store(false, Ordering::SeqCst);
    for (at, body) in &accepted {
        assert_eq!(outcome(&gateway, at, &[], "delivered")["answer"]["body"], *body);
    }
}

/// A gateway whose clock was a day ahead is started again with the right one: what it has queued is delivered all the same.
#[test]
fn a_clock_that_was_ahead_delays_nothing() {
    let upstream = Upstream::echoing();
    let limit = "key: global, rate: 1/10s, burst: 1, accept: 202, queue: {file: queue.db, ttl: 7d}";
    let mut ahead = Setup::default()
        .upstream(&upstream)
        .env("LD_PRELOAD", &faketime())
        .env("FAKETIME", "+1d")
        .start(&file("", limit));
    assert_eq!(post(&ahead, "/", &[], b"").status, 200);
    let at = location(&post(&ahead, "/", &[], b"second"));
    ahead.signal("KILL");
    ahead.ended(deadline());
    let right = ahead.again();
    outcome(&right, &at, &[], "delivered");
}
