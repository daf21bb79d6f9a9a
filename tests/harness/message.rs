//! A strict parser of HTTP/1.1 messages.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Instant;

use super::deadline;

/// Headers or trailers: names in lower case, in the order in which they came.
pub type Headers = Vec<(String, String)>;

/// Reads messages from a socket, each before the deadline.
pub struct Reader {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

/// The head of a message.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The request line or status line.
    pub first: String,
    pub headers: Headers,
    /// The names of the headers as they came.
    pub names: Vec<String>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub head: Head,
    pub body: Vec<u8>,
    pub trailers: Headers,
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Head {
    /// The values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The value of a header that occurs at most once.
    #[track_caller]
    pub fn one(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() <= 1, "{name} is there {} times: {all:?}", all.len());
        all.first().copied()
    }

    fn parse(text: &str) -> io::Result<Self> {
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let names = lines.clone().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect();
        let headers = lines.map(header).collect::<io::Result<_>>()?;
        Ok(Self { first, headers, names })
    }
}

fn header(line: &str) -> io::Result<(String, String)> {
    let (name, value) = line.split_once(':').ok_or_else(|| invalid(format!("no header: {line:?}")))?;
    if name.is_empty() || name.contains(' ') {
        return Err(invalid(format!("no header name: {line:?}")));
    }
    Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
}

impl Reader {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(deadline())).unwrap();
        stream.set_write_timeout(Some(deadline())).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    /// Reads more bytes. Returns whether there were any.
    fn fill(&mut self) -> io::Result<bool> {
        let mut piece = [0; 64 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    self.buffer.extend_from_slice(&piece[..length]);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn more(&mut self, begun: Instant) -> io::Result<()> {
        if begun.elapsed() > deadline() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.fill()? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The bytes up to and including `end`.
    fn up_to(&mut self, end: &[u8]) -> io::Result<String> {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                let text = String::from_utf8_lossy(&self.buffer[..at]).into_owned();
                self.buffer.drain(..at + end.len());
                return Ok(text);
            }
            self.more(begun)?;
        }
    }

    /// The next head; `None` if the peer has closed the connection instead.
    pub fn head(&mut self) -> io::Result<Option<Head>> {
        if self.buffer.is_empty() && !self.fill()? {
            return Ok(None);
        }
        Head::parse(&self.up_to(b"\r\n\r\n")?).map(Some)
    }

    /// Exactly this number of bytes.
    pub fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let begun = Instant::now();
        while self.buffer.len() < length {
            self.more(begun)?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// At most `most` bytes that have arrived or arrive next; none at the end of the connection.
    pub fn some(&mut self, most: usize) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.fill()?;
        }
        let rest = self.buffer.split_off(most.min(self.buffer.len()));
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// A chunked body and its trailers.
    fn chunked(&mut self) -> io::Result<(Vec<u8>, Headers)> {
        let mut body = Vec::new();
        loop {
            let size = self.up_to(b"\r\n")?;
            let digits = size.split(';').next().unwrap_or_default();
            let length =
                usize::from_str_radix(digits, 16).map_err(|_| invalid(format!("no chunk: {size:?}")))?;
            if length == 0 {
                break;
            }
            body.extend(self.exactly(length)?);
            if self.exactly(2)? != b"\r\n" {
                return Err(invalid("a chunk does not end"));
            }
        }
        let mut trailers = Vec::new();
        loop {
            let line = self.up_to(b"\r\n")?;
            if line.is_empty() {
                return Ok((body, trailers));
            }
            trailers.push(header(&line)?);
        }
    }

    /// The body that a head announces; up to the end of the connection if it announces none and `open` is true.
    pub fn body(&mut self, head: &Head, open: bool) -> io::Result<(Vec<u8>, Headers)> {
        let lengths = head.all("content-length");
        match (head.all("transfer-encoding").as_slice(), lengths.as_slice()) {
            (["chunked"], []) => self.chunked(),
            ([], [length]) => {
                let length = length.parse().map_err(|_| invalid(format!("no length: {length:?}")))?;
                Ok((self.exactly(length)?, Vec::new()))
            }
            ([], []) if open => {
                let begun = Instant::now();
                while self.fill()? {
                    if begun.elapsed() > deadline() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Ok((std::mem::take(&mut self.buffer), Vec::new()))
            }
            ([], []) => Ok((Vec::new(), Vec::new())),
            (encodings, lengths) => Err(invalid(format!("two framings: {encodings:?} and {lengths:?}"))),
        }
    }

    /// The next answer, to a request of this method.
    pub fn response(&mut self, method: &str) -> io::Result<Response> {
        let head = self.head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| invalid(format!("no status line: {:?}", head.first)))?;
        let bodiless = method == "HEAD" || status < 200 || status == 204 || status == 304;
        let (body, trailers) = if bodiless { Default::default() } else { self.body(&head, true)? };
        Ok(Response { status, head, body, trailers })
    }

    /// Waits for the end of the connection. Returns whether there was nothing more to read.
    pub fn at_end(&mut self) -> bool {
        if !self.buffer.is_empty() {
            return false;
        }
        match self.fill() {
            Ok(more) => !more,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

impl Response {
    /// The value of a header that occurs at most once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.one(name)
    }

    /// A header that is a whole number.
    #[track_caller]
    pub fn number(&self, name: &str) -> u64 {
        let value = self.header(name).unwrap_or_else(|| panic!("{name} is missing: {:?}", self.head));
        value.parse().unwrap_or_else(|_| panic!("{name} is not a whole number: {value}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// The body as a problem (RFC 9457) of the answer's own status, with the id of the request.
    #[track_caller]
    pub fn problem(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        for member in ["type", "title", "detail", "request_id"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{member} in {problem}");
        }
        assert_eq!(problem["request_id"].as_str(), self.header("x-request-id"), "the id is told once");
        problem
    }
}
