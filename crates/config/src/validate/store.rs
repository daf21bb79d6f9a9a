//! Validates the store: addresses, credentials and TLS.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::checks::{between, empty, exactly_one, in_range, missing, secret, value};
use super::redis_url::{MAX_DATABASE, RedisUrl, redis_url};
use super::tls::key_pair;
use crate::language::secret::Secret;
use crate::model::store::{RedisAddress, RedisConfig, RedisServers, RedisTls};
use crate::raw::scalars::RawSecret;
use crate::raw::store::{RawRedis, RawRedisTls, RawSentinel, RawStore};
use crate::read::at::{At, Folder};
use crate::read::report::{Mistake, Place, Problem, Report};

/// The port of a Redis that does not name one.
const PORT: u16 = 6379;
/// The same of a sentinel.
const SENTINEL_PORT: u16 = 26379;
/// The longest that a request waits for a decision when nothing else is said.
const TIMEOUT: Duration = Duration::from_millis(50);
/// Above this clients notice a slow store.
const LONG_TIMEOUT: Duration = Duration::from_secs(1);
/// What the names of keys begin with when nothing else is said.
const PREFIX: &str = "sluicegate";
const MAX_PREFIX: usize = 64;
const MAX_GATEWAYS: u64 = 10_000;

pub(super) fn store(raw: &At<RawStore>, folder: Folder<'_>, report: &mut Report) -> Option<RedisConfig> {
    let Some(redis) = &raw.value.redis else {
        missing(raw.at, "store", ("redis", "{url: redis://127.0.0.1:6379}"), &raw.value.wrong, report);
        return None;
    };
    self::redis(redis, folder, report)
}

pub(super) fn redis(
    At { at, value: raw }: &At<RawRedis>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<RedisConfig> {
    let found = found(*at, raw, folder, report);
    let timeout = raw.timeout.as_ref().map_or(Some(TIMEOUT), |text| timeout(text, report));
    let prefix = raw.prefix.as_ref().map_or(Some(PREFIX.to_owned()), |text| value(text, report, prefix));
    let own_database = raw.database.as_ref().and_then(|n| {
        in_range(n, 0..=u64::from(MAX_DATABASE), "database", report).map(|number| (n.at, number as u32))
    });
    let own_tls = raw.tls.as_ref().map(|raw| (raw.at, tls(&raw.value, folder, report)));
    let Some(found) = found else {
        secret(raw.password.as_ref(), folder, report); // its file may be missing as well
        return None;
    };
    let login = Login {
        at: raw.username.as_ref().map_or(found.first.at, |text| text.at),
        username: raw.username.as_ref(),
        password: raw.password.as_ref(),
        wrong: &raw.wrong,
    };
    let (username, password) = login.read(found.login, folder, report);
    let in_cluster = matches!(found.servers, RedisServers::Cluster(_));
    if let Some((at, number)) = own_database {
        if found.database.is_some_and(|in_url| in_url != number) {
            let problem = Problem::new(at, "`database` and the URL name different databases");
            report.error(problem.help("keep one of them"));
        } else if in_cluster && number != 0 {
            report.error(Problem::new(at, "a cluster has no database but 0"));
        }
    }
    if let Some((at, _)) = own_tls.as_ref().filter(|_| !found.tls) {
        let problem = Problem::new(*at, "`tls` means nothing without rediss://");
        report.error(problem.help("write rediss:// in every URL, or remove `tls`"));
    }
    let tells = !password.is_empty()
        || matches!(&found.servers, RedisServers::Sentinel { password, .. } if !password.is_empty());
    if let Some(url) = found.far.filter(|_| tells && !found.tls) {
        report.warning(
            url.problem("a password leaves this machine as readable text")
                .help("use rediss://, so that nobody on the way can read it"),
        );
    }
    let gateways =
        raw.gateways.as_ref().map_or(Some(1), |n| in_range(n, 1..=MAX_GATEWAYS, "gateways", report));
    let tls = found.tls.then(|| own_tls.map(|(_, tls)| tls).unwrap_or_default());
    Some(RedisConfig {
        servers: found.servers,
        username,
        password,
        database: own_database.map(|(_, number)| number).or(found.database).unwrap_or(0),
        tls,
        timeout: timeout?,
        prefix: prefix?,
        gateways: gateways? as u32,
        state_folder: state_folder(raw, folder),
    })
}

fn tls(raw: &RawRedisTls, folder: Folder<'_>, report: &mut Report) -> RedisTls {
    let ca = raw.ca.as_ref().and_then(|path| folder.content(path, report));
    let client = key_pair(raw.cert.as_ref(), raw.key.as_ref(), &raw.wrong, report)
        .and_then(|(cert, key)| folder.content(cert, report).zip(folder.content(key, report)));
    RedisTls { ca, client }
}

/// The folder for state that is kept across restarts.
fn state_folder(raw: &RawRedis, folder: Folder<'_>) -> PathBuf {
    // systemd names several folders with colons between them.
    let of_systemd = || std::env::var("STATE_DIRECTORY").ok()?.split(':').next().map(PathBuf::from);
    match &raw.state_folder {
        Some(path) => folder.join(&path.value),
        None => of_systemd().unwrap_or_else(|| folder.path.to_path_buf()),
    }
}

fn timeout(text: &At<String>, report: &mut Report) -> Option<Duration> {
    let (least, most) = ((Duration::from_millis(1), "1ms"), (Duration::from_secs(10), "10s"));
    let timeout = between(text, "timeout", least, most, report)?;
    if timeout > LONG_TIMEOUT {
        report.warning(
            text.problem(format!("while the store is slow, every request may wait {} for it", text.value))
                .help("50ms is usual; behind it stands `on_store_failure`"),
        );
    }
    Some(timeout)
}

fn prefix(text: &str) -> Result<String, Mistake> {
    let good = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    if text.is_empty() || text.len() > MAX_PREFIX || !text.bytes().all(good) {
        return Err(Mistake::new(format!("`{text}` cannot be the prefix of keys"))
            .help(format!("use up to {MAX_PREFIX} letters, digits, dots, hyphens, underscores and colons")));
    }
    Ok(text.to_owned())
}

/// A user and a password.
type Credentials = (Option<String>, Secret);

/// The fields with credentials.
struct Login<'a> {
    /// Where a mistake of the user is told.
    at: Place,
    username: Option<&'a At<String>>,
    password: Option<&'a At<RawSecret>>,
    wrong: &'a [&'static str],
}

