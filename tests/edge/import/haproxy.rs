//! The real HAProxy, with the configuration of a case on other ports.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::nginx::PORTS;
use super::until_listening;
use crate::harness::ReservedPort;

/// A running HAProxy. It is killed when this is dropped.
pub(super) struct Haproxy {
    pub(super) addresses: [SocketAddr; 2],
    child: Child,
    _folder: TempDir,
    _ports: [ReservedPort; 4],
}

/// The path of HAProxy, if it is installed.
pub(super) fn installed() -> Option<&'static str> {
    let usual = ["haproxy", "/usr/sbin/haproxy"];
    usual.into_iter().find(|path| {
        let version = Command::new(path).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    })
}

impl Haproxy {
    /// Starts it with the configuration in a folder; `replace` changes the text of haproxy.cfg.
    #[track_caller]
    pub(super) fn start(program: &str, case: &Path, replace: &dyn Fn(&str) -> String) -> Self {
        let folder = TempDir::new().unwrap();
        let ports = [ReservedPort::new(), ReservedPort::new(), ReservedPort::new(), ReservedPort::new()];
        let addresses = [ports[0].address, ports[1].address];
        for entry in std::fs::read_dir(case).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        let mut text = replace(&std::fs::read_to_string(case.join("haproxy.cfg")).unwrap());
        for (port, address) in PORTS.iter().zip(addresses) {
            for written in [
                format!("*:{port}"),
                format!("0.0.0.0:{port}"),
                format!("*:${{PORT-{port}}}"),
                format!("bind :{port}"),
            ] {
                let bind =
                    if written.starts_with("bind") { format!("bind {address}") } else { address.to_string() };
                text = text.replace(&written, &bind);
            }
        }
        // Two more ports, of sections that are not compared.
        text = text
            .replace("127.0.0.1:8404", &ports[2].address.to_string())
            .replace("127.0.0.1:8405", &ports[3].address.to_string());
        std::fs::write(folder.path().join("haproxy.cfg"), own(&text)).unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new(program);
        command.args(["-db", "-f", "haproxy.cfg"]).current_dir(folder.path()).stdin(Stdio::null());
        let child =
            command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let mut haproxy = Self { addresses, child, _folder: folder, _ports: ports };
        until_listening("HAProxy", &mut haproxy.child, haproxy.addresses[0], &log);
        haproxy
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The configuration without lines that need other users or write outside of the folder.
fn own(text: &str) -> String {
    let foreign = ["user ", "group ", "daemon", "stats socket"];
    let lines: Vec<_> =
        text.lines().filter(|line| !foreign.iter().any(|word| line.trim().starts_with(word))).collect();
    lines.join("\n") + "\n"
}
