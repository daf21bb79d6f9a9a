//! The real program on real sockets.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use super::client::Client;
use super::message::Response;
use super::ports::ReservedPort;
use super::prometheus::Scrape;
use super::upstream::Upstream;
use super::{deadline, until, within};

/// The admin token of every gateway that does not choose its own.
pub const TOKEN: &str = "test-token";

/// Sections that are added to the file of a test unless it has them.
const LISTEN: &str = "listen: [{name: edge, address: \"{edge}\"}]\n";
/// Keeps access logs out of the output of tests that do not read them.
const ACCESS_LOG: &str = "access_log: off\n";
const ADMIN: &str = "admin: {address: \"{admin}\", token: test-token}\n";

/// The program, to be run with other arguments.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A gateway to be started.
#[derive(Default)]
pub struct Setup {
    values: Vec<(String, String)>,
    env: Vec<(String, String)>,
    files: Vec<(String, String)>,
    args: Vec<String>,
    handover: Option<&'static str>,
    kubernetes: bool,
    without_admin: bool,
    limits: Option<String>,
    stderr: Option<Stdio>,
}

/// A running gateway. It is killed when this is dropped.
pub struct Gateway {
    /// Where clients are served.
    pub edge: SocketAddr,
    /// A second address, `{edge2}` in the file.
    pub edge2: SocketAddr,
    /// Where operators are served.
    pub admin: SocketAddr,
    child: Child,
    args: Vec<String>,
    folder: Arc<TempDir>,
    config: PathBuf,
    values: Vec<(String, String)>,
    log: Arc<Mutex<String>>,
    swaps: usize,
    _ports: Arc<[ReservedPort; 3]>,
}

impl Setup {
    /// `{name}` in the file is this value.
    pub fn value(mut self, name: &str, value: impl ToString) -> Self {
        self.values.push((format!("{{{name}}}"), value.to_string()));
        self
    }

    /// `{upstream}` in the file is the address of this one.
    pub fn upstream(self, upstream: &Upstream) -> Self {
        self.value("upstream", upstream.address)
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A file beside the configuration, which only its owner and group may read.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    pub fn workers(mut self, workers: usize) -> Self {
        self.args.extend(["--workers".to_owned(), workers.to_string()]);
        self
    }

    /// Another process can take over from it, and is watched for a second.
    pub fn handover(self) -> Self {
        self.handover_confirmed_after("1s")
    }

    /// The same, but it is watched for as long as this.
    pub fn handover_confirmed_after(mut self, time: &'static str) -> Self {
        self.handover = Some(time);
        self
    }

    /// The file is a symbolic link into `..data`, which is one too: a mounted ConfigMap.
    pub fn kubernetes(mut self) -> Self {
        self.kubernetes = true;
        self
    }

    /// Limits the number of file descriptors of the process.
    pub fn descriptors(mut self, most: usize) -> Self {
        self.limits = Some(format!("ulimit -n {most}"));
        self
    }

    /// Limits the size of the files that the process writes, in bytes, as a full disk does; [`Gateway::limit_file_size`] changes it.
    pub fn file_size(mut self, most: usize) -> Self {
        self.limits = Some(format!("trap '' XFSZ; ulimit -S -f {}", most / 512));
        self
    }

    /// Redirects the process log, which the test then cannot read.
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// The file has no admin API.
    pub fn without_admin(mut self) -> Self {
        self.without_admin = true;
        self
    }

    /// Starts the gateway and waits until it is ready.
    #[track_caller]
    pub fn start(self, yaml: &str) -> Gateway {
        let folder = Arc::new(TempDir::new().unwrap());
        let config = folder.path().join("gateway.yaml");
        for (name, text) in &self.files {
            write_private(&folder.path().join(name), text);
        }
        let ports = Arc::new([ReservedPort::new(), ReservedPort::new(), ReservedPort::new()]);
        let [edge, edge2, admin] = [&ports[0], &ports[1], &ports[2]].map(|port| port.address);
        let mut args = vec!["run".to_owned(), "--config".to_owned(), config.display().to_string()];
        if let Some(confirm) = self.handover {
            let path = folder.path().join("handover.sock").display().to_string();
            args.extend(["--handover".to_owned(), path, "--handover-confirm".to_owned(), confirm.to_owned()]);
        }
        args.extend(self.args);
        let own = [("{edge}", edge), ("{edge2}", edge2), ("{admin}", admin)];
        let mut values = self.values;
        values.extend(own.map(|(name, address)| (name.to_owned(), address.to_string())));
        let text = fill(yaml, &values, !self.without_admin);
        if self.kubernetes {
            swap(folder.path(), 0, &text);
            symlink("..data/gateway.yaml", &config).unwrap();
        } else {
            std::fs::write(&config, text).unwrap();
        }

        let mut command = program();
        if let Some(limits) = &self.limits {
            let path = command.get_program().to_owned();
            command = Command::new("sh");
            command.arg("-c").arg(format!("{limits} && exec \"$0\" \"$@\"")).arg(path);
            command.env_remove("RUST_LOG").stdin(Stdio::null());
        }
        let (child, log) = spawn(command.args(&args).envs(self.env), self.stderr);
        let mut gateway =
            Gateway { edge, edge2, admin, child, args, folder, config, values, log, swaps: 0, _ports: ports };
        until("the gateway is ready", || {
            if let Ok(Some(status)) = gateway.child.try_wait() {
                panic!("the gateway ended with {status}:\n{}", gateway.log());
            }
            if self.without_admin {
                return Some(());
            }
            std::net::TcpStream::connect_timeout(&admin, deadline()).ok()?;
            (gateway.admin_get("/readyz").status == 200).then_some(())
        });
        // Readiness means that the configuration is loaded; the workers open their sockets at the same time.
        until("the edge listens", || std::net::TcpStream::connect_timeout(&edge, deadline()).ok());
        gateway
    }
}

/// Starts a program and collects its log, unless that is redirected.
fn spawn(command: &mut Command, stderr: Option<Stdio>) -> (Child, Arc<Mutex<String>>) {
    let log = Arc::new(Mutex::new(String::new()));
    let collected = stderr.is_none();
    let mut child = command.stderr(stderr.unwrap_or_else(Stdio::piped)).spawn().unwrap();
    if !collected {
        return (child, log);
    }
    let (lines, sink) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&log));
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            *sink.lock().unwrap() += &(line + "\n");
        }
    });
    (child, log)
}

