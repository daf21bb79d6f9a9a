//! Tokens over the network: answers to clients, what the upstream is told, and issuers that are down, slow or wrong.
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use crate::harness::issuer::{Signer, jwks, soon};
use crate::harness::{Exchange, Fleet, Gateway, RedisServer, Setup, Upstream, until};
use serde_json::{Value, json};

const RULES: &str = "
auth: {jwt: {audience: api, jwks: {url: 'http://{issuer}/keys', refresh: 1h}, MORE}}
limits: {per-user: {key: user | ip, rate: 1000/h}}
upstreams: {api: {servers: ['http://{upstream}']}}
routes: [{name: api, upstream: api, limits: [per-user]}]
";

/// A server of keys that does what it is told.
struct Issuer {
    server: Upstream,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Clone)]
enum Answer {
    /// 200 with this body.
    Says(String),
    /// A redirect.
    Elsewhere,
    /// 500.
    Fails,
    /// Not a word.
    Hangs,
    /// No end.
    Floods,
}

impl Issuer {
    fn new(answer: Answer) -> Self {
        let answer = Arc::new(Mutex::new(answer));
        let shown = Arc::clone(&answer);
        let server = Upstream::scripted(move |exchange: &mut Exchange<'_>| {
            let answer = shown.lock().unwrap().clone();
            match answer {
                Answer::Says(body) => exchange.answer(200, &[], body.as_bytes()),
                Answer::Elsewhere => exchange.answer(302, &[("location", "http://127.0.0.1:1/")], b""),
                Answer::Fails => exchange.answer(500, &[], b"{}"),
                Answer::Hangs => exchange.silence(),
                Answer::Floods => {
                    exchange.write("HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n");
                    while exchange.write(vec![b' '; 64 << 10]) {}
                    exchange.close();
                }
            }
        });
        Self { server, answer }
    }

    fn now(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }
}

fn claims() -> Value {
    json!({ "aud": "api", "sub": "ada", "exp": soon() })
}

fn start(upstream: &Upstream, issuer: &Issuer, more: &str) -> Gateway {
    let rules = RULES.replace(", MORE", if more.is_empty() { "" } else { more });
    Setup::default().upstream(upstream).value("issuer", issuer.server.address).start(&rules)
}

fn ask(gateway: &Gateway, token: &str) -> u16 {
    gateway.ask("GET", "/", &[("authorization", &format!("Bearer {token}"))]).status
}

fn knows(gateway: &Gateway, keys: u64) {
    until("the keys are known", || {
        (gateway.admin_get("/status").json()["jwt"]["keys"] == keys).then_some(())
    });
}

fn trouble(gateway: &Gateway) -> String {
    until("the trouble is told", || {
        gateway.admin_get("/status").json()["jwt"]["trouble"].as_str().map(str::to_owned)
    })
}

#[test]
fn an_invalid_token_is_answered_401_with_the_reason() {
    let signer = Signer::ed25519("k");
    let issuer = Issuer::new(Answer::Says(jwks(&[&signer])));
    let upstream = Upstream::answering("ok");
    let gateway = start(&upstream, &issuer, "");
    knows(&gateway, 1);
    assert_eq!(ask(&gateway, &signer.token(&claims())), 200);
    assert_eq!(gateway.get("/").status, 200, "without a token, none is required");
    let mut old = claims();
    old["exp"] = 1_000_000_000.into();
    let bearer = format!("Bearer {}", signer.token(&old));
    let answer = gateway.ask("GET", "/", &[("authorization", &bearer)]);
    assert_eq!(answer.status, 401);
    assert_eq!(
        answer.header("www-authenticate"),
        Some(
            "Bearer realm=\"sluicegate\", error=\"invalid_token\", error_description=\"the token has expired\""
        )
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.problem()["detail"], "the token has expired");
    let grpc = [("authorization", bearer.as_str()), ("content-type", "application/grpc")];
    let answer = gateway.ask("POST", "/", &grpc);
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("16")));
    assert_eq!(upstream.seen().len(), 2, "none of the refused ones came through");
    assert_eq!(gateway.metric("sluicegate_requests_total", &[("route", "api"), ("code", "401")]), 1.0);
}

