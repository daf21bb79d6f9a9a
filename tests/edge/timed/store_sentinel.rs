//! Sentinels that disagree: gateways follow the latest election, and leave a server that is no longer the master.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::fleet::limit;
use crate::harness::{Fleet, RedisServer, sleep, until};

/// A sentinel whose answers the test sets.
struct Fake {
    address: SocketAddr,
    word: Arc<Mutex<Word>>,
}

#[derive(Clone, Copy)]
struct Word {
    master: SocketAddr,
    epoch: u64,
    after: Duration,
}

impl Fake {
    fn start(master: &RedisServer, epoch: u64, after: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let word = Arc::new(Mutex::new(Word { master: master.address, epoch, after }));
        let said = Arc::clone(&word);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let said = Arc::clone(&said);
                std::thread::spawn(move || serve(stream, &said));
            }
        });
        Self { address, word }
    }

    fn names(&self, master: &RedisServer, epoch: u64) {
        let mut word = self.word.lock().unwrap();
        (word.master, word.epoch) = (master.address, epoch);
    }
}

/// Answers until the client leaves.
fn serve(stream: TcpStream, said: &Mutex<Word>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    let line = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        (reader.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    loop {
        let count: usize = line(&mut reader)?.strip_prefix('*')?.parse().ok()?;
        let mut words = Vec::new();
        for _ in 0..count {
            line(&mut reader)?; // the length; no word here has a line break
            words.push(line(&mut reader)?.to_ascii_lowercase());
        }
        let answer = if words[0] == "sentinel" {
            let Word { master, epoch, after } = *said.lock().unwrap();
            sleep(after);
            let (port, epoch) = (master.port().to_string(), epoch.to_string());
            let fields = match words[1].as_str() {
                "master" => vec!["ip", "127.0.0.1", "port", &port, "config-epoch", &epoch],
                _ => vec!["127.0.0.1", &port],
            };
            let text: String =
                fields.iter().map(|field| format!("${}\r\n{field}\r\n", field.len())).collect();
            format!("*{}\r\n{text}", fields.len())
        } else {
            "+OK\r\n".to_owned()
        };
        writer.write_all(answer.as_bytes()).ok()?;
    }
}

fn store(sentinels: &[Fake]) -> String {
    let urls: Vec<String> =
        sentinels.iter().map(|sentinel| format!("\"redis://{}\"", sentinel.address)).collect();
    format!("store: {{redis: {{sentinel: {{master: main, nodes: [{}]}}, timeout: 10s}}}}\n", urls.join(", "))
}

/// One sentinel has missed an election and answers first.
#[test]
fn a_stale_sentinel_answers_first() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let late = Duration::from_millis(10);
    let sentinels =
        [Fake::start(&old, 3, Duration::ZERO), Fake::start(&new, 4, late), Fake::start(&new, 4, late)];
    let fleet = Fleet::start(2, &(store(&sentinels) + &limit("rate: 10/366d")));
    fleet.exactly(10, "/", "k");
    assert_eq!((old.scripts(), old.keys()), (0, Vec::new()), "nobody was at the old master");
}

/// The sentinels name another master while the old one still serves clients.
#[test]
fn a_deposed_master_is_left() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let sentinels = [0; 3].map(|_| Fake::start(&old, 3, Duration::ZERO));
    let fleet = Fleet::start(2, &(store(&sentinels) + &limit("rate: 10/366d")));
    fleet.exactly(10, "/", "before");
    sentinels.iter().for_each(|sentinel| sentinel.names(&new, 4));
    until("both are at the new master", || {
        let clients: String = old.run(&["CLIENT", "LIST"]);
        (!clients.contains("lib-name=redis-rs") && clients.lines().count() == 1).then_some(())
    });
    fleet.up();
    fleet.exactly(10, "/", "after");
    assert!(new.scripts() > 0);
}

/// A replica that sentinels take for the master is not used.
#[test]
fn a_server_that_says_it_is_a_replica_is_not_used() {
    let (master, replica) =
        (RedisServer::start(), RedisServer::setup().config("replica-read-only", &["no"]).start());
    replica.run::<()>(&["REPLICAOF", "127.0.0.1", &master.address.port().to_string()]);
    let sentinels = [Fake::start(&replica, 3, Duration::ZERO)];
    let fleet = Fleet::cold(1, &(store(&sentinels) + &limit("rate: 10/366d")));
    until("the log says why", || fleet[0].log().contains("no master").then_some(()));
    fleet.down();
    sentinels[0].names(&master, 4);
    fleet.up();
    assert_eq!(replica.scripts(), 0);
}
