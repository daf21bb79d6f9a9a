//! The words of a line: quotes, escapes, comments and variables of the environment.

/// What a variable of the environment is, if it is set.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The words of one line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) words: Vec<String>,
    /// Where the last word ends in the line, in bytes: behind it there is only a comment.
    pub(super) end: usize,
    /// Variables that are not set and have no default.
    pub(super) unset: Vec<String>,
}

/// A mistake, with the byte at which it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) at: usize,
    pub(super) message: &'static str,
}

/// Reads the words of a line. `'…'` has no escapes; `"…"` has variables, and `\$` for a dollar. A backslash escapes blanks, quotes, `#`
/// and itself; other backslashes stay, because regular expressions need them.
pub(super) fn words(line: &str, environment: Environment<'_>) -> Result<Words, Mistake> {
    let mut out = Words::default();
    let mut word: Option<String> = None;
    let (mut single, mut double): (Option<usize>, Option<usize>) = (None, None);
    let mut at = 0;
    while let Some(c) = line[at..].chars().next() {
        let next = at + c.len_utf8();
        match c {
            '\'' if double.is_none() => {
                single = if single.is_none() { Some(at) } else { None };
                word.get_or_insert_default();
                at = next;
            }
            '"' if single.is_none() => {
                double = if double.is_none() { Some(at) } else { None };
                word.get_or_insert_default();
                at = next;
            }
            '\\' if single.is_none() => {
                let (character, length) = escape(&line[next..], double.is_some());
                word.get_or_insert_default().push(character);
                at = next + length;
            }
            '$' if double.is_some() => {
                let (value, length) = variable(&line[next..], environment, &mut out.unset);
                let word = word.get_or_insert_default();
                if length == 0 {
                    word.push('$');
                }
                word.push_str(&value);
                at = next + length;
            }
            '#' if single.is_none() && double.is_none() => break,
            c if c.is_ascii_whitespace() && single.is_none() && double.is_none() => {
                out.words.extend(word.take());
                at = next;
                continue;
            }
            c => {
                word.get_or_insert_default().push(c);
                at = next;
            }
        }
        out.end = at;
    }
    if let Some(at) = single.or(double) {
        return Err(Mistake { at, message: "the quote that begins here is not closed on its line" });
    }
    out.words.extend(word);
    Ok(out)
}

/// The character that an escape stands for, and its length behind the backslash.
fn escape(rest: &str, quoted: bool) -> (char, usize) {
    let hex = || {
        let digits = rest.get(1..3)?;
        u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii).map(|byte| (char::from(byte), 3))
    };
    match rest.chars().next() {
        Some(c @ ('\\' | '"' | ' ' | '#' | '\'')) => (c, 1),
        Some('$') if quoted => ('$', 1),
        Some('n') => ('\n', 1),
        Some('r') => ('\r', 1),
        Some('t') => ('\t', 1),
        Some('x') => hex().unwrap_or(('\\', 0)),
        _ => ('\\', 0),
    }
}

/// The value of `$NAME`, `${NAME}` or `${NAME-default}`, and its length behind the dollar; length 0 if it is no variable.
fn variable(rest: &str, environment: Environment<'_>, unset: &mut Vec<String>) -> (String, usize) {
    let braced = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
    let (name, default, length) = match braced {
        Some((inner, _)) => {
            let (name, default) =
                inner.split_once('-').map_or((inner, None), |(name, default)| (name, Some(default)));
            (name.trim_end_matches("[*]"), default, inner.len() + 2)
        }
        None => {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            (&rest[..end], None, end)
        }
    };
    if name.is_empty() {
        return (String::new(), 0);
    }
    let value = environment(name).or_else(|| default.map(str::to_owned));
    if value.is_none() {
        unset.push(name.to_owned());
    }
    (value.unwrap_or_default(), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<String> {
        words(line, &|name| (name == "PORT").then(|| "8080".to_owned())).unwrap().words
    }

    #[test]
    fn quotes_and_escapes() {
        assert_eq!(found("  acl a path_beg /x # comment"), ["acl", "a", "path_beg", "/x"]);
        assert_eq!(found(r"path_reg \.php$ a\ b \#"), ["path_reg", r"\.php$", "a b", "#"]);
        assert_eq!(found(r#"'a "b" \' "it's \"x\"" """#), [r#"a "b" \"#, r#"it's "x""#, ""]);
        assert_eq!(found(r#"a"b c"d'e f'"#), ["ab cde f"]);
        assert_eq!(found(r"x\x41\x"), [r"xA\x"]);
        let unclosed = words("log 'x", &|_| None).unwrap_err();
        assert_eq!((unclosed.at, words(r#"a "b"#, &|_| None).is_err()), (4, true));
    }

    #[test]
    fn variables_are_read_in_double_quotes_only() {
        assert_eq!(
            found(r#""*:$PORT" "${PORT}0" "${ABSENT-1}" $PORT '$PORT'"#),
            ["*:8080", "80800", "1", "$PORT", "$PORT"]
        );
        let words = words(r#"bind "$ABSENT:80" "\$PORT" "$""#, &|_| None).unwrap();
        assert_eq!(words.words, ["bind", ":80", "$PORT", "$"]);
        assert_eq!(words.unset, ["ABSENT"]);
    }
}
