//! The parts of a request that keys are made of.
//!
//! [`Part`] is a part with its name, [`PartKind`] the same without. What follows from a kind stands in one table,
//! [`PartKind::facts`]: how the file writes it, where its value comes from, and how values are written and read again.
//! Every match in this file lists all parts, so that the compiler names what a new one lacks.

use std::fmt;

use http::HeaderName;

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The client's address, or the network that counts as one client.
    Ip,
    /// The client's address, of IPv6 only so many bits, whatever else counts as one client.
    IpPrefix(u8),
    /// The client's address, of IPv4 only so many bits.
    Ipv4Prefix(u8),
    /// The API key; where keys are known, only a known one.
    ApiKey,
    /// The consumer whose API key was sent.
    Consumer,
    /// Nothing: one counter for all.
    Global,
    /// The host, lower case, without port.
    Host,
    /// The method.
    Method,
    /// The path in normal form.
    Path,
    /// A parameter of the route's path.
    Param(String),
    /// The route's name.
    Route,
    /// A request header.
    Header(HeaderName),
    /// A query parameter, decoded.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// The user of a verified token.
    User,
    /// A claim of a verified token.
    Claim(String),
    /// The subject of a verified client certificate (RFC 4514).
    TlsSubject,
    /// The SHA-256 of a verified client certificate.
    TlsFingerprint,
    /// A descriptor with which another proxy asks. No key of the file has it.
    Descriptor,
}

/// Declares the kinds of parts and the list of all of them.
macro_rules! part_kinds {
    ($first:ident, $($kind:ident),+ $(,)?) => {
        /// A part without its name. The number of a kind stands in the texts of keys, which are kept by stores: a new kind
        /// comes last.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum PartKind {
            #[doc = concat!("[`Part::", stringify!($first), "`].")]
            $first = 1,
            $(
                #[doc = concat!("[`Part::", stringify!($kind), "`].")]
                $kind
            ),+
        }

        impl PartKind {
            /// All kinds in the order of their numbers.
            pub const ALL: &[Self] = &[Self::$first, $(Self::$kind),+];
        }
    };
}

part_kinds! {
    Ip, ApiKey, Global, Host, Method, Path, Param, Route, Header, Query, Cookie, Consumer, User, Claim, IpPrefix,
    TlsSubject, TlsFingerprint, Ipv4Prefix, Descriptor,
}

/// What distinguishes the parts of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartArgument<'p> {
    /// Nothing: there is one such part.
    None,
    /// The bits of a network.
    Bits(u8),
    /// The name of a header, parameter, cookie or claim.
    Name(&'p str),
}

/// What follows from the kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartFacts {
    /// What the file writes: all of it, or what stands before `:NAME` or `/BITS`.
    pub word: &'static str,
    /// What stands behind the word.
    pub takes: PartTakes,
    /// Where the value comes from.
    pub source: PartSource,
    /// What values look like.
    pub values: ValueForm,
}

/// What the parts of one kind are distinguished by in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartTakes {
    /// Nothing.
    Nothing,
    /// `/BITS`.
    Bits,
    /// `:NAME`; with an example.
    Name(&'static str),
}

/// Where the value of a part comes from, which says who vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSource {
    /// The address of the client.
    Address,
    /// Nothing: all requests have the same value.
    Nothing,
    /// Host, method or path, by which a route is found, or the route.
    Route,
    /// A parameter of the route's path.
    PathParameter,
    /// A header, which the client can set to anything.
    Header,
    /// A query parameter, which the client can set to anything.
    Query,
    /// A cookie, which the client can set to anything.
    Cookie,
    /// An API key.
    ApiKey,
    /// The owner of an API key.
    Consumer,
    /// A verified token.
    Token,
    /// A verified client certificate.
    Certificate,
    /// The question of another proxy.
    Question,
}

/// What the values of a part look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// An address, in its bytes.
    Address,
    /// They are empty.
    Nothing,
    /// A host in lower case.
    Host,
    /// A method.
    Method,
    /// A path, which some routes compare without regard to case and encoding.
    Path,
    /// A segment of a path, the same.
    Segment,
    /// Hexadecimal digits in lower case.
    Fingerprint,
    /// Any text.
    Text,
}

