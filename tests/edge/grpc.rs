//! gRPC (HTTP/2 on both sides): all four kinds of calls, their trailers, and their ends on either side.

use crate::harness::h2_upstream::{Call, H2Upstream, Speaks};
use crate::harness::{Gateway, Setup, deadline, eventually};
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};

const RULES: &str = "limits: {calls: {key: ip, rate: 1000/h, cost: {methods: {POST: 1}}}, few: {key: ip, rate: 1/h}}\n\
    upstreams: {api: {servers: [\"http://{upstream}\"], protocol: http2, timeouts: {response: 10min}}}\n\
    routes:\n\
    \x20 - {name: few, match: {path: /test.Few/*}, upstream: api, limits: [few]}\n\
    \x20 - {name: api, match: {path: /*}, upstream: api, limits: [calls]}\n";

const GRPC: [(&str, &str); 2] = [("content-type", "application/grpc"), ("grpc-encoding", "identity")];

/// A message as gRPC frames it.
fn message(text: &str) -> Bytes {
    let mut framed = vec![0];
    framed.extend_from_slice(&(text.len() as u32).to_be_bytes());
    framed.extend_from_slice(text.as_bytes());
    framed.into()
}

fn texts(mut framed: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while let [0, length @ ..] = framed {
        let (length, rest) = length.split_at(4);
        let (text, rest) = rest.split_at(u32::from_be_bytes(length.try_into().unwrap()) as usize);
        texts.push(String::from_utf8(text.to_vec()).unwrap());
        framed = rest;
    }
    texts
}

/// A service with a method of every kind.
fn service() -> H2Upstream {
    H2Upstream::start(Speaks::default(), |mut call: Call| async move {
        match call.seen.uri.path() {
            "/test.Api/Unary" | "/test.Few/Unary" | "/test.Api/ClientStreaming" => {
                let said = texts(&call.read().await).join("+");
                let mut answer = call.begin(200, &GRPC);
                answer.send(message(&said)).await;
                answer.trailers(&[("grpc-status", "0"), ("grpc-message", "fine")]);
            }
            "/test.Api/ServerStreaming" => {
                call.read().await;
                let mut answer = call.begin(200, &GRPC);
                for turn in 0..100 {
                    answer.send(message(&format!("{turn}"))).await;
                }
                answer.trailers(&[("grpc-status", "0")]);
            }
            "/test.Api/Echo" => {
                let mut answer = call.begin(200, &GRPC);
                while let Some(Ok(piece)) = call.next().await {
                    answer.send(piece).await;
                }
                answer.trailers(&[("grpc-status", "0")]);
            }
            "/test.Api/Fails" => {
                call.read().await;
                call.only(200, &[GRPC[0], ("grpc-status", "5"), ("grpc-message", "not%20here")]);
            }
            "/test.Api/GivesUp" => {
                let mut answer = call.begin(200, &GRPC);
                let _ = call.next().await;
                answer.reset(Reason::ENHANCE_YOUR_CALM);
            }
            "/test.Api/EndsEarly" => {
                let _ = call.next().await;
                let mut answer = call.begin(200, &GRPC);
                answer.trailers(&[("grpc-status", "9")]);
                call.note(format!("early {:?}", answer.until_reset().await));
            }
            _ => {
                let mut answer = call.begin(200, &GRPC);
                let reason = answer.until_reset().await;
                call.note(format!("{} {reason:?}", call.seen.uri.path()));
            }
        }
    })
}

fn before(service: &H2Upstream) -> Gateway {
    Setup::default().value("upstream", service.address).workers(1).start(RULES)
}

/// Runs a client of gRPC against the gateway.
fn over_h2<T>(gateway: &Gateway, work: impl AsyncFnOnce(SendRequest<Bytes>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = gateway.edge;
    runtime.block_on(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let result = tokio::time::timeout(deadline(), work(sender)).await.expect("an answer in time");
        connection.abort();
        result
    })
}

/// A call that has begun.
struct Begun {
    answer: ResponseFuture,
    stream: SendStream<Bytes>,
}

async fn begin(sender: &SendRequest<Bytes>, path: &str) -> Begun {
    let mut sender = sender.clone().ready().await.unwrap();
    let request = Request::post(format!("http://api.test{path}"))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .header("grpc-timeout", "5S")
        .body(())
        .unwrap();
    let (answer, stream) = sender.send_request(request, false).unwrap();
    Begun { answer, stream }
}

impl Begun {
    fn say(&mut self, text: &str, end: bool) {
        self.stream.send_data(message(text), end).unwrap();
    }
}

async fn next(body: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let piece = body.data().await?;
    if let Ok(piece) = &piece {
        let _ = body.flow_control().release_capacity(piece.len());
    }
    Some(piece)
}

async fn whole(answer: Response<RecvStream>) -> (Vec<String>, HeaderMap) {
    let (head, mut body) = answer.into_parts();
    assert_eq!(
        (head.status.as_u16(), &head.headers["content-type"]),
        (200, &"application/grpc".parse().unwrap())
    );
    let mut framed = Vec::new();
    while let Some(piece) = next(&mut body).await {
        framed.extend_from_slice(&piece.unwrap());
    }
    (texts(&framed), body.trailers().await.unwrap().unwrap_or(head.headers))
}

