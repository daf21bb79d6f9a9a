//! The cases in tests/import/haproxy and tests/import/kong: what becomes of each configuration, word for word. `UPDATE=1 cargo test -p
//! sluicegate-import --test haproxy_kong_cases` writes the results; read them as the owner of the configuration would.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use sluicegate_import::{Files, Imported, Item, haproxy, kong};

/// How often each file is damaged.
const ROUNDS: usize = 40;

/// The files of one case, by their paths within its folder.
struct Case(PathBuf);

impl Files for Case {
    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(path)).map_err(|_| "no such file".to_owned())
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

fn cases(source: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import").join(source);
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = folders.filter(|path| path.is_dir()).map(Case).collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cases.len() >= 6, "{} cases", cases.len());
    cases
}

fn of_haproxy(case: &Case) -> Imported {
    let text = case.read("haproxy.cfg").unwrap();
    haproxy::import_text(case, "haproxy.cfg", &text, &|_| None)
        .unwrap_or_else(|error| panic!("{}: {error}", case.0.display()))
}

fn of_kong(case: &Case) -> kong::KongImport {
    let text = case.read("kong.yaml").unwrap();
    kong::import_text("kong.yaml", &text).unwrap_or_else(|error| panic!("{}: {error}", case.0.display()))
}

fn compare(case: &Case, imported: &Imported, differ: &mut Vec<String>) {
    let Imported { yaml, report } = imported;
    if let Err(errors) = sluicegate_config::parse_without_files(yaml) {
        panic!("{}: {errors}\n{yaml}", case.0.display());
    }
    for (name, text) in [("gateway.yaml", yaml.clone()), ("report.txt", report.render())] {
        let path = case.0.join(name);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, text).unwrap();
        } else if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            differ.push(format!("{}:\n{text}", path.display()));
        }
    }
}

#[test]
fn results_are_as_written() {
    let mut differ = Vec::new();
    cases("haproxy").iter().for_each(|case| compare(case, &of_haproxy(case), &mut differ));
    cases("kong").iter().for_each(|case| compare(case, &of_kong(case).imported, &mut differ));
    assert!(differ.is_empty(), "not as written (UPDATE=1 writes what is now):\n{}", differ.join("\n"));
}

/// The example in the manual is what the importer writes.
#[test]
fn the_manual_shows_a_real_result() {
    let manual = include_str!("../../../docs/import-haproxy-kong.md");
    let block = |begin: &str| manual.split(begin).nth(1).unwrap().split("```").next().unwrap();
    let (source, expected) = (block("```text\ndefaults"), block("```yaml\n"));
    let case = Case(PathBuf::new());
    let found = haproxy::import_text(&case, "haproxy.cfg", &format!("defaults{source}"), &|_| None).unwrap();
    assert_eq!(found.yaml, expected);
}

#[test]
fn every_line_of_haproxy_is_in_the_report() {
    for case in cases("haproxy") {
        let items = of_haproxy(&case).report.items;
        let text = case.read("haproxy.cfg").unwrap();
        let mut lines = 0;
        for section in haproxy::parse("haproxy.cfg", &text, &|_| None).unwrap() {
            for line in [&section.line].into_iter().chain(&section.lines) {
                let said = |item: &Item| {
                    item.source == line.source && item.directive == line.shown && !item.text.is_empty()
                };
                assert!(items.iter().any(said), "{}: {}: {}", case.0.display(), line.source, line.shown);
                lines += 1;
            }
        }
        let written =
            text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#')).count();
        assert_eq!(lines, written, "{}", case.0.display());
        unknown(&case, &items);
    }
}

/// Every line of the file that has a value is in the report, with the path of its field.
#[test]
fn every_field_of_kong_is_in_the_report() {
    for case in cases("kong") {
        let items = of_kong(&case).imported.report.items;
        for (index, line) in case.read("kong.yaml").unwrap().lines().enumerate() {
            let number = u32::try_from(index + 1).unwrap();
            let text = line.trim().trim_start_matches("- ");
            let Some((_, value)) =
                text.split_once(':').filter(|_| !text.starts_with(['/', '\'', '"', '{', '[', '#']))
            else {
                continue;
            };
            if value.trim().is_empty() {
                continue; // what is below it has items
            }
            assert!(
                items.iter().any(|item| item.source.line == number),
                "{}: {number}: {line}",
                case.0.display()
            );
            for key in
                text.split(['{', ',']).filter_map(|part| part.trim().split_once(": ")).map(|(key, _)| key)
            {
                let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                let said = |item: &Item| {
                    [":", ".", "["].iter().any(|end| item.directive.contains(&format!("{key}{end}")))
                };
                assert!(!plain || items.iter().any(said), "{}: {number}: {key}", case.0.display());
            }
        }
        unknown(&case, &items);
    }
}

fn unknown(case: &Case, items: &[Item]) {
    for item in items {
        assert!(
            !item.text.contains("this importer does not know"),
            "{}: {}",
            case.0.display(),
            item.directive
        );
    }
}

#[test]
fn keys_and_passwords_are_not_in_results() {
    for case in cases("kong") {
        let kong::KongImport { imported, consumers } = of_kong(&case);
        let shown = imported.yaml + &imported.report.render();
        let secrets = consumers.iter().flat_map(|consumer| consumer.keys.iter().map(String::as_str));
        for secret in secrets.chain(["correct-horse", "PRIVATE KEY"]) {
            assert!(!shown.contains(secret), "{}: {secret}", case.0.display());
        }
    }
}

/// Whatever a file has in it, the result is valid or there is a message: lines are left out, repeated, exchanged and cut.
#[test]
fn damaged_files_give_a_message_or_a_valid_result() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    for (source, file) in [("haproxy", "haproxy.cfg"), ("kong", "kong.yaml")] {
        for case in cases(source) {
            let text = case.read(file).unwrap();
            for _ in 0..ROUNDS {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                for _ in 0..=random(3) {
                    let (a, b) = (random(lines.len()), random(lines.len()));
                    match random(4) {
                        0 => drop(lines.remove(a)),
                        1 => lines.swap(a, b),
                        2 => lines.insert(a, lines[b].clone()),
                        _ => {
                            let cut = lines[a]
                                .char_indices()
                                .map(|(at, _)| at)
                                .nth(random(lines[a].chars().count()));
                            lines[a].truncate(cut.unwrap_or(0));
                        }
                    }
                }
                let damaged = lines.join("\n") + "\n";
                let yaml = match source {
                    "haproxy" => {
                        haproxy::import_text(&case, file, &damaged, &|_| None).map(|imported| imported.yaml)
                    }
                    _ => kong::import_text(file, &damaged).map(|found| found.imported.yaml),
                };
                if let Ok(yaml) = yaml
                    && let Err(errors) = sluicegate_config::parse_without_files(&yaml)
                {
                    panic!("{}: {errors}\n--- of\n{damaged}--- became\n{yaml}", case.0.display());
                }
            }
        }
    }
}
