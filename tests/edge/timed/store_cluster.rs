//! Redis as several servers: a cluster whose slots move, and a master that is replaced by its replica.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::harness::fleet::{has_store, route};
use crate::harness::load::admitted;
use crate::harness::{
    Cluster, Fleet, Load, RedisServer, Sentinels, Setup, Stopwatch, deadline, gated_upstream, patience,
    until, within,
};

/// A limit that no request reaches, and one of 100 on `/tight`.
const TEXT: &str = "limits: {wide: {key: api_key, rate: 1M/366d}, tight: {key: api_key, rate: 100/366d}}\nroutes:\n  \
                    - {name: tight, match: {path: /tight}, respond: {status: 200}, limits: [tight]}\n  \
                    - {name: wide, match: {path: /*}, respond: {status: 200}, limits: [wide]}\n";

/// Asserts that limits are exact for some new keys.
#[track_caller]
fn exact(fleet: &Fleet, name: &str) {
    (0..4).for_each(|key| fleet.exactly(100, "/tight", &format!("{name}-{key}")));
}

/// Keys are spread over the cluster, and the limit of each is exact.
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

/// Limits whose keys are on different nodes: what one charged is refunded when the other refuses.
#[test]
fn a_refusal_is_given_back_across_nodes() {
    let cluster = Cluster::start();
    let limits = "  narrow: {key: api_key, rate: 5/366d}\n  wide: {key: global, rate: 1000/366d}\n  \
                  other: {key: api_key, rate: 1000/366d}";
    let orders = ["narrow, wide", "wide, narrow", "other, wide, narrow"];
    for (index, order) in orders.into_iter().enumerate() {
        let text = cluster.store().replace("timeout:", &format!("prefix: sluicegate{index}, timeout:"));
        let fleet = Fleet::start(2, &(text + &route(order, limits)));
        for key in 0..8 {
            let statuses = fleet.in_turn(20, &format!("key-{key}"));
            assert_eq!(statuses, [[200; 5].as_slice(), &[429; 15]].concat(), "{order}: key-{key}");
        }
        until("all is given back", || (fleet[0].remaining("wide", "any") == 960).then_some(()));
        // The limits whose nodes were not asked say nothing, and the refusal is told of the limit that refused.
        let refused = |limit| {
            let labels = [("limit", limit), ("outcome", "refused")];
            fleet
                .iter()
                .map(|gateway| gateway.metric("sluicegate_limit_decisions_total", &labels))
                .sum::<f64>()
        };
        assert_eq!(["narrow", "wide", "other"].map(refused), [120.0, 0.0, 0.0], "{order}");
    }
}

/// A limit with a slower lane refuses before the nodes of the others are asked: the request waits in the lane all the same.
#[test]
fn a_slower_lane_has_room_across_nodes() {
    let cluster = Cluster::start();
    let limits = "  narrow: {key: api_key, rate: 1/366d, penalty: {rate: 100/s, waiters: 30}}\n  \
                  wide: {key: global, rate: 1000/366d}";
    for (index, order) in ["narrow, wide", "wide, narrow"].into_iter().enumerate() {
        let text = cluster.store().replace("timeout:", &format!("prefix: sluicegate{index}, timeout:"));
        let fleet = Fleet::start(2, &(text + &route(order, limits)));
        for key in 0..6 {
            assert_eq!(fleet.in_turn(8, &format!("key-{key}")), [200; 8], "{order}: key-{key}");
        }
        until("each is charged once", || (fleet[0].remaining("wide", "any") == 952).then_some(()));
    }
}

