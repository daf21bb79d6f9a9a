//! Redis as several servers: a cluster that shares the slots, and a master with a replica under sentinels.

use ::redis::Value;

use super::ports::ReservedPort;
use super::redis::{RedisServer, RedisSetup};
use super::{patience, until, within};

/// All slots of a cluster.
const SLOTS: u16 = 16_384;

/// Three masters that share the slots.
pub struct Cluster {
    pub nodes: Vec<RedisServer>,
    _buses: Vec<ReservedPort>,
}

impl Cluster {
    /// Starts three masters, introduces them to each other and waits until all slots are served.
    #[track_caller]
    pub fn start() -> Self {
        let buses: Vec<ReservedPort> = (0..3).map(|_| ReservedPort::new()).collect();
        let node = |bus: &ReservedPort| {
            let bus = bus.address.port().to_string();
            let setup = RedisServer::setup().config("cluster-enabled", &["yes"]);
            setup.config("cluster-port", &[&bus]).config("cluster-node-timeout", &["10000"]).start()
        };
        let nodes: Vec<RedisServer> = buses.iter().map(node).collect();
        for (index, node) in nodes.iter().enumerate() {
            let bound = |index: usize| (usize::from(SLOTS) * index / nodes.len()).to_string();
            let last = (usize::from(SLOTS) * (index + 1) / nodes.len() - 1).to_string();
            node.run::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            node.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", &bound(index), &last]);
        }
        let meet = |node: &RedisServer| {
            let [port, bus] = [&nodes[0].address, &buses[0].address].map(|at| at.port().to_string());
            node.run::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        };
        until("the cluster is whole", || {
            let whole = |node: &RedisServer| {
                let info: String = node.run(&["CLUSTER", "INFO"]);
                // A node gives up an introduction that takes too long.
                if ["cluster_known_nodes:1", "cluster_known_nodes:2"].iter().any(|few| info.contains(*few)) {
                    nodes[1..].iter().for_each(meet);
                }
                info.contains("cluster_state:ok")
                    && info.contains("cluster_known_nodes:3")
                    && info.contains("cluster_slots_ok:16384")
            };
            nodes.iter().all(whole).then_some(())
        });
        Self { nodes, _buses: buses }
    }

    /// The `store` of a configuration.
    pub fn store(&self) -> String {
        let urls: Vec<String> =
            self.nodes.iter().map(|node| format!("\"redis://{}\"", node.address)).collect();
        format!("store: {{redis: {{cluster: [{}], timeout: 10s}}}}\n", urls.join(", "))
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        self.nodes[0].run(&["CLUSTER", "KEYSLOT", key])
    }

    /// Which node serves a slot.
    #[track_caller]
    pub fn owner(&self, slot: u16) -> usize {
        // A line of this: id address@bus flags master ping pong epoch link slots…
        let text: String = self.nodes[0].run(&["CLUSTER", "NODES"]);
        let serves = |words: &str| {
            let (first, last) = words.split_once('-').unwrap_or((words, words));
            matches!((first.parse::<u16>(), last.parse::<u16>()), (Ok(a), Ok(b)) if (a..=b).contains(&slot))
        };
        let line = text.lines().find(|line| line.split(' ').skip(8).any(serves));
        let line = line.unwrap_or_else(|| panic!("nobody serves slot {slot}:\n{text}"));
        let is = |node: &RedisServer| line.contains(&format!(" {}@", node.address));
        self.nodes.iter().position(is).unwrap()
    }

    /// Starts to migrate a slot to another node, without completing it.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, to: usize) {
        let (source, target) = (&self.nodes[self.owner(slot)], &self.nodes[to]);
        let id = |node: &RedisServer| node.run::<String>(&["CLUSTER", "MYID"]);
        let (source_id, target_id, slot) = (id(source), id(target), slot.to_string());
        target.run::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        source.run::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
    }

    /// Migrates a slot and its keys to another node as redis-cli does, while clients continue.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        if from == to {
            return;
        }
        self.begin_move(slot, to);
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let (target_id, slot) = (target.run::<String>(&["CLUSTER", "MYID"]), slot.to_string());
        loop {
            let keys: Vec<String> = source.run(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                break;
            }
            let port = target.address.port().to_string();
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            source.run::<String>(&words);
        }
        for node in [target, source].into_iter().chain(&self.nodes) {
            node.run::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        }
    }

    /// All keys, each with the node that holds it.
    pub fn keys(&self) -> Vec<(usize, String)> {
        let keys = |(index, node): (usize, &RedisServer)| {
            node.keys().into_iter().map(move |key| (index, key)).collect::<Vec<_>>()
        };
        self.nodes.iter().enumerate().flat_map(keys).collect()
    }
}

