//! Where the body of an answer ends (RFC 9112 §6 and §7.1).

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::Frame;

use crate::fields::{Fields, Looks};
use crate::number::read_decimal;

/// The longest line of a chunk's size, and the longest trailers.
const MAX_LINE: usize = 4 << 10;
const MAX_TRAILERS: usize = 16 << 10;
/// Trailers of an answer.
const MAX_FIELDS: usize = 64;

/// What says it.
static FRAMING: Looks = Looks::of(&[b"content-length", b"transfer-encoding"]);

/// How the rest of a body comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none, or no more.
    Ended,
    /// This many bytes are still to come.
    Length(u64),
    /// In chunks.
    Chunked(Chunk),
    /// Until the server closes the connection.
    UntilClose,
}

/// What comes next of a chunked body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// The line with the size of a chunk.
    Size,
    /// This many bytes of a chunk.
    Data(u64),
    /// The line feed behind a chunk.
    End,
    /// The trailers.
    Trailers,
}

/// What can be taken from what was read.
pub(super) enum Taken {
    /// A frame.
    Frame(Frame<Bytes>),
    /// Nothing before more is read.
    More,
    /// The body has ended.
    End,
}

impl Framing {
    /// The framing of an answer to a request of this method. Where both are given, chunks win over a length,
    /// which is then removed.
    pub(super) fn of(
        status: StatusCode,
        headers: &mut Fields,
        method: &Method,
    ) -> Result<Self, &'static str> {
        let (mut length, mut again, mut codings, mut chunked) = (None, false, 0, false);
        for (name, value) in headers.like(&FRAMING) {
            match name {
                b"content-length" if length.is_some_and(|other| other != value) => {
                    return Err("two content lengths");
                }
                b"content-length" => again = length.replace(value).is_some(),
                b"transfer-encoding" => {
                    codings += 1;
                    chunked = value.eq_ignore_ascii_case(b"chunked");
                }
                _ => {}
            }
        }
        let announced = length.map(read_decimal);
        if again && let Some(line) = length.map(<[u8]>::to_vec) {
            headers.insert(header::CONTENT_LENGTH, line); // once, if it came more often
        }
        if *method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Self::Ended);
        }
        match codings {
            0 => {}
            1 if chunked => {
                headers.remove(header::CONTENT_LENGTH);
                return Ok(Self::Chunked(Chunk::Size));
            }
            _ => return Err("a transfer coding that is not chunked"),
        }
        match announced {
            None => Ok(Self::UntilClose),
            Some(Some(0)) => Ok(Self::Ended),
            Some(Some(length)) => Ok(Self::Length(length)),
            Some(None) => Err("a bad content length"),
        }
    }

    /// Whether the connection can serve no further request.
    pub(super) fn ends_with_connection(&self) -> bool {
        *self == Self::UntilClose
    }

    /// The bytes that are still to come, where that is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Self::Ended => Some(0),
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }

    /// Takes the next frame from what was read.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Taken, &'static str> {
        loop {
            match self {
                Self::Ended => return Ok(Taken::End),
                Self::Length(_) | Self::UntilClose | Self::Chunked(Chunk::Data(_)) if read.is_empty() => {
                    return Ok(Taken::More);
                }
                Self::UntilClose => return Ok(Taken::Frame(Frame::data(read.split().freeze()))),
                Self::Length(left) => {
                    let data = up_to(*left, read);
                    *left -= data.len() as u64;
                    if *left == 0 {
                        *self = Self::Ended;
                    }
                    return Ok(Taken::Frame(Frame::data(data)));
                }
                Self::Chunked(Chunk::Data(left)) => {
                    let data = up_to(*left, read);
                    *left -= data.len() as u64;
                    if *left == 0 {
                        *self = Self::Chunked(Chunk::End);
                    }
                    return Ok(Taken::Frame(Frame::data(data)));
                }
                Self::Chunked(Chunk::Size) => match httparse::parse_chunk_size(read) {
                    Ok(httparse::Status::Complete((length, size))) => {
                        read.advance(length);
                        *self = Self::Chunked(if size == 0 { Chunk::Trailers } else { Chunk::Data(size) });
                    }
                    Ok(httparse::Status::Partial) if read.len() < MAX_LINE => return Ok(Taken::More),
                    _ => return Err("a bad chunk"),
                },
                Self::Chunked(Chunk::End) => match read.as_ref() {
                    [b'\r', b'\n', ..] => {
                        read.advance(2);
                        *self = Self::Chunked(Chunk::Size);
                    }
                    [] | [b'\r'] => return Ok(Taken::More),
                    _ => return Err("a bad end of a chunk"),
                },
                Self::Chunked(Chunk::Trailers) => {
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

fn up_to(left: u64, read: &mut BytesMut) -> Bytes {
    let length = usize::try_from(left).unwrap_or(usize::MAX);
    match length < read.len() {
        true => read.split_to(length).freeze(),
        false => std::mem::take(read).freeze(), // who has nothing to read keeps no memory
    }
}

/// The trailers, if they are whole, and their length.
fn trailers(read: &[u8]) -> Result<Option<(usize, HeaderMap)>, &'static str> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    match httparse::parse_headers(read, &mut fields) {
        Ok(httparse::Status::Complete((length, fields))) => {
            let mut trailers = HeaderMap::new();
            for field in fields {
                let name = HeaderName::from_bytes(field.name.as_bytes());
                let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value)) else {
                    return Err("a bad trailer");
                };
                trailers.append(name, value);
            }
            Ok(Some((length, trailers)))
        }
        Ok(httparse::Status::Partial) if read.len() < MAX_TRAILERS => Ok(None),
        _ => Err("bad trailers"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framing(headers: &[(&str, &str)], status: u16, method: Method) -> Result<Framing, &'static str> {
        let mut fields = headers.iter().copied().collect();
        Framing::of(StatusCode::from_u16(status).unwrap(), &mut fields, &method)
    }

    #[test]
    fn where_a_body_ends() {
        let of = |headers: &[(&str, &str)]| framing(headers, 200, Method::GET);
        assert_eq!(of(&[("content-length", "5")]), Ok(Framing::Length(5)));
        assert_eq!(of(&[("content-length", "0")]), Ok(Framing::Ended));
        assert_eq!(of(&[("content-length", "5"), ("content-length", "5")]), Ok(Framing::Length(5)));
        assert_eq!(of(&[]), Ok(Framing::UntilClose));
        let both = [("transfer-encoding", "Chunked"), ("content-length", "5")];
        assert_eq!(of(&both), Ok(Framing::Chunked(Chunk::Size)));
        for bad in ["-5", "+5", "5 5", "", "0x5", "99999999999999999999", "5,5"] {
            assert!(of(&[("content-length", bad)]).is_err(), "{bad}");
        }
        assert!(of(&[("content-length", "5"), ("content-length", "6")]).is_err());
        assert!(of(&[("transfer-encoding", "gzip, chunked")]).is_err());
        assert!(of(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]).is_err());
        assert_eq!(framing(&[("content-length", "5")], 200, Method::HEAD), Ok(Framing::Ended));
        assert_eq!(framing(&[("content-length", "5")], 304, Method::GET), Ok(Framing::Ended));
    }

    /// All frames of a body that arrives in pieces.
    fn collect(
        mut framing: Framing,
        pieces: &[&[u8]],
    ) -> Result<(Vec<u8>, Option<HeaderMap>, bool), &'static str> {
        let (mut read, mut data, mut trailers) = (BytesMut::new(), Vec::new(), None);
        for piece in pieces {
            read.extend_from_slice(piece);
            loop {
                match framing.take(&mut read)? {
                    Taken::More => break,
                    Taken::End => return Ok((data, trailers, read.is_empty())),
                    Taken::Frame(frame) => match frame.into_data() {
                        Ok(bytes) => data.extend_from_slice(&bytes),
                        Err(frame) => trailers = frame.into_trailers().ok(),
                    },
                }
            }
        }
        Err("not ended")
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
            let (data, trailers, clean) = collect(Framing::Chunked(Chunk::Size), &pieces).unwrap();
            prop_assert_eq!(data, chunks.concat());
            prop_assert_eq!(trailers.is_some(), trailer);
            prop_assert!(clean);
        }

        /// Nothing that a server sends makes it panic.
        #[test]
        fn noise_is_no_body(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = collect(Framing::Chunked(Chunk::Size), &[&noise]);
            let _ = collect(Framing::Length(10), &[&noise]);
        }
    }

    #[test]
    fn what_is_no_chunk_is_an_error() {
        for bad in
            [&b"x\r\n"[..], b"5\r\nhelloX", b"-1\r\n", b"fffffffffffffffff\r\n", b"0\r\nbad trailer\r\n\r\n"]
        {
            assert!(collect(Framing::Chunked(Chunk::Size), &[bad]).is_err());
        }
    }
}
