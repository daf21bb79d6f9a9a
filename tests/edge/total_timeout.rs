//! A route's `timeout` holds whatever the request waits for: 504 when it has passed, and what was held is free again.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::harness::h2::{End, H2, get};
use crate::harness::{
    Client, Exchange, Fleet, Gateway, RedisServer, Response, Setup, Stopwatch, Upstream, in_parallel, until,
};

/// The timeout of all routes.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Asserts that a request is answered 504 when the timeout has passed. Everything else takes an hour.
#[track_caller]
fn times_out(watch: &Stopwatch, response: &Response, what: &str) {
    assert_eq!(response.status, 504, "{what}: {}", response.text());
    assert!(watch.elapsed() >= TIMEOUT, "{what}: {:?}", watch.elapsed());
    let reason = response.json()["reason"].clone();
    assert!(reason == "timeout" || reason == "upstream_timeout", "{what}: {reason}");
}

/// A listener whose queue of connections is full, so that further ones are not established.
struct FullListener {
    address: SocketAddr,
    _held: (Socket, Vec<Socket>),
}

impl FullListener {
    fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let connect = |_| {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            let _ = client.connect(&address.into());
            client
        };
        let clients = (0..4).map(connect).collect();
        until("no more connections are established", || {
            TcpStream::connect_timeout(&address, Duration::from_millis(50)).err()
        });
        Self { address, _held: (socket, clients) }
    }
}

const ROUTES: &str = "
auth:
  check: {url: 'http://{silent}/check', timeout: 10s}
  introspection: {url: 'http://{silent}/introspect', client_id: gw, client_secret: sesame, timeout: 10s}
limits:
  queued: {key: global, algorithm: leaky_bucket, rate: 1/h, burst: 5}
  slower: {key: global, rate: 1/d, penalty: {rate: 1/h, waiters: 3}}
  per-user: {key: user | ip, rate: 1000/h}
upstreams:
  silent: {servers: ['http://{silent}'], timeouts: {connect: 1h, response: 1h}}
  full: {servers: ['http://{full}'], timeouts: {connect: 1h, response: 1h}}
  mute: {servers: ['http://{mute}'], protocol: http2, timeouts: {connect: 1h, response: 1h}}
  one: {servers: ['http://{silent}'], max_connections: 1, timeouts: {connect: 1h, response: 1h}}
  gated: {servers: ['http://{silent}'], timeouts: {connect: 1h, response: 1h},
    overload: {adaptive: false, max_in_flight: 1, queue: {deadline: 1min}}}
routes:
- {name: response, match: {path: /response}, upstream: silent, check: off, timeout: 400ms}
- {name: connect, match: {path: /connect}, upstream: full, check: off, timeout: 400ms}
- {name: settings, match: {path: /settings}, upstream: mute, check: off, timeout: 400ms}
- {name: leaky, match: {path: /leaky}, respond: {status: 200}, check: off, limits: [queued], timeout: 400ms}
- {name: lane, match: {path: /lane}, respond: {status: 200}, check: off, limits: [slower], timeout: 400ms}
- {name: checked, match: {path: /checked}, respond: {status: 200}, timeout: 400ms}
- {name: token, match: {path: /token}, respond: {status: 200}, check: off, limits: [per-user], timeout: 400ms}
- {name: hold-one, match: {path: /hold/one}, upstream: one, check: off}
- {name: connections, match: {path: /connections}, upstream: one, check: off, timeout: 400ms}
- {name: hold-gated, match: {path: /hold/gated}, upstream: gated, check: off}
- {name: overload, match: {path: /overload}, upstream: gated, check: off, timeout: 400ms}
";

#[test]
fn the_total_timeout_holds_for_every_wait() {
    let silent = Upstream::scripted(|exchange: &mut Exchange<'_>| exchange.silence());
    let full = FullListener::new();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = Setup::default()
        .value("silent", silent.address)
        .value("full", full.address)
        .value("mute", mute.local_addr().unwrap())
        .start(ROUTES);
    let mut held: Vec<Client> = Vec::new();
    for target in ["/hold/one", "/hold/gated"] {
        let mut client = gateway.client();
        client.request("GET", target, &[]);
        held.push(client);
    }
    silent.wait_for(2);
    // The first one is admitted at once.
    assert_eq!((gateway.get("/leaky").status, gateway.get("/lane").status), (200, 200));
    assert_eq!(gateway.get("/lane").status, 200, "the lane is free");
    let waits = [
        "/response",
        "/connect",
        "/settings",
        "/leaky",
        "/lane",
        "/checked",
        "/token",
        "/connections",
        "/overload",
    ];
    in_parallel(waits.len(), |at| {
        let watch = Stopwatch::start();
        let response = gateway.ask("GET", waits[at], &[("authorization", "Bearer opaque-token")]);
        times_out(&watch, &response, waits[at]);
    });
    // Places in queues are free again: as many can wait as before, and over HTTP/2 it is the same.
    for target in ["/leaky", "/connections", "/overload"] {
        let mut h2 = H2::connect(gateway.edge);
        h2.send(get(1, target));
        assert_eq!(h2.end(1), End::Status(504), "{target}");
    }
    let waiting =
        gateway.metric("sluicegate_upstream_queued", &[("upstream", "gated"), ("priority", "default")]);
    assert_eq!(waiting, 0.0);
    drop(held);
}

/// Rules that are not there yet, and a store that does not answer.
#[test]
fn the_total_timeout_holds_for_rules_and_the_store() {
    let silent = Upstream::scripted(|exchange: &mut Exchange<'_>| exchange.silence());
    let limit = "limits: {l: {key: api_key, rate: 100/d}}\n\
                 routes: [{name: api, respond: {status: 200}, limits: [l], timeout: 400ms}]\n";
    let rules = Setup::default()
        .value("rules", silent.address)
        .start(&format!("rules: {{url: 'http://{{rules}}/', timeout: 10s, wait: 1s}}\n{limit}"));
    let watch = Stopwatch::start();
    times_out(&watch, &rules.ask("GET", "/", &[("x-api-key", "a")]), "rules");

    let redis = RedisServer::start();
    let gateway = Gateway::start(&(redis.store_within("10s") + limit));
    Fleet::up_of(&gateway);
    assert_eq!(gateway.ask("GET", "/", &[("x-api-key", "a")]).status, 200);
    redis.freeze();
    let watch = Stopwatch::start();
    times_out(&watch, &gateway.ask("GET", "/", &[("x-api-key", "a")]), "store");
    redis.thaw();
}
