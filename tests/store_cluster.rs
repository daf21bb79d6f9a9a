//! Redis as several servers: a cluster whose slots move, and a master that is replaced by its replica.

#![allow(missing_docs, clippy::unwrap_used)]

mod harness;

use std::collections::BTreeSet;
use std::time::Duration;

use harness::fleet::route;
use harness::load::admitted;
use harness::{Cluster, Fleet, Load, Sentinels, let_pass, until, within};

/// A limit that nobody reaches, and one of 100 on `/tight`.
const TEXT: &str = "limits: {wide: {key: api_key, rate: 1M/366d}, tight: {key: api_key, rate: 100/366d}}\nroutes:\n  \
                    - {name: tight, match: {path: /tight}, respond: {status: 200}, limits: [tight]}\n  \
                    - {name: wide, match: {path: /*}, respond: {status: 200}, limits: [wide]}\n";

/// Some new keys are exact.
#[track_caller]
fn exact(fleet: &Fleet, name: &str) {
    (0..4).for_each(|key| fleet.exactly(100, "/tight", &format!("{name}-{key}")));
}

/// Keys are spread over the cluster, and each is exact.
#[test]
fn a_cluster_is_exact() {
    let cluster = Cluster::start();
    let fleet = Fleet::start(2, &(cluster.store() + TEXT));
    let keys: Vec<String> = (0..30).map(|key| format!("many-{key}")).collect();
    assert_eq!(admitted(&Load::on(&fleet, 30).keys(&keys).send(300)), 300);
    exact(&fleet, "k");
    let nodes: BTreeSet<usize> = cluster.keys().iter().map(|(node, _)| *node).collect();
    assert_eq!(nodes.len(), 3, "no node holds everything");
}

/// Limits whose keys are on different nodes: a refusal by one is given back by the other.
#[test]
fn a_refusal_is_given_back_across_nodes() {
    let cluster = Cluster::start();
    let limits = "  narrow: {key: api_key, rate: 5/366d}\n  wide: {key: global, rate: 1000/366d}";
    for (index, order) in ["narrow, wide", "wide, narrow"].into_iter().enumerate() {
        let text = cluster.store().replace("timeout:", &format!("prefix: sluicegate{index}, timeout:"));
        let fleet = Fleet::start(2, &(text + &route(order, limits)));
        for key in 0..8 {
            let statuses = fleet.in_turn(20, &format!("key-{key}"));
            assert_eq!(statuses, [[200; 5].as_slice(), &[429; 15]].concat(), "{order}: key-{key}");
        }
        until("all is given back", || (fleet[0].remaining("wide", "any") == 960).then_some(()));
    }
}

/// Slots move to other nodes under load: nobody fails, and nothing is lost or counted twice.
#[test]
fn slots_move_under_load() {
    let cluster = Cluster::start();
    let fleet = Fleet::start(2, &(cluster.store() + TEXT));
    let load = Load::on(&fleet, 16).keys(&["steady"]).pause(Duration::from_millis(5)).start();
    until("the load runs", || (load.answered() > 300).then_some(()));
    for turn in 1..=2 {
        let slots: BTreeSet<u16> = cluster.keys().iter().map(|(_, key)| cluster.slot(key)).collect();
        for slot in slots {
            cluster.move_slot(slot, (cluster.owner(slot) + turn) % 3);
        }
    }
    let now = load.answered();
    until("the load goes on", || (load.answered() > now + 300).then_some(()));
    fleet.up_within(Duration::from_secs(2));
    let shots = load.stop();
    let passed = admitted(&shots) as u64;
    assert_eq!(passed, shots.len() as u64, "nobody is refused");
    let counted = || 1_000_000 - fleet[0].remaining("wide", "steady");
    within(Duration::from_secs(2), || (counted() == passed).then_some(()));
    assert_eq!(counted(), passed);
    exact(&fleet, "after");
}

/// One node of the cluster dies: the keys of the others are served as before.
#[test]
fn a_node_of_the_cluster_dies() {
    let mut cluster = Cluster::start();
    let fleet = Fleet::start(2, &(cluster.store() + TEXT));
    let keys: Vec<String> = (0..30).map(|key| format!("many-{key}")).collect();
    let load = Load::on(&fleet, 16).keys(&keys).pause(Duration::from_millis(5)).start();
    until("the load runs", || (load.answered() > 300).then_some(()));
    cluster.nodes[1].kill();
    let now = load.answered();
    until("the load goes on", || (load.answered() > now + 300).then_some(()));
    cluster.nodes[1].restart();
    until("the cluster is whole", || {
        let info: String = cluster.nodes[0].run(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:ok").then_some(())
    });
    fleet.up();
    let shots = load.stop();
    assert_eq!(admitted(&shots), shots.len(), "nobody is refused and nobody fails");
    exact(&fleet, "after");
}

/// The gateways find the master through the sentinels, and follow when it changes; what was counted stays.
#[test]
fn the_master_changes() {
    let sentinels = Sentinels::start(1);
    let fleet = Fleet::start(2, &(sentinels.store() + TEXT));
    exact(&fleet, "before");
    let half = Load::on(&fleet, 50).target("/tight").keys(&["half"]).send(50);
    assert_eq!(admitted(&half), 50);
    sentinels.catch_up();
    sentinels.switch_over();
    assert_eq!(fleet.in_turn(2, "other"), [200; 2]);
    fleet.up();
    until("it is the new master that counts", || {
        fleet.in_turn(2, "other");
        (sentinels.servers[1].scripts() > 0).then_some(())
    });
    let_pass(Duration::from_secs(1)); // each worker finds out for itself
    fleet.up();
    let rest = Load::on(&fleet, 50).target("/tight").keys(&["half"]).send(200);
    assert_eq!(admitted(&rest), 50, "the other half");
    exact(&fleet, "after");
}

/// The master dies under load and the replica takes over: nobody fails, and it is exact again.
#[test]
fn the_master_dies_under_load() {
    let mut sentinels = Sentinels::start(3);
    let fleet = Fleet::start(2, &(sentinels.store().replace("timeout: 2s", "timeout: 100ms") + TEXT));
    let load = Load::on(&fleet, 16).keys(&["steady"]).pause(Duration::from_millis(5)).start();
    until("the load runs", || (load.answered() > 300).then_some(()));
    sentinels.fail_over();
    fleet.up_within(Duration::from_secs(3));
    let now = load.answered();
    until("the load goes on", || (load.answered() > now + 300).then_some(()));
    let shots = load.stop();
    assert_eq!(admitted(&shots), shots.len(), "nobody is refused and nobody fails");
    exact(&fleet, "after");
}
