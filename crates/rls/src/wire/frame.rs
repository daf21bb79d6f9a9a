//! The frame of a gRPC message: one byte that says whether it is compressed, four of its length, then the message.
//!
//! A unary call has exactly one message in each direction.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message;

use super::status::{Code, Status};

/// Bytes before the message.
pub const PREFIX: usize = 5;

/// How many bytes the frame at the beginning of `read` has; `None` until its prefix is there. A caller that reads from a stream
/// learns here that a message is too large before it reads it.
///
/// # Errors
/// The message is compressed, or longer than `most`.
pub fn length(read: &[u8], most: usize) -> Result<Option<usize>, Status> {
    let Some((&compressed, rest)) = read.split_first() else { return Ok(None) };
    match compressed {
        0 => {}
        1 => return Err(Status::new(Code::Unimplemented, "compressed messages are not supported")),
        _ => return Err(Status::invalid("this is not a gRPC message: its first byte is neither 0 nor 1")),
    }
    let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > most {
        let text = format!("the message has {length} bytes; at most {most} are read");
        return Err(Status::new(Code::ResourceExhausted, text));
    }
    Ok(Some(PREFIX + length))
}

/// The message of a request whose whole body is `body`.
///
/// # Errors
/// The body is not one frame that [`length()`] accepts.
pub fn message(body: &Bytes, most: usize) -> Result<Bytes, Status> {
    match length(body, most)? {
        Some(end) if body.len() == end => Ok(body.slice(PREFIX..)),
        Some(end) if body.len() > end => {
            Err(Status::invalid("there are bytes behind the message; the call has exactly one"))
        }
        _ => Err(Status::invalid("the body ends before the message does")),
    }
}

/// A message with its frame.
pub fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX)); // answers are far shorter
    message.encode_raw(&mut frame);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &'static [u8]) -> Result<Bytes, Code> {
        message(&Bytes::from_static(body), 3).map_err(|status| status.code)
    }

    #[test]
    fn a_body_is_exactly_one_message() {
        assert_eq!(code(b"\0\0\0\0\x02ab"), Ok(Bytes::from_static(b"ab")));
        assert_eq!(code(b"\0\0\0\0\0"), Ok(Bytes::new()));
        for part in [&b""[..], b"\0", b"\0\0\0\0", b"\0\0\0\0\x02a", b"\0\0\0\0\x02abc", b"\x02\0\0\0\0"] {
            assert_eq!(code(part), Err(Code::InvalidArgument), "{part:?}");
        }
        assert_eq!(code(b"\0\0\0\0\x04"), Err(Code::ResourceExhausted));
        assert_eq!(code(b"\0\xff\xff\xff\xff"), Err(Code::ResourceExhausted));
        assert_eq!(code(b"\x01\0\0\0\x02ab"), Err(Code::Unimplemented));
    }

    #[test]
    fn the_length_is_known_after_the_prefix() {
        assert_eq!(length(b"\0\0\0\0", 9), Ok(None));
        assert_eq!(length(b"\0\0\0\0\x07", 9), Ok(Some(12)));
    }
}
