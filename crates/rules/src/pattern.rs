//! A key text that stands for many keys: texts with `*` and networks.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::glob::Glob;
use crate::key::{KeyPart, Spelled, behind_name, canonical};

/// A key text that has a `*` or a network (`203.0.113.0/24`) in at least one of its components.
///
/// The components are what commas separate, and each belongs to one part of a key; a key with one part is compared with
/// the text as a whole. A component may have `name:` in front, the name of the part. It is one of these:
///
/// - A text with `*`, each of which matches any run of bytes, also none. A name has to be written out: `a*` does not
///   match the key `api_key:k1`, whose value is `k1`.
/// - A network matches the addresses in it, and a text that equals its own.
/// - Every other text matches as the key of an exact rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The text as a whole.
    whole: Component,
    /// Its components if it has more than one.
    components: Box<[Component]>,
}

/// How exactly a rule's key text describes a key that it matches. The greater is the more exact.
///
/// The key text of an exact rule is the most exact. Of two patterns that one is more exact
///
/// 1. that has more components without `*` and network (counted only if a key has several parts), then
/// 2. whose other components together have more bits of prefix: eight for each byte before the first `*`, and for a
///    network the length of its mask; `name:` does not count, then
/// 3. that has fewer `*`.
///
/// It follows from the two texts and the key alone, so it is equal on every gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exactness {
    literals: u32,
    prefix_bits: u32,
    stars: Reverse<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Component {
    /// In canonical form.
    Literal(String),
    Glob(Glob),
    Network(Network),
}

/// A network, with or without the name of a part in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// The component as it is written.
    text: String,
    /// So many bytes of it are the name with its colon.
    name: usize,
    /// The addresses in it.
    pub(crate) range: Range,
}

/// The addresses of a family with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Range {
    pub(crate) family: Family,
    /// The number of bits that are the same: at most 32 or 128.
    pub(crate) bits: u8,
    /// The first address.
    pub(crate) first: u128,
}

/// A kind of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Exactness {
    /// That of an exact rule.
    pub const EXACT: Self = Self { literals: u32::MAX, prefix_bits: 0, stars: Reverse(0) };
    const NONE: Self = Self { literals: 0, prefix_bits: 0, stars: Reverse(0) };
    const LITERAL: Self = Self { literals: 1, ..Self::NONE };

    fn plus(self, other: Self) -> Self {
        Self {
            literals: self.literals + other.literals,
            prefix_bits: self.prefix_bits + other.prefix_bits,
            stars: Reverse(self.stars.0.saturating_add(other.stars.0)),
        }
    }
}

impl Pattern {
    /// `None` if the text is the key of an exact rule.
    pub fn parse(key_text: &str) -> Option<Self> {
        let whole = Component::parse(key_text);
        let components: Box<[Component]> = match key_text.contains(',') {
            true => key_text.split(',').map(Component::parse).collect(),
            false => Box::default(),
        };
        let literal = |component: &Component| matches!(component, Component::Literal(_));
        let is_pattern = !literal(&whole) || !components.iter().all(literal);
        is_pattern.then_some(Self { whole, components })
    }

    /// How exactly this pattern describes the key; `None` if it does not match.
    pub fn matches(&self, key: &[KeyPart<'_>]) -> Option<Exactness> {
        self.matches_spelled(&key.iter().map(Spelled::new).collect::<Vec<_>>())
    }

    pub(crate) fn matches_spelled(&self, key: &[Spelled<'_>]) -> Option<Exactness> {
        if let [part] = key {
            return self.whole.matches(part);
        }
        if key.len() != self.components.len() {
            return None;
        }
        let mut pairs = self.components.iter().zip(key);
        pairs.try_fold(Exactness::NONE, |sum, (component, part)| Some(sum.plus(component.matches(part)?)))
    }

    /// The only component; `None` if there are several.
    pub(crate) fn only_component(&self) -> Option<&Component> {
        self.components.is_empty().then_some(&self.whole)
    }
}

impl Component {
    fn parse(text: &str) -> Self {
        if let Some(glob) = Glob::parse(text) {
            return Self::Glob(glob);
        }
        match behind_name(text, Range::parse) {
            Some((name, range)) => Self::Network(Network { text: text.to_owned(), name: name.len(), range }),
            None => Self::Literal(canonical(text)),
        }
    }

    fn matches(&self, part: &Spelled<'_>) -> Option<Exactness> {
        match self {
            Self::Literal(text) => part.is(text).then_some(Exactness::LITERAL),
            Self::Glob(glob) => {
                let exactness = |name: usize| Exactness {
                    prefix_bits: 8 * (glob.prefix().len() - name) as u32, // a key text is far shorter than 512 MiB
                    stars: Reverse(glob.stars()),
                    ..Exactness::NONE
                };
                let name = part.name.len() + 1;
                let has_name = glob.prefix().starts_with(&part.named()[..name]);
                if glob.matches(part.text()) {
                    Some(exactness(0))
                } else {
                    (has_name && glob.matches(part.named())).then(|| exactness(name))
                }
            }
            Self::Network(network) => network.matches(part),
        }
    }
}

impl Network {
    /// The component as it is written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn matches(&self, part: &Spelled<'_>) -> Option<Exactness> {
        if part.is(&self.text) {
            return Some(Exactness::LITERAL);
        }
        let name = self.text[..self.name].strip_suffix(':');
        let is_in = |address| Range::new(address, self.range.bits) == Some(self.range);
        let matches = name.is_none_or(|name| name == part.name) && part.address.is_some_and(is_in);
        matches.then(|| Exactness { prefix_bits: u32::from(self.range.bits), ..Exactness::NONE })
    }
}

impl Range {
    /// Reads `address/bits`. A network of IPv4 that is written as IPv6 is one of IPv4, as its addresses are.
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.rsplit_once('/')?;
        let digits = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|byte| byte.is_ascii_digit());
        let written: IpAddr = address.parse().ok()?;
        let bits: u8 = bits.parse().ok().filter(|_| digits)?;
        match (written.to_canonical(), bits.checked_sub(96)) {
            (v4 @ IpAddr::V4(_), Some(bits)) if written.is_ipv6() => Self::new(v4, bits),
            _ => Self::new(written, bits),
        }
    }

    /// The addresses that have the first `bits` bits of this one; `None` if it has fewer.
    pub(crate) fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let (family, width, all) = match address {
            IpAddr::V4(v4) => (Family::V4, 32, u128::from(u32::from(v4))),
            IpAddr::V6(v6) => (Family::V6, 128, u128::from(v6)),
        };
        let other = u32::checked_sub(width, u32::from(bits))?;
        // A shift by all 128 bits would overflow.
        let mask = u128::MAX.checked_shl(other).unwrap_or(0);
        Some(Self { family, bits, first: all & mask })
    }
}
