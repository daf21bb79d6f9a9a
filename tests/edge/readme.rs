//! The lists of the README: what the program does, and what it does not have.

use crate::harness::folder::text;
use crate::harness::{Folder, program};
use regex::Regex;
use serde_json::Value;

const README: &str = include_str!("../../README.md");

/// The texts in backticks of the second column of the table below a heading.
fn listed(heading: &str) -> Vec<String> {
    let (_, section) = README.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(2);
    let code = Regex::new("`([^`]+)`").unwrap();
    let mut all = Vec::new();
    for row in rows {
        let second = row.rsplit_once(" | ").unwrap().1;
        let before = all.len();
        all.extend(code.captures_iter(second).map(|found| found[1].to_owned()));
        assert!(all.len() > before, "nothing to check in: {row}");
    }
    all
}

/// The fields of a place in the schema: of a mapping, of the entries of a list or a mapping of names, and of all forms.
fn fields<'s>(root: &'s Value, at: &'s Value, all: &mut Vec<(&'s str, &'s Value)>) {
    if let Some(reference) = at["$ref"].as_str() {
        fields(root, root.pointer(&reference[1..]).unwrap(), all);
    }
    all.extend(
        at["properties"].as_object().into_iter().flatten().map(|(name, field)| (name.as_str(), field)),
    );
    for below in [&at["items"], &at["additionalProperties"]].into_iter().filter(|below| below.is_object()) {
        fields(root, below, all);
    }
    at["anyOf"].as_array().into_iter().flatten().for_each(|form| fields(root, form, all));
}

/// Whether the file can have this field: `limits.ban`, say.
fn is_field(root: &Value, path: &str) -> bool {
    let mut at = root;
    path.split('.').all(|name| {
        let mut all = Vec::new();
        fields(root, at, &mut all);
        let found = all.into_iter().find(|(field, _)| *field == name);
        found.inspect(|(_, field)| at = field).is_some()
    })
}

/// Every feature names the fields and commands that have it, and the program knows them.
#[test]
fn listed_features_exist() {
    let schema = serde_json::from_slice(&program().arg("schema").output().unwrap().stdout).unwrap();
    let features = listed("What it does");
    assert!(features.len() > 40, "{features:?}");
    for feature in features {
        let Some(command) = feature.strip_prefix("sluicegate ") else {
            assert!(is_field(&schema, &feature), "there is no field `{feature}`");
            continue;
        };
        let (commands, options): (Vec<&str>, Vec<&str>) =
            command.split(' ').partition(|word| !word.starts_with('-'));
        let output = program().args(commands).arg("--help").output().unwrap();
        let help = text(&output);
        assert_eq!(output.status.code(), Some(0), "{feature}: {help}");
        assert!(options.iter().all(|option| help.contains(option)), "{feature}: {help}");
    }
}

/// What is missing is refused, so that nobody believes it is there; and it stands in no other list.
#[test]
fn features_listed_as_missing_are_refused() {
    let missing = listed("What it does not have");
    assert!(missing.len() > 1, "{missing:?}");
    let without = |place: &str| {
        format!(
            "listen: [{{address: 127.0.0.1:18080, tls: {{certificates: []{}}}{}}}]\n\
             limits: {{l: {{key: ip, rate: 1/s{}}}}}\nroutes: [{{respond: {{status: 200}}, limits: [l]{}}}]\n{}",
            if place == "listen.tls" { ", FIELD" } else { "" },
            if place == "listen" { ", FIELD" } else { "" },
            if place == "limits" { ", FIELD" } else { "" },
            if place == "routes" { ", FIELD" } else { "" },
            match place {
                "" => "FIELD\n",
                "rules" => "rules: {FIELD}\n",
                _ => "",
            },
        )
    };
    for feature in missing {
        if let Some(command) = feature.strip_prefix("sluicegate ") {
            let output = program().arg(command).output().unwrap();
            assert!(text(&output).contains("unrecognized subcommand"), "{feature}: {}", text(&output));
            continue;
        }
        let (path, value) = feature.split_once(": ").unwrap_or((&feature, "{}"));
        let (place, name) = path.rsplit_once('.').unwrap_or(("", path));
        let file = without(place);
        assert!(file.contains("FIELD"), "where is {place}?");
        let file = file.replace("FIELD", &format!("{name}: {value}"));
        let output = Folder::with(&[("gateway.yaml", &file)]).run(&["check"]);
        let shown = text(&output);
        let refused = shown.lines().any(|line| {
            line.contains(&format!("unknown key `{name}`"))
                || line.contains(&format!("`{name}` is not available"))
                || line.contains(&format!("`{name}: {value}` is not available"))
        });
        assert!(refused, "{feature} is not refused:\n{shown}");
    }
}