#[test]
fn a_missing_token_is_answered_401() {
    let signer = Signer::ed25519("k");
    let issuer = Issuer::new(Answer::Says(jwks(&[&signer])));
    let upstream = Upstream::answering("ok");
    let gateway = start(&upstream, &issuer, ", required: true");
    knows(&gateway, 1);
    let answer = gateway.get("/");
    assert_eq!(answer.status, 401);
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"sluicegate\""));
    answer.problem();
    assert_eq!(ask(&gateway, &signer.token(&claims())), 200);
}

/// A limit that is asked for nobody says what would name somebody.
#[test]
fn requests_without_a_user_are_answered_401() {
    let signer = Signer::ed25519("k");
    let challenge = |key: &str| {
        let rules = "auth: {jwt: {audience: api, jwks: {file: jwks.json}}}\n\
            limits: {l: {key: KEY, rate: 10/day, on_missing: deny}}\n\
            routes: [{name: all, respond: {status: 200}, limits: [l]}]\n";
        let gateway = Setup::default().file("jwks.json", &jwks(&[&signer])).start(&rules.replace("KEY", key));
        assert_eq!(gateway.ask("GET", "/", &[("authorization", "Basic YTpi")]).status, 401, "{key}");
        let call = gateway.ask("POST", "/", &[("content-type", "application/grpc")]);
        assert_eq!((call.status, call.header("grpc-status")), (200, Some("16")), "{key}");
        let answer = gateway.get("/");
        assert_eq!(answer.problem()["status"], 401, "{key}");
        let mut claims = claims();
        claims["tenant"] = "t".into();
        let bearer = format!("Bearer {}", signer.token(&claims));
        assert_eq!(
            gateway.ask("GET", "/", &[("authorization", &bearer), ("x-api-key", "k")]).status,
            200,
            "{key}"
        );
        answer.header("www-authenticate").unwrap_or_default().to_owned()
    };
    for key in ["user", "'jwt:tenant'", "api_key | user", "[ip, user]"] {
        assert_eq!(challenge(key), "Bearer realm=\"sluicegate\"", "{key}");
    }
    for key in ["api_key", "[api_key, user]"] {
        assert_eq!(challenge(key), "ApiKey realm=\"sluicegate\"", "{key}");
    }
}

/// A request has a consumer and a user: both are asked for, told, and counted together. A file of consumers that
/// changes leaves the users' keys alone.
#[test]
fn a_request_may_have_a_consumer_and_a_user() {
    let signer = Signer::ed25519("k");
    let issuer = Issuer::new(Answer::Says(jwks(&[&signer])));
    let upstream = Upstream::answering("ok");
    let rules = RULES
        .replace("auth: {", "auth: {api_key: {consumers: consumers.yaml, required: true}, ")
        .replace(", MORE", ", required: true, forward: {X-User: sub}")
        .replace("user | ip, rate: 1000/h", "[consumer, user], rate: 2/day");
    // The SHA-256 of `k1`.
    let entry = |name: &str| {
        format!(
            "- {{name: {name}, key: sha256:6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2c446f0e58668b09c08a16dd0}}\n"
        )
    };
    let setup = Setup::default().upstream(&upstream).value("issuer", issuer.server.address);
    let gateway = setup.file("consumers.yaml", &entry("acme")).start(&rules);
    knows(&gateway, 1);
    let of = |sub: &str| {
        let mut claims = claims();
        claims["sub"] = sub.into();
        format!("Bearer {}", signer.token(&claims))
    };
    let status =
        |sub: &str| gateway.ask("GET", "/", &[("authorization", &of(sub)), ("x-api-key", "k1")]).status;
    assert_eq!([status("ada"), status("ada"), status("ada"), status("eve")], [200, 200, 429, 200]);
    let seen = upstream.last().head;
    assert_eq!((seen.one("x-consumer-name"), seen.one("x-user")), (Some("acme"), Some("eve")));
    for (headers, wanted) in [
        (&[("authorization", of("ada"))][..], "ApiKey realm=\"sluicegate\""),
        (&[("x-api-key", "k1".to_owned())], "Bearer realm=\"sluicegate\""),
        (&[], "ApiKey realm=\"sluicegate\""),
    ] {
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = gateway.ask("GET", "/", &headers);
        assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some(wanted)));
    }
    let fetched = issuer.server.seen().len();
    gateway.write_file("consumers.yaml", &entry("beta"));
    until("the consumer has another name", || (status("ada") == 200).then_some(()));
    assert_eq!(upstream.last().head.one("x-consumer-name"), Some("beta"));
    gateway.reload(&rules.replace("2/day", "3/day"));
    assert_eq!([status("bob"), status("bob"), status("bob"), status("bob")], [200, 200, 200, 429]);
    assert_eq!(issuer.server.seen().len(), fetched, "the keys are the same");
}

