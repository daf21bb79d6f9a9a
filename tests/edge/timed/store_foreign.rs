//! Another program writes keys of the gateways: they write them anew, and the store stays in use.

use std::time::Duration;

use crate::harness::fleet::{has_store, knows, limit};
use crate::harness::{Fleet, Gateway, RedisServer, sleep, until};

#[test]
fn keys_of_gateways_that_are_something_else_are_written_anew() {
    let redis = RedisServer::start();
    let fleet = Fleet::start(2, &(redis.store() + &limit("rate: 5/366d")));
    let names = ["sluicegate:{gateways}", "sluicegate:{gateways}:pardons", "sluicegate:{gateways}:told"];
    for value in ["SET", "LPUSH"] {
        for name in names {
            redis.run::<()>(&["DEL", name]);
            redis.run::<()>(&[value, name, "foreign"]);
        }
        // Gateways announce themselves twice a second.
        for _ in 0..20 {
            sleep(Duration::from_millis(100));
            assert!(fleet.iter().all(has_store), "the store stays in use");
        }
        until("both are counted", || fleet.iter().all(|gateway| knows(gateway, 2)).then_some(()));
        fleet.exactly(5, "/", value);
        assert_eq!(fleet[0].admin_change("DELETE", &format!("/limits/l/keys/{value}")).status, 200);
        until("it is pardoned everywhere", || {
            fleet.iter().all(|gateway| gateway.remaining("l", value) == 5).then_some(())
        });
    }
    // The one that is first writes them anew.
    let is_logged = |gateway: &Gateway| gateway.log().contains("something else has written");
    until("it is logged", || fleet.iter().any(is_logged).then_some(()));
}
