//! Connections at random: what the client allows, and what is exchanged.

use http::{Method, StatusCode};
use proptest::prelude::*;

use super::EACH;

/// Names and values of fields.
pub(crate) type Lines = Vec<(String, Vec<u8>)>;

/// A body in pieces, and its trailers.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) pieces: Vec<usize>,
    pub(crate) trailers: Lines,
}

#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Lines,
    pub(crate) body: Body,
    /// The client asks for leave to send its body.
    pub(crate) expects: bool,
    pub(crate) status: StatusCode,
    pub(crate) interim: bool,
    pub(crate) answer: Lines,
    pub(crate) answer_body: Body,
    /// The answer comes before the body is read, which then is not.
    pub(crate) early: bool,
    /// The client goes away once the head of the answer has come.
    pub(crate) leaves: bool,
}

/// A connection: what the client allows, and what is exchanged.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) window: u32,
    pub(crate) table: u32,
    pub(crate) frame: u32,
    pub(crate) pipe: usize,
    pub(crate) exchanges: Vec<Exchange>,
}

fn lines(most: usize) -> impl Strategy<Value = Lines> {
    let name = prop_oneof![
        6 => prop::sample::select(vec![
            "accept", "accept-encoding", "authorization", "cookie", "user-agent", "content-type", "x-a", "x-b", "x-c-d",
            "set-cookie", "etag", "age", "location", "link", "via", "x_under", "cache-control", "server", "vary",
        ]).prop_map(str::to_owned),
        1 => "x-[a-z0-9!#$%&'*+.^_`|~-]{0,20}",
    ];
    let value = prop_oneof![
        4 => prop::sample::select(vec!["", "a", "gzip, deflate", "text/plain", "1", "a b", "no-store"])
            .prop_map(|value| value.as_bytes().to_vec()),
        4 => prop::collection::vec(prop_oneof![0x21_u8..0x7f, 0x80_u8..=0xff], 0..40),
        1 => (0_usize..3_000).prop_map(|length| vec![b'v'; length]),
    ];
    prop::collection::vec((name, value), 0..most)
}

fn body() -> impl Strategy<Value = Body> {
    let piece = prop_oneof![3 => 0_usize..50, 2 => 0_usize..20_000, 1 => 60_000_usize..90_000];
    let trailers = prop_oneof![3 => Just(Lines::new()), 1 => lines(4)];
    (prop::collection::vec(piece, 0..4), trailers).prop_map(|(pieces, trailers)| {
        let never = ["authorization", "cookie", "set-cookie", "content-type", "cache-control", "via"];
        let trailers = trailers.into_iter().filter(|(name, _)| !never.contains(&name.as_str())).collect();
        Body { pieces, trailers }
    })
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "M-SEARCH"]);
    let path = "/[a-zA-Z0-9/%.~_!$&'()*+,;=:@-]{0,40}(\\?[a-z0-9=&/?%]{0,20})?";
    let status = prop::sample::select(vec![200_u16, 201, 204, 206, 302, 304, 400, 404, 429, 500, 503, 599]);
    (
        (method, path, lines(12), body(), prop::bool::weighted(0.1)),
        (status, prop::bool::weighted(0.1), lines(12), body()),
        (prop::bool::weighted(0.1), prop::bool::weighted(0.03)),
    )
        .prop_map(
            |((method, path, headers, body, expects), (status, interim, answer, answer_body), rest)| {
                let (early, leaves) = rest;
                Exchange {
                    method: method.parse().unwrap(),
                    path,
                    headers,
                    body,
                    expects,
                    status: StatusCode::from_u16(status).unwrap(),
                    interim,
                    answer,
                    answer_body,
                    early,
                    leaves,
                }
            },
        )
}

pub(crate) fn plan() -> impl Strategy<Value = Plan> {
    let window = prop_oneof![1 => 500_u32..2_000, 3 => 2_000_u32..300_000];
    let table = prop_oneof![1 => Just(0_u32), 1 => 0_u32..300, 3 => Just(4_096), 1 => Just(65_536)];
    let frame = prop_oneof![3 => Just(16_384_u32), 1 => Just(1 << 20)];
    let pipe = prop_oneof![1 => 500_usize..4_000, 4 => Just(64 << 10)];
    let exchanges = prop::collection::vec(exchange(), 1..2 * EACH as usize);
    (window, table, frame, pipe, exchanges).prop_map(|(window, table, frame, pipe, exchanges)| Plan {
        window,
        table,
        frame,
        pipe,
        exchanges,
    })
}
