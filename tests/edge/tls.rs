//! TLS for clients: the right certificate, renewal without losing a connection, and client certificates.

use std::sync::Arc;
use std::time::Duration;

use crate::harness::tls::{Authority, Certificate, TlsClient};
use crate::harness::{Gateway, Setup, Upstream, program, until};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion};

const ROUTES: &str = "routes: [{respond: {status: 200, body: ok}}]\n";

fn listen(tls: &str) -> String {
    format!("listen: [{{name: edge, address: \"{{edge}}\", tls: {{{tls}}}}}]\n")
}

fn pair(name: &str) -> String {
    format!("{{cert: {name}.pem, key: {name}.key}}")
}

fn with_pairs(pairs: &[(&str, &Certificate)]) -> Setup {
    pairs.iter().fold(Setup::default(), |setup, (name, pair)| {
        setup.file(&format!("{name}.pem"), &pair.cert).file(&format!("{name}.key"), &pair.key)
    })
}

fn one(authority: &Authority, tls: &str, more: &str) -> (Gateway, Certificate) {
    let own = authority.sign(&["api.test"]);
    let yaml = format!("{}{more}", listen(&format!("certificates: [{}]{tls}", pair("own"))));
    (with_pairs(&[("own", &own)]).file("ca.pem", &authority.pem()).start(&yaml), own)
}

fn connect(gateway: &Gateway, config: &ClientConfig, name: &str) -> std::io::Result<TlsClient> {
    TlsClient::connect(&Arc::new(config.clone()), gateway.edge, name, b"")
}

/// An exact name goes before a wildcard, and who asks for neither is shown the first.
#[test]
fn the_certificate_is_chosen_by_name() {
    let authority = Authority::new();
    let (first, wild, exact) = (
        authority.sign(&["first.test"]),
        authority.sign(&["*.api.test"]),
        authority.sign(&["eu.api.test", "api.test"]),
    );
    let pairs = [("first", &first), ("wild", &wild), ("exact", &exact)];
    let names: Vec<String> = pairs.iter().map(|(name, _)| pair(name)).collect();
    let yaml = listen(&format!("certificates: [{}]", names.join(", "))) + ROUTES;
    let gateway = with_pairs(&pairs).start(&yaml);
    let client = authority.client(None);
    for (name, shown) in [
        ("first.test", &first),
        ("us.api.test", &wild),
        ("eu.api.test", &exact),
        ("EU.api.test", &exact),
        ("api.test", &exact),
    ] {
        let mut connection = connect(&gateway, &client, name).unwrap();
        assert_eq!(connection.shown(), shown.der(), "{name}");
        assert_eq!(connection.ask("/", &[("host", name)]).unwrap(), (200, "ok".to_owned()), "{name}");
    }
    let unknown = connect(&gateway, &client, "other.test").err().unwrap();
    assert!(unknown.to_string().contains("only valid for DnsName(\"first.test\")"), "{unknown}");
    let mut nameless = client.clone();
    nameless.enable_sni = false;
    assert_eq!(connect(&gateway, &nameless, "first.test").unwrap().shown(), first.der());
    // A connection for one host is none for another that has a certificate of its own.
    let mut connection = connect(&gateway, &client, "us.api.test").unwrap();
    for (host, status) in
        [("asia.api.test", 200), ("api.test", 421), ("first.test", 421), ("other.test", 200)]
    {
        assert_eq!(connection.ask("/", &[("host", host)]).unwrap().0, status, "{host}");
    }
}

/// A renewed pair is shown to new connections; old ones go on; half a renewal, and an expired one, change nothing.
#[test]
fn certificates_are_renewed_while_connections_go_on() {
    let authority = Authority::new();
    let (gateway, old) = one(&authority, "", ROUTES);
    let client = authority.client(None);
    let mut kept = connect(&gateway, &client, "api.test").unwrap();
    assert_eq!(kept.ask("/", &[]).unwrap().0, 200);

    let expired = authority.sign_as(&["api.test"], "", 0);
    let late = authority.sign_as(&["api.test"], "", 3);
    let expired = Certificate { cert: expired.cert, key: old.key.clone() };
    let good = |wanted: f64| {
        until("the gateway has looked", || {
            (gateway.metric("sluicegate_config_last_reload_successful", &[]) == wanted).then_some(())
        });
    };
    for wrong in [late.cert.as_str(), expired.cert.as_str(), "nothing", ""] {
        gateway.write_file("own.pem", wrong);
        good(0.0);
        assert_eq!(connect(&gateway, &client, "api.test").unwrap().shown(), old.der());
        let errors = gateway.admin_get("/status").json()["file_errors"].to_string();
        assert!(errors.contains("own."), "{errors}");
        gateway.write_file("own.pem", &old.cert);
        good(1.0);
    }
    gateway.write_file("own.pem", &late.cert);
    gateway.write_file("own.key", &late.key);
    until("the new one is shown", || {
        (connect(&gateway, &client, "api.test").unwrap().shown() == late.der()).then_some(())
    });
    good(1.0);
    until("that is logged", || gateway.log().contains("expires on").then_some(()));
    let expiry = "sluicegate_tls_certificate_expiry_timestamp_seconds";
    assert_eq!(gateway.metrics().label_values(expiry, "certificate").len(), 1);
    assert_eq!(kept.ask("/", &[]).unwrap().0, 200, "a connection from before goes on");
}

