//! What a gateway remembers of the store's answers is never more than is true, whatever happens to its connection.

use std::time::Duration;

use crate::harness::fleet::limit;
use crate::harness::load::admitted;
use crate::harness::{Fleet, Gateway, Load, RedisServer, Stopwatch, gated_upstream, sleep, until};

/// The period of the logs here: a place is free again so long after it was taken.
const PERIOD: Duration = Duration::from_secs(4);

/// Requests of one key, on one clock.
struct Log<'a> {
    gateway: &'a Gateway,
    key: &'a str,
    watch: Stopwatch,
    /// When the first place was taken: between these times.
    first: (Duration, Duration),
}

/// Runs a scene for another key until a busy machine was not too late for it: three times at most.
#[track_caller]
fn in_time(scene: impl Fn(&str) -> Option<()>) {
    assert!((0..3).any(|turn| scene(&format!("k{turn}")).is_some()), "it was too late three times");
}

impl<'a> Log<'a> {
    /// Takes places at these tenths of a second.
    #[track_caller]
    fn taken(gateway: &'a Gateway, key: &'a str, tenths: &[u64]) -> Self {
        let mut log = Self { gateway, key, watch: Stopwatch::start(), first: Default::default() };
        for at in tenths {
            sleep(Duration::from_millis(100 * at).saturating_sub(log.watch.elapsed()));
            let sent = log.watch.elapsed();
            assert_eq!(log.statuses(1), [200]);
            if *at == 0 {
                log.first = (sent, log.watch.elapsed());
            }
        }
        log
    }

    fn statuses(&self, count: usize) -> Vec<u16> {
        self.gateway.statuses(count, "/", &[("x-api-key", self.key)])
    }

    /// The next request is refused until the first place is free, to the second. `None` if it may have become free meanwhile.
    #[track_caller]
    fn refuses(&self) -> Option<()> {
        let sent = self.watch.elapsed();
        let refusal = self.gateway.ask("GET", "/", &[("x-api-key", self.key)]);
        let heard = self.watch.elapsed();
        if heard >= self.first.0 + PERIOD {
            return None;
        }
        assert_eq!(refusal.status, 429);
        let seconds = |time: Duration| time.as_secs_f64().ceil() as u64;
        let (least, most) = (self.first.0 + PERIOD - heard, self.first.1 + PERIOD - sent);
        let wait = refusal.number("retry-after");
        assert!((seconds(least)..=seconds(most)).contains(&wait), "{wait} s, not {least:?} to {most:?}");
        Some(())
    }
}

/// A log whose places were taken one after the other refuses until the first is free, also when the gateway decides from
/// its memory because the request that filled the log was admitted.
#[test]
fn a_log_is_remembered_for_as_long_as_it_refuses() {
    let redis = RedisServer::start();
    let text = limit("algorithm: sliding_log, rate: 3/4s");
    let fleet = Fleet::start(1, &(redis.store() + &text));
    in_time(|key| {
        let calls = redis.scripts();
        let log = Log::taken(&fleet[0], key, &[0, 20, 28]);
        log.refuses()?;
        sleep((log.first.1 + PERIOD).saturating_sub(log.watch.elapsed()));
        let statuses = log.statuses(2);
        if log.watch.elapsed() >= Duration::from_secs(2) + PERIOD {
            return None; // the second place is free too
        }
        assert_eq!(statuses, [200, 429]);
        assert!(redis.scripts() >= calls + 4);
        Some(())
    });
}

/// Reading the state of a key over the admin API does not change what the gateway remembers of it.
#[test]
fn reading_the_state_of_a_key_changes_no_refusal() {
    let redis = RedisServer::start();
    let text = limit("algorithm: sliding_log, rate: 10/4s, cost: 5");
    let fleet = Fleet::start(1, &(redis.store() + &text));
    in_time(|key| {
        let log = Log::taken(&fleet[0], key, &[0, 20]);
        log.refuses()?;
        let remaining = fleet[0].remaining("l", key);
        log.refuses()?;
        assert_eq!(remaining, 0);
        Some(())
    });
}

/// Many places are taken and freed while leases are renewed: none is lost, none is left behind.
#[test]
fn renewed_places_are_neither_lost_nor_left_behind() {
    let redis = RedisServer::start();
    let text = limit("algorithm: concurrency, max: 1");
    let fleet = Fleet::start(1, &(redis.store() + &text));
    // One client for each key, so that no refusal is correct.
    let keys: Vec<String> = (0..64).map(|key| format!("key-{key}")).collect();
    let load = Load::on(&fleet, 1).keys(&keys).pause(Duration::from_millis(1)).start();
    sleep(Duration::from_secs(7)); // over two renewals
    let samples = load.stop();
    assert_eq!(admitted(&samples), samples.len());
    until("nothing is left in the store", || {
        (redis.keys().iter().all(|key| !key.contains(":l:"))).then_some(())
    });
}

/// Waits until the store has this number of places left.
#[track_caller]
fn left(gateway: &Gateway, places: u64) {
    until("what is held is known again", || {
        let answer = gateway.admin_get("/limits/l/keys/k");
        (answer.status == 200 && answer.json()["remaining"] == places).then_some(())
    });
}

/// Broken connections lose no place that is taken, and no release of a place.
#[test]
fn places_survive_broken_connections() {
    let redis = RedisServer::start();
    let (upstream, gate) = gated_upstream();
    let text = redis.store()
        + "limits: {l: {key: api_key, algorithm: concurrency, max: 50}}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
           routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n";
    let fleet = Fleet::of(vec![crate::harness::Setup::default().upstream(&upstream)], &text);
    fleet.up();
    let mut waiting: Vec<_> = (0..20)
        .map(|_| {
            let mut client = fleet[0].client();
            client.request("GET", "/slow", &[("x-api-key", "k")]);
            client
        })
        .collect();
    upstream.wait_for(20);
    for _ in 0..3 {
        redis.disconnect();
        left(&fleet[0], 30);
    }
    waiting.truncate(5); // the other clients leave while connections break
    redis.disconnect();
    left(&fleet[0], 45);
    gate.open();
    waiting.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    left(&fleet[0], 50);
}

/// Keys without debt are evicted when the memory is full.
#[test]
fn keys_without_debt_are_evicted() {
    let redis = RedisServer::start();
    let text = limit("rate: 20/s, burst: 2, max_keys: 8");
    let fleet = Fleet::start(1, &(redis.store() + &text));
    for key in 0..8 {
        fleet[0].statuses(2, "/", &[("x-api-key", &format!("key-{key}"))]);
    }
    sleep(Duration::from_millis(300));
    let before = redis.scripts();
    Load::on(&fleet, 4).keys(&["new"]).send(2_000);
    let calls = redis.scripts() - before;
    assert!(calls < 1_000, "{calls} calls for 2,000 requests that are nearly all refused");
}

/// A reload with another timeout keeps counters and what is remembered.
#[test]
fn a_reload_keeps_what_is_remembered_and_held() {
    let redis = RedisServer::start();
    let text = limit("rate: 10/366d, burst: 10");
    let fleet = Fleet::start(1, &(redis.store() + &text));
    let key = [("x-api-key", "k")];
    assert_eq!(fleet[0].statuses(4, "/", &key), [200; 4]);
    fleet[0].reload(&(redis.store_within("3s") + &text));
    fleet.up();
    assert_eq!(fleet[0].statuses(7, "/", &key), [200, 200, 200, 200, 200, 200, 429]);
    assert_eq!(fleet.sum("sluicegate_store_fallback_total", &[]), 0.0);
}
