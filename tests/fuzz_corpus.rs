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
