//! Where the body of an HTTP/1.1 message ends (RFC 9112 §6 and §7.1), for requests and answers alike. It is read strictly:
//! a body that receivers could read in several ways is refused.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

use crate::trailers::may_come_behind;

/// The longest line of a chunk's size, with its extensions.
const LINE: usize = 1 << 10;
/// The extensions of all chunks of a body together.
const EXTENSIONS: usize = 16 << 10;
/// The longest trailers, and the most.
const TRAILERS: usize = 8 << 10;
const FIELDS: usize = 64;

/// How the rest of a body comes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none, or no more.
    Ended,
    /// This many bytes are still to come.
    Length(u64),
    /// In chunks.
    Chunked {
        /// What comes next.
        next: Chunk,
        /// Bytes of extensions that may still come.
        extensions: usize,
    },
    /// Until the connection closes, as only answers come.
    UntilClose,
}

/// What comes next of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// The line with the size of a chunk.
    Size,
    /// This many bytes of a chunk.
    Data(u64),
    /// The end of the line behind a chunk.
    End,
    /// The trailers.
    Trailers,
}

/// What can be taken from what was read.
pub(crate) enum Taken {
    /// A frame.
    Frame(Frame<Bytes>),
    /// Nothing before more is read.
    More,
    /// The body has ended.
    End,
}

impl Framing {
    /// A chunked body of which nothing was read.
    pub(crate) fn chunked() -> Self {
        Self::Chunked { next: Chunk::Size, extensions: EXTENSIONS }
    }

    /// The bytes that are still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Self::Ended => Some(0),
            Self::Length(left) => Some(*left),
            Self::Chunked { .. } | Self::UntilClose => None,
        }
    }

    /// Takes the next frame from what was read.
    pub(crate) fn take(&mut self, read: &mut BytesMut) -> Result<Taken, &'static str> {
        loop {
            let (next, extensions) = match self {
                Self::Ended => return Ok(Taken::End),
                Self::Length(_) | Self::UntilClose if read.is_empty() => return Ok(Taken::More),
                Self::UntilClose => return Ok(Taken::Frame(Frame::data(std::mem::take(read).freeze()))),
                Self::Length(left) => {
                    let data = up_to(left, read);
                    if *left == 0 {
                        *self = Self::Ended;
                    }
                    return Ok(Taken::Frame(Frame::data(data)));
                }
                Self::Chunked { next, extensions } => (next, extensions),
            };
            match next {
                Chunk::Size => {
                    let Some((length, size)) = size_line(read)? else { return Ok(Taken::More) };
                    read.advance(length.line);
                    *extensions = extensions
                        .checked_sub(length.extensions)
                        .ok_or("a body has too many chunk extensions")?;
                    *next = if size == 0 { Chunk::Trailers } else { Chunk::Data(size) };
                }
                Chunk::Data(_) if read.is_empty() => return Ok(Taken::More),
                Chunk::Data(left) => {
                    let data = up_to(left, read);
                    if *left == 0 {
                        *next = Chunk::End;
                    }
                    return Ok(Taken::Frame(Frame::data(data)));
                }
                Chunk::End => match read.as_ref() {
                    [b'\r', b'\n', ..] => {
                        read.advance(2);
                        *next = Chunk::Size;
                    }
                    [] | [b'\r'] => return Ok(Taken::More),
                    _ => return Err("a chunk is longer than its size"),
                },
                Chunk::Trailers => {
                    let Some((length, trailers)) = trailers(read)? else { return Ok(Taken::More) };
                    read.advance(length);
                    *self = Self::Ended;
                    if !trailers.is_empty() {
                        return Ok(Taken::Frame(Frame::trailers(trailers)));
                    }
                }
            }
        }
    }
}

fn up_to(left: &mut u64, read: &mut BytesMut) -> Bytes {
    let length = usize::try_from(*left).unwrap_or(usize::MAX);
    let data = match length < read.len() {
        true => read.split_to(length),
        false => std::mem::take(read), // a reader that has nothing to read keeps no memory
    };
    *left -= data.len() as u64;
    data.freeze()
}

/// The lengths of the line of a chunk's size.
struct Lengths {
    line: usize,
    extensions: usize,
}

