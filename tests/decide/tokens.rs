//! Verified tokens identify users, and nothing else does. These tests need no socket: they call the pipeline of the
//! gateway with times of their choice. issuers.rs has the tests over the network.
use crate::gateway::{Gateway, at};
use crate::harness::issuer::{Signer, jwks, unsigned};
use serde_json::{Value, json};
use sluicegate_auth::Unproven;
use sluicegate_auth::jwt::TokenError;
use sluicegate_gateway::request::early_reject::EarlyReject;
use sluicegate_gateway::resources;
use sluicegate_gateway::snapshot::{Opened, Snapshot, SnapshotBuilder};

/// When the tests play, in seconds.
const NOW: u64 = 1_800_000_000;

const RULES: &str = "
listen: [127.0.0.1:8080]
auth:
  jwt: {issuer: 'https://id.test', audience: [api, web], jwks: {file: jwks.json}, MORE}
limits:
  per-user: {key: user, rate: 1000/h, on_missing: skip}
  per-tenant: {key: 'jwt:org.tenant', rate: 1000/h, on_missing: skip}
routes:
  - {name: open, match: {path: /open}, respond: {status: 200}}
  - {name: api, respond: {status: 200}, limits: [per-user, per-tenant]}
";

/// What became of a request: which limits found their key, or why it was refused.
type Outcome = Result<Vec<usize>, TokenError>;

impl Gateway {
    /// A gateway with [`RULES`] that knows the keys of these signers.
    fn trusting(signers: &[&Signer], more: &str) -> Self {
        let rules = RULES.replace(", MORE", if more.is_empty() { "" } else { more });
        Self::new(&rules, &[("jwks.json", &jwks(signers))], at(NOW))
    }

    fn ask_with(&self, path: &str, headers: &[(&str, &str)], seconds: u64) -> Outcome {
        match self.evaluate(path, headers, at(seconds)) {
            Ok(evaluated) => Ok(evaluated.limits),
            Err(EarlyReject::Unproven { why: Unproven::Token(error), .. }) => Err(error),
            Err(other) => panic!("{other:?}"),
        }
    }

    fn ask_at(&self, token: &str, seconds: u64) -> Outcome {
        self.ask_with("/", &[("authorization", &format!("Bearer {token}"))], seconds)
    }

    fn ask(&self, token: &str) -> Outcome {
        self.ask_at(token, NOW)
    }
}

/// Claims as they should be.
fn claims() -> Value {
    json!({ "iss": "https://id.test", "aud": "api", "sub": "ada", "exp": NOW + 600, "org": { "tenant": 7 } })
}

/// The same with others in their place; null takes one away.
fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => _ = claims.as_object_mut().unwrap().remove(name),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

#[test]
fn every_kind_of_key_verifies_its_tokens_and_no_others() {
    let signers = [
        Signer::es256("p256"),
        Signer::es384("p384"),
        Signer::ed25519("ed"),
        Signer::rsa("rsa", "RS256"),
        Signer::rsa("pss", "PS256"),
    ];
    let gateway = Gateway::trusting(&signers.each_ref(), "");
    for (signer, next) in signers.iter().zip(signers.iter().cycle().skip(1)) {
        assert_eq!(gateway.ask(&signer.token(&claims())), Ok(vec![0, 1]), "{}", signer.alg);
        // Signed by the one, in the name of the other.
        let header = json!({ "alg": signer.alg, "kid": next.kid }).to_string();
        let forged = signer.signed(&header, &claims().to_string());
        assert_eq!(gateway.ask(&forged), Err(TokenError::Untrusted), "{} as {}", signer.alg, next.alg);
        // And by the same key in PEM.
        let rules = RULES.replace("jwks: {file: jwks.json}, MORE", "public_key: {file: key.pem}");
        let alone = Gateway::new(&rules, &[("key.pem", &signer.pem())], at(NOW));
        assert_eq!(alone.ask(&signer.token(&claims())), Ok(vec![0, 1]), "{} in PEM", signer.alg);
        assert_eq!(alone.ask(&next.token(&claims())), Err(TokenError::Untrusted));
    }
}

