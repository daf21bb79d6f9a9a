//! The cases in tests/import/nginx: what becomes of each nginx.conf, word for word. `UPDATE=1 cargo test -p sluicegate-import --test
//! nginx_cases` writes the results; read them as the owner of the nginx.conf would.

#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sluicegate_import::{Files, Imported, Item, Outcome, Report, matches_glob, nginx};

/// The exit code of compare.py if crossplane is not installed.
const NOT_INSTALLED: i32 = 77;

/// The files of one case, by their paths within its folder.
struct Case(PathBuf);

impl Files for Case {
    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(path)).map_err(|error| error.to_string())
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        let mut folders = vec![self.0.clone()];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&self.0).unwrap().to_str().unwrap().to_owned();
                match path.is_dir() {
                    true => folders.push(path),
                    false if matches_glob(pattern, &name) => found.push(name),
                    false => {}
                }
            }
        }
        found.sort();
        found
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import/nginx")
}

fn cases() -> Vec<Case> {
    let folders = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = folders.filter(|path| path.is_dir()).map(Case).collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cases.len() >= 20, "{} cases", cases.len());
    cases
}

fn imported(case: &Case) -> Imported {
    nginx::import(case, "nginx.conf").unwrap_or_else(|error| panic!("{}: {error}", case.0.display()))
}

#[test]
fn results_are_as_written() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut differ = Vec::new();
    for case in cases() {
        let Imported { yaml, report } = imported(&case);
        if let Err(errors) = sluicegate_config::parse_without_files(&yaml) {
            panic!("{}: {errors}\n{yaml}", case.0.display());
        }
        for (name, text) in [("gateway.yaml", yaml), ("report.txt", report.render())] {
            let path = case.0.join(name);
            if update {
                fs::write(&path, text).unwrap();
            } else if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                differ.push(format!("{}:\n{text}", path.display()));
            }
        }
    }
    assert!(differ.is_empty(), "not as written (UPDATE=1 writes what is now):\n{}", differ.join("\n"));
}

/// The places of all directives of a file and of what is in them, except parameters of `types`, `map` and `geo` that include nothing, and
/// the lines of blocks that one item stands for.
fn places(directives: &[nginx::Directive], report: &Report, within: bool, found: &mut Vec<(String, u32)>) {
    for directive in directives {
        let (shown, line) = (directive.shown(), directive.source.line);
        if !within || directive.name == "include" {
            found.push((shown.clone(), line));
        }
        let whole = |item: &Item| {
            item.directive == shown
                && item.source.line == line
                && item.text.contains("(with the lines in it)")
        };
        let is_whole =
            ["types", "map", "geo"].contains(&directive.name.as_str()) || report.items.iter().any(whole);
        places(directive.children(), report, within || is_whole, found);
    }
}

#[test]
fn every_directive_is_in_the_report() {
    for case in cases() {
        let report = imported(&case).report;
        let mut files = vec!["nginx.conf".to_owned()];
        files.extend(report.items.iter().map(|item| item.source.file.clone()));
        files.sort();
        files.dedup();
        for file in files {
            let mut expected = Vec::new();
            let parsed = nginx::parse(&file, &case.read(&file).unwrap()).unwrap();
            places(&parsed, &report, false, &mut expected);
            for (shown, line) in expected {
                let said = |item: &&Item| {
                    let same =
                        item.directive == shown && item.source.file == file && item.source.line == line;
                    same && !item.text.is_empty()
                };
                assert!(
                    report.items.iter().any(|item| said(&item)),
                    "{}: {file}:{line}: {shown}",
                    case.0.display()
                );
            }
        }
        for item in report.items {
            assert!(
                !item.text.contains("importer does not know"),
                "{}: {}",
                case.0.display(),
                item.directive
            );
        }
    }
}

/// What becomes of files that a `map` includes is reported, too.
#[test]
fn includes_of_maps_are_in_the_report() {
    let config = "http { map $http_a $k { default $http_a; include missing.map; } limit_req_zone $k zone=k:1m rate=1r/s;\n\
                  server { listen 80; location / { limit_req zone=k; return 404; } } }";
    let report = nginx::import_text(&Case(folder()), "nginx.conf", config).unwrap().report;
    let include = report.items.iter().find(|item| item.directive == "include missing.map");
    assert_eq!(include.unwrap().outcome, Outcome::Unsupported);
}

