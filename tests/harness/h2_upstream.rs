//! An API that speaks HTTP/2 (RFC 9113), with TLS or without, and does what a test tells it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::ReservedPort;
use super::authority::Handshake;

/// A server on a thread of its own. It stops when this is dropped.
pub struct H2Upstream {
    pub address: SocketAddr,
    state: Arc<State>,
    _end: oneshot::Sender<()>,
}

#[derive(Default)]
struct State {
    connections: AtomicUsize,
    open: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
    notes: Mutex<Vec<String>>,
    handshakes: Mutex<Vec<Handshake>>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub connection: usize,
    pub method: String,
    pub uri: http::Uri,
    pub headers: HeaderMap,
}

/// A request that is to be answered.
pub struct Call {
    pub seen: Seen,
    pub body: RecvStream,
    respond: SendResponse<Bytes>,
    state: Arc<State>,
    closing: Closing,
}

type Closing = Rc<RefCell<bool>>;

/// How it serves.
#[derive(Clone, Default)]
pub struct Speaks {
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Streams at once on a connection.
    pub streams: Option<u32>,
}

impl H2Upstream {
    /// Runs `script` for every request.
    pub fn start<F: Future<Output = ()> + 'static>(
        speaks: Speaks,
        script: impl Fn(Call) -> F + Send + 'static,
    ) -> Self {
        let listener = ReservedPort::new().listen();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let (_end, over) = oneshot::channel::<()>();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let script = Rc::new(script);
                let accept = async {
                    loop {
                        let Ok((stream, _)) = listener.accept().await else { continue };
                        stream.set_nodelay(true).unwrap();
                        let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
                        let (state, script) = (Arc::clone(&shared), Rc::clone(&script));
                        let speaks = speaks.clone();
                        tokio::task::spawn_local(async move {
                            state.open.fetch_add(1, Ordering::SeqCst);
                            match &speaks.tls {
                                None => serve(stream, speaks.streams, connection, &state, script).await,
                                Some(tls) => {
                                    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(tls));
                                    if let Ok(stream) = acceptor.accept(stream).await {
                                        state
                                            .handshakes
                                            .lock()
                                            .unwrap()
                                            .push(Handshake::of(stream.get_ref().1));
                                        serve(stream, speaks.streams, connection, &state, script).await;
                                    }
                                }
                            }
                            state.open.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = over => {}
                }
            });
        });
        Self { address, state, _end }
    }

    /// Answers 200 with `body` to all requests.
    pub fn answering(body: &'static str) -> Self {
        Self::start(Speaks::default(), move |mut call: Call| async move {
            call.read().await;
            call.answer(200, body);
        })
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub fn open(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    pub fn handshakes(&self) -> Vec<Handshake> {
        self.state.handshakes.lock().unwrap().clone()
    }

    /// What scripts have noted so far.
    pub fn notes(&self) -> Vec<String> {
        self.state.notes.lock().unwrap().clone()
    }
}

async fn serve<F: Future<Output = ()> + 'static>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    streams: Option<u32>,
    connection: usize,
    state: &Arc<State>,
    script: Rc<impl Fn(Call) -> F + 'static>,
) {
    let mut builder = h2::server::Builder::new();
    if let Some(streams) = streams {
        builder.max_concurrent_streams(streams);
    }
    let Ok(mut serving) = builder.handshake::<_, Bytes>(stream).await else { return };
    let closing = Closing::default();
    loop {
        let Some(Ok((request, respond))) = serving.accept().await else { return };
        let (head, body) = request.into_parts();
        let seen = Seen { connection, method: head.method.to_string(), uri: head.uri, headers: head.headers };
        state.seen.lock().unwrap().push(seen.clone());
        let call = Call { seen, body, respond, state: Arc::clone(state), closing: Rc::clone(&closing) };
        tokio::task::spawn_local(script(call));
        tokio::task::yield_now().await; // so that a script that closes the connection has begun
        if *closing.borrow() {
            serving.graceful_shutdown();
        }
    }
}

impl Call {
    /// The next piece of the body; `None` at its end, an error's name if it breaks off.
    pub async fn next(&mut self) -> Option<Result<Bytes, String>> {
        let piece = self.body.data().await?;
        if let Ok(piece) = &piece {
            let _ = self.body.flow_control().release_capacity(piece.len());
        }
        Some(piece.map_err(|error| error.to_string()))
    }

    /// The body, as far as it arrived.
    pub async fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(Ok(piece)) = self.next().await {
            all.extend_from_slice(&piece);
        }
        all
    }

    pub async fn trailers(&mut self) -> Option<HeaderMap> {
        self.body.trailers().await.ok().flatten()
    }

    /// A head before the answer.
    pub fn interim(&mut self, status: u16) {
        self.respond.send_informational(head(status, &[])).unwrap();
    }

    /// The head of an answer whose body follows.
    pub fn begin(&mut self, status: u16, headers: &[(&str, &str)]) -> Answer {
        Answer(self.respond.send_response(head(status, headers), false).unwrap())
    }

    /// A whole answer.
    pub fn answer(&mut self, status: u16, body: impl Into<Bytes>) {
        let body = body.into();
        let sent = self.respond.send_response(head(status, &[]), body.is_empty());
        if let (Ok(mut stream), false) = (sent, body.is_empty()) {
            let _ = stream.send_data(body, true);
        }
    }

    /// An answer that is only a head.
    pub fn only(&mut self, status: u16, headers: &[(&str, &str)]) {
        self.respond.send_response(head(status, headers), true).unwrap();
    }

    pub fn reset(&mut self, reason: Reason) {
        self.respond.send_reset(reason);
    }

    /// Waits until the gateway resets the stream.
    pub async fn until_reset(&mut self) -> Option<Reason> {
        poll_fn(|context| self.respond.poll_reset(context)).await.ok()
    }

    /// The connection takes no further requests (GOAWAY).
    pub fn close_connection(&self) {
        *self.closing.borrow_mut() = true;
    }

    /// Notes something for the test to see.
    pub fn note(&self, text: impl Into<String>) {
        self.state.notes.lock().unwrap().push(text.into());
    }
}

fn head(status: u16, headers: &[(&str, &str)]) -> Response<()> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap()
}

/// An answer that is being sent.
pub struct Answer(SendStream<Bytes>);

impl Answer {
    /// Sends within the flow-control window. Returns whether the gateway accepted everything.
    pub async fn send(&mut self, mut data: Bytes) -> bool {
        while !data.is_empty() {
            self.0.reserve_capacity(data.len());
            match poll_fn(|context| self.0.poll_capacity(context)).await {
                Some(Ok(room)) if room > 0 => {
                    let piece = data.split_to(room.min(data.len()));
                    if self.0.send_data(piece, false).is_err() {
                        return false;
                    }
                }
                Some(Ok(_)) => {}
                _ => return false,
            }
        }
        true
    }

    pub fn end(&mut self) {
        let _ = self.0.send_data(Bytes::new(), true);
    }

    pub fn trailers(&mut self, trailers: &[(&'static str, &str)]) {
        let mut map = HeaderMap::new();
        for (name, value) in trailers {
            map.insert(*name, value.parse().unwrap());
        }
        self.0.send_trailers(map).unwrap();
    }

    pub fn reset(&mut self, reason: Reason) {
        self.0.send_reset(reason);
    }

    pub async fn until_reset(&mut self) -> Option<Reason> {
        poll_fn(|context| self.0.poll_reset(context)).await.ok()
    }
}
