//! Every mistake in gateway.yaml has its own message, and the message is part of the product.
//!
//! `tests/config/bad` holds one file per mistake with the exact report beside it, `doubtful` the same for
//! warnings, `good` files of which nothing is to be said. `UPDATE=1 cargo test --test decide config::` writes the reports
//! and gateway.schema.json anew; read the difference before you commit it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sluicegate_config::{RedisAddress, RedisServers, Secret};
use sluicegate_gateway::resources::{Loaded, parse};

/// A folder of this test's files, as seen from the root of the repository: tests run there.
fn folder(name: &str) -> PathBuf {
    Path::new("tests/config").join(name)
}

/// The files of a folder with this extension, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    files.sort();
    files
}

/// Reads a file as `sluicegate check` does, under its bare name.
fn load(path: &Path) -> Loaded {
    close_to_others();
    let name = path.file_name().unwrap().to_str().unwrap();
    parse(fs::read_to_string(path).unwrap(), name, path.parent().unwrap())
}

/// Version control does not keep who may read a file, and `check` warns of consumers that everybody may.
fn close_to_others() {
    for file in [
        "good/consumers/consumers.yaml",
        "doubtful/consumers/none.yaml",
        "doubtful/consumers/plans.yaml",
        "manual/consumers.yaml",
    ] {
        fs::set_permissions(folder(file), fs::Permissions::from_mode(0o640)).unwrap();
    }
}

fn updating() -> bool {
    std::env::var_os("UPDATE").is_some()
}

