//! Header fields against a model: a plain list of lines.

use http::HeaderMap;
use proptest::prelude::*;

use super::*;

fn lines(fields: &Headers) -> Vec<(String, String)> {
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
    /// After any operations the fields equal those of the model.
    #[test]
    fn fields_equal_the_model(steps in steps()) {
        let mut fields = Headers::with_text(b"Host: x\r\nA:y\r\nB: z \r\n");
        fields.push_at((0, 4), (6, 7)).unwrap();
        fields.push_at((9, 10), (11, 12)).unwrap();
        fields.push_at((14, 15), (17, 18)).unwrap();
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
fn invalid_values_become_empty() {
    let mut fields = Headers::new();
    fields.insert("a", "x\r\nb: y");
    fields.append("b", "\0");
    fields.append("c", "ä\tb");
    assert_eq!(lines(&fields), [("a", ""), ("b", ""), ("c", "ä\tb")].map(|(n, v)| (n.into(), v.into())));
}

#[test]
fn text_is_visible_ascii() {
    assert_eq!(text(b"a b\t~"), Some("a b\t~"));
    for bad in [&b"\xc3\xa4"[..], b"a\x7f", b"\x00"] {
        assert_eq!(text(bad), None);
    }
}

#[test]
fn a_filter_matches_its_names() {
    static FILTER: NameFilter = NameFilter::of(&[b"connection", b"te"]);
    let lines = [("te", "a"), ("x-other", "b"), ("connection", "c"), ("te", "d")];
    let mut fields: Headers = lines.into_iter().collect();
    let like: Vec<_> = fields.matching(&FILTER).map(|(_, value)| value).collect();
    assert_eq!(like, [b"a", b"c", b"d"]);
    fields.retain_matching(&FILTER, |name, known| !known || name == b"connection");
    let left: Vec<_> = fields.iter().map(|(_, value)| value).collect();
    assert_eq!(left, [b"b", b"c"]);
    let mut out = Vec::new();
    fields.write_filtered(&mut out, &FILTER, |_| false);
    assert_eq!(out, b"x-other: b\r\n");
    assert!(fields.any_matching(&FILTER) && !fields.any_matching(&const { NameFilter::of(&[]) }));
}
