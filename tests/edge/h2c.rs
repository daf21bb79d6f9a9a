//! HTTP/2 with prior knowledge on the same port: the same routes, limits and refusals as over HTTP/1.1.

use crate::harness::{Gate, Gateway, Upstream, deadline, eventually, until};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// Runs an HTTP/2 client against the gateway.
fn over_h2<T>(gateway: &Gateway, work: impl AsyncFnOnce(SendRequest<Full<Bytes>>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = gateway.edge;
    runtime.block_on(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let result = tokio::time::timeout(deadline(), work(sender)).await.expect("an answer in time");
        connection.abort();
        result
    })
}

fn request(method: &str, target: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = format!("http://api.test{target}");
    Request::builder().method(method).uri(uri).body(Full::new(body.into())).unwrap()
}

/// An answer with its body and trailers.
async fn ask(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> (Response<()>, Bytes, Option<HeaderMap>) {
    sender.ready().await.unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned();
    (Response::from_parts(head, ()), body.to_bytes(), trailers)
}

fn limited(upstream: &Upstream, limit: &str) -> Gateway {
    Gateway::before(
        upstream,
        &format!(
            "limits: {{l: {{{limit}}}}}\nupstreams: {{api: {{servers: [\"http://{{upstream}}\"]}}}}\n\
             routes: [{{name: api, match: {{path: /*}}, upstream: api, limits: [l]}}]\n"
        ),
    )
}

/// A request over HTTP/2 arrives as one over HTTP/1.1 does, with its body, and the answer comes back.
#[test]
fn a_request_over_h2_is_forwarded() {
    let upstream = Upstream::scripted(|exchange| {
        let Ok(body) = exchange.body() else { return exchange.close() };
        exchange.answer(
            201,
            &[("x-answer", "yes"), ("connection", "keep-alive"), ("keep-alive", "timeout=5")],
            &body,
        );
    });
    let gateway = limited(&upstream, "key: ip, rate: 10/min");
    over_h2(&gateway, async |mut sender| {
        let (answer, body, _) = ask(&mut sender, request("POST", "/v1/items?x=1", "hello")).await;
        assert_eq!((answer.status(), &body[..]), (StatusCode::CREATED, &b"hello"[..]));
        assert_eq!(answer.headers()["x-answer"], "yes");
        assert_eq!(answer.headers()["x-ratelimit-remaining"], "9");
        assert!(!answer.headers().contains_key("keep-alive"));
    });
    let seen = upstream.last();
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str(), seen.body.as_slice()),
        ("POST", "/v1/items?x=1", &b"hello"[..])
    );
    assert_eq!(
        (seen.head.one("host"), seen.head.one("x-forwarded-host")),
        (Some("api.test"), Some("api.test"))
    );
    assert_eq!(seen.head.one("x-forwarded-for"), Some("127.0.0.1"));
}

/// A path that is forwarded in another spelling than it came keeps its host and its query.
#[test]
fn a_path_in_another_spelling_keeps_its_host() {
    let upstream = Upstream::answering("done");
    let gateway = limited(&upstream, "key: ip, rate: 10/min");
    over_h2(&gateway, async |mut sender| {
        assert_eq!(ask(&mut sender, request("GET", "/v1/./items?x=1", "")).await.0.status(), StatusCode::OK);
    });
    let seen = upstream.last();
    assert_eq!(seen.target, "/v1/items?x=1");
    assert_eq!(
        (seen.head.one("host"), seen.head.one("x-forwarded-host")),
        (Some("api.test"), Some("api.test"))
    );
}

/// The limit counts requests of both protocols together, and the 429 over HTTP/2 is as whole as the other.
#[test]
fn a_429_over_h2_says_when_to_come_back() {
    let upstream = Upstream::answering("done");
    let gateway = limited(&upstream, "key: ip, rate: 2/min");
    assert_eq!(gateway.get("/").status, 200);
    over_h2(&gateway, async |mut sender| {
        assert_eq!(ask(&mut sender, request("GET", "/", "")).await.0.status(), StatusCode::OK);
        let (refused, body, _) = ask(&mut sender, request("GET", "/", "")).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((20..=30).contains(&seconds), "{seconds}");
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["violated-policies"], serde_json::json!(["l"]));
    });
}

