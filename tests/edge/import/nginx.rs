//! The real nginx, with the configuration of a case on other ports.

use std::cell::RefCell;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::until_listening;
use crate::harness::ReservedPort;

/// The ports that cases listen on, and the upstream that they forward to.
pub(super) const PORTS: [&str; 2] = ["8080", "8443"];
pub(super) const UPSTREAM: &str = "127.0.0.1:9000";

/// What nginx writes only in folders of its own, unless it is told another one.
const TEMPORARY: [&str; 5] = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];

/// A running nginx. It is killed when this is dropped.
pub(super) struct Nginx {
    pub(super) addresses: [SocketAddr; 2],
    child: Child,
    _folder: TempDir,
    _ports: [ReservedPort; 2],
}

/// The path of nginx, if it is installed.
pub(super) fn installed() -> Option<&'static str> {
    let usual = ["nginx", "/usr/sbin/nginx"];
    usual.into_iter().find(|path| {
        let version = Command::new(path).arg("-v").stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

impl Nginx {
    /// Starts it with the configuration in a folder; `replace` changes the text of each file.
    #[track_caller]
    pub(super) fn start(program: &str, case: &Path, replace: &dyn Fn(&str) -> String) -> Self {
        let folder = TempDir::new().unwrap();
        let ports = [ReservedPort::new(), ReservedPort::new()];
        let addresses = [ports[0].address, ports[1].address];
        let seen = RefCell::default();
        copy(case, folder.path(), &|name, text| {
            let mut text = replace(text);
            for (port, address) in PORTS.iter().zip(addresses) {
                // reuseport, because the port is reserved by a socket that is bound to it.
                text = text.replace(&format!("listen {port}"), &format!("listen {address} reuseport"));
            }
            if name == "nginx.conf" {
                process(&once(&text, &seen), folder.path())
            } else {
                once(&text, &seen)
            }
        });
        let mut command = Command::new(program);
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        let log = folder.path().join("stderr.log");
        let child = command.stdin(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        let mut nginx = Self { addresses, child, _folder: folder, _ports: ports };
        until_listening("nginx", &mut nginx.child, nginx.addresses[0], &log);
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `reuseport` belongs to the first `listen` of an address only, of all files.
fn once(text: &str, seen: &RefCell<Vec<String>>) -> String {
    let mut seen = seen.borrow_mut();
    let lines = text.lines().map(|line| {
        let Some(listen) = line.trim().strip_prefix("listen ").and_then(|rest| rest.split([' ', ';']).next())
        else {
            return line.to_owned();
        };
        let again = seen.contains(&listen.to_owned());
        seen.push(listen.to_owned());
        if again { line.replace(" reuseport", "") } else { line.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The first file for one process in the foreground, which writes only to this folder.
fn process(text: &str, folder: &Path) -> String {
    let folder = folder.display();
    let own = |line: &&str| !["user ", "pid ", "worker_processes "].iter().any(|word| line.starts_with(word));
    let text: Vec<_> = text.lines().filter(own).collect();
    let temporary: String =
        TEMPORARY.iter().map(|name| format!("{name}_temp_path {folder}/{name}; ")).collect();
    let http = format!("http {{ access_log off; {temporary}");
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n{}\n",
        text.join("\n")
    )
    .replacen("http {", &http, 1)
}

/// Copies the files of nginx.
fn copy(from: &Path, to: &Path, change: &dyn Fn(&str, &str) -> String) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            std::fs::create_dir(to.join(&name)).unwrap();
            copy(&path, &to.join(&name), change);
        } else if name.ends_with(".conf") || name.ends_with(".inc") {
            std::fs::write(to.join(&name), change(&name, &std::fs::read_to_string(&path).unwrap())).unwrap();
        }
    }
}
