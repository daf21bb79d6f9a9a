//! Field names that an HTTP/1.1 message has in a given case, for receivers that compare them with regard to case although
//! RFC 9110 §5.1 forbids it.

/// Field names in the case in which they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameCase {
    /// Each name in lower case and as it is written, sorted.
    names: Vec<(String, String)>,
}

impl NameCase {
    /// These names; `None` if there are none.
    pub fn new<'n>(names: impl Iterator<Item = &'n str>) -> Option<Self> {
        let mut names: Vec<_> = names.map(|name| (name.to_ascii_lowercase(), name.to_owned())).collect();
        names.sort_unstable();
        (!names.is_empty()).then_some(Self { names })
    }

    /// Gives the names their case in a head that is written completely, with names in lower case.
    pub fn apply(&self, head: &mut [u8]) {
        for line in head.split_mut(|b| *b == b'\n') {
            let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
            let name = &mut line[..colon];
            if let Ok(at) = self.names.binary_search_by(|(lower, _)| lower.as_bytes().cmp(name)) {
                name.copy_from_slice(self.names[at].1.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_names_have_their_case() {
        let case = NameCase::new(["SOAPAction", "ETag", "x-id"].into_iter()).unwrap();
        let mut head =
            b"HTTP/1.1 200 OK\r\netag: etag: 1\r\nx-etag: 2\r\nsoapaction: \r\netag:3\r\n\r\n".to_vec();
        case.apply(&mut head);
        let wanted: &[u8] =
            b"HTTP/1.1 200 OK\r\nETag: etag: 1\r\nx-etag: 2\r\nSOAPAction: \r\nETag:3\r\n\r\n";
        assert_eq!(head, wanted);
        assert_eq!(NameCase::new(std::iter::empty()), None);
    }
}
