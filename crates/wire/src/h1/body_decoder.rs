//! The body of an HTTP/1.1 message (RFC 9112 §6 and §7.1), of requests and responses alike. The decoder is strict: a chunked
//! body that receivers could read in several ways is refused.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

use crate::trailers::is_allowed_in_trailers;

/// The longest chunk extensions of one chunk, in bytes.
const MAX_EXTENSION: usize = 1 << 10;
/// The longest chunk extensions of all chunks of a body together, in bytes.
const MAX_EXTENSIONS: usize = 16 << 10;
/// The longest trailer section, in bytes.
const MAX_TRAILERS: usize = 8 << 10;
/// The most trailer fields.
const MAX_TRAILER_FIELDS: usize = 64;

/// Decodes a body: what is known of the part that is still to come.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyDecoder {
    /// The body has ended, or there is none.
    Ended,
    /// This many bytes are still to come.
    Length(u64),
    /// The chunked transfer coding.
    Chunked {
        /// The part that comes next.
        next: ChunkPart,
        /// Bytes of chunk extensions that are still allowed.
        extensions: usize,
    },
    /// The body ends when the connection closes; only responses are framed like this.
    UntilClose,
}

/// The part of a chunked body that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPart {
    /// The line with the size of a chunk and its extensions.
    Size,
    /// This many bytes of chunk data.
    Data(u64),
    /// The CR LF that follows chunk data.
    End,
    /// The trailer section.
    Trailers,
}

/// The result of one step of the decoder.
pub enum Decoded {
    /// Data or trailers.
    Frame(Frame<Bytes>),
    /// More bytes are needed.
    NeedMore,
    /// The body has ended.
    End,
}

impl BodyDecoder {
    /// The decoder for a chunked body.
    pub fn chunked() -> Self {
        Self::Chunked { next: ChunkPart::Size, extensions: MAX_EXTENSIONS }
    }

    /// The bytes that are still to come, if that is known.
    #[inline]
    pub fn remaining(&self) -> Option<u64> {
        match self {
            Self::Ended => Some(0),
            Self::Length(left) => Some(*left),
            Self::Chunked { .. } | Self::UntilClose => None,
        }
    }

