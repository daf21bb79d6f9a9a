//! The names that a certificate is for.

/// DNS names of a certificate, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    exact: Vec<String>,
    /// What stands behind the first label: `example.com` of `*.example.com`.
    wild: Vec<String>,
}

impl Names {
    /// These names, as a certificate writes them. A wildcard stands for the whole first label and nothing else (RFC
    /// 9525 §6.3); other forms name nobody.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for name in names {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            match name.strip_prefix("*.") {
                Some(rest) if !rest.is_empty() && !rest.contains('*') => all.wild.push(rest.to_owned()),
                None if !name.is_empty() && !name.contains('*') => all.exact.push(name),
                _ => {}
            }
        }
        all
    }

    /// Whether a name, in lower case, is one of them as it is.
    pub fn has(&self, name: &str) -> bool {
        self.exact.iter().any(|known| known == name)
    }

    /// Whether a name, in lower case, is covered by a wildcard.
    pub fn has_wildcard_for(&self, name: &str) -> bool {
        name.split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && self.wild.iter().any(|known| known == rest))
    }

    /// Whether a certificate with these names is valid for a host, in lower case.
    pub fn cover(&self, name: &str) -> bool {
        self.has(name) || self.has_wildcard_for(name)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wild.is_empty()
    }

    /// As the certificate writes them.
    pub fn texts(&self) -> Vec<String> {
        let wild = self.wild.iter().map(|rest| format!("*.{rest}"));
        self.exact.iter().cloned().chain(wild).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn a_wildcard_is_one_whole_label() {
        let names =
            Names::new(["API.example.com.", "*.example.com", "w*.example.org", "*", "*.*.example.net", ""]);
        for (name, covered) in [
            ("api.example.com", true),
            ("www.example.com", true),
            ("example.com", false),
            ("a.b.example.com", false),
            (".example.com", false),
            ("www.example.org", false),
            ("a.b.example.net", false),
            ("", false),
        ] {
            assert_eq!(names.cover(name), covered, "{name}");
        }
        assert_eq!(names.texts(), ["api.example.com", "*.example.com"]);
    }
}
