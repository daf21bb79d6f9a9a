//! Queues in Redis, which several gateways deliver together.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::queue::{file, location, outcome, post};
use crate::harness::faults::{Random, setting};
use crate::harness::folder::text;
use crate::harness::redis::RedisSetup;
use crate::harness::{
    Folder, Gateway, RedisServer, Sentinels, Setup, Stopwatch, Upstream, deadline, patience, sleep, until,
    within,
};

/// A server that has on disk what it has answered.
fn durable() -> RedisSetup {
    RedisServer::setup().config("appendonly", &["yes"]).config("appendfsync", &["always"])
}

/// A master and its replica, which have on disk what they have answered.
fn durable_sentinels() -> Sentinels {
    let mut sentinels = Sentinels::start(3);
    for server in &mut sentinels.servers {
        for (name, value) in [("appendonly", "yes"), ("appendfsync", "always")] {
            server.configure(name, &[value]);
            server.run::<()>(&["CONFIG", "SET", name, value]);
        }
    }
    sentinels
}

fn start(upstream: &Upstream, store: &str, limit: &str) -> Gateway {
    Setup::default().upstream(upstream).handover().start(&file(store, limit))
}

/// Waits until a gateway has reached its queue.
fn ready(gateway: &Gateway) {
    until("the queue is reached", || (gateway.admin_get("/queues").status == 200).then_some(()));
}

/// What one gateway has accepted another one delivers, shows and cancels; together they keep the pace of the limit.
#[test]
fn gateways_share_a_queue() {
    let redis = durable().start();
    let times = Arc::new(Mutex::new(Vec::new()));
    let (of_upstream, clock) = (Arc::clone(&times), Stopwatch::start());
    let upstream = Upstream::scripted(move |exchange| {
        of_upstream.lock().unwrap().push(clock.elapsed());
        let body = exchange.body().unwrap();
        exchange.answer(200, &[], &body);
    });
    let limit = "key: global, rate: 10/s, burst: 1, accept: 202, queue: {redis: {stream: orders}}";
    let gateways: Vec<Gateway> = (0..3).map(|_| start(&upstream, &redis.store(), limit)).collect();
    gateways.iter().for_each(ready);
    let mut accepted = Vec::new();
    for number in 0..15 {
        let answer = post(&gateways[number % 3], "/", &[], format!("{number}").as_bytes());
        if answer.status == 202 {
            accepted.push((location(&answer), number));
        }
    }
    assert!(accepted.len() >= 10, "{}", accepted.len());
    let last = accepted.pop().unwrap().0;
    let cancelled = gateways[0].ask("DELETE", &last, &[]);
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    for (at, number) in &accepted {
        let document = outcome(&gateways[(number + 1) % 3], at, &[], "delivered");
        assert_eq!(document["answer"]["body"], number.to_string());
    }
    let mut times = times.lock().unwrap().clone();
    times.sort();
    let late = Duration::from_millis(20); // on its way to the upstream, one may be slower than the next
    assert!(times.windows(11).all(|ten| ten[10] - ten[0] + late >= Duration::from_secs(1)), "{times:?}");
    let delivered = [("limit", "l"), ("event", "delivered")];
    let by: Vec<f64> =
        gateways.iter().map(|one| one.metric("sluicegate_queue_events_total", &delivered)).collect();
    assert_eq!(by.iter().sum::<f64>() as usize, accepted.len());
}

