//! What the Dockerfile says about the program is true: its commands exist, and its gateway.yaml serves in a
//! container. .ci/dockerfile checks that cargo can build from the files that it copies.

use std::path::Path;
use std::process::Command;

use crate::harness::program;

const DOCKERFILE: &str = include_str!("../../deploy/Dockerfile");

/// The words of the instruction that is a list in brackets and begins so.
fn words(instruction: &str) -> Vec<String> {
    let line = DOCKERFILE.lines().find(|line| line.starts_with(instruction)).unwrap();
    serde_json::from_str(&line[line.find('[').unwrap()..]).unwrap()
}

/// The container runs commands that the program has.
#[test]
fn the_image_runs_commands_that_exist() {
    for arguments in [&words("CMD")[..], &words("HEALTHCHECK")[1..]] {
        let output = program().args(arguments).arg("--help").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
    assert_eq!(words("HEALTHCHECK")[..1], words("ENTRYPOINT")[..]);
}

/// The demo listens where the engine's port leads, and its admin API where the health check asks, with the file or without.
#[test]
fn the_demo_of_the_image_is_reached_from_outside() {
    let change = DOCKERFILE.lines().find_map(|line| line.split_once("sed '")).unwrap().1;
    let (change, _) = change.split_once('\'').unwrap();
    let folder = env!("CARGO_MANIFEST_DIR");
    let output = Command::new("sed").args([change, "gateway.yaml"]).current_dir(folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let loaded = sluicegate_gateway::resources::parse(text, "gateway.yaml", Path::new(folder));
    let config = loaded.config.unwrap_or_else(|| panic!("{}", loaded.rendered));
    let exposed = DOCKERFILE.lines().find_map(|line| line.strip_prefix("EXPOSE ")).unwrap();
    let addresses: Vec<String> =
        config.listeners.iter().map(|listener| listener.address.to_string()).collect();
    assert_eq!(addresses, [format!("0.0.0.0:{exposed}"), "127.0.0.1:8081".into()]);
    let help = program().args(["health", "--help"]).output().unwrap();
    let asked = config.config.admin.as_ref().unwrap().address.to_string();
    assert!(
        String::from_utf8_lossy(&help.stdout)
            .contains(&format!("the configuration in this folder, or {asked}]")),
        "{asked}"
    );
}