/// TLS is turned off and on again under the same address, for the connections that come after.
#[test]
fn a_listener_changes_by_reload() {
    let authority = Authority::new();
    let (gateway, _) = one(&authority, "", ROUTES);
    let client = authority.client(None);
    let mut kept = connect(&gateway, &client, "api.test").unwrap();
    assert_eq!(kept.ask("/", &[]).unwrap().0, 200);
    gateway.reload(ROUTES);
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(kept.ask("/", &[]).unwrap().0, 200);
    gateway.reload(&(listen(&format!("certificates: [{}], min_version: 1.3", pair("own"))) + ROUTES));
    assert_eq!(connect(&gateway, &client, "api.test").unwrap().ask("/", &[]).unwrap().0, 200);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let mut roots = rustls::RootCertStore::empty();
    let ca = <rustls::pki_types::CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(
        authority.pem().as_bytes(),
    );
    roots.add(ca.unwrap()).unwrap();
    let older = builder
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    assert!(connect(&gateway, &older, "api.test").is_err());
    gateway.reload(&(listen(&format!("certificates: [{}]", pair("own"))) + ROUTES));
    let connection = connect(&gateway, &older, "api.test").unwrap();
    assert_eq!(connection.stream.conn.protocol_version(), Some(ProtocolVersion::TLSv1_2));
}

/// A limit may count by certificate; only a verified one is anybody.
#[test]
fn clients_are_known_by_their_certificates() {
    let authority = Authority::new();
    let limits = "limits: {l: {key: \"tls:subject\", rate: 2/h, on_missing: deny}, f: {key: \"tls:fingerprint\", rate: 1/h}}\n\
                  routes: [{match: {path: /once}, respond: {status: 200}, limits: [f]},\n  \
                  {respond: {status: 200, body: ok}, limits: [l]}]\n";
    let (gateway, _) = one(&authority, ", client_ca: ca.pem, client_auth: optional", limits);
    let ask = |own: Option<&Certificate>| {
        connect(&gateway, &authority.client(own), "api.test").and_then(|mut client| client.ask("/", &[]))
    };
    let (alice, bob) = (authority.sign_client("alice"), authority.sign_client("bob, O=Other"));
    assert_eq!(ask(None).unwrap().0, 401);
    assert_eq!([200, 200, 429], [(); 3].map(|()| ask(Some(&alice)).unwrap().0));
    assert_eq!(ask(Some(&bob)).unwrap().0, 200);
    assert_eq!(gateway.remaining("l", "CN=alice%2CO=Tests"), 0);
    assert_eq!(gateway.remaining("l", "CN=bob%5C%2C%20O=Other%2CO=Tests"), 1);
    let once = |own: &Certificate| {
        let mut client = connect(&gateway, &authority.client(Some(own)), "api.test").unwrap();
        client.ask("/once", &[]).unwrap().0
    };
    let renewed = authority.sign_client("alice");
    assert_eq!([once(&alice), once(&alice), once(&renewed)], [200, 429, 200]);
    let stranger = Authority::new().sign_client("alice");
    assert!(ask(Some(&stranger)).is_err(), "a certificate of another authority is nobody's");

    let required = listen(&format!("certificates: [{}], client_ca: ca.pem", pair("own"))) + limits;
    gateway.reload(&required);
    assert!(ask(None).is_err());
    // What was remembered of a client that needed no certificate does not let it in now.
    assert_eq!(ask(Some(&bob)).unwrap().0, 200);
    // Another authority takes the place of the first: the file is enough.
    gateway.write_file("ca.pem", &Authority::new().pem());
    until("the new authority is in force", || ask(Some(&bob)).is_err().then_some(()));
}

