//! The cases in tests/import of sources in YAML: what becomes of each, word for word. `UPDATE=1 cargo test -p sluicegate-import --test
//! yaml_cases` writes the results; read them as the owner of the source would.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use sluicegate_config::{YamlNode, YamlValue, parse_yaml};
use sluicegate_import::{Imported, kubernetes, ratelimit, traefik};

const SOURCES: [&str; 3] = ["ratelimit", "kubernetes", "traefik"];

/// A case: its folder, and the files of its source.
struct Case {
    source: &'static str,
    folder: PathBuf,
    files: Vec<(String, String)>,
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn cases() -> Vec<Case> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import");
    let mut cases = Vec::new();
    for source in SOURCES {
        let folders = entries(&all.join(source));
        assert!(folders.len() >= 6, "{source}: {} cases", folders.len());
        for folder in folders {
            let file = |path: PathBuf| {
                (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap())
            };
            let files = entries(&folder.join("input")).into_iter().map(file).collect();
            cases.push(Case { source, folder, files });
        }
    }
    cases
}

fn import(case: &Case) -> Imported {
    let imported = match case.source {
        "ratelimit" => ratelimit::import("input", &case.files, &ratelimit::Meanings::new()),
        "kubernetes" => kubernetes::import("input", &case.files),
        _ => traefik::import("input", &case.files),
    };
    imported.unwrap_or_else(|error| panic!("{}: {error}", case.folder.display()))
}

#[test]
fn results_are_as_written() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut differ = Vec::new();
    for case in cases() {
        let Imported { yaml, report } = import(&case);
        if let Err(errors) = sluicegate_config::parse_without_files(&yaml) {
            panic!("{}: {errors}\n{yaml}", case.folder.display());
        }
        for (name, text) in [("gateway.yaml", yaml), ("report.txt", report.render())] {
            let path = case.folder.join(name);
            if update {
                fs::write(&path, text).unwrap();
            } else if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                differ.push(format!("{}:\n{text}", path.display()));
            }
        }
    }
    assert!(differ.is_empty(), "not as written (UPDATE=1 writes what is now):\n{}", differ.join("\n"));
}

/// The paths of all fields with a value that is no mapping and no list of mappings, as the report writes them.
fn paths(node: &YamlNode, path: &str, found: &mut Vec<String>) {
    let scalar = |node: &YamlNode| matches!(node.value, YamlValue::Null | YamlValue::Scalar(_));
    match &node.value {
        YamlValue::Map(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                let YamlValue::Scalar(key) = &key.value else { panic!("{path}") };
                paths(value, &if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, found);
            }
        }
        YamlValue::List(items) if !items.iter().all(scalar) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| paths(item, &format!("{path}[{index}]"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn every_field_is_in_the_report() {
    let mut fields = 0;
    for case in cases() {
        let report = import(&case).report;
        for (file, text) in &case.files {
            let mut expected = Vec::new();
            for document in text.split("---\n") {
                paths(&parse_yaml(document).unwrap(), "", &mut expected);
            }
            fields += expected.len();
            for path in &expected {
                let wanted = expected.iter().filter(|other| *other == path).count();
                let items = report.items.iter().filter(|item| {
                    item.source.file == *file
                        && item.directive.starts_with(&format!("{path}:"))
                        && !item.text.is_empty()
                });
                let mut lines: Vec<_> = items.map(|item| item.source.line).collect();
                lines.dedup();
                assert!(lines.len() >= wanted, "{}: {file}: {path}: {lines:?}", case.folder.display());
            }
        }
    }
    assert!(fields > 400, "{fields}");
}

#[test]
fn secrets_are_not_in_the_report() {
    for case in cases() {
        let report = import(&case).report.render();
        for secret in ["c2VjcmV0", "$apr1$"] {
            assert!(!report.contains(secret), "{}", case.folder.display());
        }
    }
}

#[test]
fn keys_that_have_no_conventional_meaning_can_be_given_one() {
    let file =
        "domain: a\ndescriptors:\n  - {key: user_id, rate_limit: {unit: minute, requests_per_unit: 5}}\n";
    let files = [("a.yaml".to_owned(), file.to_owned())];
    let meanings = ratelimit::Meanings::from([("user_id".to_owned(), "header:X-User-Id".to_owned())]);
    let yaml = ratelimit::import("a.yaml", &files, &meanings).unwrap().yaml;
    let limit = "user_id: {key: header:X-User-Id, on_missing: skip, algorithm: fixed_window, rate: 5/min}";
    assert!(yaml.contains(limit), "{yaml}");
}

#[test]
fn sources_without_anything_to_convert_are_errors() {
    let files = [("a.yaml".to_owned(), "a: 1\n".to_owned())];
    for error in [
        ratelimit::import("a.yaml", &files, &ratelimit::Meanings::new()).unwrap_err(),
        kubernetes::import("a.yaml", &files).unwrap_err(),
        traefik::import("a.yaml", &files).unwrap_err(),
    ] {
        assert!(error.starts_with("a.yaml: ") && error.contains("\n  help: "), "{error}");
    }
}

/// The text with line `at` removed, or with another value in it.
fn mutation(text: &str, at: usize, value: Option<&str>) -> String {
    let changed = |(index, line): (usize, &str)| match (index == at, value, line.find(": ")) {
        (true, None, _) => None,
        (true, Some(value), Some(end)) => Some(format!("{}: {value}", &line[..end])),
        _ => Some(line.to_owned()),
    };
    text.lines().enumerate().filter_map(changed).collect::<Vec<_>>().join("\n")
}

/// No source makes an importer panic or write a file that `sluicegate check` refuses.
#[test]
fn results_of_changed_sources_are_valid() {
    let values =
        [None, Some("-1"), Some("99999999999999999999"), Some("a b/{c}:$d"), Some("[]"), Some("{x: [y]}")];
    let mut imported = 0;
    for mut case in cases() {
        for file in 0..case.files.len() {
            let original = case.files[file].1.clone();
            for at in 0..original.lines().count() {
                for value in values {
                    case.files[file].1 = mutation(&original, at, value);
                    let result = match case.source {
                        "ratelimit" => ratelimit::import("input", &case.files, &ratelimit::Meanings::new()),
                        "kubernetes" => kubernetes::import("input", &case.files),
                        _ => traefik::import("input", &case.files),
                    };
                    let Ok(result) = result else { continue };
                    imported += 1;
                    if let Err(errors) = sluicegate_config::parse_without_files(&result.yaml) {
                        panic!("{}\n{}\n{errors}", case.folder.display(), case.files[file].1);
                    }
                }
            }
            case.files[file].1 = original;
        }
    }
    assert!(imported > 1000, "{imported}");
}
