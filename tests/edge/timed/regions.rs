//! Two regions of two gateways each, with stores of their own, and a home store that is 100 ms away.

use std::time::Duration;

use crate::harness::faults::Admitted;
use crate::harness::relay::Relay;
use crate::harness::{Fleet, Load, RedisServer, sleep, within};

const RATE: f64 = 1_000.0;
const BURST: f64 = 200.0;

fn region(name: &str, store: &RedisServer, home: &Relay) -> Fleet {
    let text = format!(
        "{}regions:\n  name: {name}\n  floors: {{frankfurt: 30%, sydney: 30%}}\n  \
         home: {{redis: {{url: \"redis://{}\"}}}}\n\
         limits: {{all: {{key: global, rate: 1000/s, burst: 200}}, few: {{key: ip, rate: 1000/min, algorithm: fixed_window}}}}\n\
         routes: [{{name: all, match: {{path: /all}}, respond: {{status: 200}}, limits: [all]}}, \
         {{name: few, match: {{path: /few}}, respond: {{status: 200}}, limits: [few]}}]\n",
        store.store(),
        home.address,
    );
    Fleet::start(2, &text)
}

fn share(fleet: &Fleet) -> f64 {
    let shares = fleet.iter().map(|gateway| gateway.metric("sluicegate_region_share", &[("limit", "all")]));
    shares.fold(0.0, f64::max)
}

/// Waits for what takes up to 20 s.
fn long(what: &str, look: impl FnMut() -> Option<()>) {
    within(Duration::from_secs(60), look).unwrap_or_else(|| panic!("not within a minute: {what}"));
}

/// The part of a rate that no region always has goes where it is needed and comes back; a region that is cut off keeps its
/// floor; and never is more admitted than the limit says.
#[test]
fn regions_lend_each_other_what_they_do_not_need() {
    let (home, stores) = (RedisServer::start(), [RedisServer::start(), RedisServer::start()]);
    let relays = [Relay::start(home.address, 1), Relay::start(home.address, 2)];
    let frankfurt = region("frankfurt", &stores[0], &relays[0]);
    let sydney = region("sydney", &stores[1], &relays[1]);
    relays.iter().for_each(|relay| relay.delay(50));
    let status = frankfurt[0].admin_get("/status").json();
    assert_eq!(status["regions"]["limits"]["all"]["size"], 500_000, "{status:#}");
    // What is not lent is divided for good: 500 of 1,000 in each region.
    let limits = frankfurt[1].admin_get("/limits").json();
    let few = limits.as_array().unwrap().iter().find(|limit| limit["name"] == "few").unwrap();
    assert_eq!(few["capacity"], 500, "{limits:#}");

    // A new home store lends nothing for 20 s, because gateways may have been lent something that it has forgotten.
    let first = Load::on(&frankfurt, 8).target("/all").pause(Duration::from_millis(4)).start();
    long("frankfurt has what is lent", || (share(&frankfurt) > 0.69).then_some(()));
    assert!(share(&sydney) < 0.31);

    // Frankfurt is cut off. Sydney gets nothing until frankfurt has gone back to its floor.
    relays[0].cut();
    let second = Load::on(&sydney, 8).target("/all").pause(Duration::from_millis(4)).start();
    long("frankfurt is back to its floor", || (share(&frankfurt) < 0.31).then_some(()));
    long("sydney has what is lent", || (share(&sydney) > 0.69).then_some(()));
    assert_eq!(frankfurt[0].metric("sluicegate_region_home_up", &[]), 0.0);

    // It is back: both have half of what is lent.
    relays[0].delay(50);
    long("both have the same", || {
        let shares = [share(&frankfurt), share(&sydney)];
        shares.iter().all(|share| (0.45..0.55).contains(share)).then_some(())
    });
    sleep(Duration::from_secs(1));
    let start = (first.now(), second.now());
    let (first, second) = (first.stop(), second.stop());
    let offset = start.0 - start.1; // the second load began later
    let mut times: Vec<Duration> =
        first.iter().filter(|sample| sample.status == 200).map(|sample| sample.at).collect();
    times.extend(second.iter().filter(|sample| sample.status == 200).map(|sample| sample.at + offset));
    times.sort_unstable();
    // The level of a bucket with the limit's numbers says how much was admitted above it in the worst interval.
    let (mut level, mut last, mut over) = (0.0_f64, Duration::ZERO, 0.0_f64);
    for at in times {
        level = (level - (at - last).as_secs_f64() * RATE).max(0.0) + 1.0;
        (last, over) = (at, over.max(level - BURST));
    }
    // Samples have the time at which clients have read the answer, which is a few milliseconds late on a busy machine.
    assert!(over <= 50.0, "{over} requests above the limit");
    assert!(Admitted::of(&first).count() > 3_000);
}
