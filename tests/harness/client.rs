//! A client of HTTP/1.1 that sends any bytes.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::message::{Reader, Response};
use super::{Stopwatch, deadline, until};

/// One connection.
pub struct Client {
    pub reader: Reader,
}

impl Client {
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, deadline());
        Self {
            reader: Reader::new(
                stream.unwrap_or_else(|error| panic!("cannot connect to {address}: {error}")),
            ),
        }
    }

    /// A client that has sent these bytes within 400 ms, before a gateway with timeouts of half a second gives it up.
    #[track_caller]
    pub fn quick(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Self {
        until("a client sends without delay", || {
            let watch = Stopwatch::start();
            let mut client = Self::connect(address);
            client.try_send(&bytes).ok()?;
            (watch.elapsed() < Duration::from_millis(400)).then_some(client)
        })
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.try_send(bytes).unwrap();
        self
    }

    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.reader.stream.write_all(bytes.as_ref())
    }

    /// Sends a request without a body.
    #[track_caller]
    pub fn request(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> &mut Self {
        let bytes = head(method, target, headers);
        self.send(bytes)
    }

    /// Sends a request without a body and reads the answer.
    #[track_caller]
    pub fn ask(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> Response {
        self.request(method, target, headers);
        self.reader.response(method).unwrap_or_else(|error| panic!("no answer to {method} {target}: {error}"))
    }

    #[track_caller]
    pub fn get(&mut self, target: &str) -> Response {
        self.ask("GET", target, &[])
    }

    /// Sends a request with a body of this length and reads the answer.
    #[track_caller]
    pub fn post(&mut self, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let length = body.len().to_string();
        let headers = [headers, &[("content-length", &length)]].concat();
        self.request("POST", target, &headers).send(body).response()
    }

    /// The answer to what was sent.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.reader.response("GET").unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    /// The answer, or the part of it that arrived before it broke off.
    pub fn try_response(&mut self) -> io::Result<Response> {
        self.reader.response("GET")
    }

    /// Whether the gateway closes the connection without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        self.reader.at_end()
    }

    /// A second handle of the socket, to write while this one reads.
    pub fn writer(&self) -> TcpStream {
        self.reader.stream.try_clone().unwrap()
    }
}

/// Waits until connections to this address are refused.
#[track_caller]
pub fn refuses(address: SocketAddr) {
    until("connections are refused", || {
        TcpStream::connect_timeout(&address, deadline()).is_err().then_some(())
    });
}

/// The head of a request. Host is added unless it is among the headers.
pub fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        text += "Host: api.test\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    (text + "\r\n").into_bytes()
}
