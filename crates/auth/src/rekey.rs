//! Changes to the keys of one entry in the text of the file of consumers. Everything else stays as it was written:
//! comments, quotes, indentation, and whether the keys are on one line.

use std::ops::Range;

/// How one key is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `key: sha256:…`
    Alone,
    /// In `keys: [sha256:…, sha256:…]`.
    InBrackets,
    /// `- sha256:…` on a line of its own below `keys:`.
    OnItsLine,
}

/// `text` with `new` beside the keys that are at `keys`; `None` if they are written so that it cannot be put there.
pub(super) fn with_key(text: &str, keys: &[Range<usize>], new: &str) -> Option<String> {
    let in_list = keys.iter().rev().find(|at| form(text, at).is_some_and(|form| form != Form::Alone));
    let at = in_list.or(keys.last())?;
    let token = quoted(text, at);
    let new = like(text, at, new);
    let mut out = text.to_owned();
    match form(text, at)? {
        Form::InBrackets => out.insert_str(token.end, &format!(", {new}")),
        Form::OnItsLine => {
            let line = line(text, at);
            let (before, end) = (&text[line.start..token.start], &text[line.clone()]);
            let end = if end.ends_with("\r\n") { "\r\n" } else { "\n" };
            let first = if text[..line.end].ends_with('\n') { "" } else { end };
            out.insert_str(line.end, &format!("{first}{before}{new}{end}"));
        }
        Form::Alone => {
            let name = text[..token.start].trim_end().strip_suffix(':')?.trim_end();
            let name = name.strip_suffix(['"', '\'']).unwrap_or(name);
            name.strip_suffix("key")?;
            out.insert_str(token.end, &format!(", {new}]"));
            out.insert(token.start, '[');
            out.insert(name.len(), 's');
        }
    }
    Some(out)
}

/// `text` without the key at `key`, which is not the only one.
pub(super) fn without_key(text: &str, key: &Range<usize>) -> Option<String> {
    let mut token = quoted(text, key);
    match form(text, key)? {
        Form::Alone => return None,
        Form::OnItsLine => {
            token = line(text, key);
            if !has_items(text[..token.start].lines().rev()) && !has_items(text[token.end..].lines()) {
                return None; // `keys:` would be left with nothing
            }
        }
        Form::InBrackets => {
            let (before, behind) = (&text[..token.start], &text[token.end..]);
            match behind.trim_start().strip_prefix(',') {
                Some(next) => token.end = text.len() - next.trim_start().len(),
                None => token.start = before.trim_end().strip_suffix(',')?.len(),
            }
        }
    }
    let mut out = text.to_owned();
    out.replace_range(token, "");
    Some(out)
}

/// `text` with `new` in the place of all the keys that are at `keys`, in the order of the text.
pub(super) fn with_only_key(text: &str, keys: &[Range<usize>], new: &str) -> Option<String> {
    let (first, others) = keys.split_first()?;
    let mut out = text.to_owned();
    for other in others.iter().rev() {
        out = without_key(&out, other)?;
    }
    out.replace_range(first.clone(), new);
    Some(out)
}

fn form(text: &str, key: &Range<usize>) -> Option<Form> {
    match text[..quoted(text, key).start].trim_end_matches([' ', '\t']).chars().next_back()? {
        ':' => Some(Form::Alone),
        '[' | ',' => Some(Form::InBrackets),
        '-' => Some(Form::OnItsLine),
        _ => None,
    }
}

/// Whether the next of these lines that says something is an item that holds a key and nothing else.
fn has_items<'a>(lines: impl Iterator<Item = &'a str>) -> bool {
    let mut said = lines.map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#'));
    said.next().and_then(|line| line.strip_prefix("- ")).is_some_and(|item| {
        let item = item.trim_start().trim_start_matches(['"', '\'']);
        !item.split(['#', ' ']).next().unwrap_or_default().trim_start_matches("sha256:").contains(':')
            && !item.starts_with('{')
    })
}

/// A key with the quotes around it.
fn quoted(text: &str, key: &Range<usize>) -> Range<usize> {
    match text[..key.start].ends_with(['"', '\'']) {
        true => key.start - 1..key.end + 1,
        false => key.clone(),
    }
}

/// `new` in the same quotes as the key that is at `key`.
fn like(text: &str, key: &Range<usize>, new: &str) -> String {
    let quote = text[..key.start].chars().next_back().filter(|c| matches!(c, '"' | '\''));
    quote.map_or_else(|| new.to_owned(), |quote| format!("{quote}{new}{quote}"))
}