/// A refused gRPC call is trailers-only: the status comes with the head, and nothing else.
#[test]
fn a_refused_grpc_call_is_trailers_only() {
    let upstream = Upstream::answering("done");
    let gateway = limited(&upstream, "key: ip, rate: 1/min");
    over_h2(&gateway, async |mut sender| {
        let call = || {
            let mut call = request("POST", "/pkg.Service/Call", vec![0_u8; 5]);
            call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            call.headers_mut().insert("te", "trailers".parse().unwrap());
            call
        };
        assert_eq!(ask(&mut sender, call()).await.0.status(), StatusCode::OK);
        let (refused, body, trailers) = ask(&mut sender, call()).await;
        assert_eq!((refused.status(), body.len(), trailers), (StatusCode::OK, 0, None));
        assert_eq!(refused.headers()["grpc-status"], "8");
        let pushback: u64 = refused.headers()["grpc-retry-pushback-ms"].to_str().unwrap().parse().unwrap();
        assert!((50_000..=60_000).contains(&pushback), "{pushback}");
    });
}

/// Trailers of the API reach a client over HTTP/2.
#[test]
fn trailers_reach_a_client_over_h2() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.write(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\ngrpc-status: 0\r\n\r\n",
        );
    });
    let gateway = limited(&upstream, "key: ip, rate: 100/min");
    over_h2(&gateway, async |mut sender| {
        let (_, body, trailers) = ask(&mut sender, request("GET", "/", "")).await;
        assert_eq!((&body[..], trailers.unwrap()["grpc-status"].as_bytes()), (&b"body"[..], &b"0"[..]));
    });
}

/// Many requests at once over one connection: exactly the limit passes, and none waits for another.
#[test]
fn concurrent_requests_over_one_connection_are_counted_exactly() {
    let upstream = Upstream::answering("done");
    let gateway = limited(&upstream, "key: ip, rate: 100/day");
    let statuses = over_h2(&gateway, async |sender| {
        let all = (0..1_000).map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move { ask(&mut sender, request("GET", "/", "")).await.0.status().as_u16() })
        });
        let mut statuses = Vec::new();
        for one in all.collect::<Vec<_>>() {
            statuses.push(one.await.unwrap());
        }
        statuses
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 100);
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 900);
}

/// More refused uploads than HTTP/2 allows early resets do not end the connection.
#[test]
fn refused_uploads_do_not_end_the_connection() {
    let upstream = Upstream::answering("done");
    let gateway = limited(&upstream, "key: ip, rate: 1/day");
    over_h2(&gateway, async |mut sender| {
        for turn in 0..3_000 {
            let (answer, ..) = ask(&mut sender, request("POST", "/", vec![b'x'; turn * 7])).await;
            assert!(turn == 0 || answer.status() == StatusCode::TOO_MANY_REQUESTS, "{turn}: {answer:?}");
        }
    });
}

/// Nor do many at once that are larger than what a client may send before it hears anything.
#[test]
fn large_refused_uploads_do_not_end_the_connection() {
    let upstream = Upstream::answering("done");
    let gateway = limited(&upstream, "key: ip, rate: 1/day");
    assert_eq!(gateway.get("/").status, 200);
    over_h2(&gateway, async |sender| {
        for _ in 0..30 {
            let all = (0..50).map(|_| {
                let mut sender = sender.clone();
                tokio::spawn(async move {
                    ask(&mut sender, request("POST", "/", vec![b'x'; 200_000])).await.0.status()
                })
            });
            for one in all.collect::<Vec<_>>() {
                assert_eq!(one.await.unwrap(), StatusCode::TOO_MANY_REQUESTS);
            }
        }
    });
}