#[test]
fn a_secret_verifies_what_it_signed() {
    let secret = "0123456789abcdef0123456789abcdef";
    let rules = RULES.replace("jwks: {file: jwks.json}, MORE", "secret: {file: secret}");
    let gateway = Gateway::new(&rules, &[("secret", &format!("{secret}\n"))], at(NOW));
    assert_eq!(gateway.ask(&Signer::hs256(secret.as_bytes()).token(&claims())), Ok(vec![0, 1]));
    assert_eq!(gateway.ask(&Signer::hs256(b"another").token(&claims())), Err(TokenError::Untrusted));
    // Of a length for HS256 only: a longer hash would promise more than it holds.
    let longer = Signer::hs256(secret.as_bytes()).signed(r#"{"alg":"HS512"}"#, &claims().to_string());
    assert_eq!(gateway.ask(&longer), Err(TokenError::Untrusted));
}

#[test]
fn claims_are_validated() {
    let signer = Signer::es256("k");
    let gateway = Gateway::trusting(&[&signer], "");
    for (change, outcome) in [
        (json!({ "exp": NOW - 29 }), Ok(vec![0, 1])), // 30 s of leeway
        (json!({ "exp": NOW - 30 }), Err(TokenError::Expired)),
        (json!({ "exp": -5 }), Err(TokenError::Expired)),
        (json!({ "exp": NOW as f64 + 0.5 }), Ok(vec![0, 1])),
        (json!({ "exp": 1e300 }), Ok(vec![0, 1])),
        (json!({ "exp": (NOW + 600).to_string() }), Err(TokenError::Malformed)),
        (json!({ "exp": null }), Err(TokenError::Endless)),
        (json!({ "nbf": NOW + 30 }), Ok(vec![0, 1])),
        (json!({ "nbf": NOW + 31 }), Err(TokenError::Early)),
        (json!({ "iat": NOW + 31 }), Err(TokenError::Early)),
        (json!({ "nbf": true }), Err(TokenError::Malformed)),
        (json!({ "iss": "https://id.test/" }), Err(TokenError::Issuer)),
        (json!({ "iss": null }), Err(TokenError::Issuer)),
        (json!({ "iss": ["https://id.test"] }), Err(TokenError::Issuer)),
        (json!({ "aud": "web" }), Ok(vec![0, 1])),
        (json!({ "aud": ["other", "api"] }), Ok(vec![0, 1])),
        (json!({ "aud": ["other"] }), Err(TokenError::Audience)),
        (json!({ "aud": "API" }), Err(TokenError::Audience)),
        (json!({ "aud": null }), Err(TokenError::Audience)),
    ] {
        assert_eq!(gateway.ask(&signer.token(&with(change.clone()))), outcome, "{change}");
    }
}

#[test]
fn a_token_without_expiry_is_valid_where_configured() {
    let signer = Signer::ed25519("k");
    let gateway = Gateway::trusting(&[&signer], ", require_exp: false, leeway: 0s");
    assert_eq!(gateway.ask(&signer.token(&with(json!({ "exp": null })))), Ok(vec![0, 1]));
    assert_eq!(gateway.ask(&signer.token(&with(json!({ "exp": NOW })))), Err(TokenError::Expired));
}

#[test]
fn a_remembered_token_is_refused_when_it_expires() {
    let signer = Signer::es256("k");
    let gateway = Gateway::trusting(&[&signer], "");
    let token = signer.token(&claims());
    for (seconds, outcome) in [
        (NOW, Ok(vec![0, 1])),
        (NOW + 1, Ok(vec![0, 1])),
        (NOW + 629, Ok(vec![0, 1])),
        (NOW + 630, Err(TokenError::Expired)),
        (NOW + 9_999, Err(TokenError::Expired)),
    ] {
        assert_eq!(gateway.ask_at(&token, seconds), outcome, "{seconds}");
    }
}

#[test]
fn the_cache_compares_whole_tokens() {
    let signer = Signer::es256("k");
    let gateway = Gateway::trusting(&[&signer], "");
    let token = signer.token(&claims());
    assert_eq!(gateway.ask(&token), Ok(vec![0, 1]));
    let (signed, signature) = token.rsplit_once('.').unwrap();
    for forged in [
        format!("{signed}."),
        format!("{signed}.{}", &signature[1..]),
        format!("{signed}.{signature}A"),
        format!("{signed}.{signature}="),
        format!(
            "{}.{signature}",
            unsigned(r#"{"alg":"ES256","kid":"k"}"#, &with(json!({ "sub": "eve" })).to_string())
        ),
    ] {
        assert_eq!(gateway.ask(&forged), Err(TokenError::Untrusted), "{forged}");
    }
}

#[test]
fn a_token_with_any_other_character_is_another_token() {
    let signer = Signer::ed25519("k");
    let gateway = Gateway::trusting(&[&signer], "");
    let token = signer.token(&claims());
    assert_eq!(gateway.ask(&token), Ok(vec![0, 1]));
    let others = |at: usize| {
        if at + 1 == token.len() { "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef0123456789-_" } else { "A.=" }
    };
    for at in 0..token.len() {
        for other in others(at).chars().filter(|other| !token[at..].starts_with(*other)) {
            let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
            // No user: refused, or no token at all.
            assert!(
                gateway.ask(&changed).is_ok_and(|asked| asked.is_empty()) || gateway.ask(&changed).is_err(),
                "{changed}"
            );
        }
    }
}

/// The tricks by which libraries were fooled.
#[test]
fn the_key_says_how_a_token_is_signed() {
    let rsa = Signer::rsa("rsa", "RS256");
    let gateway = Gateway::trusting(&[&rsa, &Signer::es256("ec")], "");
    let claims = claims().to_string();
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"None","kid":"rsa"}"#,
        r#"{"alg":"nOnE","kid":"ec"}"#,
        r#"{"alg":"","kid":"rsa"}"#,
        r#"{"alg":"HS256","kid":"rsa"}"#,
    ] {
        for signature in ["", "AAAA"] {
            let token = format!("{}.{signature}", unsigned(header, &claims));
            assert_eq!(gateway.ask(&token), Err(TokenError::Untrusted), "{header}");
        }
    }
    // What everybody knows of the key, taken for a secret.
    for public in [rsa.pem(), rsa.pem().trim().to_owned(), rsa.jwk()["n"].as_str().unwrap().to_owned()] {
        let forged = Signer::hs256(public.as_bytes()).signed(r#"{"alg":"HS256","kid":"rsa"}"#, &claims);
        assert_eq!(gateway.ask(&forged), Err(TokenError::Untrusted));
    }
    // A key that brings itself along, or says where it is.
    let eve = Signer::es256("ec");
    for extra in [
        json!({ "jwk": eve.jwk() }),
        json!({ "jku": "http://127.0.0.1:1/keys" }),
        json!({ "x5u": "http://127.0.0.1:1/cert" }),
        json!({ "x5c": ["AAAA"] }),
    ] {
        let mut header = json!({ "alg": "ES256", "kid": "ec" });
        header.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert_eq!(
            gateway.ask(&eve.signed(&header.to_string(), &claims)),
            Err(TokenError::Untrusted),
            "{extra}"
        );
    }
    // An id is looked up among the known ones and nowhere else.
    for kid in [
        "../../etc/passwd",
        "jwks.json",
        "/dev/null",
        "http://127.0.0.1/",
        "' OR 1=1 --",
        "rsa\u{0}",
        "RSA",
        "",
    ] {
        let header = json!({ "alg": "ES256", "kid": kid }).to_string();
        assert_eq!(gateway.ask(&eve.signed(&header, &claims)), Err(TokenError::Untrusted), "{kid:?}");
    }
}

#[test]
fn a_key_with_an_algorithm_verifies_no_other() {
    let signer = Signer::rsa("k", "RS256");
    let mut jwk = signer.jwk();
    jwk["alg"] = "PS256".into();
    let set = json!({ "keys": [jwk] }).to_string();
    let gateway = Gateway::new(&RULES.replace(", MORE", ""), &[("jwks.json", &set)], at(NOW));
    assert_eq!(gateway.ask(&signer.token(&claims())), Err(TokenError::Untrusted));
}

#[test]
fn a_token_without_a_key_id_needs_a_set_with_one_key_of_its_kind() {
    let (one, other, ed) = (Signer::es256(""), Signer::es256(""), Signer::ed25519("ed"));
    assert_eq!(Gateway::trusting(&[&one, &ed], "").ask(&one.token(&claims())), Ok(vec![0, 1]));
    let both = Gateway::trusting(&[&one, &other], "");
    assert_eq!(both.ask(&one.token(&claims())), Err(TokenError::Untrusted), "none is tried after the other");
}

#[test]
fn ambiguous_tokens_are_refused() {
    let signer = Signer::ed25519("k");
    let gateway = Gateway::trusting(&[&signer], "");
    let good = claims().to_string();
    let twice = good.replacen('{', r#"{"sub":"eve","#, 1);
    let nested = good.replacen(r#"{"tenant":7"#, r#"{"tenant":7,"tenant":8"#, 1);
    assert!(nested != good);
    let own = r#"{"alg":"EdDSA","kid":"k"}"#;
    for (header, claims) in [
        (own, twice.as_str()),
        (own, &nested),
        (own, "[]"),
        (own, ""),
        (own, &format!("{good}{good}")),
        (own, "{\"sub\":\"\u{fffd}"),
        (r#"{"alg":"none","alg":"EdDSA","kid":"k"}"#, &good),
        (r#"{"alg":"EdDSA","kid":"x","kid":"k"}"#, &good),
        (r#"{"alg":"EdDSA","kid":7}"#, &good),
        (r#"{"alg":["EdDSA"],"kid":"k"}"#, &good),
        (r#"{"kid":"k"}"#, &good),
        (r#"{"alg":"EdDSA","kid":"k","crit":["exp"],"exp":1}"#, &good),
        (r#"{"alg":"EdDSA","kid":"k","crit":[]}"#, &good),
        (r#"{"alg":"EdDSA","kid":"k"}x"#, &good),
    ] {
        assert_eq!(
            gateway.ask(&signer.signed(header, claims)),
            Err(TokenError::Malformed),
            "{header} {claims}"
        );
    }
    let token = signer.token(&claims());
    for malformed in
        [format!("{token}.x.y"), token.replace('.', ".."), "eyJ.".to_owned(), "ey.ey.ey".to_owned()]
    {
        assert_eq!(gateway.ask(&malformed), Err(TokenError::Malformed), "{malformed}");
    }
}

#[test]
fn a_long_token_is_not_read() {
    let signer = Signer::ed25519("k");
    let gateway = Gateway::trusting(&[&signer], "");
    let sized = |pad: usize| signer.token(&with(json!({ "pad": "x".repeat(pad) })));
    assert_eq!(gateway.ask(&sized(5_500)), Ok(vec![0, 1]));
    assert_eq!(gateway.ask(&sized(6_500)), Err(TokenError::TooLong));
    assert_eq!(gateway.ask(&"x".repeat(100_000)), Err(TokenError::TooLong));
}

#[test]
fn two_tokens_are_refused() {
    let signer = Signer::ed25519("k");
    let gateway = Gateway::trusting(&[&signer], "");
    let (good, other) = (signer.token(&claims()), signer.token(&with(json!({ "sub": "eve" }))));
    let bearer = |token: &str| format!("Bearer {token}");
    for second in [bearer(&good), bearer(&other), "Basic YTpi".to_owned(), String::new()] {
        for lines in [[&bearer(&good), &second], [&second, &bearer(&good)]] {
            let headers = lines.map(|line| ("authorization", line.as_str()));
            assert_eq!(gateway.ask_with("/", &headers, NOW), Err(TokenError::Several), "{second}");
        }
    }
}

#[test]
fn credentials_of_other_schemes_are_ignored() {
    let signer = Signer::ed25519("k");
    let gateway = Gateway::trusting(&[&signer], "");
    let required = Gateway::trusting(&[&signer], ", required: true");
    for line in [
        "Basic ZXk6LmV5",
        "Bearer",
        "Bearer ",
        "Bearer opaque",
        "Bearer v2.local.abc",
        "Bearer eyJhbGciOiJub25lIn0",
        "Digest x=1",
        "ey.ey.ey",
        "",
    ] {
        let headers = [("authorization", line)];
        assert_eq!(gateway.ask_with("/", &headers, NOW), Ok(vec![]), "{line}");
        assert_eq!(required.ask_with("/", &headers, NOW), Err(TokenError::Missing), "{line}");
    }
    let token = signer.token(&claims());
    assert_eq!(
        gateway.ask_with("/", &[("authorization", &format!("bEARER   {token} "))], NOW),
        Ok(vec![0, 1])
    );
    assert_eq!(gateway.ask_with("/", &[("x-token", &token)], NOW), Ok(vec![]), "another header is none");
}

#[test]
fn tokens_are_verified_only_where_they_are_used() {
    let signer = Signer::ed25519("k");
    let bad = [("authorization", "Bearer eyJ9.e30.AAAA")];
    assert_eq!(Gateway::trusting(&[&signer], "").ask_with("/open", &bad, NOW), Ok(vec![]));
    for more in [", required: true", ", forward: {X-User: sub}"] {
        assert_eq!(
            Gateway::trusting(&[&signer], more).ask_with("/open", &bad, NOW),
            Err(TokenError::Malformed)
        );
    }
}

#[test]
fn a_custom_header_needs_no_scheme() {
    let signer = Signer::ed25519("k");
    let gateway = Gateway::trusting(&[&signer], ", header: X-Token");
    let token = signer.token(&claims());
    for line in [token.clone(), format!("Bearer {token}")] {
        assert_eq!(gateway.ask_with("/", &[("x-token", &line)], NOW), Ok(vec![0, 1]));
    }
    assert_eq!(gateway.ask(&token), Ok(vec![]));
}

#[test]
fn claims_are_keys_if_they_are_single_values() {
    let signer = Signer::ed25519("k");
    let gateway = Gateway::trusting(&[&signer], "");
    for (change, asked) in [
        (json!({ "sub": null }), vec![1]),
        (json!({ "sub": "" }), vec![1]),
        (json!({ "sub": 12 }), vec![0, 1]),
        (json!({ "sub": false }), vec![0, 1]),
        (json!({ "sub": ["ada"] }), vec![1]),
        (json!({ "org": "x" }), vec![0]),
        (json!({ "org": { "tenant": {} } }), vec![0]),
        (json!({ "org": null, "org.tenant": "t" }), vec![0, 1]),
    ] {
        assert_eq!(gateway.ask(&signer.token(&with(change.clone()))), Ok(asked), "{change}");
    }
}

#[test]
fn users_are_counted_apart_however_many_tokens_they_have() {
    let signer = Signer::ed25519("k");
    let rules = RULES.replace(", MORE", "").replacen("1000/h", "2/h", 1);
    let gateway = Gateway::new(&rules, &[("jwks.json", &jwks(&[&signer]))], at(NOW));
    let admitted = |sub: &str, id: u32| {
        let token = signer.token(&with(json!({ "sub": sub, "jti": id })));
        let headers = [("authorization", &*format!("Bearer {token}"))];
        gateway.evaluate("/", &headers, at(NOW)).unwrap().admitted
    };
    let seen: Vec<bool> =
        [("ada", 1), ("ada", 2), ("ada", 3), ("eve", 4)].map(|(sub, id)| admitted(sub, id)).into();
    assert_eq!(seen, [true, true, false, true]);
}

#[test]
fn tokens_beyond_the_cache_are_verified() {
    let signer = Signer::hs256(b"0123456789abcdef0123456789abcdef");
    let rules =
        RULES.replace("jwks: {file: jwks.json}, MORE", "secret: {file: secret}").replace("1000/h", "1M/h");
    let gateway = Gateway::new(&rules, &[("secret", "0123456789abcdef0123456789abcdef")], at(NOW));
    let tokens: Vec<String> = (0..20_000).map(|id| signer.token(&with(json!({ "jti": id })))).collect();
    for token in tokens.iter().chain(tokens.iter().rev()) {
        assert_eq!(gateway.ask(token), Ok(vec![0, 1]));
    }
}

#[test]
fn a_reload_that_changes_the_requirements_empties_the_cache() {
    let signer = Signer::ed25519("k");
    let token = signer.token(&claims());
    let snapshots = SnapshotBuilder::default();
    let folder = tempfile::tempdir().unwrap();
    let load = |rules: &str, keys: &str| {
        std::fs::write(folder.path().join("jwks.json"), keys).unwrap();
        resources::parse(rules.replace(", MORE", ""), "gateway.yaml", folder.path()).config.unwrap()
    };
    let outcome = |snapshot: &Snapshot| {
        let jwt = snapshot.jwt.as_ref().unwrap();
        let headers = [("authorization", format!("Bearer {token}"))];
        jwt.identify(&headers.into_iter().collect(), at(NOW)).map(|user| user.is_some())
    };
    let first = snapshots.build(load(RULES, &jwks(&[&signer])), Opened::default(), None, at(NOW));
    assert_eq!(outcome(&first), Ok(true));
    let audience = snapshots.build(
        load(&RULES.replace("api, web", "web"), &jwks(&[&signer])),
        Opened::default(),
        Some(&first),
        at(NOW),
    );
    assert_eq!(outcome(&audience), Err(TokenError::Audience));
    let keys = snapshots.build(
        load(RULES, &jwks(&[&Signer::ed25519("k")])),
        Opened::default(),
        Some(&first),
        at(NOW),
    );
    assert_eq!(outcome(&keys), Err(TokenError::Untrusted));
    assert_eq!(
        outcome(&snapshots.build(load(RULES, &jwks(&[&signer])), Opened::default(), Some(&keys), at(NOW))),
        Ok(true)
    );
}
