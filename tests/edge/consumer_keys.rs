//! Keys of a consumer are added and removed, one by one and all at once, while a gateway serves.

use std::process::Output;

use crate::harness::folder::text;
use crate::harness::{Folder, Gateway, Setup, deadline, program, until};
use aws_lc_rs::digest::{SHA256, digest};

const RULES: &str = "auth: {api_key: {consumers: consumers.yaml, required: true}}\n\
                     routes: [{name: all, respond: {status: 200}}]\n";

fn hashed(key: &str) -> String {
    let digest = digest(&SHA256, key.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn consumers(gateway: &Gateway, arguments: &[&str]) -> Output {
    program().arg("consumers").args(arguments).current_dir(gateway.path("")).output().unwrap()
}

fn becomes(gateway: &Gateway, key: &str, status: u16) {
    until(&format!("{key} is answered {status}"), || {
        (gateway.ask("GET", "/", &[("x-api-key", key)]).status == status).then_some(())
    });
}

/// A second key comes beside the first, the first one goes, and no client is refused in between.
#[test]
fn a_key_is_replaced_while_clients_move() {
    let file = format!("# ours\n- name: acme # since 2024\n  key: {} # laptop\n  plan: pro\n", hashed("old"));
    let gateway = Setup::default().file("consumers.yaml", &file).start(RULES);
    let output = consumers(&gateway, &["add-key", "acme"]);
    assert!(!text(&output).contains(&hashed("old")[..20]), "{}", text(&output));
    let new = printed(&output).trim().to_owned();
    assert!(new.starts_with("sk_") && new.len() == 46, "{new}");
    becomes(&gateway, &new, 200);
    becomes(&gateway, "old", 200);
    let (old, fresh) = (hashed("old"), hashed(&new));
    let listed = printed(&consumers(&gateway, &["list", "--keys"]));
    assert_eq!(listed, format!("acme\tpro\t2\t{},{}\n", &old[..23], &fresh[..23]));
    assert_eq!(printed(&consumers(&gateway, &["remove-key", "acme", &old[..23]])), "");
    becomes(&gateway, "old", 401);
    becomes(&gateway, &new, 200);
    let now = std::fs::read_to_string(gateway.path("consumers.yaml")).unwrap();
    assert_eq!(now, format!("# ours\n- name: acme # since 2024\n  keys: [{fresh}] # laptop\n  plan: pro\n"));
}

/// `rotate` replaces all keys in one step, and touches nothing else.
#[test]
fn all_keys_are_replaced_at_once() {
    let other = format!("- {{name: beta, key: {}}}\n", hashed("b"));
    let file = format!("- name: acme\n  keys:\n    - {}\n    - {}\n{other}", hashed("k1"), hashed("k2"));
    let gateway = Setup::default().file("consumers.yaml", &file).start(RULES);
    let output = consumers(&gateway, &["rotate", "acme"]);
    assert!(text(&output).contains("the 2 keys before are removed"), "{}", text(&output));
    let new = printed(&output).trim().to_owned();
    becomes(&gateway, &new, 200);
    for (key, status) in [("k1", 401), ("k2", 401), ("b", 200)] {
        becomes(&gateway, key, status);
    }
    let now = std::fs::read_to_string(gateway.path("consumers.yaml")).unwrap();
    assert_eq!(now, format!("- name: acme\n  keys:\n    - {}\n{other}", hashed(&new)));
}

/// What cannot be done changes nothing, prints no key, and says why. A key that was given by mistake is not repeated.
#[test]
fn a_failed_change_changes_nothing() {
    let one = format!("- {{name: acme, key: {}}}\n", hashed("k"));
    let mixed = format!("- name: mixed\n  key: {}\n  keys: [{}]\n", hashed("m1"), hashed("m2"));
    let file = one + &mixed;
    let folder = Folder::with(&[("c.yaml", &file)]);
    let digits = hashed("k")[..15].to_owned();
    for (arguments, why) in [
        (&["add-key", "nobody"][..], "no consumer `nobody`"),
        (&["rotate", "nobody"], "no consumer `nobody`"),
        (&["rotate", "mixed"], "in more than one field"),
        (&["remove-key", "acme", &digits], "the only key"),
        (&["remove-key", "acme", "sha256:0000000000"], "no key sha256:0000000000"),
        (&["remove-key", "acme", "sha256:12"], "8 or more"),
        (&["remove-key", "acme", "sk_sesame"], "first digits"),
    ] {
        let output = folder.run(&[&["consumers"], arguments, &["--file", "c.yaml"]].concat());
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{arguments:?}");
        assert!(text(&output).contains(why), "{arguments:?}: {}", text(&output));
        assert!(!text(&output).contains("sesame"), "{}", text(&output));
        assert_eq!(std::fs::read_to_string(folder.path("c.yaml")).unwrap(), file);
    }
}

/// A link to a file that is not there is told of; nothing is made, and nothing waits for it.
#[test]
fn a_link_to_nothing_is_refused() {
    let folder = Folder::with(&[]);
    std::os::unix::fs::symlink("nowhere/consumers.yaml", folder.path("consumers.yaml")).unwrap();
    let mut command = program();
    command.args(["consumers", "add", "acme", "--file", "consumers.yaml"]).current_dir(folder.path(""));
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let ended = crate::harness::within(deadline(), || child.try_wait().unwrap());
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    assert_eq!(ended.and_then(|status| status.code()), Some(1));
    assert!(text(&output).contains("there is no file behind it"), "{}", text(&output));
}

/// A file of JSON Lines is served like one of YAML, and the commands change it line by line.
#[test]
fn json_lines_are_served_and_changed() {
    let line =
        |name: &str| format!("{{\"name\":\"{name}\",\"key\":\"{}\",\"plan\":\"pro\"}}\n", hashed(name));
    let file = format!("# ours\n{}{}", line("acme"), line("beta"));
    let rules = RULES.replace("consumers.yaml", "consumers.jsonl");
    let gateway = Setup::default().file("consumers.jsonl", &file).start(&rules);
    becomes(&gateway, "acme", 200);
    becomes(&gateway, "beta", 200);
    becomes(&gateway, "gamma", 401);

    let run = |arguments: &[&str]| printed(&consumers(&gateway, arguments)).trim_end().to_owned();
    let now = || std::fs::read_to_string(gateway.path("consumers.jsonl")).unwrap();
    let (added, second) = (run(&["add", "gamma", "--plan", "pro"]), run(&["add-key", "beta"]));
    let rotated = run(&["rotate", "acme"]);
    let acme = line("acme").replace(&hashed("acme"), &hashed(&rotated));
    let beta = format!(
        "{{\"name\":\"beta\",\"keys\":[\"{}\", \"{}\"],\"plan\":\"pro\"}}\n",
        hashed("beta"),
        hashed(&second)
    );
    let gamma = line("gamma").replace(&hashed("gamma"), &hashed(&added));
    assert_eq!(now(), format!("# ours\n{acme}{beta}{gamma}"));
    for key in [&added, &second, &rotated] {
        becomes(&gateway, key, 200);
    }
    becomes(&gateway, "acme", 401);

    run(&["remove-key", "beta", &hashed("beta")]);
    run(&["remove", "acme"]);
    run(&["remove", "gamma"]);
    assert_eq!(now(), format!("# ours\n{}", beta.replace(&format!("\"{}\", ", hashed("beta")), "")));
    assert_eq!(run(&["list"]), "beta\tpro\t1");
}