impl PartKind {
    /// What follows from this kind, wherever keys are handled.
    pub const fn facts(self) -> PartFacts {
        let (word, takes, source, values) = match self {
            Self::Ip => ("ip", PartTakes::Nothing, PartSource::Address, ValueForm::Address),
            Self::IpPrefix | Self::Ipv4Prefix => {
                ("ip", PartTakes::Bits, PartSource::Address, ValueForm::Address)
            }
            Self::ApiKey => ("api_key", PartTakes::Nothing, PartSource::ApiKey, ValueForm::Text),
            Self::Consumer => ("consumer", PartTakes::Nothing, PartSource::Consumer, ValueForm::Text),
            Self::Global => ("global", PartTakes::Nothing, PartSource::Nothing, ValueForm::Nothing),
            Self::Host => ("host", PartTakes::Nothing, PartSource::Route, ValueForm::Host),
            Self::Method => ("method", PartTakes::Nothing, PartSource::Route, ValueForm::Method),
            Self::Path => ("path", PartTakes::Nothing, PartSource::Route, ValueForm::Path),
            Self::Param => {
                ("path", PartTakes::Name("path:id"), PartSource::PathParameter, ValueForm::Segment)
            }
            Self::Route => ("route", PartTakes::Nothing, PartSource::Route, ValueForm::Text),
            Self::Header => {
                ("header", PartTakes::Name("header:X-Tenant"), PartSource::Header, ValueForm::Text)
            }
            Self::Query => ("query", PartTakes::Name("query:key"), PartSource::Query, ValueForm::Text),
            Self::Cookie => {
                ("cookie", PartTakes::Name("cookie:session"), PartSource::Cookie, ValueForm::Text)
            }
            Self::User => ("user", PartTakes::Nothing, PartSource::Token, ValueForm::Text),
            Self::Claim => ("jwt", PartTakes::Name("jwt:tenant"), PartSource::Token, ValueForm::Text),
            Self::TlsSubject => ("tls:subject", PartTakes::Nothing, PartSource::Certificate, ValueForm::Text),
            Self::TlsFingerprint => {
                ("tls:fingerprint", PartTakes::Nothing, PartSource::Certificate, ValueForm::Fingerprint)
            }
            Self::Descriptor => ("descriptor", PartTakes::Nothing, PartSource::Question, ValueForm::Text),
        };
        PartFacts { word, takes, source, values }
    }

    /// Those that keys of the file can have.
    pub(crate) fn of_file() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|kind| kind.facts().source != PartSource::Question)
    }

    /// The kind with this number.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// The part of this kind with this argument; `None` if it takes another one, or a name that no header has.
    pub fn part(self, argument: PartArgument<'_>) -> Option<Part> {
        let (name, bits) = match (self.facts().takes, argument) {
            (PartTakes::Nothing, PartArgument::None) => ("", 0),
            (PartTakes::Bits, PartArgument::Bits(bits)) => ("", bits),
            (PartTakes::Name(_), PartArgument::Name(name)) => (name, 0),
            _ => return None,
        };
        Some(match self {
            Self::Ip => Part::Ip,
            Self::IpPrefix => Part::IpPrefix(bits),
            Self::Ipv4Prefix => Part::Ipv4Prefix(bits),
            Self::ApiKey => Part::ApiKey,
            Self::Consumer => Part::Consumer,
            Self::Global => Part::Global,
            Self::Host => Part::Host,
            Self::Method => Part::Method,
            Self::Path => Part::Path,
            Self::Param => Part::Param(name.to_owned()),
            Self::Route => Part::Route,
            Self::Header => Part::Header(HeaderName::from_bytes(name.as_bytes()).ok()?),
            Self::Query => Part::Query(name.to_owned()),
            Self::Cookie => Part::Cookie(name.to_owned()),
            Self::User => Part::User,
            Self::Claim => Part::Claim(name.to_owned()),
            Self::TlsSubject => Part::TlsSubject,
            Self::TlsFingerprint => Part::TlsFingerprint,
            Self::Descriptor => Part::Descriptor,
        })
    }
}

impl Part {
    /// What it is, without its name.
    #[inline]
    pub const fn kind(&self) -> PartKind {
        match self {
            Self::Ip => PartKind::Ip,
            Self::IpPrefix(_) => PartKind::IpPrefix,
            Self::Ipv4Prefix(_) => PartKind::Ipv4Prefix,
            Self::ApiKey => PartKind::ApiKey,
            Self::Consumer => PartKind::Consumer,
            Self::Global => PartKind::Global,
            Self::Host => PartKind::Host,
            Self::Method => PartKind::Method,
            Self::Path => PartKind::Path,
            Self::Param(_) => PartKind::Param,
            Self::Route => PartKind::Route,
            Self::Header(_) => PartKind::Header,
            Self::Query(_) => PartKind::Query,
            Self::Cookie(_) => PartKind::Cookie,
            Self::User => PartKind::User,
            Self::Claim(_) => PartKind::Claim,
            Self::TlsSubject => PartKind::TlsSubject,
            Self::TlsFingerprint => PartKind::TlsFingerprint,
            Self::Descriptor => PartKind::Descriptor,
        }
    }

