//! Why a request could not be forwarded.

use sluicegate_observe::metrics::UpstreamOutcome;

/// Why a request could not be forwarded, or got no response.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No endpoint is left: no name was resolved, or all endpoints were tried.
    #[error("no server")]
    NoServer,
    /// All servers are drained or in maintenance.
    #[error("all servers are drained or in maintenance")]
    Drained,
    /// All endpoints are at `max_connections`, and the queue is full or the wait was too long.
    #[error("all servers are at their connection limit")]
    Busy,
    /// The connection was refused.
    #[error("no connection")]
    Connect(#[source] std::io::Error),
    /// The connection was not established within the connect timeout.
    #[error("no connection in time")]
    ConnectTimeout,
    /// The TLS or HTTP/2 handshake failed. No request was sent.
    #[error("the handshake with the server failed")]
    Handshake(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request was sent, and the connection ended before any byte of a response.
    #[error("no response")]
    Unanswered(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection failed in the middle of a response head, or the response is not valid HTTP.
    #[error("no valid response")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response did not begin within the response timeout.
    #[error("no response in time")]
    ResponseTimeout,
    /// The request body is longer than allowed.
    #[error("the request body is too large")]
    TooLarge,
    /// The path template of the route cannot be applied to the path.
    #[error("the path cannot be rewritten")]
    Unwritable,
    /// The request body ended early or was malformed.
    #[error("the request body is incomplete")]
    ClientBroken,
    /// The client sent the request body too slowly.
    #[error("the request body did not arrive in time")]
    ClientSlow,
}

impl ForwardError {
    pub(super) fn outcome(&self) -> UpstreamOutcome {
        match self {
            Self::Busy => UpstreamOutcome::Busy,
            Self::Drained => UpstreamOutcome::Drained,
            Self::NoServer | Self::Connect(_) | Self::Handshake(_) => UpstreamOutcome::ConnectFailed,
            Self::ConnectTimeout => UpstreamOutcome::ConnectTimeout,
            Self::Unanswered(_) | Self::Broken(_) => UpstreamOutcome::Broken,
            Self::ResponseTimeout => UpstreamOutcome::ResponseTimeout,
            Self::TooLarge | Self::Unwritable | Self::ClientBroken | Self::ClientSlow => {
                UpstreamOutcome::ClientFailed
            }
        }
    }

    /// A copy for another request that waited for the same connection.
    pub(super) fn duplicate(&self) -> Self {
        match self {
            Self::Connect(error) => Self::Connect(std::io::Error::new(error.kind(), error.to_string())),
            Self::Handshake(error) => Self::Handshake(error.to_string().into()),
            _ => Self::ConnectTimeout,
        }
    }

    /// The text for logs, with all causes.
    #[cold]
    pub(crate) fn message(&self) -> String {
        error_chain(self)
    }

    /// Whether the server caused it, and not the client or the gateway.
    pub(super) fn blames_server(&self) -> bool {
        match self {
            Self::Connect(error) => !is_local(error),
            Self::ConnectTimeout
            | Self::Handshake(_)
            | Self::Unanswered(_)
            | Self::Broken(_)
            | Self::ResponseTimeout => true,
            Self::NoServer
            | Self::Drained
            | Self::Busy
            | Self::TooLarge
            | Self::Unwritable
            | Self::ClientBroken
            | Self::ClientSlow => false,
        }
    }

    /// Whether the connection was refused at once.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Connect(_))
    }

    /// Whether no server took the request.
    pub fn found_no_server(&self) -> bool {
        self.is_unsent() || matches!(self, Self::NoServer | Self::Drained | Self::Busy)
    }

    /// Whether nothing of the request was sent.
    pub(super) fn is_unsent(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout | Self::Handshake(_))
    }
}

/// The text of an error and of its causes, separated by colons.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// Whether a connection failed because this process or machine has run out of a resource.
fn is_local(error: &std::io::Error) -> bool {
    // ENOMEM, ENFILE, EMFILE, EADDRNOTAVAIL, ENOBUFS
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 99 | 105))
}