/// The upstream is told whose certificate it was; clients cannot say it themselves.
#[test]
fn the_upstream_is_told_the_certificate() {
    let authority = Authority::new();
    let upstream = Upstream::answering("ok");
    let rules = format!(
        "upstreams: {{api: {{servers: ['http://{}']}}}}\n\
         request_headers: {{set: {{X-Subject: '{{tls:subject}}', X-Print: 'sha256={{tls:fingerprint}}'}}}}\n\
         routes: [{{name: all, upstream: api}}]\n",
        upstream.address
    );
    let (gateway, _) = one(&authority, ", client_ca: ca.pem, client_auth: optional", &rules);
    let ask = |own: Option<&Certificate>| {
        let mut client = connect(&gateway, &authority.client(own), "api.test").unwrap();
        assert_eq!(client.ask("/", &[("x-subject", "CN=root"), ("x-print", "x")]).unwrap().0, 200);
        let head = upstream.last().head;
        (head.one("x-subject").map(str::to_owned), head.one("x-print").map(str::to_owned))
    };
    let alice = authority.sign_client("alice");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &alice.der());
    let print: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(ask(Some(&alice)), (Some("CN=alice,O=Tests".to_owned()), Some(format!("sha256={print}"))));
    assert_eq!(ask(None), (None, Some("sha256=".to_owned())));
}

/// What the client was remembered for holds under the same rules only.
#[test]
fn sessions_are_resumed() {
    let authority = Authority::new();
    let (gateway, _) = one(&authority, "", ROUTES);
    let client = Arc::new(authority.client(None));
    let kinds = [(); 3].map(|()| {
        let mut connection = TlsClient::connect(&client, gateway.edge, "api.test", b"").unwrap();
        assert_eq!(connection.ask("/", &[]).unwrap().0, 200);
        connection.stream.conn.handshake_kind().unwrap()
    });
    assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed]);
    let count = |outcome| {
        gateway.metric("sluicegate_tls_handshakes_total", &[("listener", "edge"), ("outcome", outcome)])
    };
    assert_eq!((count("full"), count("resumed")), (1.0, 2.0));
    gateway.reload(&(listen(&format!("certificates: [{}], client_ca: ca.pem", pair("own"))) + ROUTES));
    let refused = TlsClient::connect(&client, gateway.edge, "api.test", b"")
        .and_then(|mut connection| connection.ask("/", &[]));
    assert!(refused.is_err(), "a ticket from before does not stand for a certificate");
}

/// Upstreams learn that the client spoke TLS.
#[test]
fn upstreams_get_the_scheme_https() {
    let upstream = Upstream::scripted(|exchange| {
        let reply = exchange.seen.head.all("x-forwarded-proto").join(",");
        exchange.answer(200, &[], reply.as_bytes());
    });
    let authority = Authority::new();
    let own = authority.sign(&["api.test"]);
    let yaml = listen(&format!("certificates: {}", pair("own")))
        + "upstreams: {api: {servers: [\"http://{upstream}\"]}}\nroutes: [{upstream: api}]\n";
    let gateway = with_pairs(&[("own", &own)]).upstream(&upstream).start(&yaml);
    let mut client = connect(&gateway, &authority.client(None), "api.test").unwrap();
    assert_eq!(client.ask("/", &[("x-forwarded-proto", "http")]).unwrap(), (200, "https".to_owned()));
}

/// HTTP/2 where it is agreed on, and nothing but what is agreed on.
#[test]
fn the_protocol_is_agreed_on() {
    let authority = Authority::new();
    let (gateway, _) = one(&authority, "", ROUTES);
    let with = |protocols: &[&[u8]]| {
        let mut config = authority.client(None);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        connect(&gateway, &config, "api.test")
    };
    for (offered, agreed) in
        [(&[&b"http/1.1"[..], b"h2"][..], &b"h2"[..]), (&[b"http/1.1"], b"http/1.1"), (&[b"h2"], b"h2")]
    {
        assert_eq!(with(offered).unwrap().stream.conn.alpn_protocol(), Some(agreed));
    }
    assert!(with(&[b"spdy/3"]).is_err());
    use std::io::{Read, Write};
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let mut client = with(protocols).unwrap();
        client.stream.write_all(preface).unwrap();
        let mut answer = Vec::new();
        let _ = client.stream.read_to_end(&mut answer); // with or without a word at the end
        let text = String::from_utf8_lossy(&answer);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text:?}");
    }
    let mut h2 = with(&[b"h2"]).unwrap();
    h2.stream.write_all(preface).unwrap();
    let mut frame = [0; 9];
    h2.stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "settings come first");
    let mut h2 = with(&[b"h2"]).unwrap();
    h2.stream.write_all(b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = h2.stream.read_to_end(&mut answer); // it is closed, with a GOAWAY
    assert!(!answer.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&answer));
}

