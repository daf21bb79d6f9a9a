//! Texts with variables.

use std::fmt;

use http::HeaderValue;

/// A part of a request that a template can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The client's address.
    ClientIp,
    /// The request's id.
    RequestId,
    /// The host, lower case, without port.
    Host,
    /// The method.
    Method,
    /// The path in normal form.
    Path,
    /// What `/*` of the route's path stands for, without the slash before it.
    Rest,
    /// A parameter of the route's path.
    Param(String),
    /// The query as it came, without the question mark.
    Query,
    /// The scheme that the client used.
    Scheme,
    /// The listener's name.
    Listener,
    /// The route's name.
    Route,
    /// The consumer whose key was sent.
    Consumer,
    /// What the metadata of the consumer say under this name.
    Metadata(String),
    /// The plan of the consumer or the user.
    Plan,
    /// The user of a verified token.
    User,
    /// A claim of a verified token.
    Claim(String),
    /// The subject of the client's verified certificate.
    TlsSubject,
    /// The SHA-256 of the client's verified certificate.
    TlsFingerprint,
}

impl Variable {
    /// Those with a name of their own.
    pub const PLAIN: [(&str, Self); 13] = [
        ("client_ip", Self::ClientIp),
        ("request_id", Self::RequestId),
        ("host", Self::Host),
        ("method", Self::Method),
        ("path", Self::Path),
        ("rest", Self::Rest),
        ("query", Self::Query),
        ("scheme", Self::Scheme),
        ("listener", Self::Listener),
        ("route", Self::Route),
        ("consumer", Self::Consumer),
        ("plan", Self::Plan),
        ("user", Self::User),
    ];

    /// Whether its value is a piece of the path in normal form, so that it can stand in a path as it is.
    #[inline]
    pub const fn is_of_path(&self) -> bool {
        matches!(self, Self::Path | Self::Rest | Self::Param(_))
    }

    /// Whether only a verified token says it.
    #[inline]
    pub const fn is_of_user(&self) -> bool {
        matches!(self, Self::User | Self::Claim(_) | Self::Plan)
    }
}

/// A text with variables, as the value of a header.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// The value, if it is always the same.
    fixed: Option<HeaderValue>,
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// What stands there.
    Text(String),
    /// What the request says.
    Variable(Variable),
}

impl Template {
    /// The template of these pieces; `None` if their texts cannot stand in a header.
    pub fn new(pieces: Vec<Piece>) -> Option<Self> {
        let mut texts = String::new();
        let mut varies = false;
        for piece in &pieces {
            match piece {
                Piece::Text(text) => texts += text,
                Piece::Variable(_) => varies = true,
            }
        }
        let value =
            HeaderValue::from_str(&texts).or_else(|_| HeaderValue::from_bytes(texts.as_bytes())).ok()?;
        Some(Self { pieces, fixed: (!varies).then_some(value) })
    }

    /// The pieces, in order.
    #[inline]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        variables(&self.pieces)
    }

    /// The value, if it is always the same.
    #[inline]
    pub const fn fixed(&self) -> Option<&HeaderValue> {
        self.fixed.as_ref()
    }
}

/// Values may be secrets: only the variables are shown.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.variables().collect::<Vec<_>>()).finish()
    }
}

pub(crate) fn variables(pieces: &[Piece]) -> impl Iterator<Item = &Variable> {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Variable(variable) => Some(variable),
        Piece::Text(_) => None,
    })
}
