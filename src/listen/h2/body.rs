//! The body of a request over HTTP/2. What is read gives its room back to the client at once.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::{HeaderMap, header};
use http_body::Frame;

use crate::listen::inbound::InboundError;

/// The body of a request on a stream.
pub struct Http2Body {
    stream: RecvStream,
    /// What is still to come of it, if the request says how long it is. The library holds the client to that.
    left: Option<u64>,
    /// Whether only trailers can come.
    behind: bool,
}

impl Http2Body {
    /// The body on this stream, behind a head with these fields; `None` if the head was all.
    pub(super) fn new(stream: RecvStream, head: &HeaderMap) -> Option<Self> {
        if stream.is_end_stream() {
            return None;
        }
        Some(Self { stream, left: length(head), behind: false })
    }

    pub(in super::super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, InboundError>>> {
        if !self.behind {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => {
                    let _ = self.stream.flow_control().release_capacity(data.len()); // it is what came
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(broken(error)),
                None => self.behind = true,
            }
        }
        Poll::Ready(match ready!(self.stream.poll_trailers(context)) {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => broken(error),
        })
    }

    pub(in super::super) fn has_ended(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// How much is still to come, if the request says it.
    pub(in super::super) fn left(&self) -> Option<u64> {
        self.left
    }
}

/// A reset without an error is the end (RFC 9113 §8.1), any other is none.
fn broken(error: h2::Error) -> Option<Result<Frame<Bytes>, InboundError>> {
    (error.reason() != Some(Reason::NO_ERROR)).then_some(Err(InboundError::Http2(error)))
}

/// The length that a request says it has, if it says one and no other.
fn length(head: &HeaderMap) -> Option<u64> {
    let mut said = None;
    for value in head.get_all(header::CONTENT_LENGTH) {
        let digits = value.as_bytes();
        let number = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?;
        let number = number.parse().ok()?;
        if said.replace(number).is_some_and(|other| other != number) {
            return None;
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn lengths() {
        let length = |values: &[&'static str]| {
            let line = |value: &&'static str| (header::CONTENT_LENGTH, HeaderValue::from_static(value));
            let mut map = HeaderMap::new();
            for (name, value) in values.iter().map(line) {
                map.append(name, value);
            }
            length(&map)
        };
        assert_eq!(length(&["17"]), Some(17));
        assert_eq!(length(&["17", "17"]), Some(17));
        for none in [&[][..], &["17", "18"], &["+1"], &["1, 1"], &["x"], &["99999999999999999999"]] {
            assert_eq!(length(none), None, "{none:?}");
        }
    }
}
