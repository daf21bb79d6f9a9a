//! The lookup as the documentation of envoyproxy/ratelimit describes it, slow and without an index.

/// A descriptor of a file.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) limit: Option<u32>,
    pub(crate) share: bool,
    pub(crate) below: Vec<Node>,
}

impl Node {
    /// What the original looks up: the key, with the value if there is one.
    pub(crate) fn joined(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}_{}", self.key, self.value) }
    }
}

/// Whether `pattern` with its stars is `text`: tries everything that a star can stand for.
pub(crate) fn star(pattern: &[char], text: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('*', rest)) => (0..=text.len()).any(|skipped| star(rest, &text[skipped..])),
        Some((c, rest)) => text.split_first().is_some_and(|(first, text)| first == c && star(rest, text)),
    }
}

/// The limit of a descriptor, and its entries as they are counted.
pub(crate) fn find(level: &[Node], entries: &[(String, String)]) -> Option<(u32, Vec<(String, String)>)> {
    let ((key, value), rest) = entries.split_first()?;
    let both = format!("{key}_{value}");
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    let exact = level.iter().find(|node| node.joined() == both);
    let wildcard = || {
        let mut wildcards = level.iter().filter(|node| node.joined().contains('*'));
        wildcards.find(|node| star(&chars(&node.joined()), &chars(&both)))
    };
    let (node, by_wildcard) = match (exact, wildcard()) {
        (Some(node), _) => (node, false),
        (None, Some(node)) => (node, true),
        (None, None) => (level.iter().find(|node| node.joined() == *key)?, false),
    };
    let counted = if by_wildcard && node.share {
        let joined = node.joined();
        joined.strip_prefix(&format!("{key}_")).unwrap_or(&joined).to_owned()
    } else {
        value.clone()
    };
    let mut found = if rest.is_empty() { (node.limit?, Vec::new()) } else { find(&node.below, rest)? };
    found.1.insert(0, (key.clone(), counted));
    Some(found)
}

/// The file of these descriptors.
pub(crate) fn yaml(level: &[Node]) -> String {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    write(&mut text, level, 0);
    if level.is_empty() {
        text.push_str("  []\n");
    }
    text
}

fn write(text: &mut String, level: &[Node], depth: usize) {
    let indent = "  ".repeat(depth * 2);
    for node in level {
        *text += &format!("{indent}  - key: '{}'\n", node.key);
        let mut field = |line: String| *text += &format!("{indent}    {line}\n");
        if !node.value.is_empty() {
            field(format!("value: '{}'", node.value));
        }
        if let Some(limit) = node.limit {
            field(format!("rate_limit: {{unit: second, requests_per_unit: {limit}}}"));
        }
        if node.share {
            field("share_threshold: true".to_owned());
        }
        if !node.below.is_empty() {
            field("descriptors:".to_owned());
            write(text, &node.below, depth + 1);
        }
    }
}
