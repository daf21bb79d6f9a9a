//! The fuzz targets of the codecs over their corpus and over mutations of it. It needs neither libFuzzer nor a nightly
//! compiler; `SLUICEGATE_FUZZ=N` asks for N mutations of each entry.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../../../fuzz/replay.rs"]
#[allow(unreachable_pub)]
mod replay;
#[path = "../../../fuzz/wire/src/lib.rs"]
#[allow(unreachable_pub, dead_code)]
mod targets;

use std::path::Path;

/// Pieces that mean something to the codecs of HTTP/1.1 and of PROXY headers.
const TEXT: [&str; 46] = [
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "\n\n",
    " ",
    "\t",
    ":",
    ": ",
    " : ",
    ",",
    ";",
    "=",
    "\"",
    "\\",
    "\0",
    "\u{b}",
    "\u{fc}",
    "0",
    "5",
    "f",
    "+1",
    "-1",
    "0x",
    "5, 5",
    "0\r\n\r\n",
    "ffffffffffffffff",
    "18446744073709551616",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "Expect: 100-continue\r\n",
    "chunked",
    "gzip, chunked",
    "GET ",
    "HEAD ",
    " HTTP/1.1",
    " HTTP/1.0",
    "HTTP/1.1 100 \r\n\r\n",
    "HTTP/1.1 200 OK\r\n",
    "PROXY TCP4 ",
    "127.0.0.1",
    "::1",
    "65535",
    "http://a",
    "#",
];

/// Pieces that mean something to the codecs of HTTP/2: headers of frames, and lines of header blocks.
const BINARY: [&str; 16] = [
    "\0\0\0\u{4}\0\0\0\0\0",
    "\0\0\0\u{1}\u{5}\0\0\0\u{1}",
    "\0\0\0\u{9}\u{4}\0\0\0\u{1}",
    "\0\0\u{4}\u{8}\0\0\0\0\0\0\0\u{10}\0",
    "\0\0\u{4}\u{3}\0\0\0\0\u{1}\0\0\0\u{8}",
    "\0\0\u{1}\0\0\0\0\0\u{1}x",
    "\0\0\0\0\u{1}\0\0\0\u{1}",
    "\u{1}\u{3}",
    "\u{d}\0\0",
    "\u{f}\0\u{10}\0\u{1}",
    "\u{14}\0",
    "\u{4}\u{1}\u{1}\0\0",
    "@\u{1}x\u{1}y",
    "\u{7f}\u{1}",
    "?",
    " ",
];

fn replay(target: &str, least: usize, pieces: &[&str], run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/wire/corpus").join(target);
    replay::replay(&corpus, least, pieces, run);
}

#[test]
fn request_heads() {
    replay("request_head", 50, &TEXT, targets::request_head);
}

#[test]
fn chunked_bodies() {
    replay("chunked_body", 25, &TEXT, targets::chunked_body);
}

#[test]
fn upstream_answers() {
    replay("upstream_answer", 30, &TEXT, targets::upstream_answer);
}

#[test]
fn proxy_headers() {
    replay("proxy_header", 20, &TEXT, targets::proxy_header);
}

#[test]
fn header_blocks() {
    replay("hpack", 10, &BINARY, targets::hpack);
}

#[test]
fn frames_of_http2() {
    replay("h2_frames", 40, &BINARY, targets::h2_frames);
}

#[test]
fn sessions_of_http2() {
    replay("h2_session", 12, &BINARY, targets::h2_session);
}