/// The file of a test with its values and the common sections.
fn fill(yaml: &str, values: &[(String, String)], admin: bool) -> String {
    let has = |key: &str| yaml.lines().any(|line| line.starts_with(key));
    let mut text = String::new();
    text += if has("listen:") { "" } else { LISTEN };
    text += if has("admin:") || !admin { "" } else { ADMIN };
    text += if has("access_log:") { "" } else { ACCESS_LOG };
    text += yaml;
    for (name, value) in values {
        text = text.replace(name, value);
    }
    text
}

fn write_private(path: &std::path::Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
}

/// What the kubelet does: a new folder, a new link to it, renamed over the old link.
fn swap(folder: &std::path::Path, turn: usize, text: &str) {
    let name = format!("..2024_01_01_{turn}");
    std::fs::create_dir(folder.join(&name)).unwrap();
    std::fs::write(folder.join(&name).join("gateway.yaml"), text).unwrap();
    symlink(&name, folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    if turn > 0 {
        std::fs::remove_dir_all(folder.join(format!("..2024_01_01_{}", turn - 1))).unwrap();
    }
}

impl Gateway {
    /// Starts a gateway that needs no upstream.
    #[track_caller]
    pub fn start(yaml: &str) -> Self {
        Setup::default().start(yaml)
    }

    /// Starts a gateway before one upstream, which is `{upstream}` in the file.
    #[track_caller]
    pub fn before(upstream: &Upstream, yaml: &str) -> Self {
        Setup::default().upstream(upstream).start(yaml)
    }

    /// Starts another process with the same file and arguments, which takes over from this one.
    #[track_caller]
    pub fn successor(&self) -> Self {
        self.next(self.args.clone(), "took over")
    }

    /// The same with another number of workers.
    #[track_caller]
    pub fn successor_with_workers(&self, workers: usize) -> Self {
        let mut args = self.args.clone();
        let at = args.iter().position(|arg| arg == "--workers").unwrap();
        args[at + 1] = workers.to_string();
        self.next(args, "took over")
    }

    /// Starts it again after it has ended, and waits until it listens.
    #[track_caller]
    pub fn again(&self) -> Self {
        self.next(self.args.clone(), "listening on")
    }

    fn next(&self, args: Vec<String>, sign: &str) -> Self {
        let (child, log) = spawn(program().args(&args), None);
        let mut gateway = Self {
            child,
            args,
            log,
            folder: Arc::clone(&self.folder),
            config: self.config.clone(),
            values: self.values.clone(),
            _ports: Arc::clone(&self._ports),
            ..*self
        };
        until("the next process serves", || {
            if let Ok(Some(status)) = gateway.child.try_wait() {
                panic!("the next process ended with {status}:\n{}", gateway.log());
            }
            gateway.log().contains(sign).then_some(())
        });
        gateway
    }

    /// Tries to start another process with a file of this folder and other arguments. Returns its exit code and its log.
    pub fn rival(&self, file: &str, args: &[&str]) -> (Option<i32>, String) {
        let (mut child, log) =
            spawn(program().arg("run").arg("--config").arg(self.path(file)).args(args), None);
        let ended = within(deadline(), || child.try_wait().unwrap());
        let _ = child.kill(); // it may have ended
        let _ = child.wait();
        // The thread that collects the log has its own reference until the log ends.
        until("its whole log", || (Arc::strong_count(&log) == 1).then_some(()));
        let said = log.lock().unwrap().clone();
        (ended.and_then(|status| status.code()), said)
    }

    /// The socket on which another process takes over.
    pub fn handover(&self) -> PathBuf {
        self.path("handover.sock")
    }

    /// The id of the process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// A new connection to the edge.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.edge)
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Response {
        self.client().ask(method, target, headers)
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.ask("GET", target, &[])
    }

    /// The statuses of some equal requests on one connection.
    #[track_caller]
    pub fn statuses(&self, count: usize, target: &str, headers: &[(&str, &str)]) -> Vec<u16> {
        let mut client = self.client();
        (0..count).map(|_| client.ask("GET", target, headers).status).collect()
    }

    /// Writes the file anew.
    pub fn write(&self, yaml: &str) {
        std::fs::write(&self.config, fill(yaml, &self.values, true)).unwrap();
    }

    /// Writes another file and renames it over the old one, as editors do.
    pub fn rename_over(&self, yaml: &str) {
        let new = self.folder.path().join(".gateway.yaml.swp");
        std::fs::write(&new, fill(yaml, &self.values, true)).unwrap();
        std::fs::rename(new, &self.config).unwrap();
    }

    /// Where a file beside the configuration is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file beside the configuration anew.
    pub fn write_file(&self, name: &str, text: &str) {
        write_private(&self.path(name), text);
    }

    /// Swaps the folder behind the link, as Kubernetes does.
    pub fn swap(&mut self, yaml: &str) {
        self.swaps += 1;
        swap(self.folder.path(), self.swaps, &fill(yaml, &self.values, true));
    }

    /// Removes the file.
    pub fn remove_file(&self) {
        std::fs::remove_file(&self.config).unwrap();
    }

    /// Writes the file and waits until it is in force.
    #[track_caller]
    pub fn reload(&self, yaml: &str) {
        let before = self.generation();
        self.write(yaml);
        until("the new file is in force", || (self.generation() > before).then_some(()));
    }

    /// Sends a signal: TERM, HUP, STOP.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(format!("-{name}")).arg(pid).status().unwrap().success());
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn ended(&mut self, limit: Duration) -> ExitStatus {
        let ended = within(limit, || self.child.try_wait().unwrap());
        ended.unwrap_or_else(|| panic!("still running after {limit:?}"))
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// How often `what` occurs in the log. Waits for the first time, because another thread collects the log.
    #[track_caller]
    pub fn times_logged(&self, what: &str) -> usize {
        until(&format!("the log says {what:?}"), || self.log().contains(what).then_some(()));
        self.log().matches(what).count()
    }

    /// The processor time that it has used.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(self.proc("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10) // of USER_HZ, which is 100 on every Linux
    }

    /// A file of /proc about the process.
    pub fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.child.id()))
    }

    /// The established connections to `server`, on 127.0.0.1. A FIN that was sent may not have arrived yet.
    pub fn connections_to(&self, server: SocketAddr) -> usize {
        let (remote, established) = (format!("0100007F:{:04X}", server.port()), "01");
        let table = std::fs::read_to_string(self.proc("net/tcp")).unwrap();
        let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        fields.filter(|fields| fields[2] == remote && fields[3] == established).count()
    }

    /// The file descriptors that it has.
    pub fn open_descriptors(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).unwrap().count()
    }

    /// Limits the size of the files that it writes, in bytes, or not any more.
    pub fn limit_file_size(&self, most: Option<usize>) {
        let most = most.map_or("unlimited".to_owned(), |most| most.to_string());
        let of_process = ["--pid".to_owned(), self.child.id().to_string(), format!("--fsize={most}:")];
        assert!(Command::new("prlimit").args(of_process).status().unwrap().success());
    }

    /// The memory that it has used at most, in bytes.
    pub fn peak_memory(&self) -> usize {
        self.status_bytes("VmHWM:")
    }

    /// The memory that it uses now, in bytes.
    pub fn memory(&self) -> usize {
        self.status_bytes("VmRSS:")
    }

    fn status_bytes(&self, field: &str) -> usize {
        let status = std::fs::read_to_string(self.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the gateway's log:\n{}", self.log());
        }
    }
}
