//! The key of a request as rules see it, and the texts that name it.

use std::fmt::Write as _;
use std::net::IpAddr;

/// The most parts of a key that a rule can name exactly: a key of n parts has 2ⁿ spellings.
pub const MAX_KEY_PARTS: usize = 8;

/// One part of a request's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPart<'a> {
    /// What it is: `api_key`, `ip`, the name of a header.
    pub name: &'a str,
    /// Its value in this request.
    pub value: KeyValue<'a>,
    /// Whether only `name:value` names it, because the value alone reads like another part that the key may have instead: a client that
    /// chooses such a value must not take the rule of somebody else.
    pub named_only: bool,
}

/// The value of a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyValue<'a> {
    /// Text, as the client sent it; not always UTF-8.
    Text(&'a [u8]),
    /// The address of a client, or the first address of its network.
    Address(IpAddr),
}

/// A part of a key in the forms that rules are compared with.
pub(crate) struct Spelled<'a> {
    /// What it is.
    pub(crate) name: &'a str,
    /// The address, if it is one, never an IPv4 address in the form of IPv6.
    pub(crate) address: Option<IpAddr>,
    /// Where the text begins that names it alone.
    alone: usize,
    /// `name:` and the value's text. The text of an address is Rust's `Display` of it.
    bytes: Vec<u8>,
    /// The canonical text, and that of `name:` with the text; `None` if it is not UTF-8.
    pub(crate) canonical: Option<[String; 2]>,
}

impl<'a> Spelled<'a> {
    pub(crate) fn new(part: &KeyPart<'a>) -> Self {
        let mut bytes = format!("{}:", part.name).into_bytes();
        let address = match part.value {
            KeyValue::Text(text) => {
                bytes.extend_from_slice(text);
                None
            }
            KeyValue::Address(address) => {
                let address = address.to_canonical();
                bytes.extend_from_slice(address.to_string().as_bytes());
                Some(address)
            }
        };
        let alone = if part.named_only { 0 } else { part.name.len() + 1 };
        let canonical =
            std::str::from_utf8(&bytes).ok().map(|named| [canonical(&named[alone..]), canonical(named)]);
        Self { name: part.name, address, alone, bytes, canonical }
    }

    /// The value's text, with `name:` if only that names it.
    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[self.alone..]
    }

    /// `name:` and the value's text.
    pub(crate) fn named(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a canonical text names this part: its value, or `name:` and its value.
    pub(crate) fn is(&self, canonical: &str) -> bool {
        self.canonical.iter().flatten().any(|own| own == canonical)
    }
}

/// All texts under which an exact rule for this key can be stored; each is what [`canonical`] makes of itself.
///
/// Each part is its value, or `name:` and its value; several parts are joined by commas. The order is fixed: without
/// names first, then as binary numbers count, the first part being the lowest digit. None for a key without parts, with
/// more than [`MAX_KEY_PARTS`], with a value that is not UTF-8, or, if it has several parts, with a comma in a value: a
/// text with such a value could be read as other parts.
pub fn spellings(key: &[KeyPart<'_>]) -> Vec<String> {
    let parts: Option<Vec<[String; 2]>> = key.iter().map(|part| Spelled::new(part).canonical).collect();
    let Some(parts) = parts.filter(|parts| (1..=MAX_KEY_PARTS).contains(&parts.len())) else {
        return Vec::new();
    };
    let mut texts = Vec::with_capacity(1 << parts.len());
    for choice in 0..1_usize << parts.len() {
        let chosen = parts.iter().enumerate().map(|(index, part)| part[choice >> index & 1].as_str());
        if parts.len() > 1 && chosen.clone().any(|text| text.contains(',')) {
            continue;
        }
        let text = chosen.collect::<Vec<_>>().join(",");
        // Where a name reads like a part of an address, two spellings can be one.
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

/// A text that every pattern matches which matches the key, for asking another program for its rules. What a text cannot say is
/// in the place of it U+FFFD: bytes that are no UTF-8, and in a key with several parts commas within a part. Only a `*` matches
/// either. Patterns that match the text do not always match the key.
pub fn approximation(key: &[KeyPart<'_>]) -> String {
    let text = |part| String::from_utf8_lossy(Spelled::new(part).named()).into_owned();
    match key {
        [only] => text(only),
        several => {
            several.iter().map(|part| text(part).replace(',', "\u{fffd}")).collect::<Vec<_>>().join(",")
        }
    }
}

/// The text under which a rule with this key text is stored: a component that is an address, with or without `name:` in
/// front, is written as Rust displays the address; an IPv4 address in the form of IPv6 becomes one of IPv4. Everything
/// else stays as it is.
///
/// The components are what commas separate. Of a key with one part, whose text is not split, commas and all that is no
/// address stay too; the same is done to its spellings, so that the rule is found.
pub fn canonical(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, component) in text.split(',').enumerate() {
        if index > 0 {
            out.push(',');
        }
        let address = |text: &str| text.parse::<IpAddr>().ok();
        match behind_name(component, address) {
            Some((name, address)) => {
                out.push_str(name);
                let _ = write!(out, "{}", address.to_canonical()); // a String takes all
            }
            None => out.push_str(component),
        }
    }
    out
}

/// What a component consists of behind the shortest `name:`, which may be absent. Returns the name with its colon.
pub(crate) fn behind_name<T>(component: &str, parse: impl Fn(&str) -> Option<T>) -> Option<(&str, T)> {
    let starts = std::iter::once(0).chain(component.match_indices(':').map(|(colon, _)| colon + 1));
    starts.into_iter().find_map(|start| {
        let (name, rest) = component.split_at(start);
        Some((name, parse(rest)?))
    })
}
