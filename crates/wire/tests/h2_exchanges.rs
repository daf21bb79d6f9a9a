//! The client of the `h2` crate against a server session, over a pipe in memory: what one side sends is what the other
//! side receives, in both directions. `SLUICEGATE_EXCHANGES=N` asks for N exchanges.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "h2_exchanges/plan.rs"]
mod plan;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version};
use proptest::prelude::*;
use sluicegate_wire::h2::{Event, HeadLimits, ResponseHead, Session, StreamKey};
use sluicegate_wire::{Headers, RequestHead};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use self::plan::{Exchange, Lines, Plan, plan};

/// Exchanges unless told otherwise, and those of one connection on average.
const EXCHANGES: u32 = 1_000;
const EACH: u32 = 10;
/// How long a connection may take, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);
const DATE: [u8; 29] = *b"Sun, 06 Nov 1994 08:49:37 GMT";

/// The bytes of a body.
fn content(length: usize) -> Bytes {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<_>>().into()
}

fn map(lines: &Lines) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let mut value = HeaderValue::from_bytes(value).unwrap();
        value.set_sensitive(name == "authorization");
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
    }
    map
}

/// The values of each name, in order.
fn values<'a>(lines: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut values: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for (name, value) in lines {
        values.entry(name.to_vec()).or_default().push(value.to_vec());
    }
    values
}

fn of_lines(lines: &Lines) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    values(lines.iter().map(|(name, value)| (name.as_bytes(), &value[..])))
}

fn of_map(map: &HeaderMap) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    values(map.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())))
}

/// A request that the server answers.
struct Serving {
    key: StreamKey,
    plan: Exchange,
    /// Whether its body is over, and what came of it.
    has_read: bool,
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
    answered: bool,
    /// What is still to be sent.
    pieces: Vec<Bytes>,
    is_over: bool,
}

/// The session with its pipe.
struct Server {
    session: Session,
    pipe: DuplexStream,
    rest: Vec<u8>,
    plan: Plan,
    requests: Vec<Serving>,
    now: Duration,
    /// Requests that were served to their end.
    served: usize,
}

impl Server {
    fn new(plan: Plan, pipe: DuplexStream) -> Self {
        let limits = HeadLimits { bytes: 64 << 10, fields: 100, target: 8 << 10 };
        let session = Session::new(limits, Arc::default(), Duration::ZERO);
        Self { session, pipe, rest: Vec::new(), plan, requests: Vec::new(), now: Duration::ZERO, served: 0 }
    }

