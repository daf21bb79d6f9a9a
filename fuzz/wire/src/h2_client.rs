//! A client of HTTP/2 that keeps the books of a connection: what it sent, and what the server may therefore send. It
//! fails on every frame that RFC 9113 does not allow at that point.

use std::collections::{BTreeMap, VecDeque};

use sluicegate_wire::h2::frame::{FRAME_HEADER, FrameHeader, MAX_FRAME_SIZE, flag, kind, setting};
use sluicegate_wire::h2::hpack::{DEFAULT_TABLE_SIZE, Decoder};

use super::frames::{has, number, unpadded};

/// Names and values of a header block.
pub type Lines = Vec<(Vec<u8>, Vec<u8>)>;

/// The window that each side has before anything is said of it (RFC 9113 §6.9.2).
const DEFAULT: i64 = 65_535;
/// The largest window.
const LARGEST: i64 = i32::MAX as i64;

/// A stream as the client sees it.
#[derive(Debug, Default)]
pub struct Stream {
    /// What the server may send.
    window: i64,
    /// What the client may send.
    pub room: i64,
    /// The client has sent END_STREAM.
    pub sent_end: bool,
    /// The final head has come.
    has_head: bool,
    /// The server has sent END_STREAM.
    ended: bool,
    /// Either side has reset it.
    pub reset: bool,
    /// Its request may have asked for 100 (Continue).
    expects: bool,
    /// The data that the client sent.
    pub sent: Vec<u8>,
    /// Header blocks that the server's application wrote and that have not come yet.
    pub due: VecDeque<Lines>,
    /// Data that the application wrote and that has not come yet.
    pub data_due: VecDeque<u8>,
}

/// The client's side of a connection.
pub struct Client {
    pub streams: BTreeMap<u32, Stream>,
    /// The highest stream that the client has opened.
    pub last: u32,
    decoder: Decoder,
    initial: i64,
    window: i64,
    /// What the client may send on all streams together.
    pub room: i64,
    greeted: bool,
    /// SETTINGS and PINGs that have to be acknowledged.
    settings_due: usize,
    pings_due: VecDeque<[u8; 8]>,
    /// PINGs of the server.
    pub asked: Vec<[u8; 8]>,
    /// The last stream of the server's GOAWAY.
    going: Option<u32>,
    /// A header block that has begun: its stream, the flags of HEADERS, and the bytes.
    block: Option<(u32, u8, Vec<u8>)>,
    /// The table size that the client has allowed, if it became smaller and the encoder has not said so yet.
    shrunk: bool,
    table: u32,
}

impl Default for Client {
    fn default() -> Self {
        Self {
            streams: BTreeMap::new(),
            last: 0,
            decoder: Decoder::new(DEFAULT_TABLE_SIZE),
            initial: DEFAULT,
            window: DEFAULT,
            room: DEFAULT,
            greeted: false,
            settings_due: 0,
            pings_due: VecDeque::new(),
            asked: Vec::new(),
            going: None,
            block: None,
            shrunk: false,
            table: DEFAULT_TABLE_SIZE as u32,
        }
    }
}

impl Client {
    /// The client sends a frame, which may be wrong. The session is to receive it next.
    pub fn sends(&mut self, head: &FrameHeader, payload: &[u8]) {
        match head.kind {
            kind::HEADERS if head.stream % 2 == 1 && head.stream > self.last => {
                self.last = head.stream;
                let stream = Stream {
                    window: self.initial,
                    room: 64 << 10,
                    sent_end: has(head, flag::END_STREAM),
                    expects: true,
                    ..Stream::default()
                };
                self.streams.insert(head.stream, stream);
            }
            kind::HEADERS | kind::DATA => {
                if head.kind == kind::DATA {
                    self.room -= payload.len() as i64;
                }
                if let Some(stream) = self.streams.get_mut(&head.stream) {
                    if head.kind == kind::DATA {
                        stream.room -= payload.len() as i64;
                        stream.sent.extend_from_slice(unpadded(head, payload));
                    }
                    stream.sent_end |= has(head, flag::END_STREAM);
                }
            }
            kind::RST_STREAM => {
                if let Some(stream) = self.streams.get_mut(&head.stream) {
                    stream.reset = true;
                }
            }
            kind::SETTINGS if !has(head, flag::ACK) => self.sends_settings(payload),
            kind::PING if !has(head, flag::ACK) => {
                self.pings_due.extend(payload.first_chunk());
            }
            kind::WINDOW_UPDATE => {
                let more = i64::from(number(payload) & (u32::MAX >> 1));
                let window = match self.streams.get_mut(&head.stream) {
                    Some(stream) => &mut stream.window,
                    None if head.stream == 0 => &mut self.window,
                    None => return,
                };
                *window += more;
            }
            _ => {}
        }
    }