/// Whatever a limit on another node counts with, a refusal costs it nothing, and an admitted request is charged once.
#[test]
fn every_kind_of_limit_is_exact_across_nodes() {
    let cluster = Cluster::start();
    let kinds = [
        ("bucket", "rate: 1000/366d", 1),
        ("window", "algorithm: fixed_window, rate: 1000/366d", 1),
        ("slices", "algorithm: sliding_window, rate: 1000/366d", 1),
        ("log", "algorithm: sliding_log, rate: 1000/366d", 1),
        ("places", "algorithm: concurrency, max: 1000", 0),
        ("leased", "rate: 1000/366d, sync: leased", 1),
        ("late", "rate: 1000/366d, cost: {request: 1, status: [200], reserve: 3}", 1),
        ("fair", "rate: 1000/366d, fair: {by: 'header:x-tenant'}", 1),
        ("shadow", "rate: 1000/366d, mode: shadow", 1),
        ("banning", "rate: 1000/366d, ban: {after: 3, within: 1h, for: 1h}", 1),
    ];
    for (kind, text, cost) in kinds {
        for order in ["narrow, other, third", "third, other, narrow"] {
            let limits = format!(
                "  narrow: {{key: api_key, rate: 3/366d}}\n  third: {{key: api_key, rate: 1000/366d}}\n  \
                 other: {{key: global, {text}}}"
            );
            let prefix = format!("prefix: {kind}{}, timeout:", order.replace(", ", "-"));
            let store = cluster.store().replace("timeout:", &prefix);
            let fleet = Fleet::start(2, &(store + &route(order, &limits)));
            for key in ["a", "b", "c"] {
                assert_eq!(fleet.in_turn(6, key), [200, 200, 200, 429, 429, 429], "{kind}: {order}: {key}");
                let left = within(deadline(), || (fleet[1].remaining("third", key) == 997).then_some(()));
                assert!(left.is_some(), "{kind}: {order}: {key}: {}", fleet[1].remaining("third", key));
            }
            let left = || fleet[0].remaining("other", "any");
            let exact = within(deadline(), || (left() == 1_000 - 9 * cost).then_some(()));
            assert!(exact.is_some(), "{kind}: {order}: {} are left", left());
        }
    }
}

/// Slots move to other nodes under load: no request fails, and none is lost or counted twice.
#[test]
fn slots_move_under_load() {
    move_slots_under_load("ip");
}

/// The same where nodes do not tell their own host, as behind some load balancers: MOVED then means the host that was asked.
#[test]
fn slots_move_under_load_between_nodes_without_a_host() {
    move_slots_under_load("unknown-endpoint");
}

fn move_slots_under_load(endpoint: &str) {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.run::<()>(&["CONFIG", "SET", "cluster-preferred-endpoint-type", endpoint]);
    }
    // Nobody is admitted without the store.
    let text = TEXT.replace("1M/366d", "1M/366d, on_store_failure: closed");
    let fleet = Fleet::start(2, &(cluster.store() + &text));
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
    fleet.up_within(patience(15));
    let samples = load.stop();
    let passed = admitted(&samples) as u64;
    assert_eq!(passed, samples.len() as u64, "nobody is refused");
    let counted = || 1_000_000 - fleet[0].remaining("wide", "steady");
    within(deadline(), || (counted() == passed).then_some(()));
    assert_eq!(counted(), passed);
    exact(&fleet, "after");
}

/// A slot that stays in migration does not affect others: the nodes stay in use, and new keys of that slot are exact.
#[test]
fn a_slot_stays_in_migration() {
    let cluster = Cluster::start();
    let fleet = Fleet::start(2, &(cluster.store() + TEXT));
    let keys: Vec<String> = (0..12).map(|key| format!("way-{key}")).collect();
    admitted(&Load::on(&fleet, 12).keys(&keys).send(24));
    let taken = cluster.keys().into_iter().map(|(_, key)| cluster.slot(&key));
    // Gateways use the first slot of each node to test whether the node accepts writes.
    let slots: BTreeSet<u16> = taken.chain([0, 5_461, 10_922]).collect();
    slots.iter().for_each(|slot| cluster.begin_move(*slot, (cluster.owner(*slot) + 1) % 3));
    for (node, key) in cluster.keys().into_iter().filter(|(_, key)| key.contains("probe")) {
        // Otherwise the source node still has it. It says ASK if the key has expired.
        let _ = cluster.nodes[node].try_run::<i64>(&["DEL", &key]);
    }
    let begun = Stopwatch::start();
    let mut up = true;
    while begun.elapsed() < Duration::from_millis(1_500) {
        up &= fleet.iter().all(has_store);
    }
    assert!(up, "a node was taken for one that is down");
    keys.iter().for_each(|key| fleet.exactly(100, "/tight", key));
    exact(&fleet, "elsewhere");
    assert_eq!(fleet.fallbacks(), 0.0);
}