/// Who says nothing, or no TLS, is cut off; nobody else notices.
#[test]
fn handshakes_have_a_deadline() {
    let authority = Authority::new();
    let (gateway, _) = one(&authority, ", handshake_timeout: 3s", ROUTES);
    let count = |outcome| {
        gateway.metric("sluicegate_tls_handshakes_total", &[("listener", "edge"), ("outcome", outcome)])
    };
    let mut silent = gateway.client();
    let mut slow = gateway.client();
    slow.send([0x16, 3, 1, 2, 0, 1]);
    let mut plain = gateway.client();
    plain.send("GET / HTTP/1.1\r\nHost: api.test\r\n\r\n");
    assert_eq!(connect(&gateway, &authority.client(None), "api.test").unwrap().ask("/", &[]).unwrap().0, 200);
    assert!(silent.is_closed() && slow.is_closed());
    let mut reply = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain.reader.stream, &mut reply); // an alert, and the end
    assert!(reply.len() <= 7 && !reply.starts_with(b"HTTP"), "{reply:?}");
    until("they are counted", || (count("timeout") == 2.0 && count("failed") >= 1.0).then_some(()));
    drop(plain);
    let open = || gateway.metric("sluicegate_connections", &[("listener", "edge")]);
    until("the last one has ended", || (open() == 0.0).then_some(()));
    assert!(!gateway.log().contains("TLS with"), "one client is no news");
}

/// A client that stops in the middle of a head is told so, inside TLS.
#[test]
fn plain_http_on_a_tls_listener_is_not_answered() {
    use std::io::{Read, Write};
    let authority = Authority::new();
    let (gateway, _) = one(&authority, "", ROUTES);
    let mut client = connect(&gateway, &authority.client(None), "api.test").unwrap();
    client.stream.sock.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.stream.write_all(b"GET / HTTP/1.1\r\nHost: ap").unwrap();
    let mut answer = Vec::new();
    client.stream.read_to_end(&mut answer).unwrap_or_default();
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
}

/// `check` says what renewing would say.
#[test]
fn check_warns_of_certificates_that_expire() {
    let authority = Authority::new();
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let yaml = listen(&format!("certificates: [{}]", pair("own"))).replace("{edge}", "127.0.0.1:8443");
    write("gateway.yaml", &(yaml + ROUTES));
    let check = || {
        let output = program().arg("check").arg(folder.path().join("gateway.yaml")).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    for (days, code, says) in [(90, 0, ""), (13, 0, "warning: "), (0, 1, "has expired on")] {
        let own = authority.sign_as(&["api.test"], "", days);
        write("own.pem", &own.cert);
        write("own.key", &own.key);
        let (found, text) = check();
        assert_eq!(found, Some(code), "{days} days: {text}");
        assert!(text.contains(says), "{days} days: {text}");
    }
}

/// A certificate whose time has not come does not replace one that is valid, neither by itself nor by a reload.
#[test]
fn a_certificate_that_is_not_valid_yet_is_not_used() {
    let pem = |year: i32| {
        let mut params = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(year, 1, 1), rcgen::date_time_ymd(2999, 1, 1));
        let key = rcgen::KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let (cert, key) = pem(2020);
    let yaml = format!(
        "{}routes: [{{name: all, respond: {{status: 200}}}}]\n",
        listen(&format!("certificates: [{}]", pair("a")))
    );
    let gateway = Setup::default().file("a.pem", &cert).file("a.key", &key).start(&yaml);
    let in_force = || gateway.admin_get("/status").json()["tls"].to_string();
    let before = in_force();
    let (cert, key) = pem(2990);
    gateway.write_file("a.pem", &cert);
    gateway.write_file("a.key", &key);
    let is_told =
        || gateway.admin_get("/status").json()["file_errors"].to_string().contains("is not valid before");
    crate::harness::until("it is told", || is_told().then_some(()));
    assert_eq!(gateway.admin_change("POST", "/reload").status, 200, "it is in the way of no other change");
    assert_eq!(in_force(), before);
    crate::harness::until("it is told after the reload", || is_told().then_some(()));
    let (cert, key) = pem(2021);
    gateway.write_file("a.pem", &cert);
    gateway.write_file("a.key", &key);
    crate::harness::until("a valid one is taken", || {
        (!is_told() && gateway.log().contains("a.pem is in force")).then_some(())
    });
}
