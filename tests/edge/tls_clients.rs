//! TLS with clients of limited abilities: the certificate whose signatures they support, and the alert that says what
//! is missing.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::tls::{Authority, Certificate, TlsClient};
use crate::harness::{Gateway, Setup, Stopwatch, deadline, sleep, until};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// A gateway with these certificates.
fn start(pairs: &[&Certificate], authority: &Authority, more: &str) -> Gateway {
    let files = |at: usize| (format!("{at}.pem"), format!("{at}.key"));
    let mut setup = Setup::default().file("ca.pem", &authority.pem());
    let mut names = Vec::new();
    for (at, pair) in pairs.iter().enumerate() {
        let (cert, key) = files(at);
        setup = setup.file(&cert, &pair.cert).file(&key, &pair.key);
        names.push(format!("{{cert: {cert}, key: {key}}}"));
    }
    setup.start(&format!(
        "listen: [{{name: edge, address: \"{{edge}}\", tls: {{certificates: [{}]{more}}}}}]\n\
         routes: [{{respond: {{status: 200, body: ok}}}}]\n",
        names.join(", ")
    ))
}

/// A client of one version of TLS. It knows the signatures whose names begin with this.
fn client(
    authority: &Authority,
    version: &'static SupportedProtocolVersion,
    signatures: &str,
) -> ClientConfig {
    let all = aws_lc_rs::default_provider();
    let known = all.signature_verification_algorithms;
    let mapping: Vec<_> = known
        .mapping
        .iter()
        .filter(|(scheme, _)| format!("{scheme:?}").starts_with(signatures))
        .copied()
        .collect();
    let known = WebPkiSupportedAlgorithms { mapping: mapping.leak(), ..known };
    let provider = CryptoProvider { signature_verification_algorithms: known, ..all };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let builder =
        ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&[version]).unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

/// Who knows one kind of signatures only is shown a certificate with such a key, also without a name: one for the host of
/// the first certificate goes before others. A name that there is a certificate for is never answered with another's.
#[test]
fn a_client_is_shown_a_certificate_that_it_can_verify() {
    let authority = Authority::new();
    let elliptic = authority.sign(&["api.test"]);
    let other = authority.sign_rsa(&["other.test"]);
    let rsa = authority.sign_rsa(&["api.test"]);
    let gateway = start(&[&elliptic, &other, &rsa], &authority, "");
    for version in VERSIONS {
        for (signatures, sni, shown) in [
            ("", true, &elliptic),
            ("", false, &elliptic),
            ("RSA", true, &rsa),
            ("RSA", false, &rsa),
            ("ECDSA", false, &elliptic),
        ] {
            let mut config = client(&authority, version, signatures);
            config.enable_sni = sni;
            let connection = TlsClient::connect(&Arc::new(config), gateway.edge, "api.test", b"");
            let mut connection =
                connection.unwrap_or_else(|error| panic!("{version:?} {signatures} {sni}: {error}"));
            assert_eq!(connection.shown(), shown.der(), "{version:?} {signatures} {sni}");
            assert_eq!(connection.ask("/", &[]).unwrap().0, 200);
        }
        let config = client(&authority, version, "ECDSA");
        assert!(
            TlsClient::connect(&Arc::new(config), gateway.edge, "other.test", b"").is_err(),
            "{version:?}"
        );
    }
    let gateway = start(&[&elliptic, &other], &authority, "");
    let mut config = client(&authority, &TLS13, "RSA");
    config.enable_sni = false;
    let connection = TlsClient::connect(&Arc::new(config), gateway.edge, "other.test", b"").unwrap();
    assert_eq!(connection.shown(), other.der(), "any is better than none");
}

/// What ends the handshake of a client that shows no certificate and goes on sending without waiting for an answer.
/// `None` if it failed after more than the two seconds for which the gateway waits after the alert.
fn end(gateway: &Gateway, config: ClientConfig, is_old: bool) -> Option<rustls::Error> {
    let watch = Stopwatch::start();
    let failed = |why: String| {
        assert!(watch.elapsed() >= Duration::from_secs(2), "{why}");
        None
    };
    let name = ServerName::try_from("api.test").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect_timeout(&gateway.edge, deadline()).unwrap();
    socket.set_read_timeout(Some(deadline())).unwrap();
    let (mut flights, mut sent) = (0, false);
    loop {
        flights += u32::from(client.wants_write());
        while client.wants_write() {
            client.write_tls(&mut socket).unwrap();
        }
        // Its part of the handshake is done, as far as it knows. It goes on when the gateway has spoken, and perhaps closed.
        if !sent && (!client.is_handshaking() || (is_old && flights == 2)) {
            match socket.peek(&mut [0]) {
                Ok(1) => {}
                nothing => return failed(format!("there is no alert: {nothing:?}")),
            }
            for turn in 0..10 {
                if let Err(error) = socket.write_all(&[0x17; 1 << 10]) {
                    return failed(format!("the connection was reset ({turn}): {error}"));
                }
                sleep(Duration::from_millis(5)); // in which a reset would come
            }
            sent = true;
        }
        match client.read_tls(&mut socket) {
            Ok(0) => return failed("the connection was closed without an alert".to_owned()),
            Ok(_) => {}
            Err(error) => return failed(format!("the alert was lost: {error}")),
        }
        if let Err(error) = client.process_new_packets() {
            return Some(error);
        }
    }
}

/// A client without the certificate that is required is told so; what it has sent meanwhile does not destroy the alert.
#[test]
fn a_missing_client_certificate_ends_in_an_alert() {
    let authority = Authority::new();
    let own = authority.sign(&["api.test"]);
    let gateway = start(&[&own], &authority, ", client_ca: ca.pem");
    let failed =
        || gateway.metric("sluicegate_tls_handshakes_total", &[("listener", "edge"), ("outcome", "failed")]);
    until("the harness's own connection is counted", || (failed() == 1.0).then_some(()));
    let mut times = 0_u32;
    for version in VERSIONS {
        for turn in 0..5 {
            let error = until("a handshake ends within two seconds", || {
                times += 1;
                end(&gateway, client(&authority, version, ""), version == &TLS12)
            });
            let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
            assert_eq!(error, alert, "{version:?} {turn}");
        }
    }
    until("all are counted", || (failed() == 1.0 + f64::from(times)).then_some(()));
}
