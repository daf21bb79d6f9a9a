//! The status of a gRPC call.

use std::borrow::Cow;
use std::fmt::Write as _;

/// How a call ended: `grpc-status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Code {
    /// The call has an answer.
    Ok = 0,
    /// The request cannot be understood, or has no meaning.
    InvalidArgument = 3,
    /// The answer was not ready in time.
    DeadlineExceeded = 4,
    /// What is asked for does not exist.
    NotFound = 5,
    /// The caller may not call.
    PermissionDenied = 7,
    /// The request is larger than what is read, or a limit refuses the call.
    ResourceExhausted = 8,
    /// There is no such method, or not with this compression.
    Unimplemented = 12,
    /// A mistake of the server.
    Internal = 13,
    /// The server cannot decide at the moment.
    Unavailable = 14,
    /// The caller has not said who it is.
    Unauthenticated = 16,
}

/// A call that has no answer: its code, and a message for whoever reads the log of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How it ended.
    pub code: Code,
    /// Why.
    pub message: Cow<'static, str>,
}

impl Code {
    /// The value of `grpc-status`.
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl Status {
    /// A status with a message.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }

    /// The request cannot be understood.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The server cannot decide at the moment.
    pub fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// The value of `grpc-message`: bytes that a header cannot have, and `%`, are percent-encoded.
    pub fn encoded_message(&self) -> String {
        let mut text = String::with_capacity(self.message.len());
        for byte in self.message.bytes() {
            match byte {
                b'%' | ..b' ' | 0x7f.. => {
                    let _ = write!(text, "%{byte:02X}"); // writing to a String cannot fail
                }
                _ => text.push(char::from(byte)),
            }
        }
        text
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (gRPC status {})", self.message, self.code.number())
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_header_value() {
        let status = Status::invalid("100 % of é\n");
        assert_eq!(status.encoded_message(), "100 %25 of %C3%A9%0A");
        assert_eq!(status.to_string(), "100 % of é\n (gRPC status 3)");
    }
}
