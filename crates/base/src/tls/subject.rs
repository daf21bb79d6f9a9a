//! The subject of a certificate as a text (RFC 4514): the most particular part first, `CN=alice,O=Example,C=SE`.

use std::fmt::Write as _;

use x509_parser::asn1_rs::Tag;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Attribute types with a short name (RFC 4514 §3, and what everybody adds to it).
const SHORT: [(&str, &str); 10] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// The text of a name; empty for an empty one.
pub(super) fn text(name: &X509Name<'_>) -> String {
    let mut out = String::new();
    let mut parts: Vec<_> = name.iter_rdn().collect();
    parts.reverse();
    for (index, part) in parts.into_iter().enumerate() {
        for (place, attribute) in part.iter().enumerate() {
            match (index, place) {
                (0, 0) => {}
                (_, 0) => out.push(','),
                _ => out.push('+'),
            }
            write(attribute, &mut out);
        }
    }
    out
}

fn write(attribute: &AttributeTypeAndValue<'_>, out: &mut String) {
    let oid = attribute.attr_type().to_id_string();
    let short = SHORT.iter().find(|(known, _)| *known == oid).map(|(_, short)| *short);
    match (short, value(attribute)) {
        (Some(short), Some(value)) => {
            out.push_str(short);
            out.push('=');
            escape(&value, out);
        }
        // A type without a name, or a value that is not text, is written as it is encoded.
        (short, _) => {
            out.push_str(short.unwrap_or(&oid));
            out.push_str("=#");
            for byte in encoded(attribute) {
                let _ = write!(out, "{byte:02x}"); // writing to a String cannot fail
            }
        }
    }
}

fn value(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let any = attribute.attr_value();
    match any.header.tag() {
        Tag::BmpString => {
            let units = any.data.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            (any.data.len() % 2 == 0).then(|| String::from_utf16(&units.collect::<Vec<_>>()).ok())?
        }
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString => {
            String::from_utf8(any.data.to_vec()).ok()
        }
        // Written as Latin-1 by everybody, whatever T.61 says: only what both read alike is text.
        Tag::T61String => any.data.is_ascii().then(|| String::from_utf8(any.data.to_vec()).ok())?,
        _ => None,
    }
}

/// The value with its tag and length (DER).
fn encoded(attribute: &AttributeTypeAndValue<'_>) -> Vec<u8> {
    let any = attribute.attr_value();
    let length = any.data.len();
    let mut out = vec![any.header.tag().0 as u8 | if any.header.is_constructed() { 0x20 } else { 0 }];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend_from_slice(any.data);
    out
}

/// RFC 4514 §2.4. Control characters are escaped too, for the text goes into logs and metrics of others.
fn escape(value: &str, out: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            '#' if at == 0 => out.push_str("\\#"),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            control if control.is_ascii_control() => {
                let _ = write!(out, "\\{:02X}", control as u32); // writing to a String cannot fail
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use x509_parser::prelude::{FromDer, X509Certificate};

    use super::text;

    fn subject(parts: &[(DnType, &str)]) -> String {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let (_, parsed) = X509Certificate::from_der(certificate.der()).unwrap();
        text(parsed.subject())
    }

    #[test]
    fn the_most_particular_part_comes_first() {
        let parts = [
            (DnType::CountryName, "SE"),
            (DnType::OrganizationName, "Example AB"),
            (DnType::CommonName, "alice"),
        ];
        assert_eq!(subject(&parts), "CN=alice,O=Example AB,C=SE");
        assert_eq!(subject(&[]), "");
    }

    #[test]
    fn nothing_in_a_value_looks_like_another_part() {
        let name = |value| subject(&[(DnType::CommonName, value)]);
        assert_eq!(name("a,O=Example+B"), "CN=a\\,O=Example\\+B");
        assert_eq!(name("#1 \"x\" <y>; \\"), "CN=\\#1 \\\"x\\\" \\<y\\>\\; \\\\");
        assert_eq!(name(" a b "), "CN=\\ a b\\ ");
        assert_eq!(name("a\r\nb\0"), "CN=a\\0D\\0Ab\\00");
        assert_eq!(name("Åsa"), "CN=Åsa");
    }

    #[test]
    fn a_type_without_a_name_is_written_as_it_is_encoded() {
        let own = DnType::from_oid(&[1, 3, 6, 1, 4, 1, 99999, 1]);
        assert_eq!(subject(&[(own.clone(), "hi")]), "1.3.6.1.4.1.99999.1=#0c026869");
        let long = subject(&[(own, &"x".repeat(200))]);
        assert!(long.starts_with("1.3.6.1.4.1.99999.1=#0c81c87878"), "{long}");
    }
}