/// Unary calls, and calls in which one side streams.
#[test]
fn calls_are_answered() {
    let service = service();
    let gateway = before(&service);
    over_h2(&gateway, async |sender| {
        let mut unary = begin(&sender, "/test.Api/Unary").await;
        unary.say("hello", true);
        let (said, trailers) = whole(unary.answer.await.unwrap()).await;
        assert_eq!((said, &trailers["grpc-status"]), (vec!["hello".to_owned()], &"0".parse().unwrap()));
        assert_eq!(trailers["grpc-message"], "fine");

        let mut streaming = begin(&sender, "/test.Api/ClientStreaming").await;
        for (turn, text) in ["a", "b", "c"].into_iter().enumerate() {
            streaming.say(text, turn == 2);
        }
        assert_eq!(whole(streaming.answer.await.unwrap()).await.0, ["a+b+c"]);

        let mut streamed = begin(&sender, "/test.Api/ServerStreaming").await;
        streamed.say("", true);
        let (said, trailers) = whole(streamed.answer.await.unwrap()).await;
        assert_eq!((said.len(), &trailers["grpc-status"]), (100, &"0".parse().unwrap()));
    });
    let headers = &service.seen()[0].headers;
    assert_eq!(
        (&headers["te"], &headers["grpc-timeout"]),
        (&"trailers".parse().unwrap(), &"5S".parse().unwrap())
    );
}

/// Both sides speak in turn: the head and each message arrive while the request goes on.
#[test]
fn both_sides_send_in_turn() {
    let service = service();
    let gateway = before(&service);
    over_h2(&gateway, async |sender| {
        let mut call = begin(&sender, "/test.Api/Echo").await;
        let (head, mut body) = call.answer.await.unwrap().into_parts();
        assert_eq!(head.status, 200, "before anything was said");
        for turn in 0..50 {
            call.stream.send_data(message(&format!("{turn}")), false).unwrap();
            let heard = next(&mut body).await.unwrap().unwrap();
            assert_eq!(texts(&heard), [format!("{turn}")]);
        }
        call.stream.send_data(Bytes::new(), true).unwrap();
        assert!(next(&mut body).await.is_none());
        assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
    });
}

/// An error is a head alone, and stays one.
#[test]
fn an_error_is_trailers_only() {
    let service = service();
    let gateway = before(&service);
    over_h2(&gateway, async |sender| {
        let mut call = begin(&sender, "/test.Api/Fails").await;
        call.say("x", true);
        let answer = call.answer.await.unwrap();
        assert!(answer.body().is_end_stream(), "the head ends it");
        assert_eq!(
            (&answer.headers()["grpc-status"], &answer.headers()["grpc-message"]),
            (&"5".parse().unwrap(), &"not%20here".parse().unwrap())
        );
    });
}

/// A call above its limit is told RESOURCE_EXHAUSTED, and the others on its connection go on.
#[test]
fn a_refused_call_gets_its_status() {
    let service = service();
    let gateway = before(&service);
    over_h2(&gateway, async |sender| {
        for expected in ["0", "8", "8"] {
            let mut call = begin(&sender, "/test.Few/Unary").await;
            call.say("x", true);
            let answer = call.answer.await.unwrap();
            let (_, trailers) = whole(answer).await;
            assert_eq!(trailers["grpc-status"], expected);
        }
        let mut call = begin(&sender, "/test.Api/Unary").await;
        call.say("x", true);
        assert_eq!(whole(call.answer.await.unwrap()).await.1["grpc-status"], "0");
    });
    assert_eq!(service.seen().len(), 2);
}

/// A client that cancels ends the call upstream at once, whether or not it has said all.
#[test]
fn a_call_that_is_cancelled_ends_upstream() {
    let service = service();
    let gateway = before(&service);
    over_h2(&gateway, async |sender| {
        for (path, end) in [("/test.Api/Hangs", false), ("/test.Api/HangsToo", true)] {
            let mut call = begin(&sender, path).await;
            call.say("x", end);
            let answer = call.answer.await.unwrap();
            call.stream.send_reset(Reason::CANCEL);
            drop(answer);
            let note = format!("{path} Some(CANCEL)");
            eventually(&note, || service.notes().contains(&note)).await;
        }
        let mut call = begin(&sender, "/test.Api/Unary").await;
        call.say("x", true);
        assert_eq!(whole(call.answer.await.unwrap()).await.1["grpc-status"], "0");
    });
    assert_eq!(service.connections(), 1);
}

/// A server that resets a call resets it for the client, for the same reason.
#[test]
fn a_call_that_the_server_resets_ends_for_the_client() {
    let service = service();
    let gateway = before(&service);
    over_h2(&gateway, async |sender| {
        let mut call = begin(&sender, "/test.Api/GivesUp").await;
        let (_, mut body) = call.answer.await.unwrap().into_parts();
        call.stream.send_data(message("x"), false).unwrap();
        let error = next(&mut body).await.unwrap().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
    });
}

/// A server that ends a call before the client has said all: the client gets the status, the server no more messages.
#[test]
fn a_call_may_end_early() {
    let service = service();
    let gateway = before(&service);
    over_h2(&gateway, async |sender| {
        let mut call = begin(&sender, "/test.Api/EndsEarly").await;
        call.say("x", false);
        let (_, trailers) = whole(call.answer.await.unwrap()).await;
        assert_eq!(trailers["grpc-status"], "9");
        eventually("the server is rid of it", || {
            service.notes().iter().any(|note| note.starts_with("early"))
        })
        .await;
    });
}