    /// Decodes the next frame and removes its bytes from `read`.
    ///
    /// # Errors
    /// The body is malformed, in words for the sender. Nothing further can be decoded on the connection.
    pub fn decode(&mut self, read: &mut BytesMut) -> Result<Decoded, &'static str> {
        loop {
            let (next, extensions) = match self {
                Self::Ended => return Ok(Decoded::End),
                Self::Length(_) | Self::UntilClose if read.is_empty() => return Ok(Decoded::NeedMore),
                Self::UntilClose => return Ok(Decoded::Frame(Frame::data(std::mem::take(read).freeze()))),
                Self::Length(left) => {
                    let data = up_to(left, read);
                    if *left == 0 {
                        *self = Self::Ended;
                    }
                    return Ok(Decoded::Frame(Frame::data(data)));
                }
                Self::Chunked { next, extensions } => (next, extensions),
            };
            match next {
                ChunkPart::Size => {
                    let Some((length, size)) = size_line(read)? else { return Ok(Decoded::NeedMore) };
                    read.advance(length.line);
                    *extensions = extensions
                        .checked_sub(length.extensions)
                        .ok_or("a body has too many chunk extensions")?;
                    *next = if size == 0 { ChunkPart::Trailers } else { ChunkPart::Data(size) };
                }
                ChunkPart::Data(_) if read.is_empty() => return Ok(Decoded::NeedMore),
                ChunkPart::Data(left) => {
                    let data = up_to(left, read);
                    if *left == 0 {
                        *next = ChunkPart::End;
                    }
                    return Ok(Decoded::Frame(Frame::data(data)));
                }
                ChunkPart::End => match read.as_ref() {
                    [b'\r', b'\n', ..] => {
                        read.advance(2);
                        *next = ChunkPart::Size;
                    }
                    [] | [b'\r'] => return Ok(Decoded::NeedMore),
                    _ => return Err("a chunk is longer than its size"),
                },
                ChunkPart::Trailers => {
                    let Some((length, trailers)) = trailers(read)? else { return Ok(Decoded::NeedMore) };
                    read.advance(length);
                    *self = Self::Ended;
                    if !trailers.is_empty() {
                        return Ok(Decoded::Frame(Frame::trailers(trailers)));
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
        false => std::mem::take(read), // an empty rest would keep its memory
    };
    *left -= data.len() as u64;
    data.freeze()
}

/// The lengths of the size line of a chunk.
struct Lengths {
    line: usize,
    extensions: usize,
}

/// The size of a chunk, if its line is complete: `1*HEXDIG [ chunk-ext ] CRLF`.
fn size_line(read: &[u8]) -> Result<Option<(Lengths, u64)>, &'static str> {
    const BAD: &str = "the size of a chunk is malformed";
    let digits = read.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if digits > 16 {
        return Err(BAD);
    }
    let Some(behind) = read.get(digits) else {
        return Ok(None); // the digits are not complete
    };
    if digits == 0 || !matches!(behind, b'\r' | b';') {
        return Err(BAD);
    }
    let end = read[digits..].iter().take(MAX_EXTENSION).position(|b| *b == b'\r' || *b == b'\n');
    let extensions = &read[digits..end.map_or(read.len().min(digits + MAX_EXTENSION), |end| digits + end)];
    if !extensions.iter().all(|b| matches!(b, b'\t' | 0x20..=0x7e | 0x80..)) {
        return Err("a chunk extension has a character that is not allowed");
    }
    let Some(end) = end else {
        return if read.len() - digits < MAX_EXTENSION {
            Ok(None)
        } else {
            Err("a chunk extension is too long")
        };
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

/// Whether this is `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`. Bad whitespace (BWS) is accepted as
/// RFC 9112 §7.1.1 requires, except between the size and the first semicolon, where receivers differ.
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

/// The text after a token; `None` if there is no token.
fn behind_token(text: &[u8]) -> Option<&[u8]> {
    let is_in_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    let length = text.iter().take_while(|b| is_in_token(b)).count();
    (length > 0).then(|| &text[length..])
}

/// The text after a quoted string whose opening quote was removed; `None` if it is not closed.
fn behind_quoted(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        match text {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', _, rest @ ..] | [_, rest @ ..] => text = rest,
            [] => return None,
        }
    }
}

/// The trailer section, if it is complete, and its length.
fn trailers(read: &[u8]) -> Result<Option<(usize, HeaderMap)>, &'static str> {
    const BAD: &str = "the trailers are malformed";
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
    let (length, fields) = match httparse::parse_headers(read, &mut fields) {
        Ok(httparse::Status::Complete(complete)) if complete.0 <= MAX_TRAILERS => complete,
        Ok(httparse::Status::Partial) if read.len() < MAX_TRAILERS => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err("the trailers are too long"),
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
        if is_allowed_in_trailers(&name) {
            trailers.append(name, value);
        }
    }
    Ok(Some((length, trailers)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A body, its trailers, and the bytes after it.
    type Collected = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

    /// Decodes a body that arrives in pieces.
    fn collect(pieces: &[&[u8]]) -> Result<Collected, &'static str> {
        let mut decoder = BodyDecoder::chunked();
        let (mut read, mut data, mut trailers) = (BytesMut::new(), Vec::new(), None);
        for piece in pieces {
            read.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut read)? {
                    Decoded::NeedMore => break,
                    Decoded::End => return Ok((data, trailers, read.to_vec())),
                    Decoded::Frame(frame) => match frame.into_data() {
                        Ok(bytes) => data.extend_from_slice(&bytes),
                        Err(frame) => trailers = frame.into_trailers().ok(),
                    },
                }
            }
        }
        Err("not ended")
    }

    #[test]
    fn chunks_are_decoded() {
        let (data, trailers, left) =
            collect(&[b"5\r\nhello\r\n006;a=1;b=\"x;y\"\r\n world\r\n0\r\nX-Sum: 7\r\n\r\nGET /"]).unwrap();
        assert_eq!((&data[..], &left[..]), (&b"hello world"[..], &b"GET /"[..]));
        assert_eq!(trailers.unwrap()["x-sum"], "7");
    }

    #[test]
    fn extensions_are_checked_and_dropped() {
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
    fn malformed_chunks_are_refused() {
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
        let trailers = [&trailers[..], b"\r\n\r\n"].concat();
        assert!(collect(&[&trailers]).is_err_and(|error| error != "not ended"), "also in one piece");
    }

    #[test]
    fn forbidden_trailers_are_dropped() {
        let body =
            b"0\r\nHost: evil\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nAuthorization: x\r\n\
                     X-Forwarded-For: 1.2.3.4\r\nX-Api-Key: k\r\nX-Sum: 7\r\n\r\n";
        let trailers = collect(&[body]).unwrap().1.unwrap();
        assert_eq!(trailers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-sum"]);
    }

    proptest! {
        /// A chunked body is decoded alike however it is cut into pieces.
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

        /// No input makes the decoder panic.
        #[test]
        fn any_input_is_decoded_or_refused(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = collect(&[&noise]);
        }
    }
}