/// The size of a chunk, if its line is whole: `1*HEXDIG [ chunk-ext ] CRLF`.
fn size_line(read: &[u8]) -> Result<Option<(Lengths, u64)>, &'static str> {
    const BAD: &str = "the size of a chunk is malformed";
    let digits = read.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if digits > 16 {
        return Err(BAD);
    }
    let Some(behind) = read.get(digits) else {
        return Ok(None); // nothing yet, or digits alone
    };
    if digits == 0 || !matches!(behind, b'\r' | b';') {
        return Err(BAD);
    }
    let end = read[digits..].iter().take(LINE).position(|b| *b == b'\r' || *b == b'\n');
    let extensions = &read[digits..end.map_or(read.len().min(digits + LINE), |end| digits + end)];
    if !extensions.iter().all(|b| matches!(b, b'\t' | 0x20..=0x7e | 0x80..)) {
        return Err("a chunk extension has a character that none may have");
    }
    let Some(end) = end else {
        return if read.len() - digits < LINE { Ok(None) } else { Err("a chunk extension is too long") };
    };
    match read[digits + end..] {
        [b'\r'] => return Ok(None),
        [b'\r', b'\n', ..] => {}
        _ => return Err("the line of a chunk's size does not end with CR LF"),
    }
    if !are_extensions(extensions) {
        return Err("a chunk extension is malformed");
    }
    let size = read[..digits].iter().fold(0_u64, |size, b| {
        size << 4 | u64::from(char::from(*b).to_digit(16).unwrap_or_default()) // they are digits
    });
    Ok(Some((Lengths { line: digits + end + 2, extensions: extensions.len() }, size)))
}

/// Whether these are chunk extensions: `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`. The bad
/// whitespace that RFC 9112 §7.1.1 has receivers take is taken, but not between the size and the first semicolon, where
/// receivers differ.
fn are_extensions(mut text: &[u8]) -> bool {
    if matches!(text, [.., b' ' | b'\t']) {
        return false;
    }
    while let [b';', rest @ ..] = text {
        let Some(rest) = behind_token(rest.trim_ascii_start()) else { return false };
        text = rest.trim_ascii_start();
        if let [b'=', rest @ ..] = text {
            let value = match rest.trim_ascii_start() {
                [b'"', rest @ ..] => behind_quoted(rest),
                token => behind_token(token),
            };
            let Some(rest) = value else { return false };
            text = rest.trim_ascii_start();
        }
    }
    text.is_empty()
}

/// What follows a token; `None` if there is none.
fn behind_token(text: &[u8]) -> Option<&[u8]> {
    let is_in_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    let length = text.iter().take_while(|b| is_in_token(b)).count();
    (length > 0).then(|| &text[length..])
}

/// What follows a quoted string whose first quote was taken; `None` if it does not end.
fn behind_quoted(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        match text {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', _, rest @ ..] | [_, rest @ ..] => text = rest,
            [] => return None,
        }
    }
}

