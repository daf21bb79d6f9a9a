//! The files that an importer may read.

/// Reads the files that a configuration includes. The command reads them from the disk; `nginx -T` has them all in one text.
pub trait Files {
    /// The text of a file.
    ///
    /// # Errors
    /// Why it cannot be read, for the report.
    fn read(&self, path: &str) -> Result<String, String>;

    /// The paths of the files that match a pattern with `*`, `?` and `[…]`, in the order of their names.
    fn glob(&self, pattern: &str) -> Vec<String>;
}

/// The YAML files in a folder.
pub fn yaml_files(files: &dyn Files, folder: &str) -> Vec<String> {
    let folder = folder.trim_end_matches('/');
    let mut found: Vec<_> =
        ["yaml", "yml"].iter().flat_map(|ending| files.glob(&format!("{folder}/*.{ending}"))).collect();
    found.sort();
    found
}

/// Whether a path matches a pattern as shells understand it: no wildcard matches a slash, or a dot at the beginning of a name.
pub fn matches_glob(pattern: &str, path: &str) -> bool {
    let (patterns, names) = (pattern.split('/'), path.split('/'));
    patterns.clone().count() == names.clone().count()
        && patterns.zip(names).all(|(pattern, name)| {
            (!name.starts_with('.') || pattern.starts_with('.'))
                && matches_name(pattern.as_bytes(), name.as_bytes())
        })
}

/// Whether one name matches. It takes time proportional to the product of the lengths, because only the last `*` is tried again.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(b'?') => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            Some(b'[') if class(&pattern[p..], name[n]).is_some() => {
                if let Some((length, true)) = class(&pattern[p..], name[n]) {
                    (p, n) = (p + length, n + 1);
                    continue;
                }
            }
            Some(c) if *c == name[n] => {
                (p, n) = (p + 1, n + 1);
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = star else { return false };
        star = Some((after, from + 1));
        (p, n) = (after, from + 1);
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// The length of the class at the beginning of a pattern, such as `[a-z]`, and whether a byte is in it; `None` if it has no end.
fn class(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let from = if negated { 2 } else { 1 };
    let end = from + 1 + pattern.get(from + 1..)?.iter().position(|c| *c == b']')?;
    let (mut at, mut found) = (from, false);
    while at < end {
        let range = pattern[at + 1] == b'-' && at + 2 < end;
        let last = if range { pattern[at + 2] } else { pattern[at] };
        found |= (pattern[at]..=last).contains(&byte);
        at += if range { 3 } else { 1 };
    }
    Some((end + 1, found != negated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, path, expected) in [
            ("/etc/nginx/conf.d/*.conf", "/etc/nginx/conf.d/api.conf", true),
            ("/etc/nginx/conf.d/*.conf", "/etc/nginx/conf.d/api.conf.bak", false),
            ("/etc/nginx/conf.d/*.conf", "/etc/nginx/conf.d/sub/api.conf", false),
            ("/etc/nginx/*/*", "/etc/nginx/sites/api", true),
            ("a*b*c", "a-b-b-c", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[0-9]*.conf", "10-api.conf", true),
            ("[!0-9]*.conf", "10-api.conf", false),
            ("[]a]x", "]x", true),
            ("[a", "[a", true),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("***", "", true),
        ] {
            assert_eq!(matches_glob(pattern, path), expected, "{pattern} {path}");
        }
    }
}