#[test]
fn the_upstream_gets_the_user_from_the_gateway_only() {
    let signer = Signer::ed25519("k");
    let issuer = Issuer::new(Answer::Says(jwks(&[&signer])));
    let upstream = Upstream::answering("ok");
    let gateway = start(&upstream, &issuer, ", forward: {X-User: sub, X-Tenant: org.id, X-Name: name}");
    knows(&gateway, 1);
    let forged =
        [("X-User", "root"), ("x-user", "root"), ("X_User", "root"), ("x-tenant", "1"), ("X-Name", "n")];
    gateway.ask("GET", "/", &forged);
    let seen = upstream.last().head;
    for name in ["x-user", "x_user", "x-tenant", "x-name"] {
        assert_eq!(seen.all(name), Vec::<&str>::new(), "{name} without a token");
    }
    let mut claims = claims();
    claims["org"] = json!({ "id": 7 });
    claims["name"] = "a\r\nX-User: root".into();
    let bearer = format!("Bearer {}", signer.token(&claims));
    for connection in ["close, X-User", "x-tenant , close", "keep-alive"] {
        let headers = [&forged[..], &[("authorization", &bearer), ("connection", connection)]].concat();
        assert_eq!(gateway.ask("GET", "/", &headers).status, 200);
        let seen = upstream.last().head;
        assert_eq!((seen.all("x-user"), seen.all("x_user")), (vec!["ada"], vec![]), "{connection}");
        assert_eq!((seen.all("x-tenant"), seen.all("x-name")), (vec!["7"], vec![]), "{connection}");
    }
    // Behind the body is still in the request.
    let mut client = gateway.client();
    let head = [("transfer-encoding", "chunked"), ("te", "trailers"), ("trailer", "X-User, X_User, X-Sum")];
    client
        .request("POST", "/", &head)
        .send("1\r\na\r\n0\r\nX-User: root\r\nX_User: root\r\nX-Sum: 1\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let seen = upstream.last().head;
    assert_eq!((seen.all("x-user"), seen.all("x_user"), seen.all("x-sum")), (vec![], vec![], vec!["1"]));
}

#[test]
fn keys_are_rotated() {
    let (old, new) = (Signer::ed25519("old"), Signer::es256("new"));
    let issuer = Issuer::new(Answer::Says(jwks(&[&old])));
    let upstream = Upstream::answering("ok");
    let gateway = start(&upstream, &issuer, "");
    knows(&gateway, 1);
    let (of_old, of_new) = (old.token(&claims()), new.token(&claims()));
    assert_eq!(ask(&gateway, &of_old), 200);
    issuer.now(Answer::Says(jwks(&[&new])));
    assert_eq!(ask(&gateway, &of_new), 401, "no request waits for the issuer");
    until("the new key is known", || (ask(&gateway, &of_new) == 200).then_some(()));
    assert_eq!(ask(&gateway, &of_old), 401, "what the old key had verified is forgotten");
    // Whoever makes up keys does not have the issuer asked for each.
    for kid in 0..50 {
        assert_eq!(ask(&gateway, &Signer::ed25519(&kid.to_string()).token(&claims())), 401);
    }
    assert_eq!(issuer.server.seen().len(), 2);
}

#[test]
fn the_gateway_starts_without_its_issuer_and_finds_it_later() {
    let signer = Signer::ed25519("k");
    let issuer = Issuer::new(Answer::Fails);
    let upstream = Upstream::answering("ok");
    let gateway = start(&upstream, &issuer, "");
    assert_eq!(trouble(&gateway), "it answered with status 500");
    let bearer = format!("Bearer {}", signer.token(&claims()));
    let answer = gateway.ask("GET", "/", &[("authorization", &bearer)]);
    assert_eq!(answer.status, 401);
    assert_eq!(answer.problem()["detail"], "tokens cannot be verified at the moment");
    assert_eq!(gateway.get("/").status, 200, "who needs no token is served");
    issuer.now(Answer::Says(jwks(&[&signer])));
    until("the issuer is back", || (ask(&gateway, &signer.token(&claims())) == 200).then_some(()));
    assert_eq!(gateway.admin_get("/status").json()["jwt"], json!({ "keys": 1, "trouble": null }));
}

#[test]
fn invalid_answers_of_an_issuer_change_nothing() {
    let signer = Signer::ed25519("k");
    let issuer = Issuer::new(Answer::Says(jwks(&[&signer])));
    let upstream = Upstream::answering("ok");
    let rules = RULES.replace(", MORE", "").replace("refresh: 1h", "refresh: 1s");
    let gateway = Setup::default().upstream(&upstream).value("issuer", issuer.server.address).start(&rules);
    knows(&gateway, 1);
    for (answer, why) in [
        (Answer::Says("<html>Sign in</html>".to_owned()), "it is not JSON"),
        (Answer::Says("{}".to_owned()), "it is not a JWK set: `keys` is missing"),
        (Answer::Says(r#"{"keys":[]}"#.to_owned()), "it holds no keys"),
        (
            Answer::Says(jwks(&[&Signer::hs256(b"0123456789abcdef0123456789abcdef")])),
            "it holds no key that verifies tokens: a key is neither RSA, P-256, P-384 nor Ed25519",
        ),
        (Answer::Elsewhere, "it answered with status 302"),
        (Answer::Floods, "its answer breaks off, or is larger than 1 MiB"),
    ] {
        issuer.now(answer);
        until(why, || (trouble(&gateway) == why).then_some(()));
        assert_eq!(ask(&gateway, &signer.token(&claims())), 200, "{why}");
    }
    assert!(gateway.peak_memory() < 200 << 20, "{}", gateway.peak_memory());
    assert_eq!(gateway.times_logged("gives no keys for tokens"), 1, "people are told once");
    // The same place, asked less often: what is known of it stays.
    let before = gateway.generation();
    gateway.write(&rules.replace("refresh: 1s", "refresh: 1h"));
    until("the new file is in force", || (gateway.generation() > before).then_some(()));
    assert_eq!(ask(&gateway, &signer.token(&claims())), 200);
    issuer.now(Answer::Says(jwks(&[&signer, &Signer::ed25519("other")])));
    knows(&gateway, 2);
    until("all is well", || gateway.admin_get("/status").json()["jwt"]["trouble"].is_null().then_some(()));
}

#[test]
fn a_slow_issuer_times_out_and_delays_no_request() {
    let signer = Signer::ed25519("k");
    let issuer = Issuer::new(Answer::Hangs);
    let upstream = Upstream::answering("ok");
    let gateway = start(&upstream, &issuer, "");
    issuer.server.wait_for(1);
    assert_eq!(ask(&gateway, &signer.token(&claims())), 401);
    let shown = gateway.admin_get("/status").json()["jwt"]["trouble"].clone();
    assert!(shown.is_null(), "the gateway still waits for the issuer: {shown}");
    assert_eq!(trouble(&gateway), "it did not answer within 5 seconds");
}

/// One answer after the other over TLS, by a certificate that nobody signed but itself.
pub(crate) fn over_tls(body: String) -> (SocketAddr, String) {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let pem = own.cert.pem();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.into()], key.into())
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut tls = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = rustls::Stream::new(&mut tls, &mut stream);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            // Whoever does not believe the certificate goes away.
            if stream.read(&mut [0; 4096]).is_ok() && stream.write_all(head.as_bytes()).is_ok() {
                let _ = stream.read(&mut [0; 16]); // until the gateway has read it all
            }
        }
    });
    (address, pem)
}