/// A check that is not converted closes its route, and the report names it.
#[test]
fn what_is_protected_is_closed() {
    let pass = "proxy_pass http://127.0.0.1:1;";
    let location = |check: &str| format!("server {{ listen 80; location / {{ {check} {pass} }} }}");
    let tls = "listen 443 ssl; ssl_certificate a; ssl_certificate_key b;";
    let one = |ca: &str, verify: &str| {
        format!(
            "server {{ {tls} ssl_client_certificate {ca}; ssl_verify_client {verify}; server_name {ca}; location / {{ {pass} }} }}"
        )
    };
    for (servers, directive, closed) in [
        (location("access_by_lua_block { ngx.exit(403) }"), "access_by_lua_block", 1),
        (location("auth_digest x;"), "auth_digest x", 1),
        (location("js_access a.check;"), "js_access a.check", 1),
        (location("limit_except GET { limit_rate 1k; }"), "limit_except GET", 1),
        (location("if ($secure_link = \"\") { return 403; }"), "if ($secure_link", 1),
        (location("valid_referers a.test; if ($invalid_referer) { return 403; }"), "if ($invalid_referer", 1),
        (location("set $b 0; if ($arg_a) { set $b 1; } if ($b) { return 403; }"), "if ($b", 1),
        (format!("geo $bad {{ ranges; }} {}", location("if ($bad) { return 403; }")), "geo $bad", 1),
        (location("if ($ssl_client_verify != SUCCESS) { return 403; }"), "if ($ssl_client_verify", 1),
        (location("if ($cookie_a = \"\") { return 302 /login; }"), "if ($cookie_a", 1),
        (location("if ($http_user_agent ~ mobile) { return 302 /m; }"), "if ($http_user_agent", 0),
        (
            format!("server {{ listen 80; if ($bad) {{ return 444; }} location / {{ {pass} }} }}"),
            "if ($bad)",
            1,
        ),
        (one("a", "on") + &one("b", "on"), "ssl_verify_client on", 1),
        (one("a", "on") + &one("a", "off"), "ssl_verify_client on", 1),
        (one("a", "on") + &one("a", "on").replace("server_name a", "server_name b"), "", 0),
        (
            format!(
                "server {{ listen 80; location / {{ {pass} }} }} server {{ listen 127.0.0.1:80; server_name p; location / {{ {pass} }} }}"
            ),
            "listen 127.0.0.1:80",
            1,
        ),
        (
            format!(
                "server {{ listen 80; location / {{ {pass} }} }} server {{ listen 80; server_name ~^(?=a); location / {{ deny all; {pass} }} }}"
            ),
            "server_name",
            1,
        ),
    ] {
        let config = format!("http {{ {servers} }}");
        let Imported { yaml, report } = nginx::import_text(&Case(folder()), "nginx.conf", &config).unwrap();
        sluicegate_config::parse_without_files(&yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
        assert_eq!(yaml.matches("deny: [everybody]").count(), closed, "{config}\n{yaml}");
        let named =
            |item: &Item| item.outcome == Outcome::Unsupported && item.directive.starts_with(directive);
        assert!(closed == 0 || report.items.iter().any(named), "{directive}: {}", report.render());
    }
}

/// What is not protected or limited any more comes first, and a block that is left out is one item.
#[test]
fn losses_come_first() {
    let config = "http { gzip on; limit_req_zone $remote_user zone=users:1m rate=1r/s; limit_req zone=users;\n\
                  server { listen 80;\n location ~ \\.php$ { fastcgi_pass a; fastcgi_param b c; fastcgi_param d e; }\n\
                  location / { proxy_pass http://127.0.0.1:1; } } }";
    let Imported { yaml, report } = nginx::import_text(&Case(folder()), "nginx.conf", config).unwrap();
    let shown = report.render();
    let place = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text}: {shown}"));
    assert!(place("this location has no limit now: `limit_req zone=users`") < place("gzip on"), "{shown}");
    assert!(!shown.contains("fastcgi_param"), "{shown}");
    assert!(yaml.contains("# nginx.conf:4, it has no limit now: `limit_req zone=users`"), "{yaml}");
}

/// The client that another header names reaches the servers, and what clients claim does not.
#[test]
fn the_address_of_the_client_is_forwarded() {
    for (header, value, outcome) in [
        ("X-Real-IP", "$remote_addr", Outcome::Converted),
        ("X-Real-IP", "$proxy_add_x_forwarded_for", Outcome::Approximated),
        ("X-Forwarded-For", "$remote_addr", Outcome::Converted),
    ] {
        let config = format!(
            "http {{ set_real_ip_from 127.0.0.1; real_ip_header {header}; server {{ listen 80; location / {{ proxy_pass http://127.0.0.1:1;\n\
             proxy_set_header X-Forwarded-For {value}; }} }} }}"
        );
        let Imported { yaml, report } = nginx::import_text(&Case(folder()), "nginx.conf", &config).unwrap();
        assert!(yaml.contains("X-Forwarded-For: \"{client_ip}\""), "{yaml}");
        let item = report.items.iter().find(|item| item.directive.starts_with("proxy_set_header"));
        assert_eq!(item.unwrap().outcome, outcome);
    }
}

#[test]
fn locations_are_bounded() {
    let locations: String =
        (0..5_001).map(|number| format!("location /{number} {{ return 204; }}")).collect();
    let config = format!("http {{ server {{ listen 80; {locations} }} }}");
    let error = nginx::import_text(&Case(folder()), "nginx.conf", &config).unwrap_err();
    assert!(error.contains("more than 5000 routes"), "{error}");
}

/// Directives as compare.py gets them.
fn tree(directives: &[nginx::Directive]) -> Vec<Value> {
    let one = |directive: &nginx::Directive| {
        let block = directive.block.as_ref().map(|_| tree(directive.children()));
        json!({"name": directive.name, "args": directive.args, "line": directive.source.line, "block": block})
    };
    directives.iter().map(one).collect()
}

/// The parser agrees with crossplane, nginx's own parser in Python, on all files of all cases.
#[test]
fn crossplane_reads_the_same() {
    let mut files = Vec::new();
    for case in cases() {
        let mut names = case.glob("*.conf");
        names.extend(case.glob("*/*.conf"));
        names.extend(case.glob("*/*.inc"));
        for name in names {
            let parsed = nginx::parse(&name, &case.read(&name).unwrap()).unwrap();
            files.push(json!({"path": case.0.join(name), "directives": tree(&parsed)}));
        }
    }
    let python = std::env::var("SLUICEGATE_CROSSPLANE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(&python);
    command.arg(folder().join("../compare.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("SKIPPED: {python} is not installed");
        return;
    };
    let input = serde_json::to_vec(&files).unwrap();
    let _ = child.stdin.take().unwrap().write_all(&input); // it may end before it has read all
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(NOT_INSTALLED) {
        eprintln!(
            "SKIPPED: crossplane is not installed: pip install crossplane, and SLUICEGATE_CROSSPLANE_PYTHON=VENV/bin/python"
        );
        return;
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("{} files", files.len())), "{said}");
}
