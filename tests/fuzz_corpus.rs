//! The fuzz targets of the gateway over their corpus and over mutations of it. It needs neither libFuzzer nor a nightly
//! compiler; `SLUICEGATE_FUZZ=N` asks for N mutations of each entry.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../fuzz/bodies.rs"]
#[allow(unreachable_pub)]
mod bodies;
#[path = "../fuzz/replay.rs"]
#[allow(unreachable_pub)]
mod replay;

use std::path::Path;

/// Pieces that mean something to one of the parsers.
const PIECES: [&str; 44] = [
    "/",
    "//",
    ".",
    "..",
    "%",
    "%2e",
    "%2f",
    "%25",
    "%252e",
    "%C0%AF",
    "%EF%BC%8F",
    "%C2%AD",
    "%E1%BA%9E",
    ";",
    "..;",
    "?",
    "#",
    "*",
    "~",
    "\\",
    "\"",
    ",",
    "for=",
    "[",
    "]",
    "::1",
    "10.0.0.1",
    ":80",
    "=",
    "&",
    "|",
    "{",
    "}",
    "\n",
    "\n  ",
    "- ",
    ": ",
    "'",
    "&a ",
    "*a",
    "<<: ",
    "${X:-",
    "1/s",
    "\u{feff}",
];

fn replay(target: &str, least: usize, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    replay::replay(&corpus, least, &PIECES, run);
}

#[test]
fn configurations() {
    replay("configuration", 10, bodies::configuration);
}

/// Pieces that mean something to nginx.
const NGINX_PIECES: [&str; 30] = [
    "{",
    "}",
    ";",
    "$",
    "${a}",
    "\"",
    "'",
    "\\",
    "#",
    "~",
    "=",
    "^~",
    "/",
    " ",
    "\n",
    "80",
    "burst=",
    "zone=a",
    "nodelay",
    "return 301 ",
    "proxy_pass http://",
    "limit_req ",
    "server {",
    "location ",
    "*",
    "unix:",
    ":",
    "if ($x) {",
    "include a;",
    "rate=1r/m",
];

#[test]
fn nginx_configurations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/nginx");
    replay::replay(&corpus, 10, &NGINX_PIECES, bodies::nginx);
}

/// Pieces that mean something in limits files of limitador.
const LIMITADOR_PIECES: [&str; 16] = [
    "- namespace: web",
    "max_value: 1",
    "seconds: 60",
    "conditions:",
    "variables: [",
    "descriptors[0]",
    "descriptors[99].a",
    "['a']",
    " == 'b'",
    " != \"\"",
    " && ",
    "\\",
    "\"",
    "\n  ",
    "{",
    "]",
];

#[test]
fn limits_files_of_limitador() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/limitador_files");
    replay::replay(&corpus, 4, &LIMITADOR_PIECES, bodies::limitador_files);
}

/// Pieces that mean something in files of envoyproxy/ratelimit and in requests.
const RATE_LIMIT_PIECES: [&str; 24] = [
    "domain: ",
    "descriptors:",
    "- key: ",
    "value: ",
    "rate_limit:",
    "unit: day",
    "requests_per_unit: 1",
    "unlimited: true",
    "shadow_mode: on",
    "replaces: [{name: a}]",
    "metadata: {}",
    "*",
    "\n  ",
    "\n",
    ": ",
    "{",
    "}",
    "\x12\x00",
    "\x0a\x01d",
    "\x0a\x04user",
    "\x1a\x00",
    "\x20\x01",
    "\x00\x00\x00\x00",
    "\"hitsAddend\": \"1\"",
];

#[test]
fn files_of_rate_limits() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/rate_limit_files");
    replay::replay(&corpus, 5, &RATE_LIMIT_PIECES, bodies::rate_limit_files);
}

#[test]
fn requests_for_rate_limits() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/rate_limit_requests");
    replay::replay(&corpus, 5, &RATE_LIMIT_PIECES, bodies::rate_limit_requests);
}

#[test]
fn keys() {
    replay("keys", 12, bodies::keys);
}

#[test]
fn paths() {
    replay("paths", 30, bodies::paths);
}

#[test]
fn forwarded_addresses() {
    replay("forwarded", 20, bodies::forwarded);
}