#[test]
fn the_issuers_certificate_is_verified() {
    let signer = Signer::ed25519("k");
    let (address, ca) = over_tls(jwks(&[&signer]));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), ca).unwrap();
    let upstream = Upstream::answering("ok");
    let rules = RULES.replace("http://{issuer}", "https://{issuer}").replace("refresh: 1h", "ca: '{ca}'");
    let rules = rules.replace(", MORE", "");
    let setup = || Setup::default().upstream(&upstream).value("issuer", address);
    let gateway = setup().value("ca", folder.path().join("ca.pem").display()).start(&rules);
    knows(&gateway, 1);
    assert_eq!(ask(&gateway, &signer.token(&claims())), 200);
    let stranger = setup().start(&rules.replace(", ca: '{ca}'", ""));
    let why = trouble(&stranger);
    assert!(why.starts_with("TLS with 127.0.0.1: ") || why.starts_with("this machine has no"), "{why}");
    assert_eq!(ask(&stranger, &signer.token(&claims())), 401);
}

#[test]
fn a_file_of_keys_is_watched() {
    let (old, new) = (Signer::ed25519("old"), Signer::rsa("new", "RS256"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.json");
    std::fs::write(&file, jwks(&[&old])).unwrap();
    let upstream = Upstream::answering("ok");
    let rules =
        RULES.replace(", MORE", "").replace("url: 'http://{issuer}/keys', refresh: 1h", "file: '{file}'");
    let gateway = Setup::default().upstream(&upstream).value("file", file.display()).start(&rules);
    assert_eq!(ask(&gateway, &old.token(&claims())), 200);
    std::fs::write(&file, "{").unwrap();
    assert_eq!(trouble(&gateway), "it is not JSON");
    assert_eq!(ask(&gateway, &old.token(&claims())), 200, "the last good keys stay");
    std::fs::write(&file, jwks(&[&new])).unwrap();
    until("the new key is known", || (ask(&gateway, &new.token(&claims())) == 200).then_some(()));
    assert_eq!(ask(&gateway, &old.token(&claims())), 401);
}

#[test]
fn gateways_that_share_a_store_share_a_users_limit() {
    let signer = Signer::ed25519("k");
    let issuer = Issuer::new(Answer::Says(jwks(&[&signer])));
    let redis = RedisServer::start();
    let rules =
        RULES.replace(", MORE", "").replace("user | ip, rate: 1000/h", "[user, 'jwt:org.id'], rate: 10/366d");
    let rules = redis.store() + &rules.replace("upstream: api", "respond: {status: 200}");
    let rules = rules.replace("upstreams: {api: {servers: ['http://{upstream}']}}\n", "");
    let setup = || Setup::default().value("issuer", issuer.server.address);
    let fleet = Fleet::of(vec![setup(), setup()], &rules);
    fleet.up();
    fleet.iter().for_each(|gateway| knows(gateway, 1));
    let token = |sub: &str, org: u32| {
        let mut claims = claims();
        claims["sub"] = sub.into();
        claims["org"] = json!({ "id": org });
        signer.token(&claims)
    };
    // Another token of the same user each time, on the one gateway and the other.
    let admitted = (0..30).filter(|turn| ask(&fleet[turn % 2], &token("ada", 7)) == 200).count();
    assert_eq!(admitted, 10);
    assert_eq!(ask(&fleet[0], &token("eve", 7)), 200);
    assert_eq!(ask(&fleet[1], &token("ada", 8)), 200);
    assert_eq!(fleet.fallbacks(), 0.0);
}

#[test]
fn nothing_reveals_a_secret() {
    let secret = "sesame-sesame-sesame-sesame-sesame";
    let rules = format!(
        "auth: {{jwt: {{audience: api, secret: {secret}, required: true}}}}\nroutes: [{{name: a, respond: {{status: 200}}}}]\n"
    );
    let gateway = Gateway::start(&rules);
    assert_eq!(ask(&gateway, &Signer::hs256(secret.as_bytes()).token(&claims())), 200);
    for path in ["/config", "/status", "/metrics", "/limits"] {
        assert!(!gateway.admin_get(path).text().contains("sesame"), "{path}");
    }
    assert!(!gateway.log().contains("sesame"));
}
