//! What packages contain is true of the program: the name of its configuration, its version, the units, the manual pages and
//! the configuration of the chart. `packaging/test` and `deploy/helm/test` test the packages themselves.

use std::path::Path;
use std::process::Command;

use crate::harness::folder::text;
use crate::harness::{Folder, program};

const GOOD: &str = "listen: [127.0.0.1:18080]\nroutes: [{respond: {status: 200}}]\n";
const BAD: &str = "listen: [127.0.0.1:18080]\nroutes: [{respond: {status: 2}}]\n";

fn repository(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Without an argument `sluicegate.yaml` is read before `gateway.yaml`; if both are there, a line says which, once.
#[test]
fn the_configuration_may_be_named_after_the_program() {
    let line = "sluicegate: sluicegate.yaml is used; gateway.yaml beside it is ignored\n";
    for (files, name, lines) in [
        (&[("sluicegate.yaml", GOOD)][..], "sluicegate.yaml", 0),
        (&[("gateway.yaml", GOOD)], "gateway.yaml", 0),
        (&[("sluicegate.yaml", GOOD), ("gateway.yaml", BAD)], "sluicegate.yaml", 1),
    ] {
        let output = Folder::with(files).run(&["check"]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains(&format!("{name}: 0 errors")), "{said}");
        assert_eq!(said.matches(line).count(), lines, "{said}");
    }
    let both = Folder::with(&[("sluicegate.yaml", BAD), ("gateway.yaml", GOOD), ("log", "")]);
    for command in [&[][..], &["run"], &["-t"], &["replay", "log"], &["explain", "GET", "/"]] {
        let output = both.run(command);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(
            said.contains("sluicegate.yaml:2:") && said.matches(line).count() == 1,
            "{command:?}: {said}"
        );
    }
    let named = both.run(&["check", "gateway.yaml"]);
    assert!(named.status.success() && !text(&named).contains(line), "{}", text(&named));
}

/// The admin API is found in `sluicegate.yaml`, too; an address that is given needs no file.
#[test]
fn the_admin_api_is_found_by_the_file_of_either_name() {
    let with_admin = |address: &str| format!("{GOOD}admin: {{address: {address}}}\n");
    let (first, second) = (with_admin("127.0.0.1:2"), with_admin("127.0.0.1:1"));
    let both = Folder::with(&[("sluicegate.yaml", &first), ("gateway.yaml", &second)]);
    for command in [&["health"][..], &["rules", "list"]] {
        let said = text(&both.run(command));
        assert!(said.contains("127.0.0.1:2") && said.contains("is ignored"), "{said}");
        let given = text(&both.run(&[command, &["--admin", "127.0.0.1:1"]].concat()));
        assert!(given.contains("127.0.0.1:1") && !given.contains("is ignored"), "{given}");
    }
}

/// `-V` is the version alone, for scripts; `--version` also has the commit and the profile, or says that it has none.
#[test]
fn the_version_has_the_commit_and_the_profile() {
    let said = |argument: &str| String::from_utf8(program().arg(argument).output().unwrap().stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(said("-V"), format!("sluicegate {version}\n"));
    let long = said("--version");
    let build =
        long.strip_prefix(&format!("sluicegate {version} (commit ")).unwrap_or_else(|| panic!("{long}"));
    let (commit, profile) = build.strip_suffix(")\n").unwrap().split_once(", profile ").unwrap();
    let known = matches!(commit, "unknown" | "not recorded")
        || commit.trim_end_matches("-dirty").bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(known && ["dev", "release", "dist"].contains(&profile), "{long}");
}

/// The units of packages are those of deploy/, with the program where packages install it.
#[test]
fn packaged_units_agree_with_the_others() {
    let folder = Folder::with(&[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/units");
    assert!(Command::new(script).arg(folder.path("units")).status().unwrap().success());
    for unit in ["sluicegate.service", "sluicegate@.service", "sluicegate.socket"] {
        let packaged = std::fs::read_to_string(folder.path(&format!("units/{unit}"))).unwrap();
        let own = repository(&format!("deploy/{unit}"));
        let (_, expected) = own.split_once("\n\n").unwrap();
        assert_eq!(packaged, expected.replace("/usr/local/bin/", "/usr/bin/"), "{unit}");
        assert!(packaged.starts_with("[Unit]\n") && !packaged.contains("/usr/local"), "{unit}: {packaged}");
    }
    // The scripts of the package start and stop these units, and the user is the one that it creates.
    let template = repository("deploy/sluicegate@.service");
    assert!(template.contains("\nUser=sluicegate\n") && template.contains(" --handover "));
    assert!(repository("packaging/deb/sysusers").contains("\nu sluicegate "));
}

/// Every command and its own commands have a manual page and are completed.
#[test]
fn every_command_has_a_page_and_is_completed() {
    let folder = Folder::with(&[]);
    assert!(folder.run(&["man", "--dir", "man"]).status.success());
    let mut commands = vec![Vec::new()];
    let mut pages = 0;
    let bash = text(&folder.run(&["completions", "bash"]));
    while let Some(command) = commands.pop() {
        let page = [&["sluicegate"], command.as_slice()].concat().join("-");
        assert!(folder.path(&format!("man/{page}.1")).exists(), "{page}");
        pages += 1;
        let help = text(&folder.run(&[command.as_slice(), &["--help"]].concat()));
        let listed =
            help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest.split("\n\n").next().unwrap());
        for line in listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
            let name = line.split_whitespace().next().unwrap().to_owned();
            if name != "help" {
                assert!(bash.contains(&name), "{name} is not completed");
                let name: &'static str = name.leak();
                commands.push([command.as_slice(), &[name]].concat());
            }
        }
    }
    let written = std::fs::read_dir(folder.path("man")).unwrap().count();
    assert_eq!(pages, written, "a page without a command, or a command without a page");
    assert!(pages > 20, "{pages}");
}

/// The default configuration of the chart, and that of the manifests, which are the same, pass `check --strict`.
#[test]
fn the_configuration_of_the_chart_is_valid() {
    let block = |file: &str, start: &str, indent: usize| -> String {
        let text = repository(file);
        let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("{file} has no {start:?}"));
        let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with(&" ".repeat(indent)));
        lines.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect()
    };
    let chart = block("deploy/helm/sluicegate/values.yaml", "\nconfig: |\n", 2);
    let manifest = block("deploy/kubernetes.yaml", "\n  gateway.yaml: |\n", 4);
    let without_comments = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(without_comments(&chart), without_comments(&manifest));
    let folder = Folder::with(&[("gateway.yaml", &chart)]);
    let mut command = program();
    let command = command.args(["check", "--strict", "gateway.yaml"]).current_dir(folder.path(""));
    let output = command.env("SLUICEGATE_ADMIN_TOKEN", "secret").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}
