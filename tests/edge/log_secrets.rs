//! Query parameters that are called as secrets are do not go to the access log, unless the file wants them there.

use crate::harness::{Gateway, until};

/// The first line of the log of a gateway with this configuration, after a request.
fn logged(access_log: &str, target: &str, referer: &str) -> serde_json::Value {
    let gateway = Gateway::start(&format!(
        "access_log: {access_log}\nroutes: [{{name: own, respond: {{status: 200}}}}]\n"
    ));
    gateway.ask("GET", target, &[("referer", referer)]);
    let text = until("a line", || {
        std::fs::read_to_string(gateway.path("access.log")).ok().filter(|text| text.ends_with('\n'))
    });
    serde_json::from_str(&text).unwrap()
}

#[test]
fn usual_secrets_are_redacted() {
    let names = [
        "token",
        "password",
        "passwd",
        "api_key",
        "apikey",
        "secret",
        "sig",
        "signature",
        "code",
        "access_token",
        "Token",
        "client_secret",
        "X-Amz-Signature",
    ];
    let query: Vec<String> = names.iter().map(|name| format!("{name}=s3same")).collect();
    let target = format!("/p?page=2&{}", query.join("&"));
    let line = logged("{path: access.log}", &target, &format!("https://a.test/reset?{}", query.join("&")));
    assert!(!line.to_string().contains("s3same"), "{line}");
    let expected = target.replace("s3same", "REDACTED");
    assert_eq!(line["path"], expected.as_str());
}

/// `off` leaves the usual ones out; what is a secret everywhere stays redacted, and so does what is named.
#[test]
fn the_usual_secrets_can_be_logged() {
    let target = "/p?code=1&ticket=2&access_token=3";
    for (redact, expected) in [
        ("off", "/p?code=1&ticket=2&access_token=REDACTED"),
        ("[off, ticket]", "/p?code=1&ticket=REDACTED&access_token=REDACTED"),
        ("ticket", "/p?code=REDACTED&ticket=REDACTED&access_token=REDACTED"),
    ] {
        let line = logged(&format!("{{path: access.log, redact: {redact}}}"), target, "-");
        assert_eq!(line["path"], expected, "{redact}");
    }
}
