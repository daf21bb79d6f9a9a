//! Fields against a plain list of lines.

use http::HeaderMap;
use proptest::prelude::*;

use super::*;

fn lines(fields: &Fields) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    fields.iter().map(|(name, value)| (text(name), text(value))).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize, String),
    Insert(usize, String),
    Remove(usize),
}

const NAMES: [&str; 6] = ["a", "b", "host", "hast", "x-forwarded-for", "x-forwarded-fur"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES.len();
    let step = prop_oneof![
        (name.clone(), "[a-z ]{0,20}").prop_map(|(name, value)| Step::Append(name, value)),
        (name.clone(), "[a-z ]{0,20}").prop_map(|(name, value)| Step::Insert(name, value)),
        name.prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 0..40)
}

proptest! {
    /// Whatever is done, the fields are what a plain list of lines would be.
    #[test]
    fn as_a_list(steps in steps()) {
        let mut fields = Fields::of_head(b"Host: x\r\nA:y\r\nB: z \r\n");
        fields.tell((0, 4), (6, 7)).unwrap();
        fields.tell((9, 10), (11, 12)).unwrap();
        fields.tell((14, 15), (17, 18)).unwrap();
        let mut list: Vec<_> =
            [("host", "x"), ("a", "y"), ("b", "z")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        for step in steps {
            match step {
                Step::Append(name, value) => {
                    fields.append(NAMES[name], &value);
                    list.push((NAMES[name].to_owned(), value));
                }
                Step::Insert(name, value) => {
                    fields.insert(NAMES[name], &value);
                    match list.iter().position(|(known, _)| known == NAMES[name]) {
                        Some(at) => {
                            list[at].1 = value;
                            let mut index = 0;
                            list.retain(|(known, _)| {
                                index += 1;
                                known != NAMES[name] || index == at + 1
                            });
                        }
                        None => list.push((NAMES[name].to_owned(), value)),
                    }
                }
                Step::Remove(name) => {
                    let there = list.iter().any(|(known, _)| known == NAMES[name]);
                    list.retain(|(known, _)| known != NAMES[name]);
                    prop_assert_eq!(fields.remove(NAMES[name]), there);
                }
            }
            prop_assert_eq!(lines(&fields), list.clone());
            for name in NAMES {
                let all: Vec<&[u8]> = fields.get_all(name).collect();
                let wanted = list.iter().filter(|(known, _)| known == name);
                let wanted: Vec<&[u8]> = wanted.map(|(_, value)| value.as_bytes()).collect();
                prop_assert_eq!(fields.get(name), wanted.first().copied());
                prop_assert_eq!(fields.only(name).is_some(), wanted.len() == 1);
                prop_assert_eq!(all, wanted);
            }
        }
        let map = HeaderMap::from(fields.clone());
        prop_assert_eq!(map.len(), fields.len());
        let mut out = Vec::new();
        fields.write(&mut out);
        let written: String = list.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        prop_assert_eq!(String::from_utf8(out).unwrap(), written);
    }
}

#[test]
fn nothing_breaks_a_line() {
    let mut fields = Fields::new();
    fields.insert("a", "x\r\nb: y");
    fields.append("b", "\0");
    fields.append("c", "ä\tb");
    assert_eq!(lines(&fields), [("a", ""), ("b", ""), ("c", "ä\tb")].map(|(n, v)| (n.into(), v.into())));
}

#[test]
fn values_as_text() {
    assert_eq!(text(b"a b\t~"), Some("a b\t~"));
    for bad in [&b"\xc3\xa4"[..], b"a\x7f", b"\x00"] {
        assert_eq!(text(bad), None);
    }
}

#[test]
fn names_that_are_looked_for_together() {
    static LOOKS: Looks = Looks::of(&[b"connection", b"te"]);
    let lines = [("te", "a"), ("x-other", "b"), ("connection", "c"), ("te", "d")];
    let mut fields: Fields = lines.into_iter().collect();
    let like: Vec<_> = fields.like(&LOOKS).map(|(_, value)| value).collect();
    assert_eq!(like, [b"a", b"c", b"d"]);
    fields.sift(&LOOKS, |name, known| !known || name == b"connection");
    let left: Vec<_> = fields.iter().map(|(_, value)| value).collect();
    assert_eq!(left, [b"b", b"c"]);
    let mut out = Vec::new();
    fields.write_some(&mut out, &LOOKS, |_| false);
    assert_eq!(out, b"x-other: b\r\n");
    assert!(fields.any_like(&LOOKS) && !fields.any_like(&const { Looks::of(&[]) }));
}