    /// Does what can be done; ready when the client has closed the pipe.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.session.enter(context);
        loop {
            let mut goes_on = false;
            if !self.session.is_full() {
                let mut buffer = [0; 32 << 10];
                let mut read = ReadBuf::new(&mut buffer);
                match Pin::new(&mut self.pipe).poll_read(context, &mut read) {
                    Poll::Ready(Ok(())) if read.filled().is_empty() => return Poll::Ready(()),
                    Poll::Ready(read_all) => {
                        read_all.unwrap();
                        self.rest.extend_from_slice(read.filled());
                        self.take_frames();
                        goes_on = true;
                    }
                    Poll::Pending => {}
                }
            }
            for at in 0..self.requests.len() {
                goes_on |= self.serve(at, context);
            }
            self.session.wake_blocked(|_| goes_on = true);
            while self.session.unsent() > 0 {
                match Pin::new(&mut self.pipe).poll_write(context, self.session.output()) {
                    Poll::Ready(written) => {
                        // A client that has gone has got what it wants.
                        let Ok(written) = written else { return Poll::Ready(()) };
                        self.session.advance(written);
                        goes_on = true;
                    }
                    Poll::Pending => break,
                }
            }
            if !goes_on {
                self.session.exit();
                return Poll::Pending;
            }
        }
    }

    fn take_frames(&mut self) {
        self.now += Duration::from_millis(30);
        self.session.set_time(self.now);
        let rest = std::mem::take(&mut self.rest);
        let mut bytes = &rest[..];
        while let Some(event) = self.session.next_event(&mut bytes).unwrap() {
            match event {
                Event::Reset(slot) => {
                    self.requests.iter_mut().filter(|r| r.key.slot == slot).for_each(|r| r.is_over = true);
                }
                Event::Request { key, head, ended, is_head } => {
                    self.begin(key, head.unwrap(), ended, is_head)
                }
            }
        }
        assert!(self.session.take_abort().is_none());
        self.rest = bytes.to_vec();
    }

    /// A request came: it is what the client has sent.
    fn begin(
        &mut self,
        key: StreamKey,
        (head, length): (RequestHead, Option<u64>),
        ended: bool,
        bodiless: bool,
    ) {
        let index: usize =
            std::str::from_utf8(head.headers.get("x-exchange").unwrap()).unwrap().parse().unwrap();
        let plan = self.plan.exchanges[index].clone();
        assert_eq!((&head.method, head.target.path_and_query()), (&plan.method, plan.path.as_str()));
        assert_eq!(head.version, Version::HTTP_2);
        assert_eq!(bodiless, plan.method == Method::HEAD);
        let mut wanted = of_lines(&plan.headers);
        wanted.insert(b"host".to_vec(), vec![b"a.test:8080".to_vec()]);
        wanted.insert(b"x-exchange".to_vec(), vec![index.to_string().into_bytes()]);
        if plan.expects {
            wanted.insert(b"expect".to_vec(), vec![b"100-continue".to_vec()]);
        }
        let total: usize = plan.body.pieces.iter().sum();
        if index.is_multiple_of(2) {
            wanted.insert(b"content-length".to_vec(), vec![total.to_string().into_bytes()]);
            assert_eq!(length, Some(total as u64));
        }
        assert_eq!(values(head.headers.iter()), wanted);
        self.requests.push(Serving {
            key,
            plan,
            has_read: ended,
            data: Vec::new(),
            trailers: None,
            answered: false,
            pieces: Vec::new(),
            is_over: false,
        });
    }

    /// Goes on with a request; whether anything was done.
    fn serve(&mut self, at: usize, context: &mut Context<'_>) -> bool {
        let (session, request) = (&mut self.session, &mut self.requests[at]);
        if request.is_over {
            return false;
        }
        let plan = &request.plan;
        while !request.has_read && !plan.early {
            match session.poll_body(request.key, context) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => {
                    request.is_over = true;
                    return false;
                }
                Poll::Ready(Ok((frame, ended))) => {
                    request.has_read = ended;
                    let Some(frame) = frame else { break };
                    match frame.into_data() {
                        Ok(data) => request.data.extend_from_slice(&data),
                        Err(frame) => request.trailers = frame.into_trailers().ok(),
                    }
                }
            }
        }
        if !request.answered {
            if !plan.early {
                assert!(
                    request.data
                        == plan.body.pieces.iter().flat_map(|piece| content(*piece)).collect::<Vec<u8>>()
                );
                let trailers = request.trailers.as_ref().map(of_map).unwrap_or_default();
                assert_eq!(trailers, of_lines(&plan.body.trailers));
            }
            if plan.interim {
                let headers: Headers = [("link", "</a>")].into_iter().collect();
                session.send_interim(request.key, StatusCode::EARLY_HINTS, &headers);
            }
            let mut headers = Headers::new();
            plan.answer.iter().for_each(|(name, value)| headers.append(name.as_str(), value));
            let body = &plan.answer_body;
            let has_none = plan.method == Method::HEAD || matches!(plan.status.as_u16(), 204 | 304);
            let ends = has_none || (body.pieces.is_empty() && body.trailers.is_empty());
            let answer = ResponseHead { status: plan.status, headers: &headers, date: DATE, ends };
            if !session.send_head(request.key, &answer) {
                request.is_over = true;
                return false;
            }
            request.answered = true;
            request.pieces = body.pieces.iter().map(|piece| content(*piece)).collect();
            if ends {
                return self.end(at);
            }
        }
        let has_trailers = !plan.answer_body.trailers.is_empty();
        while let Some(piece) = request.pieces.first_mut() {
            let Some(room) = session.capacity(request.key) else {
                request.is_over = true;
                return false;
            };
            if room == 0 && !piece.is_empty() {
                return false;
            }
            let part = piece.split_to(room.min(piece.len()));
            let is_sent = piece.is_empty();
            let last = is_sent && request.pieces.len() == 1 && !has_trailers;
            session.send_data(request.key, &part, last);
            if is_sent {
                request.pieces.remove(0);
            }
            if last {
                return self.end(at);
            }
        }
        session.send_trailers(request.key, &map(&request.plan.answer_body.trailers));
        self.end(at)
    }

    fn end(&mut self, at: usize) -> bool {
        let request = &mut self.requests[at];
        request.is_over = true;
        self.session.stop_reading(request.key);
        self.session.stop_serving(request.key);
        self.served += 1;
        true
    }
}