/// A master with one replica, and the sentinels that monitor them.
pub struct Sentinels {
    /// The first of them is the initial master.
    pub servers: [RedisServer; 2],
    pub watchers: Vec<RedisServer>,
}

impl Sentinels {
    /// Starts a master, its replica and `count` sentinels, and waits until these know each other.
    #[track_caller]
    pub fn start(count: usize) -> Self {
        let quick = |setup: RedisSetup| setup.config("repl-diskless-sync-delay", &["0"]);
        let master = quick(RedisServer::setup()).start();
        let port = master.address.port();
        let replica =
            quick(RedisServer::setup()).config("replicaof", &["127.0.0.1", &port.to_string()]).start();
        until("the replica follows", || {
            (replica.info("replication", "master_link_status")? == "up").then_some(())
        });
        // One sentinel waits for an order; three find out that the master is dead, and not that it is slow.
        let down_after = if count == 1 { 10_000 } else { 2_000 };
        let lines = format!(
            "sentinel monitor main 127.0.0.1 {port} {}\nsentinel down-after-milliseconds main {down_after}\n\
             sentinel failover-timeout main 3000\n",
            count / 2 + 1
        );
        let watchers: Vec<_> = (0..count).map(|_| RedisServer::setup().sentinel(&lines).start()).collect();
        until("the sentinels know everybody", || {
            let knows = |watcher: &RedisServer| {
                let replicas: Vec<Value> = watcher.run(&["SENTINEL", "REPLICAS", "main"]);
                let others: Vec<Value> = watcher.run(&["SENTINEL", "SENTINELS", "main"]);
                replicas.len() == 1 && others.len() == count - 1
            };
            watchers.iter().all(knows).then_some(())
        });
        Self { servers: [master, replica], watchers }
    }

    /// The `store` of a configuration.
    pub fn store(&self) -> String {
        let urls: Vec<String> =
            self.watchers.iter().map(|watcher| format!("\"redis://{}\"", watcher.address)).collect();
        format!(
            "store: {{redis: {{sentinel: {{master: main, nodes: [{}]}}, timeout: 10s}}}}\n",
            urls.join(", ")
        )
    }

    /// Which of the servers the sentinels call the master.
    #[track_caller]
    pub fn master(&self) -> usize {
        let (_, port): (String, u16) = self.watchers[0].run(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        self.servers.iter().position(|server| server.address.port() == port).unwrap()
    }

    /// Waits until the replica has all that the master holds.
    #[track_caller]
    pub fn catch_up(&self) {
        let (master, replica) = (&self.servers[self.master()], &self.servers[1 - self.master()]);
        until("the replica has caught up", || {
            let offset = master.info("replication", "master_repl_offset");
            (offset.is_some() && offset == replica.info("replication", "slave_repl_offset")).then_some(())
        });
    }

    /// Kills the master and waits until the replica is the master.
    #[track_caller]
    pub fn fail_over(&mut self) {
        let old = self.master();
        self.servers[old].kill();
        self.promoted(1 - old, || {});
    }

    /// Starts the server that was killed again, as the replica, and waits until it has what the master holds.
    #[track_caller]
    pub fn rejoin(&mut self) {
        let (new, port) = (self.master(), self.servers[self.master()].address.port().to_string());
        let old = &mut self.servers[1 - new];
        old.restart();
        old.run::<()>(&["REPLICAOF", "127.0.0.1", &port]);
        until("the replica follows", || {
            (old.info("replication", "master_link_status")? == "up").then_some(())
        });
        self.catch_up();
    }

    /// Swaps the roles of the two running servers, and waits until it is done.
    #[track_caller]
    pub fn switch_over(&self) {
        let old = self.master();
        self.promoted(1 - old, || {
            // A sentinel that has not yet seen the replica's answer says NOGOODSLAVE; one that has begun may give up.
            let _ = self.watchers[0].try_run::<()>(&["SENTINEL", "FAILOVER", "main"]);
        });
        // The sentinels demote the old master too, but eight seconds later; until then it would take writes.
        let port = self.servers[1 - old].address.port().to_string();
        until("the old master follows", || {
            self.servers[old].try_run::<()>(&["REPLICAOF", "127.0.0.1", &port]).ok()
        });
        self.servers[old].disconnect();
    }

    /// Waits until the replica is the master, and calls `order` while it is not.
    #[track_caller]
    fn promoted(&self, new: usize, order: impl Fn()) {
        // A sentinel that was stopped for two seconds does nothing for the next thirty.
        let promoted = within(patience(40), || {
            if self.servers[new].info("replication", "role")? != "master" {
                order();
                return None;
            }
            (self.master() == new).then_some(())
        });
        assert!(promoted.is_some(), "the replica is not the master after {:?}", patience(40));
    }
}