/// New keys are exact while their slots move, with one limit and with two in the same call.
#[test]
fn new_keys_are_exact_while_slots_move() {
    let cluster = Cluster::start();
    let limits = "limits: {wide: {key: api_key, rate: 1M/366d}, few: {key: api_key, rate: 20/366d}}\nroutes:\n  \
                  - {name: two, match: {path: /two}, respond: {status: 200}, limits: [wide, few]}\n  \
                  - {name: one, match: {path: /*}, respond: {status: 200}, limits: [few]}\n";
    let fleet = Fleet::start(2, &(cluster.store() + limits));
    for (round, target) in ["/one", "/two"].into_iter().enumerate() {
        let keys: Vec<String> = (0..20).map(|key| format!("{round}-{key}")).collect();
        admitted(&Load::on(&fleet, 20).target("/one").keys(&keys).send(20));
        let taken = cluster.keys().into_iter().map(|(_, key)| cluster.slot(&key));
        // Gateways use the first slots of a node to test whether it accepts writes.
        let slots: BTreeSet<u16> = taken.chain(0..60).collect();
        let load = Load::on(&fleet, 16).target(target).keys(&keys).pause(Duration::from_millis(5)).start();
        slots.iter().for_each(|slot| cluster.move_slot(*slot, (cluster.owner(*slot) + 1) % 3));
        let now = load.answered();
        until("all is spent", || (load.answered() > now + 600).then_some(()));
        assert_eq!(admitted(&load.stop()), 20 * 19, "{target}");
        assert_eq!(fleet.fallbacks(), 0.0, "{target}");
    }
}

/// Frozen nodes do not delay the release of places on the others.
#[test]
fn a_frozen_node_does_not_block_places_of_the_others() {
    let cluster = Cluster::start();
    let (upstream, gate) = gated_upstream();
    let text = cluster.store()
        + "limits: {l: {key: api_key, algorithm: concurrency, max: 1}}\n\
           upstreams: {api: {servers: [\"http://{upstream}\"]}}\n\
           routes: [{name: api, match: {path: /*}, upstream: api, limits: [l]}]\n";
    let setup = || Setup::default().workers(1).upstream(&upstream);
    let fleet = Fleet::of(vec![setup(), setup()], &text);
    fleet.up();
    let (mut clients, mut held) = (Vec::new(), BTreeMap::new());
    for index in 0..12 {
        let (key, before) = (format!("key-{index}"), cluster.keys());
        let mut client = fleet[0].client();
        client.request("GET", "/slow", &[("x-api-key", &key)]);
        upstream.wait_for(index + 1);
        clients.push(client);
        let new =
            |(_, name): &(usize, String)| name.contains(":l:") && !before.iter().any(|(_, old)| old == name);
        let (node, _) = cluster.keys().into_iter().find(new).unwrap();
        held.insert(node, key);
    }
    assert_eq!(held.len(), 3, "each node holds a key");
    cluster.nodes[..2].iter().for_each(RedisServer::freeze);
    gate.open();
    // In seven seconds the lease may expire by itself, and in ten the connections to frozen nodes are closed.
    let free = within(Duration::from_secs(6), || {
        let status = fleet[1].ask("GET", "/", &[("x-api-key", &held[&2])]).status;
        (status == 200).then_some(())
    });
    cluster.nodes[..2].iter().for_each(RedisServer::thaw);
    assert!(free.is_some(), "its place is not free");
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
    let samples = load.stop();
    assert_eq!(admitted(&samples), samples.len(), "nobody is refused and nobody fails");
    exact(&fleet, "after");
}

/// The gateways find the master through the sentinels, and follow when it changes; counters survive.
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
    // Until then it counts for whoever is still connected to it.
    until("the old master is a replica", || {
        let role = sentinels.servers[0].info("replication", "role");
        (role.as_deref() == Some("slave")).then_some(())
    });
    until("it is the new master that counts", || {
        fleet.in_turn(2, "other");
        (sentinels.servers[1].scripts() > 0).then_some(())
    });
    fleet.settle("/tight");
    fleet.up();
    let rest = Load::on(&fleet, 50).target("/tight").keys(&["half"]).send(200);
    assert_eq!(admitted(&rest), 50, "the other half");
    exact(&fleet, "after");
}

/// The master dies under load and the replica takes over: no request fails, and limits are exact again.
#[test]
fn the_master_dies_under_load() {
    let mut sentinels = Sentinels::start(3);
    let fleet = Fleet::start(2, &(sentinels.store().replace("timeout: 10s", "timeout: 100ms") + TEXT));
    let load = Load::on(&fleet, 16).keys(&["steady"]).pause(Duration::from_millis(5)).start();
    until("the load runs", || (load.answered() > 300).then_some(()));
    sentinels.fail_over();
    fleet.up_within(patience(15));
    let now = load.answered();
    until("the load goes on", || (load.answered() > now + 300).then_some(()));
    let samples = load.stop();
    assert_eq!(admitted(&samples), samples.len(), "nobody is refused and nobody fails");
    exact(&fleet, "after");
}