/// The line that a key is on, with its end.
fn line(text: &str, key: &Range<usize>) -> Range<usize> {
    let start = text[..key.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[key.end..].find('\n').map_or(text.len(), |at| key.end + at + 1);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the keys are: all that begins with `k` and a digit.
    fn keys(text: &str) -> Vec<Range<usize>> {
        let is_key = |at: &usize| text[*at..].starts_with('k') && text.as_bytes()[*at + 1].is_ascii_digit();
        (0..text.len() - 1)
            .filter(|at| text.is_char_boundary(*at))
            .filter(is_key)
            .map(|at| at..at + 2)
            .collect()
    }

    #[test]
    fn a_key_is_added_in_the_form_of_the_others() {
        for (text, wanted) in [
            ("- name: a\n  key: k1 # c\n  plan: p\n", "- name: a\n  keys: [k1, k9] # c\n  plan: p\n"),
            ("- key: k1\n", "- keys: [k1, k9]\n"),
            ("- {name: a, key: k1}", "- {name: a, keys: [k1, k9]}"),
            ("- {\"name\":\"a\",\"key\":\"k1\"}", "- {\"name\":\"a\",\"keys\":[\"k1\", \"k9\"]}"),
            ("- {'key' : 'k1'}", "- {'keys' : ['k1', 'k9']}"),
            ("{\"key\":\t\"k1\"}\n", "{\"keys\":\t[\"k1\", \"k9\"]}\n"),
            ("{\"name\":\"a\",\"key\":\"k1\"}\n", "{\"name\":\"a\",\"keys\":[\"k1\", \"k9\"]}\n"),
            ("- keys: [k1, k2 ]", "- keys: [k1, k2, k9 ]"),
            ("- keys:\n  - k1 # c\n  - k2 # d\n", "- keys:\n  - k1 # c\n  - k2 # d\n  - k9\n"),
            ("- keys:\r\n    - 'k1'\r\n", "- keys:\r\n    - 'k1'\r\n    - 'k9'\r\n"),
            ("- keys:\n  - k1", "- keys:\n  - k1\n  - k9\n"),
            ("- key: k1\n  keys: [k2]\n", "- key: k1\n  keys: [k2, k9]\n"),
        ] {
            assert_eq!(with_key(text, &keys(text), "k9").as_deref(), Some(wanted), "{text}");
        }
    }

    #[test]
    fn a_key_is_removed_and_nothing_else() {
        for (text, index, wanted) in [
            ("- keys: [k1, k2]", 0, "- keys: [k2]"),
            ("- keys: [k1 , k2]", 1, "- keys: [k1 ]"),
            ("- keys: [\"k1\",\"k2\",\"k3\"]", 1, "- keys: [\"k1\",\"k3\"]"),
            ("{\"keys\": [\"k1\", \"k2\"]}", 1, "{\"keys\": [\"k1\"]}"),
            ("- keys: # c\n  - k1 # laptop\n  # d\n  - k2\n", 0, "- keys: # c\n  # d\n  - k2\n"),
            ("- keys:\n  - k1\n  - k2", 1, "- keys:\n  - k1\n"),
        ] {
            assert_eq!(without_key(text, &keys(text)[index]).as_deref(), Some(wanted), "{text}");
        }
        for (text, index) in [
            ("- key: k1\n  keys: [k2]\n", 0),
            ("- key: k1\n  keys:\n  - k2\n", 1),
            ("- key: k1\n  keys:\n  - k2 # c\n- name: b\n  key: k3\n", 1),
        ] {
            assert_eq!(without_key(text, &keys(text)[index]), None, "{text}");
        }
    }

    #[test]
    fn one_key_takes_the_place_of_all() {
        for (text, wanted) in [
            ("- name: a\n  key: 'k1' # c\n", "- name: a\n  key: 'k9' # c\n"),
            ("- keys: [k1, k2,k3]\n- b", "- keys: [k9]\n- b"),
            ("- keys:\n  - k1\n  - k2\n  # c\n  - k3\n- b", "- keys:\n  - k9\n  # c\n- b"),
        ] {
            assert_eq!(with_only_key(text, &keys(text), "k9").as_deref(), Some(wanted), "{text}");
        }
    }
}