/// One request that its client gives up frees its place, and the others of the connection go on.
#[test]
fn a_cancelled_request_frees_its_place() {
    let (upstream, gate) = crate::harness::gated_upstream();
    let gateway = limited(&upstream, "key: ip, max: 1, algorithm: concurrency");
    over_h2(&gateway, async |mut sender| {
        let mut slow = sender.clone();
        let slow = tokio::spawn(async move { ask(&mut slow, request("GET", "/slow", "")).await.0.status() });
        eventually("it is forwarded", || !upstream.seen().is_empty()).await;
        let status = async |sender: &mut _| ask(sender, request("GET", "/", "")).await.0.status();
        assert_eq!(status(&mut sender).await, StatusCode::TOO_MANY_REQUESTS);
        slow.abort();
        while status(&mut sender).await != StatusCode::OK {}
    });
    gate.open();
    until("nobody holds the place", || (gateway.remaining("l", "127.0.0.1") == 1).then_some(()));
}

/// A Host that differs from :authority is refused, as it is over HTTP/1.1.
#[test]
fn a_host_that_differs_from_the_authority_is_400() {
    let upstream = Upstream::answering("done");
    let gateway = limited(&upstream, "key: ip, rate: 100/min");
    over_h2(&gateway, async |mut sender| {
        let mut two = request("GET", "/", "");
        two.headers_mut().insert("host", "other.test".parse().unwrap());
        let (answer, body, _) = ask(&mut sender, two).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{body:?}");
        assert_eq!(ask(&mut sender, request("GET", "/", "")).await.0.status(), StatusCode::OK);
    });
    assert_eq!(upstream.seen().len(), 1);
}

/// A head that is too large is refused and the connection lives on.
#[test]
fn a_head_that_is_too_large_is_431_over_h2() {
    let upstream = Upstream::answering("done");
    let gateway = limited(&upstream, "key: ip, rate: 100/min");
    over_h2(&gateway, async |mut sender| {
        let mut large = request("GET", "/", "");
        large.headers_mut().insert("x-large", "x".repeat(60_000).parse().unwrap());
        sender.ready().await.unwrap();
        let answer = sender.send_request(large).await;
        assert!(answer.is_err() || answer.is_ok_and(|a| a.status() == 431), "it is refused");
        assert_eq!(upstream.seen().len(), 0);
        assert_eq!(ask(&mut sender, request("GET", "/", "")).await.0.status(), StatusCode::OK);
    });
}

/// Bodies of any size pass both ways, each at the pace of its reader.
#[test]
fn large_bodies_pass_over_h2() {
    const LENGTH: usize = 16 << 20;
    let upstream = Upstream::scripted(|exchange| {
        let Ok(body) = exchange.body() else { return exchange.close() };
        exchange.answer(200, &[], &body);
    });
    let gateway = limited(&upstream, "key: ip, rate: 100/min");
    over_h2(&gateway, async |mut sender| {
        let body: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
        let (answer, echo, _) = ask(&mut sender, request("POST", "/", body.clone())).await;
        assert_eq!((answer.status(), echo.len()), (StatusCode::OK, LENGTH));
        assert!(echo == body, "every byte is in its place");
    });
}

/// Requests in flight over HTTP/2 are answered before the gateway ends.
#[test]
fn requests_in_flight_over_h2_are_answered_before_it_ends() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::scripted(move |exchange| {
        waits.wait();
        exchange.answer(200, &[], b"done");
    });
    let mut gateway = limited(&upstream, "key: ip, rate: 100/min");
    over_h2(&gateway, async |sender| {
        let all = (0..5).map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move { ask(&mut sender, request("GET", "/", "")).await })
        });
        let all: Vec<_> = all.collect();
        eventually("all are forwarded", || upstream.seen().len() == 5).await;
        gateway.signal("TERM");
        eventually("it drains", || gateway.admin_get("/readyz").status == 503).await;
        gate.open();
        for one in all {
            assert_eq!(&one.await.unwrap().1[..], b"done");
        }
    });
    assert_eq!(gateway.ended(deadline()).code(), Some(0));
}