    /// What distinguishes it from others of its kind.
    #[inline]
    pub fn argument(&self) -> PartArgument<'_> {
        match self {
            Self::IpPrefix(bits) | Self::Ipv4Prefix(bits) => PartArgument::Bits(*bits),
            Self::Param(name) | Self::Query(name) | Self::Cookie(name) | Self::Claim(name) => {
                PartArgument::Name(name)
            }
            Self::Header(name) => PartArgument::Name(name.as_str()),
            Self::Ip
            | Self::ApiKey
            | Self::Consumer
            | Self::Global
            | Self::Host
            | Self::Method
            | Self::Path
            | Self::Route
            | Self::User
            | Self::TlsSubject
            | Self::TlsFingerprint
            | Self::Descriptor => PartArgument::None,
        }
    }

    /// Where its value comes from.
    #[inline]
    pub const fn source(&self) -> PartSource {
        self.kind().facts().source
    }

    /// What its values look like.
    #[inline]
    pub const fn values(&self) -> ValueForm {
        self.kind().facts().values
    }

    /// The header that its value is read from.
    pub const fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            Self::Ip
            | Self::IpPrefix(_)
            | Self::Ipv4Prefix(_)
            | Self::ApiKey
            | Self::Consumer
            | Self::Global
            | Self::Host
            | Self::Method
            | Self::Path
            | Self::Param(_)
            | Self::Route
            | Self::Query(_)
            | Self::Cookie(_)
            | Self::User
            | Self::Claim(_)
            | Self::TlsSubject
            | Self::TlsFingerprint
            | Self::Descriptor => None,
        }
    }

    /// Whether only a verified token has it.
    #[inline]
    pub const fn is_of_user(&self) -> bool {
        matches!(self.source(), PartSource::Token)
    }

    /// Whether nothing but the client's address decides it.
    #[inline]
    pub const fn is_of_address(&self) -> bool {
        matches!(self.source(), PartSource::Address | PartSource::Nothing)
    }

    /// What it is called before a value.
    #[inline]
    pub fn name(&self) -> &str {
        match self.argument() {
            PartArgument::Name(name) => name,
            PartArgument::None | PartArgument::Bits(_) => self.kind().facts().word,
        }
    }
}

/// As the file writes it: `ip/64`, `header:x-tenant`, `api_key`.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.kind().facts().word;
        match self.argument() {
            PartArgument::None => f.write_str(word),
            PartArgument::Bits(bits) => write!(f, "{word}/{bits}"),
            PartArgument::Name(name) => write!(f, "{word}:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of kinds are in the texts of keys that stores keep, so they stay what they are.
    #[test]
    fn the_numbers_of_kinds_stay() {
        let numbers: Vec<u8> = PartKind::ALL.iter().map(|kind| *kind as u8).collect();
        assert_eq!(numbers, (1..=19).collect::<Vec<u8>>());
        let known = [PartKind::Ip, PartKind::Header, PartKind::Claim, PartKind::Ipv4Prefix];
        assert_eq!(known.map(|kind| kind as u8), [1, 9, 14, 18]);
        assert!(
            numbers.iter().all(|number| PartKind::numbered(*number).map(|kind| kind as u8) == Some(*number))
        );
        assert_eq!((PartKind::numbered(0), PartKind::numbered(20)), (None, None));
    }

    /// A part is its kind and its argument.
    #[test]
    fn parts_are_made_of_their_kind_and_argument() {
        for kind in PartKind::ALL {
            let argument = match kind.facts().takes {
                PartTakes::Nothing => PartArgument::None,
                PartTakes::Bits => PartArgument::Bits(24),
                PartTakes::Name(_) => PartArgument::Name("x-name"),
            };
            let part = kind.part(argument).unwrap();
            assert_eq!((part.kind(), part.argument()), (*kind, argument));
            assert!(part.to_string().starts_with(kind.facts().word));
        }
        assert_eq!(PartKind::Header.part(PartArgument::Name("no name")), None);
        assert_eq!(PartKind::Ip.part(PartArgument::Bits(24)), None);
    }
}
