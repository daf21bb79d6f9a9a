//! The files of an installation: credentials from systemd, files that root changes and the gateway reads, and the
//! units themselves.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::tls::{Authority, TlsClient};
use crate::harness::{Client, ReservedPort, Setup, until};

const UNITS: [&str; 2] = ["deploy/sluicegate.service", "deploy/sluicegate@.service"];
/// Nobody's, on any machine.
const STRANGER: u32 = 54_321;

fn directives(unit: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(unit).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '[']));
    lines
        .map(|line| {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{unit}: {line}"));
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// Secrets that a unit loads are files of the folder that `$CREDENTIALS_DIRECTORY` names.
#[test]
fn secrets_may_be_credentials_of_the_unit() {
    let folder = tempfile::TempDir::new().unwrap();
    let secret = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    };
    let (authority, jwt) = (Authority::new(), "0123456789abcdef0123456789abcdef");
    let pair = authority.sign(&["api.test"]);
    secret("admin-token", "from-a-file\n");
    secret("jwt-secret", &format!("{jwt}\n"));
    secret("tls.key", &pair.key);
    let setup = Setup::default().file("tls.pem", &pair.cert);
    let gateway = setup.env("CREDENTIALS_DIRECTORY", &folder.path().display().to_string()).start(
        "listen:\n- {name: edge, address: \"{edge}\"}\n\
         - {address: \"{edge2}\", tls: {certificates: {cert: tls.pem, key: \"${CREDENTIALS_DIRECTORY}/tls.key\"}}}\n\
         admin: {address: \"{admin}\", token: {file: \"${CREDENTIALS_DIRECTORY}/admin-token\"}}\n\
         auth: {jwt: {secret: {file: \"${CREDENTIALS_DIRECTORY}/jwt-secret\"}, audience: api, required: true}}\n\
         routes: [{respond: {status: 200, body: ok}}]\n",
    );
    let reload = |token: &str| gateway.admin("POST", "/reload", &[("authorization", token)]).status;
    assert_eq!((reload("Bearer from-a-file"), reload("Bearer other")), (200, 401));
    let claims = r#"{"sub":"ada","aud":"api","exp":4000000000}"#;
    let token = crate::harness::issuer::Signer::hs256(jwt.as_bytes()).signed(r#"{"alg":"HS256"}"#, claims);
    assert_eq!(gateway.ask("GET", "/", &[("authorization", &format!("Bearer {token}"))]).status, 200);
    let config = std::sync::Arc::new(authority.client(None));
    let mut tls = TlsClient::connect(&config, gateway.edge2, "api.test", b"").unwrap();
    assert_eq!(tls.ask("/", &[("host", "api.test")]).unwrap().0, 401);
}

/// A gateway of another user reads what root adds: the file has the group of its folder, whatever root's umask is.
#[test]
fn consumers_that_root_adds_can_be_read_by_the_gateway() {
    let folder = tempfile::TempDir::new().unwrap();
    let (path, config) = (folder.path(), folder.path().join("gateway.yaml"));
    let edge = ReservedPort::new();
    let yaml = format!(
        "listen: [\"{}\"]\naccess_log: off\nauth: {{api_key: {{consumers: consumers.yaml, required: true}}}}\n\
         routes: [{{respond: {{status: 200}}}}]\n",
        edge.address
    );
    std::fs::write(&config, yaml).unwrap();
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o750)).unwrap();
        for file in [path, &config] {
            chown(file, None, Some(STRANGER)).unwrap();
        }
    }
    let folders_group = std::fs::metadata(path).unwrap().gid();
    let add = |name: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077 && exec \"$0\" consumers add \"$1\" --file consumers.yaml"]);
        let output =
            command.arg(env!("CARGO_BIN_EXE_sluicegate")).arg(name).current_dir(path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let stamp = || {
        let file = std::fs::metadata(path.join("consumers.yaml")).unwrap();
        (file.uid(), file.gid(), file.mode() & 0o7777)
    };
    let acme = add("acme");
    assert_eq!((stamp().1, stamp().2), (folders_group, 0o640));
    if !is_root {
        return; // nobody else can give files away
    }
    chown(path.join("consumers.yaml"), Some(STRANGER + 1), None).unwrap();
    let before = stamp();
    let beta = add("beta");
    assert_eq!(stamp(), before, "a file that is there keeps owner, group and mode");
    chown(path.join("consumers.yaml"), Some(0), None).unwrap();

    let mut run = Command::new("setpriv");
    run.args([format!("--reuid={STRANGER}"), format!("--regid={STRANGER}"), "--clear-groups".to_owned()])
        .arg(copy(&path.join("sluicegate")))
        .args(["run", "--workers", "1"])
        .current_dir(path)
        .stderr(Stdio::null());
    let _child = Killed(run.spawn().unwrap());
    until("the edge listens", || std::net::TcpStream::connect(edge.address).ok());
    let status = |key: &str| Client::connect(edge.address).ask("GET", "/", &[("x-api-key", key)]).status;
    assert_eq!((status(&acme), status(&beta), status("other")), (200, 200, 401));
    // A reload reads what was replaced.
    let gamma = add("gamma");
    until("the new key is known", || (status(&gamma) == 200).then_some(()));
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// The program where another user can run it. Another process writes it: a descriptor of this one could be inherited by a
/// child of another test, and a program that is open for writing cannot be run.
fn copy(to: &Path) -> &Path {
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_sluicegate")).arg(to).status().unwrap().success());
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).unwrap();
    to
}