/// The trailers, if they are whole, and their length.
fn trailers(read: &[u8]) -> Result<Option<(usize, HeaderMap)>, &'static str> {
    const BAD: &str = "the trailers are malformed";
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let (length, fields) = match httparse::parse_headers(read, &mut fields) {
        Ok(httparse::Status::Complete(complete)) => complete,
        Ok(httparse::Status::Partial) if read.len() < TRAILERS => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err("the trailers are too long");
        }
        Err(_) => return Err(BAD),
    };
    let bare = |at: usize| read[at] == b'\n' && (at == 0 || read[at - 1] != b'\r');
    if (0..length).any(bare) {
        return Err("a line does not end with CR LF");
    }
    let mut trailers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| BAD)?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| BAD)?;
        if may_come_behind(&name) {
            trailers.append(name, value);
        }
    }
    Ok(Some((length, trailers)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A body, its trailers, and what is left behind it.
    type Collected = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

    /// All frames of a body that arrives in pieces.
    fn collect(pieces: &[&[u8]]) -> Result<Collected, &'static str> {
        let mut framing = Framing::chunked();
        let (mut read, mut data, mut trailers) = (BytesMut::new(), Vec::new(), None);
        for piece in pieces {
            read.extend_from_slice(piece);
            loop {
                match framing.take(&mut read)? {
                    Taken::More => break,
                    Taken::End => return Ok((data, trailers, read.to_vec())),
                    Taken::Frame(frame) => match frame.into_data() {
                        Ok(bytes) => data.extend_from_slice(&bytes),
                        Err(frame) => trailers = frame.into_trailers().ok(),
                    },
                }
            }
        }
        Err("not ended")
    }

    #[test]
    fn chunks_are_read() {
        let (data, trailers, left) =
            collect(&[b"5\r\nhello\r\n006;a=1;b=\"x;y\"\r\n world\r\n0\r\nX-Sum: 7\r\n\r\nGET /"]).unwrap();
        assert_eq!((&data[..], &left[..]), (&b"hello world"[..], &b"GET /"[..]));
        assert_eq!(trailers.unwrap()["x-sum"], "7");
    }

    #[test]
    fn extensions_are_read_and_left_out() {
        for extension in [
            "",
            ";a",
            "; a",
            ";a=b",
            ";a=b;c",
            ";a = b ; c",
            ";a=\"b;\\\"c\" ;\td=e",
            ";a=\"\"",
            ";a=\"\u{fc}\"",
        ] {
            let body = format!("5{extension}\r\nhello\r\n0{extension}\r\n\r\n");
            assert_eq!(
                collect(&[body.as_bytes()]).map(|body| body.0),
                Ok(b"hello".to_vec()),
                "{extension:?}"
            );
        }
    }

    #[test]
    fn what_is_no_chunk_is_an_error() {
        for bad in [
            &b"x\r\n"[..],
            b"\r\n",
            b"-1\r\n",
            b"+5\r\nhello\r\n",
            b"0x5\r\nhello\r\n",
            b" 5\r\nhello\r\n",
            b"5 \r\nhello\r\n",
            b"5 ;a\r\nhello\r\n",
            b"5\nhello\r\n",
            b"5\rhello",
            b"5;\r\nhello\r\n",
            b"5;;a\r\nhello\r\n",
            b"5;a;\r\nhello\r\n",
            b"5;a=\r\nhello\r\n",
            b"5;=b\r\nhello\r\n",
            b"5;a b\r\nhello\r\n",
            b"5;a \r\nhello\r\n",
            b"5;a=b c\r\nhello\r\n",
            b"5;a=(b)\r\nhello\r\n",
            b"5;a=\"b\r\nhello\r\n",
            b"5;a=\"b\\\"\r\nhello\r\n",
            b"5;a=\"b\"c\r\nhello\r\n",
            b"5;a=\"b\nc\"\r\nhello\r\n",
            b"5;a\nhello\r\n",
            b"5;a\0b\r\nhello\r\n",
            b"5;a\x7fb\r\nhello\r\n",
            b"5\r\nhelloX",
            b"5\r\nhello\n0\r\n\r\n",
            b"5\r\nhello\rX",
            b"10000000000000000\r\n",
            b"ffffffffffffffff0\r\n",
            b"0\r\nbad trailer\r\n\r\n",
            b"0\r\n folded: x\r\n\r\n",
            b"0\r\na: b\n\r\n",
            b"0\r\na: b\r\n\n",
            b"0\r\n\n",
            b"0\r\na: \0\r\n\r\n",
        ] {
            let error = collect(&[bad]).expect_err(&String::from_utf8_lossy(bad));
            assert_ne!(error, "not ended", "{:?}", String::from_utf8_lossy(bad));
        }
        let long = [&b"5;a="[..], &[b'x'; 2_000]].concat();
        assert!(collect(&[&long]).is_err_and(|error| error != "not ended"));
        let many = [b"1;a=", &[b'x'; 900][..], b"\r\ny\r\n"].concat().repeat(20);
        assert!(collect(&[&many]).is_err_and(|error| error != "not ended"));
        let trailers = [&b"0\r\na: "[..], &[b'x'; 9_000]].concat();
        assert!(collect(&[&trailers]).is_err_and(|error| error != "not ended"));
    }

    #[test]
    fn what_would_change_the_message_never_comes_behind_it() {
        let body =
            b"0\r\nHost: evil\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nAuthorization: x\r\n\
                     X-Forwarded-For: 1.2.3.4\r\nX-Api-Key: k\r\nX-Sum: 7\r\n\r\n";
        let trailers = collect(&[body]).unwrap().1.unwrap();
        assert_eq!(trailers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-sum"]);
    }

    proptest! {
        /// However a chunked body is cut, it is read as it was written.
        #[test]
        fn chunks_in_any_pieces(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..8),
            cuts in prop::collection::vec(1_usize..40, 1..200),
            trailer in any::<bool>(),
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x};ext=1\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(if trailer { b"0\r\nX-Sum: 7\r\n\r\n" } else { b"0\r\n\r\n" });
            let (mut pieces, mut rest) = (Vec::new(), wire.as_slice());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, behind) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = behind;
            }
            let (data, trailers, left) = collect(&pieces).unwrap();
            prop_assert_eq!(data, chunks.concat());
            prop_assert_eq!(trailers.is_some(), trailer);
            prop_assert!(left.is_empty());
        }

        /// Nothing that a peer sends makes it panic.
        #[test]
        fn noise_is_no_body(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = collect(&[&noise]);
        }
    }
}
