//! The examples, driven over connections.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::common::field;

#[allow(dead_code, reason = "the test does not call main")]
#[path = "../../examples/axum.rs"]
mod axum_example;
#[allow(dead_code, reason = "the test does not call main")]
#[path = "../../examples/hyper.rs"]
mod hyper_example;
#[allow(dead_code, reason = "the test does not call main")]
#[path = "../../examples/plain.rs"]
mod plain_example;
#[allow(dead_code, reason = "the test does not call main")]
#[path = "../../examples/tonic.rs"]
mod tonic_example;

type Client = hyper::client::conn::http1::SendRequest<Empty<Bytes>>;

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("an answer in a minute")
}

async fn connect(listener: std::net::SocketAddr) -> Client {
    let stream = TcpStream::connect(listener).await.expect("a connection");
    let (client, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    client
}

/// Sends a request; reads the response to its end, so that the next one can be sent.
async fn send(client: &mut Client, request: http::request::Builder) -> Response<Bytes> {
    let request = request.body(Empty::new()).expect("a request");
    let response: Response<Incoming> = in_time(client.send_request(request)).await.expect("a response");
    let (head, body) = response.into_parts();
    Response::from_parts(head, in_time(body.collect()).await.expect("a body").to_bytes())
}

#[tokio::test]
async fn axum() {
    let listener = listener().await;
    let address = listener.local_addr().unwrap();
    let app = axum_example::app().unwrap().into_make_service_with_connect_info::<std::net::SocketAddr>();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let mut client = connect(address).await;
    let get = || Request::get("/").header("x-forwarded-for", "1.1.1.1, 198.51.100.7");
    for left in ["4", "3", "2", "1", "0"] {
        let response = send(&mut client, get()).await;
        assert_eq!((response.status(), &response.body()[..]), (StatusCode::OK, &b"hello\n"[..]));
        assert_eq!(field(response.headers(), "x-ratelimit-remaining"), left);
    }
    let refused = send(&mut client, get()).await;
    assert_eq!(
        (refused.status(), field(refused.headers(), "retry-after")),
        (StatusCode::TOO_MANY_REQUESTS, "2")
    );
    // The peer of this test is a trusted proxy, so another client is another key.
    assert_eq!(
        send(&mut client, Request::get("/").header("x-forwarded-for", "198.51.100.8")).await.status(),
        200
    );
    let login = || Request::post("/login").header("x-forwarded-for", "198.51.100.9");
    for _ in 0..3 {
        assert_eq!(send(&mut client, login()).await.status(), StatusCode::UNAUTHORIZED);
    }
    let refused = send(&mut client, login()).await;
    assert_eq!(
        (refused.status(), field(refused.headers(), "x-ratelimit-limit")),
        (StatusCode::TOO_MANY_REQUESTS, "3")
    );
    server.abort();
}

#[tokio::test]
async fn hyper() {
    let listener = listener().await;
    let address = listener.local_addr().unwrap();
    let limits = hyper_example::limits().unwrap();
    let served = limits.clone();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        hyper_example::serve(stream, served).await.map_err(|error| error.to_string())
    });
    let mut client = connect(address).await;
    let response = send(&mut client, Request::get("/")).await;
    assert_eq!((response.status(), &response.body()[..]), (StatusCode::OK, &b"hello\n"[..]));
    assert_eq!(
        field(response.headers(), "ratelimit-policy"),
        "\"per-client\";q=100;w=60, \"in-flight\";q=8;qu=\"concurrent-requests\""
    );
    drop(client);
    assert_eq!(in_time(server).await.unwrap(), Ok(()));
    let handle = limits.handle();
    assert_eq!(handle.usage("in-flight", &()).unwrap().remaining, 8, "the place is free");
    assert!(handle.pardon("per-client", &address.ip()), "the client was counted by its address");
}

#[tokio::test]
async fn plain() {
    let limits = plain_example::limits().unwrap();
    let mut statuses = Vec::new();
    for user in ["ann", "ann", "ann", "ben"] {
        let (status, left) = plain_example::ask(&limits, user).await.unwrap();
        statuses.push((status.as_u16(), left));
    }
    // A bucket of 1,000 a minute is refilled by 16 in the second in which this test certainly ends.
    assert!(statuses[0].0 == 200 && (550..1_000).contains(&statuses[0].1), "{statuses:?}");
    assert!(statuses[1].0 == 200 && (100..550).contains(&statuses[1].1), "{statuses:?}");
    assert_eq!(statuses[3].0, 200, "{statuses:?}");
}

#[tokio::test]
async fn tonic() {
    let listener = listener().await;
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server =
        tokio::spawn(async move { tonic_example::serve(incoming).await.map_err(|error| error.to_string()) });
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut call = async || {
        let request = Request::post(format!("http://{address}/Greeter/Hello"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let response = in_time(client.send_request(request)).await.unwrap();
        let (head, body) = response.into_parts();
        let body = in_time(body.collect()).await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        (head, trailers, body.to_bytes())
    };
    for _ in 0..2 {
        let (head, trailers, body) = call().await;
        assert_eq!((head.status, field(&trailers, "grpc-status")), (StatusCode::OK, "0"));
        assert!(body.ends_with(b"hello") && head.headers.contains_key("ratelimit"));
    }
    let (head, _, body) = call().await;
    assert_eq!((head.status, field(&head.headers, "grpc-status")), (StatusCode::OK, "8"));
    assert!(
        body.is_empty() && field(&head.headers, "grpc-retry-pushback-ms").parse::<u64>().unwrap() <= 2_000
    );
    server.abort();
}