impl Login<'_> {
    /// The credentials from the fields or the URL. Both together are an error even if they agree, because one of them
    /// would be forgotten at the next change.
    fn read(
        &self,
        (user_in_url, password_in_url): Credentials,
        folder: Folder<'_>,
        report: &mut Report,
    ) -> Credentials {
        let own_password = secret(self.password, folder, report);
        let readable = own_password.is_some() && !self.wrong.contains(&"password");
        for (name, in_url, at) in [
            ("username", user_in_url.is_some(), self.username.map(|text| text.at)),
            ("password", !password_in_url.is_empty(), self.password.map(|text| text.at)),
        ] {
            if let (true, Some(at)) = (in_url, at) {
                let problem = Problem::new(at, format!("`{name}` is given here and in the URL"));
                report.error(problem.help("keep one of them"));
            }
        }
        let given = |text: &String| !text.is_empty();
        let username = self.username.map(|text| text.value.clone()).filter(given).or(user_in_url);
        let password = own_password.filter(|text| !text.is_empty()).unwrap_or(password_in_url);
        if username.is_some() && password.is_empty() && readable {
            let problem = Problem::new(self.at, "a user of Redis needs a password");
            report.error(problem.help("such as `password: {file: redis.password}`, or remove the user"));
        }
        (username, password)
    }
}

/// The combined content of the URLs of a store.
struct Found<'a> {
    servers: RedisServers,
    tls: bool,
    login: Credentials,
    database: Option<u32>,
    /// The first URL.
    first: &'a At<String>,
    /// The first URL that leads away from this machine.
    far: Option<&'a At<String>>,
}

fn found<'a>(at: Place, raw: &'a RawRedis, folder: Folder<'_>, report: &mut Report) -> Option<Found<'a>> {
    let given = [
        ("url", raw.url.as_ref().map(|url| url.at)),
        ("cluster", raw.cluster.as_ref().map(|nodes| nodes.at)),
        ("sentinel", raw.sentinel.as_ref().map(|sentinel| sentinel.at)),
    ];
    let helps = [
        "such as `url: redis://127.0.0.1:6379`",
        "keep one of them: a server, a cluster, or what sentinels watch",
    ];
    exactly_one(at, "store.redis", given, helps, &raw.wrong, report);
    // All of them are read, so that all that is wrong is told at once.
    let single = raw.url.as_ref().and_then(|url| single(url, report));
    let cluster = raw.cluster.as_ref().and_then(|nodes| cluster(nodes, report));
    let sentinel = raw.sentinel.as_ref().and_then(|raw| sentinel(raw, folder, report));
    single.or(cluster).or(sentinel)
}