/// Both units start the same program for the same user, and differ in the hand-over only.
#[test]
fn the_units_say_the_same() {
    let all = UNITS.map(directives);
    let own = |name: &str| {
        name.starts_with("Runtime")
            || matches!(name, "Description" | "ExecStart" | "Conflicts" | "DefaultInstance")
    };
    let [one, pair] = all
        .each_ref()
        .map(|directives| directives.iter().filter(|(name, _)| !own(name)).cloned().collect::<Vec<_>>());
    assert_eq!(one, pair);
    for (name, value) in [
        ("User", "sluicegate"),
        ("StateDirectory", "sluicegate"),
        ("LogsDirectory", "sluicegate"),
        ("UMask", "0027"),
        ("Type", "notify"),
    ] {
        assert!(one.contains(&(name.to_owned(), value.to_owned())), "{name}={value}");
    }
    // The credentials that the manual uses are those that the units can load.
    let manual = std::fs::read_to_string("docs/operations.md").unwrap();
    for unit in UNITS {
        let text = std::fs::read_to_string(unit).unwrap();
        let loaded: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("#LoadCredential=")?.split_once(':'))
            .inspect(|(name, path)| assert_eq!(*path, format!("/etc/sluicegate/credentials/{name}")))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(loaded.len(), 4, "{loaded:?}");
        for name in loaded {
            assert!(manual.contains(&format!("${{CREDENTIALS_DIRECTORY}}/{name}\"")), "{name}");
        }
    }
}

/// systemd understands the units, with the credentials and without, where it is installed.
#[test]
fn systemd_understands_the_units() {
    let Ok(found) = Command::new("systemd-analyze").arg("--version").output() else { return };
    assert!(found.status.success());
    let folder = tempfile::TempDir::new().unwrap();
    for unit in UNITS {
        let text = std::fs::read_to_string(unit).unwrap();
        let text = text.replace("/usr/local/bin/sluicegate", env!("CARGO_BIN_EXE_sluicegate"));
        for text in [text.replace("#LoadCredential=", "LoadCredential="), text] {
            let name = Path::new(unit).file_name().unwrap().to_str().unwrap().replace('@', "@a");
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let verified = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
            let said = String::from_utf8_lossy(&verified.stderr);
            let ours: Vec<&str> = said.lines().filter(|line| line.contains("sluicegate")).collect();
            assert!(ours.is_empty(), "{unit}: {said}");
        }
    }
}