/// Compares a text with a file, or writes it there; what differs is added to `wrong`.
pub(crate) fn compare(found: &str, file: &Path, wrong: &mut String) {
    if updating() {
        fs::write(file, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    if found != expected {
        *wrong += &format!("\n{}\n--- expected\n{expected}--- found\n{found}", file.display());
    }
}

/// Compares the report on every file of a folder. `complaint` says what is wrong with a file apart from its words.
fn compare_reports(folder: &Path, complaint: impl Fn(&Loaded) -> Option<&'static str>) {
    let mut wrong = String::new();
    let all = files(folder, "yaml");
    assert!(!all.is_empty(), "{} holds no files", folder.display());
    for file in &all {
        let loaded = load(file);
        let form =
            || (!is_well_formed(file, &loaded)).then_some("has a report that is broken, or tells a secret");
        if let Some(complaint) = complaint(&loaded).or_else(form) {
            wrong += &format!("\n{} {complaint}\n{}", file.display(), loaded.rendered);
        }
        compare(&loaded.rendered, &file.with_extension("expected"), &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong}\nUPDATE=1 writes what was found, if that is what you want.");
    for expected in files(folder, "expected") {
        assert!(expected.with_extension("yaml").exists(), "{} has lost its file", expected.display());
    }
}

/// Every line of a report begins with the place, or is indented below one; and reports go to logs, so the one secret
/// of these files is in none.
fn is_well_formed(file: &Path, loaded: &Loaded) -> bool {
    let place = format!("{}:", file.file_name().unwrap().display());
    let good = |line: &str| line.starts_with(&place) || line.starts_with("  ");
    loaded.rendered.lines().all(good) && !loaded.rendered.contains("sesame")
}

#[test]
fn every_mistake_has_its_message() {
    compare_reports(&folder("bad"), |loaded| match (&loaded.config, loaded.report.errors.is_empty()) {
        (Some(_), _) => Some("was accepted"),
        (None, true) => Some("was refused without a word"),
        (None, false) => None,
    });
}

#[test]
fn every_warning_has_its_message() {
    compare_reports(&folder("doubtful"), |loaded| {
        match (&loaded.config, loaded.report.warnings.is_empty()) {
            (None, _) => Some("was refused"),
            (Some(_), true) => Some("raised no doubt"),
            (Some(_), false) => None,
        }
    });
}

/// The good files, and the one that is shipped.
fn good() -> Vec<PathBuf> {
    let mut good = files(&folder("good"), "yaml");
    good.push(PathBuf::from("gateway.yaml"));
    good
}

#[test]
fn a_good_file_has_no_report() {
    for file in good() {
        let loaded = load(&file);
        assert_eq!(loaded.rendered, "", "{}", file.display());
        assert!(loaded.config.is_some(), "{} has no configuration", file.display());
    }
}

/// What is written in a URL and what is written beside it mean the same.
#[test]
fn a_store_is_read_as_written() {
    let store = |name: &str| load(&folder("good").join(name)).config.unwrap().config.store.clone().unwrap();
    let tcp = |host: &str, port| RedisAddress::Tcp { host: host.to_owned(), port };

    let beside = store("store.yaml");
    assert_eq!(beside.servers, RedisServers::Single(tcp("redis.internal", 6379)));
    assert_eq!((beside.username.as_deref(), beside.password.reveal()), (Some("app"), "sesame"));
    assert_eq!((beside.database, beside.timeout), (2, Duration::from_millis(20)));
    assert_eq!(beside.prefix, "sluicegate:eu-1");
    let tls = beside.tls.unwrap();
    assert_eq!(tls.ca.unwrap().bytes, fs::read(folder("good").join("redis-ca.pem")).unwrap());
    assert_eq!(tls.client.unwrap().1.bytes, fs::read(folder("good").join("redis-client.key")).unwrap());

    let inside = store("store-in-the-url.yaml");
    assert_eq!(inside.servers, RedisServers::Single(tcp("localhost", 6380)));
    assert_eq!((inside.username.as_deref(), inside.password.reveal()), (Some("app"), "ses@me"));
    assert_eq!((inside.database, inside.timeout), (3, Duration::from_millis(50)));
    assert!(inside.tls.is_none() && inside.prefix == "sluicegate");

    let cluster = store("store-cluster.yaml").servers;
    let nodes = vec![tcp("10.0.0.1", 7000), tcp("2001:db8::1", 6379), tcp("redis-3.internal", 7000)];
    assert_eq!(cluster, RedisServers::Cluster(nodes));

    let sentinel = store("store-sentinel.yaml");
    let nodes = vec![tcp("10.0.0.1", 26379), tcp("10.0.0.2", 26379)];
    let (username, password) = (Some("watcher".to_owned()), Secret::new("sesame"));
    let expected = RedisServers::Sentinel { master: "main".to_owned(), nodes, username, password };
    assert_eq!(sentinel.servers, expected);
    assert!(sentinel.tls.is_some() && sentinel.username.is_none() && !sentinel.password.is_empty());

    let socket = store("store-socket.yaml");
    assert_eq!(socket.servers, RedisServers::Single(RedisAddress::Unix("/run/redis/redis.sock".into())));
    assert_eq!((socket.database, socket.timeout), (1, Duration::from_secs(1)));

    let halves = store("store-user-in-the-url.yaml");
    assert_eq!((halves.username.as_deref(), halves.password.reveal()), (Some("app"), "sesame"));
}

/// A good file keeps being good with other line ends and behind a byte order mark.
#[test]
fn editors_of_all_systems_may_write_the_file() {
    close_to_others();
    for file in good() {
        let text = fs::read_to_string(&file).unwrap();
        let parent = file.parent().unwrap();
        for variant in [text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
            let loaded = parse(variant, "gateway.yaml", parent);
            assert_eq!(loaded.rendered, "", "{}", file.display());
        }
    }
}

/// Any beginning of a file is what the gateway may see while an editor writes: it is read without a panic, and
/// every place it is told of is a place of the file.
#[test]
fn a_truncated_file_is_reported() {
    for file in good().into_iter().chain(files(&folder("bad"), "yaml")) {
        let text = fs::read_to_string(&file).unwrap();
        let parent = file.parent().unwrap();
        for (end, _) in text.char_indices().step_by(7) {
            let loaded = parse(text[..end].to_owned(), "gateway.yaml", parent);
            let lines = text[..end].lines().count() as u64 + 1;
            for problem in loaded.report.errors.iter().chain(&loaded.report.warnings) {
                assert!(problem.at.line <= lines, "{}: {problem:?} in {lines} lines", file.display());
            }
        }
    }
}

/// However far a store is typed, and wherever its password stands by mistake, no report tells it.
#[test]
fn a_truncated_store_reveals_no_secret() {
    let all = ["good", "bad", "doubtful"].into_iter().flat_map(|name| files(&folder(name), "yaml"));
    for file in all.filter(|file| file.file_name().unwrap().to_str().unwrap().starts_with("store")) {
        let text = fs::read_to_string(&file).unwrap();
        for (end, _) in text.char_indices() {
            let rendered = parse(text[..end].to_owned(), "gateway.yaml", file.parent().unwrap()).rendered;
            assert!(!rendered.contains("sesame"), "{}: {rendered}", file.display());
        }
    }
}

#[test]
fn the_schema_in_the_repository_is_this_one() {
    let file = Path::new("gateway.schema.json");
    let mut wrong = String::new();
    compare(&format!("{:#}\n", sluicegate_config::schema()), file, &mut wrong);
    assert!(wrong.is_empty(), "{wrong}\n`UPDATE=1 cargo test --test decide config` brings it up to date.");
}

/// What the good files use is what the schema knows, in both directions: a field that works is in a good file.
#[test]
fn the_schema_knows_every_field() {
    let schema = sluicegate_config::schema();
    let mut walk = Walk { schema: &schema, used: HashSet::new() };
    for file in good() {
        walk.value(&yaml(&fs::read_to_string(&file).unwrap()), &[&schema], &file.display().to_string());
    }
    let mut unused = Vec::new();
    properties(&schema, "", &mut |place, property| {
        if !walk.used.contains(&std::ptr::from_ref(property)) {
            unused.push(place.to_owned());
        }
    });
    assert!(unused.is_empty(), "no good file uses {unused:#?}");
}

/// The examples of the manual: of a whole file nothing is to be said, and a section has no key that the schema does not know.
#[test]
fn the_manual_is_right() {
    close_to_others();
    let schema = sluicegate_config::schema();
    let mut walk = Walk { schema: &schema, used: HashSet::new() };
    let others = ["operations", "redis", "distributed"].map(|page| format!("docs/{page}.md"));
    for page in ["README.md", "docs/configuration.md"].into_iter().chain(others.iter().map(String::as_str)) {
        let text = fs::read_to_string(page).unwrap();
        for example in text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            let value = yaml(example);
            let has = |key: &str| value.get(key).is_some();
            if has("listen") && has("routes") {
                assert_eq!(parse(example.to_owned(), page, &folder("manual")).rendered, "");
            } else if value
                .as_object()
                .is_some_and(|map| map.keys().all(|key| schema["properties"][key].is_object()))
            {
                walk.value(&value, &[&schema], page);
            }
        }
    }
}

/// The file in the example for Kubernetes is good.
#[test]
fn the_file_for_kubernetes_is_right() {
    let text = fs::read_to_string("deploy/kubernetes.yaml").unwrap();
    let map = yaml(text.split("---\n").next().unwrap());
    let file = map["data"]["gateway.yaml"].as_str().unwrap();
    let loaded = parse(file.to_owned(), "gateway.yaml", Path::new(""));
    assert!(loaded.config.is_some(), "{}", loaded.rendered);
}

/// A text as the gateway reads it, for which `off` is a word.
fn yaml(text: &str) -> Value {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).unwrap()
}

/// Calls `see` for every property below a schema.
fn properties(schema: &Value, place: &str, see: &mut impl FnMut(&str, &Value)) {
    match schema {
        Value::Object(members) => {
            for (word, member) in members {
                for (name, property) in
                    member.as_object().filter(|_| word == "properties").into_iter().flatten()
                {
                    see(&format!("{place}/{name}"), property);
                }
                properties(member, &format!("{place}/{word}"), see);
            }
        }
        Value::Array(members) => members.iter().for_each(|member| properties(member, place, see)),
        _ => {}
    }
}

/// A walk through files beside the schema.
struct Walk<'a> {
    schema: &'a Value,
    /// The properties that were met.
    used: HashSet<*const Value>,
}