    fn sends_settings(&mut self, payload: &[u8]) {
        self.settings_due += 1;
        for entry in payload.chunks_exact(6) {
            let value = number(&entry[2..]);
            match u16::from_be_bytes([entry[0], entry[1]]) {
                setting::INITIAL_WINDOW_SIZE => {
                    let more = i64::from(value) - self.initial;
                    self.initial += more;
                    self.streams.values_mut().for_each(|stream| stream.window += more);
                }
                setting::HEADER_TABLE_SIZE => {
                    self.shrunk |= value < self.table;
                    self.table = self.table.min(value);
                }
                _ => {}
            }
        }
    }

    /// The session sends these bytes: whole frames.
    pub fn hears(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let head = FrameHeader::read(bytes).expect("a whole frame");
            assert!(head.length <= MAX_FRAME_SIZE, "{head:?}");
            let payload = &bytes[FRAME_HEADER..FRAME_HEADER + head.length];
            bytes = &bytes[FRAME_HEADER + head.length..];
            self.hears_frame(&head, payload);
        }
    }

    fn hears_frame(&mut self, head: &FrameHeader, payload: &[u8]) {
        assert_eq!(self.block.is_some(), head.kind == kind::CONTINUATION, "{head:?}");
        let is_answer = matches!(head.kind, kind::SETTINGS | kind::PING) && has(head, flag::ACK);
        assert_eq!(
            !self.greeted,
            head.kind == kind::SETTINGS && !is_answer,
            "SETTINGS come first and once: {head:?}"
        );
        let allowed = match head.kind {
            kind::DATA => flag::END_STREAM,
            kind::HEADERS => flag::END_STREAM | flag::END_HEADERS,
            kind::CONTINUATION => flag::END_HEADERS,
            kind::SETTINGS | kind::PING => flag::ACK,
            _ => 0,
        };
        assert_eq!(head.flags & !allowed, 0, "{head:?}");
        match head.kind {
            kind::SETTINGS => {
                assert!(head.stream == 0 && payload.len().is_multiple_of(6));
                assert!(!is_answer || payload.is_empty());
                self.greeted = true;
                if is_answer {
                    self.settings_due = self.settings_due.checked_sub(1).expect("an answer to SETTINGS");
                }
            }
            kind::PING => {
                let payload: [u8; 8] = payload.try_into().expect("eight bytes");
                assert_eq!(head.stream, 0);
                match is_answer {
                    true => assert_eq!(self.pings_due.pop_front(), Some(payload)),
                    false => self.asked.push(payload),
                }
            }
            kind::GOAWAY => {
                assert!(head.stream == 0 && payload.len() >= 8);
                let last = number(payload);
                assert!(self.going.is_none_or(|before| last <= before), "the last stream does not rise");
                self.going = Some(last);
            }
            kind::WINDOW_UPDATE => self.hears_window(head, payload),
            kind::RST_STREAM => {
                // Streams that were skipped are closed too (RFC 9113 §5.1.1).
                assert!(payload.len() == 4 && head.stream % 2 == 1 && head.stream <= self.last, "{head:?}");
                if let Some(stream) = self.streams.get_mut(&head.stream) {
                    stream.reset = true;
                }
            }
            kind::HEADERS => {
                self.block = Some((head.stream, head.flags, payload.to_vec()));
                self.hears_block(head);
            }
            kind::CONTINUATION => {
                let (stream, _, block) = self.block.as_mut().expect("a header block");
                assert_eq!(*stream, head.stream);
                block.extend_from_slice(payload);
                self.hears_block(head);
            }
            kind::DATA => self.hears_data(head, payload),
            other => panic!("a server sends no frames of the type {other}"),
        }
    }

    /// The stream of a frame, which has to be one that the client has opened.
    fn stream(&mut self, head: &FrameHeader) -> &mut Stream {
        self.streams.get_mut(&head.stream).unwrap_or_else(|| panic!("a stream that is idle: {head:?}"))
    }

    /// The same for a frame that belongs to the answer.
    fn open_stream(&mut self, head: &FrameHeader) -> &mut Stream {
        let stream = self.stream(head);
        assert!(!stream.ended && !stream.reset, "a stream that has ended: {head:?}");
        stream
    }

    fn hears_window(&mut self, head: &FrameHeader, payload: &[u8]) {
        let more = i64::from(number(payload));
        assert!(payload.len() == 4 && (1..=LARGEST).contains(&more), "{more}");
        if head.stream == 0 {
            self.room += more;
            assert!(self.room <= 8 << 20, "the memory of a connection is bounded: {}", self.room);
            return;
        }
        let stream = self.stream(head);
        assert!(!stream.sent_end && !stream.reset);
        stream.room += more;
        assert!(stream.room <= 64 << 10, "the memory of a stream is bounded: {}", stream.room);
    }

    fn hears_data(&mut self, head: &FrameHeader, payload: &[u8]) {
        let length = payload.len() as i64;
        let stream = self.open_stream(head);
        assert!(stream.has_head, "data before a head");
        // An empty frame may always be sent.
        assert!(length == 0 || length <= stream.window, "{length} of {}", stream.window);
        stream.window -= length;
        stream.ended = has(head, flag::END_STREAM);
        for byte in payload {
            assert_eq!(Some(*byte), stream.data_due.pop_front());
        }
        assert!(!stream.ended || stream.data_due.is_empty());
        assert!(length == 0 || length <= self.window, "{length} of {}", self.window);
        self.window -= length;
    }

    fn hears_block(&mut self, head: &FrameHeader) {
        self.open_stream(head);
        if !has(head, flag::END_HEADERS) {
            return;
        }
        let (id, flags, block) = self.block.take().expect("a header block");
        assert!(!std::mem::take(&mut self.shrunk) || block.first().is_some_and(|first| first & 0xe0 == 0x20));
        let mut lines = Vec::new();
        let read = self.decoder.decode(&block, |name, value| lines.push((name.to_vec(), value.to_vec())));
        read.expect("a block that can be read");
        let ends = flags & flag::END_STREAM != 0;
        let stream = self.streams.get_mut(&id).expect("a stream that is open");
        check(&lines, ends, stream.has_head);
        stream.has_head |= lines.iter().any(|(name, value)| name == b":status" && value[0] != b'1');
        stream.ended = ends;
        assert!(!ends || stream.data_due.is_empty());
        let is_leave = lines[..] == [(b":status".to_vec(), b"100".to_vec())];
        if is_leave && stream.expects {
            stream.expects = false; // the session writes it by itself
        } else {
            assert_eq!(Some(lines), stream.due.pop_front());
        }
    }
}

/// A header block of a response (RFC 9113 §8.2, §8.3.2): a head has a status and nothing else that begins with a colon,
/// trailers have none and end the stream.
fn check(lines: &Lines, ends: bool, has_head: bool) {
    let status = lines.first().filter(|(name, _)| name == b":status").map(|(_, value)| &value[..]);
    match status {
        Some(status) => {
            assert!(!has_head && status.len() == 3 && status.iter().all(u8::is_ascii_digit));
            assert!(!(ends && status[0] == b'1'), "an interim response ends nothing");
        }
        None => assert!(has_head && ends, "trailers come behind a head and end the stream"),
    }
    for (name, value) in &lines[usize::from(status.is_some())..] {
        assert!(
            !name.is_empty()
                && name.iter().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase() && *b != b':')
        );
        assert!(value.iter().all(|b| !matches!(b, b'\r' | b'\n' | 0)));
        assert!(
            !matches!(
                &name[..],
                b"connection"
                    | b"keep-alive"
                    | b"proxy-connection"
                    | b"transfer-encoding"
                    | b"upgrade"
                    | b"te"
            ),
            "{name:?}"
        );
    }
}