/// A server that may lose what it has accepted is complained about, and what it holds is used all the same.
#[test]
fn a_server_that_may_lose_requests_is_complained_about() {
    let redis = RedisServer::start();
    let upstream = Upstream::echoing();
    let limit = "key: global, rate: 5/s, burst: 1, accept: 202, queue: {redis: {}}";
    let gateway = start(&upstream, &redis.store(), limit);
    assert!(gateway.times_logged("set appendonly to yes and appendfsync to always") >= 1);
    ready(&gateway);
    let at = until("a request is queued", || {
        let answer = post(&gateway, "/", &[], b"x");
        (answer.status == 202).then(|| location(&answer))
    });
    outcome(&gateway, &at, &[], "delivered");
    let check = |redis: &RedisServer| {
        let rules = format!(
            "listen: [127.0.0.1:8080]\n{}",
            file(&redis.store(), limit).replace("{upstream}", "127.0.0.1:9")
        );
        text(&Folder::with(&[("gateway.yaml", &rules)]).run(&["check", "--connect"]))
    };
    assert!(
        check(&redis)
            .contains("warning: the queue of `l` is not safe in Redis: requests that were answered 202")
    );
    assert!(check(&durable().start()).contains("the queue of `l` is safe in Redis"));
}

/// While Redis is away nothing is accepted, and nothing that was accepted is lost.
#[test]
fn nothing_is_lost_while_redis_is_away() {
    let mut redis = durable().start();
    let upstream = Upstream::echoing();
    let limit = "key: ip, rate: 5/s, burst: 1, scope: local, accept: 202, queue: {redis: {}}";
    let gateway = start(&upstream, &redis.store(), limit);
    ready(&gateway);
    let mut accepted = Vec::new();
    until("some are queued", || {
        let answer = post(&gateway, "/", &[], b"x");
        if answer.status == 202 {
            accepted.push(location(&answer));
        }
        (accepted.len() == 5).then_some(())
    });
    redis.kill();
    let refused = until("it is noticed", || {
        let answer = post(&gateway, "/", &[], b"x");
        (answer.status != 200).then_some(answer)
    });
    assert_eq!((refused.status, &refused.problem()["reason"]), (503, &"queue".into()));
    redis.restart();
    accepted.iter().for_each(|at| _ = outcome(&gateway, at, &[], "delivered"));
}

/// Gateways are killed and Redis is killed and frozen at random.
#[test]
fn killed_gateways_and_a_killed_redis_lose_nothing() {
    let mut redis = durable().start();
    let store = redis.store();
    faults_lose_nothing(&store, 38, |random| match random.below(2) {
        0 => {
            redis.kill();
            redis.restart();
        }
        _ => {
            redis.freeze();
            sleep(random.time(100..1_500));
            redis.thaw();
        }
    });
}

/// Gateways are killed, the master of Redis is killed and its replica takes over, or the master is frozen, at random.
#[test]
fn killed_gateways_and_failovers_lose_nothing() {
    let mut sentinels = durable_sentinels();
    let store = sentinels.store();
    faults_lose_nothing(&store, 39, |random| match random.below(2) {
        0 => {
            sentinels.fail_over();
            sentinels.rejoin();
        }
        _ => {
            let master = &sentinels.servers[sentinels.master()];
            master.freeze();
            sleep(random.time(100..1_000));
            master.thaw();
        }
    });
}