impl<'a> Walk<'a> {
    /// All that a schema may mean: references followed, alternatives side by side.
    fn open(&self, schemas: &[&'a Value]) -> Vec<&'a Value> {
        let mut open = schemas.to_vec();
        let mut at = 0;
        while let Some(schema) = open.get(at).copied() {
            let reference = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
            open.extend(reference.and_then(|reference| self.schema.pointer(reference)));
            for word in ["anyOf", "allOf", "oneOf"] {
                open.extend(schema[word].as_array().into_iter().flatten());
            }
            at += 1;
        }
        open
    }

    fn value(&mut self, value: &Value, schemas: &[&'a Value], place: &str) {
        let open = self.open(schemas);
        match value {
            Value::Object(entries) => {
                for (key, value) in entries {
                    if open.iter().any(|schema| schema["patternProperties"]["^x-"].is_object())
                        && key.starts_with("x-")
                    {
                        continue;
                    }
                    let place = format!("{place}: {key}");
                    let mut next = Vec::new();
                    for schema in &open {
                        if let Some(property) = schema["properties"].get(key) {
                            self.used.insert(std::ptr::from_ref(property));
                            next.push(property);
                        }
                        next.extend(schema.get("additionalProperties").filter(|more| more.is_object()));
                    }
                    assert!(!next.is_empty(), "the schema does not know {place}");
                    self.value(value, &next, &place);
                }
            }
            Value::Array(items) => {
                let next: Vec<&Value> = open.iter().filter_map(|schema| schema.get("items")).collect();
                assert!(!next.is_empty(), "the schema knows no list at {place}");
                items.iter().for_each(|item| self.value(item, &next, place));
            }
            scalar => {
                let kinds: Vec<&str> = open
                    .iter()
                    .flat_map(|schema| match &schema["type"] {
                        Value::String(kind) => vec![kind.as_str()],
                        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
                        _ => Vec::new(),
                    })
                    .collect();
                let kind = match scalar {
                    Value::String(_) => "string",
                    Value::Bool(_) => "boolean",
                    Value::Null => "null",
                    Value::Number(number) if number.is_f64() || kinds.contains(&"number") => "number",
                    _ => "integer",
                };
                assert!(kinds.contains(&kind), "the schema wants {kinds:?} at {place}, not {scalar}");
            }
        }
    }
}
