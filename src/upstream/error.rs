//! Why an upstream gave no answer, and what the client is told of it.

use crate::metrics::UpstreamOutcome;

/// Why an upstream gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No server has an address.
    #[error("no server")]
    NoServer,
    /// All servers have as many requests as they may, and so has the queue.
    #[error("no place")]
    Busy,
    /// No connection could be made.
    #[error("no connection")]
    Connect(#[source] std::io::Error),
    /// No connection was made in time.
    #[error("no connection in time")]
    ConnectTimeout,
    /// There is a connection, but TLS or HTTP/2 did not come about on it. No request was sent.
    #[error("no agreement with the server")]
    Handshake(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request was sent, and the connection ended before any byte of an answer.
    #[error("no answer")]
    Unanswered(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke, or what came was no HTTP.
    #[error("no answer")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer came in time.
    #[error("no answer in time")]
    ResponseTimeout,
    /// The client's body is longer than allowed.
    #[error("the request's body is too large")]
    TooLarge,
    /// The path cannot be written as the route says.
    #[error("the path cannot be rewritten")]
    Unwritable,
    /// The client's body broke off or was malformed.
    #[error("the request's body did not come whole")]
    ClientBroken,
    /// The client stopped sending its body.
    #[error("the request's body stopped coming")]
    ClientSlow,
}

impl ForwardError {
    pub(super) fn outcome(&self) -> UpstreamOutcome {
        match self {
            Self::Busy => UpstreamOutcome::Busy,
            Self::NoServer | Self::Connect(_) | Self::Handshake(_) => UpstreamOutcome::ConnectFailed,
            Self::ConnectTimeout => UpstreamOutcome::ConnectTimeout,
            Self::Unanswered(_) | Self::Broken(_) => UpstreamOutcome::Broken,
            Self::ResponseTimeout => UpstreamOutcome::ResponseTimeout,
            Self::TooLarge | Self::Unwritable | Self::ClientBroken | Self::ClientSlow => {
                UpstreamOutcome::ClientFailed
            }
        }
    }

    /// The same for another request that waited for the same connection.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Connect(error) => Self::Connect(std::io::Error::new(error.kind(), error.to_string())),
            Self::Handshake(error) => Self::Handshake(error.to_string().into()),
            _ => Self::ConnectTimeout,
        }
    }

    /// What operators are told of it.
    #[cold]
    pub(crate) fn message(&self) -> String {
        error_chain(self)
    }

    /// Whether it is the server's failure, and not the client's or our own.
    pub(super) fn blames_server(&self) -> bool {
        match self {
            Self::Connect(error) => !is_ours(error),
            Self::ConnectTimeout
            | Self::Handshake(_)
            | Self::Unanswered(_)
            | Self::Broken(_)
            | Self::ResponseTimeout => true,
            Self::NoServer
            | Self::Busy
            | Self::TooLarge
            | Self::Unwritable
            | Self::ClientBroken
            | Self::ClientSlow => false,
        }
    }

    /// Whether a server said at once that it takes no connection.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Connect(_))
    }

    /// Whether the request never reached a server.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout | Self::Handshake(_))
    }
}

/// An error with what caused it.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Whether no connection could be made because this machine or process has run out of something.
fn is_ours(error: &std::io::Error) -> bool {
    // ENOMEM, ENFILE, EMFILE, EADDRNOTAVAIL, ENOBUFS
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 99 | 105))
}