fn single<'a>(text: &'a At<String>, report: &mut Report) -> Option<Found<'a>> {
    let RedisUrl { address, tls, username, password, database } =
        value(text, report, |text| redis_url(text, PORT))?;
    Some(Found {
        far: is_far(&address).then_some(text),
        servers: RedisServers::Single(address),
        tls,
        login: (username, password),
        database,
        first: text,
    })
}

fn cluster<'a>(raw: &'a At<Vec<At<String>>>, report: &mut Report) -> Option<Found<'a>> {
    let nodes = nodes(raw, "cluster", report)?;
    Some(nodes.found(RedisServers::Cluster))
}

fn sentinel<'a>(
    At { at, value: raw }: &'a At<RawSentinel>,
    folder: Folder<'_>,
    report: &mut Report,
) -> Option<Found<'a>> {
    if raw.master.is_none() {
        missing(*at, "sentinel", ("master", "mymaster"), &raw.wrong, report);
    }
    if raw.nodes.is_none() {
        missing(*at, "sentinel", ("nodes", "[redis://10.0.0.1:26379]"), &raw.wrong, report);
    }
    if let Some(master) = raw.master.as_ref().filter(|master| master.value.is_empty()) {
        report.error(master.problem("`master` is empty").help("the name that the sentinels know it by"));
    }
    let login = Login {
        at: raw.username.as_ref().map_or(*at, |text| text.at),
        username: raw.username.as_ref(),
        password: raw.password.as_ref(),
        wrong: &raw.wrong,
    };
    let (username, password) = login.read((None, Secret::default()), folder, report);
    let nodes = nodes(raw.nodes.as_ref()?, "nodes", report)?;
    let master = raw.master.as_ref()?.value.clone();
    Some(nodes.found(|nodes| RedisServers::Sentinel { master, nodes, username, password }))
}

/// The nodes of a cluster, or the sentinels.
struct Nodes<'a> {
    addresses: Vec<RedisAddress>,
    tls: bool,
    first: &'a At<String>,
    far: Option<&'a At<String>>,
}

impl<'a> Nodes<'a> {
    fn found(self, servers: impl FnOnce(Vec<RedisAddress>) -> RedisServers) -> Found<'a> {
        let Self { addresses, tls, first, far } = self;
        Found {
            servers: servers(addresses),
            tls,
            login: (None, Secret::default()),
            database: None,
            first,
            far,
        }
    }
}

/// Reads a list of nodes: all by one scheme, and nothing in their URLs but where they are.
fn nodes<'a>(raw: &'a At<Vec<At<String>>>, field: &str, report: &mut Report) -> Option<Nodes<'a>> {
    let (port, owner) = if field == "cluster" { (PORT, "redis") } else { (SENTINEL_PORT, "sentinel") };
    let Some(first) = raw.value.first() else {
        empty(raw.at, field, &format!("such as `{field}: [redis://10.0.0.1:{port}]`"), report);
        return None;
    };
    let mut read: Vec<(RedisUrl, &At<String>)> = Vec::new();
    for text in &raw.value {
        let Some(url) = value(text, report, |text| redis_url(text, port)) else { continue };
        if matches!(url.address, RedisAddress::Unix(_)) {
            let problem = text.problem("a node is a host and a port, not a socket of this machine");
            report.error(problem.help("such as redis://10.0.0.1:6379"));
        }
        if url.username.is_some() || !url.password.is_empty() {
            let problem = text.problem(format!("a URL in `{field}` holds no user or password"));
            report.error(problem.help(format!("`username` and `password` are fields of `{owner}`")));
        }
        if let Some(number) = url.database {
            match owner {
                "redis" if number == 0 => {}
                "redis" => report.error(text.problem("a cluster has no database but 0")),
                _ => report.error(
                    text.problem("a sentinel has no database")
                        .help("the master's is the field `database` of `redis`"),
                ),
            }
        }
        if let Some((other, _)) = read.first().filter(|(other, _)| other.tls != url.tls) {
            let (one, two) = if other.tls { ("rediss", "redis") } else { ("redis", "rediss") };
            report.error(
                text.problem(format!("this URL begins with {two}://, the first one with {one}://"))
                    .help("write all of them alike: TLS everywhere, or nowhere"),
            );
        }
        read.push((url, text));
    }
    let tls = read.first()?.0.tls;
    let far = read.iter().find(|(url, _)| is_far(&url.address)).map(|(_, text)| *text);
    Some(Nodes { addresses: read.into_iter().map(|(url, _)| url.address).collect(), tls, first, far })
}

/// Whether an address is not on this machine.
fn is_far(address: &RedisAddress) -> bool {
    let RedisAddress::Tcp { host, .. } = address else { return false };
    !host.eq_ignore_ascii_case("localhost") && !host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