/// The client's side of one exchange.
async fn exchange_of(client: h2::client::SendRequest<Bytes>, index: usize, plan: &Exchange) {
    let mut client = client.ready().await.unwrap();
    let uri = format!("http://a.test:8080{}", plan.path);
    let mut request =
        Request::builder().method(&plan.method).uri(uri).version(Version::HTTP_2).body(()).unwrap();
    *request.headers_mut() = map(&plan.headers);
    let headers = request.headers_mut();
    headers.insert("x-exchange", HeaderValue::from(index));
    let total: usize = plan.body.pieces.iter().sum();
    if index.is_multiple_of(2) {
        headers.insert("content-length", HeaderValue::from(total));
    }
    if plan.expects {
        headers.insert("expect", HeaderValue::from_static("100-continue"));
    }
    let ends = plan.body.pieces.is_empty() && plan.body.trailers.is_empty();
    let (response, mut sending) = client.send_request(request, ends).unwrap();
    if !ends {
        let has_trailers = !plan.body.trailers.is_empty();
        let mut sent = true;
        for (at, piece) in plan.body.pieces.iter().enumerate() {
            let last = at + 1 == plan.body.pieces.len() && !has_trailers;
            // The server may have answered and reset the stream.
            sent &= sending.send_data(content(*piece), last).is_ok();
        }
        if has_trailers {
            sent &= sending.send_trailers(map(&plan.body.trailers)).is_ok();
        }
        assert!(sent || plan.early);
    }
    let response = response.await.unwrap();
    assert_eq!(response.status(), plan.status);
    let mut wanted = of_lines(&plan.answer);
    wanted.insert(b"date".to_vec(), vec![DATE.to_vec()]);
    assert_eq!(of_map(response.headers()), wanted);
    if plan.leaves {
        return;
    }
    let mut body = response.into_body();
    let mut data = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = match piece {
            Ok(piece) => piece,
            // An answer that came before its request was read ends with a reset that says NO_ERROR.
            Err(error) if plan.early => {
                assert_eq!(error.reason(), Some(h2::Reason::NO_ERROR));
                break;
            }
            Err(error) => panic!("{error}"),
        };
        data.extend_from_slice(&piece);
        let _ = body.flow_control().release_capacity(piece.len());
    }
    let has_none = plan.method == Method::HEAD || matches!(plan.status.as_u16(), 204 | 304);
    let wanted: Vec<u8> = match has_none {
        true => Vec::new(),
        false => plan.answer_body.pieces.iter().flat_map(|piece| content(*piece)).collect(),
    };
    assert!(data == wanted, "{} bytes of {}", data.len(), wanted.len());
    let trailers = match body.trailers().await {
        Err(_) if plan.early => return,
        trailers => trailers.unwrap().unwrap_or_default(),
    };
    if !has_none {
        assert_eq!(of_map(&trailers), of_lines(&plan.answer_body.trailers));
    }
}

fn run(plan: Plan) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let exchanged = async {
        let (client_pipe, server_pipe) = tokio::io::duplex(plan.pipe);
        let mut server = Server::new(plan.clone(), server_pipe);
        let client = async {
            let (client, connection) = h2::client::Builder::new()
                .initial_window_size(plan.window)
                .header_table_size(plan.table)
                .max_frame_size(plan.frame)
                .handshake::<_, Bytes>(client_pipe)
                .await
                .unwrap();
            let exchanges = plan.exchanges.iter().enumerate();
            let exchanges: Vec<_> =
                exchanges.map(|(index, plan)| exchange_of(client.clone(), index, plan)).collect();
            drop(client); // the connection ends with the last exchange
            let (end, _) = tokio::join!(connection, join_all(exchanges));
            end.unwrap();
        };
        let served = async {
            poll_fn(|context| server.poll(context)).await;
            server.pipe.shutdown_now();
            let stayed = plan.exchanges.iter().filter(|exchange| !exchange.leaves).count();
            assert!(server.served >= stayed);
        };
        tokio::join!(client, served);
    };
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, exchanged).await })
        .expect("nobody waits for the other");
}

trait ShutdownNow {
    fn shutdown_now(&mut self);
}

impl ShutdownNow for DuplexStream {
    fn shutdown_now(&mut self) {
        let _ = Pin::new(self).poll_shutdown(&mut Context::from_waker(std::task::Waker::noop()));
    }
}

/// The number of connections.
fn connections() -> u32 {
    let exchanges = std::env::var("SLUICEGATE_EXCHANGES").map_or(EXCHANGES, |count| count.parse().unwrap());
    exchanges.div_ceil(EACH)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(connections()))]

    #[test]
    fn what_one_side_sends_the_other_receives(plan in plan()) {
        run(plan);
    }
}