/// Every request that was accepted is delivered while gateways are killed and `fault` happens to Redis, with one key each, and no key is at
/// the upstream twice at a time.
fn faults_lose_nothing(store: &str, seed: u64, mut fault: impl FnMut(&mut Random)) {
    let mut random = Random::seeded(seed);
    let in_progress = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let bodies = Arc::new(Mutex::new(HashMap::<String, Vec<u8>>::new()));
    let twice = Arc::new(AtomicUsize::new(0));
    let (of_progress, of_bodies, of_twice) =
        (Arc::clone(&in_progress), Arc::clone(&bodies), Arc::clone(&twice));
    let upstream = Upstream::scripted(move |exchange| {
        let body = exchange.body().unwrap_or_default();
        let key = exchange.seen.head.one("idempotency-key").unwrap_or_default().to_owned();
        if !key.is_empty() {
            let mut all = of_progress.lock().unwrap();
            let count = all.entry(key.clone()).or_default();
            *count += 1;
            if *count > 1 {
                of_twice.fetch_add(1, Ordering::SeqCst);
            }
            drop(all);
            of_bodies.lock().unwrap().entry(key.clone()).or_insert_with(|| body.clone());
            exchange.pause(Duration::from_millis(2));
            *of_progress.lock().unwrap().get_mut(&key).unwrap() -= 1;
        }
        exchange.answer(200, &[], &body);
    });
    let [rounds, each, rate] = [("ROUNDS", 8), ("REQUESTS", 60), ("RATE", 40)]
        .map(|(name, usual)| setting(&format!("SLUICEGATE_{name}")).unwrap_or(usual));
    let limit = format!(
        "key: header:X-Shop, rate: {rate}/s, burst: 1, accept: 202, \
         queue: {{redis: {{stream: orders}}, concurrency: 64, max_length: 1M}}"
    );
    let mut gateways: Vec<Gateway> = (0..3).map(|_| start(&upstream, store, &limit)).collect();
    gateways.iter().for_each(ready);
    let mut accepted = Vec::new();
    for round in 0..rounds {
        let sent = Mutex::new(&mut accepted);
        std::thread::scope(|scope| {
            for (thread, gateway) in gateways.iter().chain(&gateways).enumerate() {
                let (sent, shop) = (&sent, ["a", "b", "c"][thread % 3]);
                scope.spawn(move || {
                    for number in 0..each / 6 {
                        let body = format!("{round}-{thread}-{number}");
                        let answer = post(gateway, "/", &[("X-Shop", shop)], body.as_bytes());
                        if answer.status == 202 {
                            sent.lock().unwrap().push((location(&answer), shop, body));
                        }
                    }
                });
            }
        });
        match random.below(3) {
            0 => {
                let victim = random.below(3);
                gateways[victim].signal("KILL");
                gateways[victim].ended(deadline());
                gateways[victim] = gateways[victim].again();
                ready(&gateways[victim]);
            }
            _ => {
                fault(&mut random);
                gateways.iter().for_each(ready);
            }
        }
    }
    assert!(accepted.len() > 50, "{}", accepted.len());
    println!("{} of {} were accepted", accepted.len(), rounds * each);
    // The claims of a gateway that was killed hold for 15 seconds.
    let length = || gateways[0].admin_get("/queues").json()[0]["length"].as_u64();
    within(patience(40), || (length() == Some(0)).then_some(()));
    for (at, shop, body) in &accepted {
        let document = outcome(&gateways[0], at, &[("X-Shop", shop)], "delivered");
        assert_eq!(document["answer"]["body"], *body);
    }
    assert_eq!(twice.load(Ordering::SeqCst), 0, "no message is sent twice at a time");
    let queues = gateways[0].admin_get("/queues").json();
    assert_eq!((&queues[0]["length"], &queues[0]["dead_letters"]), (&0.into(), &0.into()));
}

/// The master of Redis dies, and its replica takes over: a request is answered 202 only when the replica has it.
#[test]
fn a_failover_loses_nothing() {
    let mut sentinels = durable_sentinels();
    let upstream = Upstream::echoing();
    let limit = "key: ip, rate: 20/s, burst: 1, scope: local, accept: 202, queue: {redis: {}}";
    let gateway = Setup::default().upstream(&upstream).start(&file(&sentinels.store(), limit));
    ready(&gateway);
    let send = |number: usize| {
        let body = format!("{number}");
        let answer = post(&gateway, "/", &[], body.as_bytes());
        (answer.status == 202).then(|| (location(&answer), body))
    };
    let mut accepted: Vec<_> = (0..60).filter_map(send).collect();
    sentinels.fail_over();
    until("requests are accepted again", || {
        let one = send(60)?;
        accepted.push(one);
        Some(())
    });
    assert!(accepted.len() > 20, "{}", accepted.len());
    for (at, body) in &accepted {
        assert_eq!(outcome(&gateway, at, &[], "delivered")["answer"]["body"], *body);
    }
}
