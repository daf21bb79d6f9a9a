//! URLs of Redis. No message repeats more of one than it has to: any part of it may be a password in the wrong place.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use crate::language::secret::Secret;
use crate::model::store::RedisAddress;
use crate::percent_decode;
use crate::read::report::Mistake;

/// What one URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedisUrl {
    pub(super) address: RedisAddress,
    pub(super) tls: bool,
    pub(super) username: Option<String>,
    pub(super) password: Secret,
    pub(super) database: Option<u32>,
}

const EXPECTED: &str =
    "expected a URL such as redis://127.0.0.1:6379, rediss://HOST:6379 or redis+unix:///PATH";
const ESCAPES: &str = "inside a user or a password write @ as %40, / as %2F, : as %3A, ? as %3F, # as %23";
/// Redis counts its databases in a signed number of 32 bits.
pub(super) const MAX_DATABASE: u32 = i32::MAX as u32;

/// Reads a URL; `port` is for those that have none.
pub(super) fn redis_url(text: &str, port: u16) -> Result<RedisUrl, Mistake> {
    let Some((scheme, rest)) = text.split_once("://") else {
        let mistake = Mistake::new(EXPECTED);
        return Err(match host_and_port(text, port) {
            Ok(_) => mistake.help(format!("write redis://{text}")),
            Err(_) => mistake,
        });
    };
    if rest.contains('#') {
        return Err(Mistake::new("a URL of Redis has no fragment (`#…`)").help(ESCAPES));
    }
    match scheme {
        "redis" => tcp(rest, false, port),
        "rediss" => tcp(rest, true, port),
        "redis+unix" | "unix" => unix(rest),
        _ => Err(Mistake::new(EXPECTED)),
    }
}

/// `[USER[:PASSWORD]@]HOST[:PORT][/DB]`
fn tcp(rest: &str, tls: bool, port: u16) -> Result<RedisUrl, Mistake> {
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if path.contains('@') {
        return Err(Mistake::new("what stands before the `@` of this URL ends too early").help(ESCAPES));
    }
    if path.contains('?') {
        return Err(Mistake::new("a URL of Redis has no query (`?…`), except the ?db=1 of a socket")
            .help("what it would say are fields: username, password, database, timeout"));
    }
    let (credentials, place) = match authority.rsplit_once('@') {
        Some((credentials, place)) => (Some(credentials), place),
        None => (None, authority),
    };
    let (username, password) = match credentials.map(|text| text.split_once(':').unwrap_or((text, ""))) {
        Some((username, password)) => (given(username), Secret::new(given(password).unwrap_or_default())),
        None => (None, Secret::default()),
    };
    let (host, port) = host_and_port(place, port)?;
    let database = match path.trim_start_matches('/') {
        "" => None,
        number => Some(database(number)?),
    };
    let address = RedisAddress::Tcp { host: host.to_owned(), port };
    Ok(RedisUrl { address, tls, username, password, database })
}

fn host_and_port(place: &str, usual: u16) -> Result<(&str, u16), Mistake> {
    let (host, port) = match place.strip_prefix('[') {
        Some(inside) => {
            let (host, port) = inside.split_once(']').unwrap_or(("", ""));
            if host.parse::<Ipv6Addr>().is_err() {
                return Err(Mistake::new("what stands in the brackets of this URL is not an IPv6 address"));
            }
            (host, port)
        }
        None => place.split_at(place.find(':').unwrap_or(place.len())),
    };
    if host.is_empty() {
        let help = "the host comes after the `//`, or after the `@` behind a user and a password";
        return Err(Mistake::new("this URL has no host").help(help));
    }
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if !place.starts_with('[') && !host.bytes().all(is_name) {
        return Err(Mistake::new("the host of this URL is neither a name nor an address"));
    }
    let Some(number) = port.strip_prefix(':').filter(|number| !number.is_empty()) else {
        return match port {
            "" | ":" => Ok((host, usual)),
            _ => Err(Mistake::new("behind the brackets of this URL comes `:` and the port")),
        };
    };
    match number.parse::<u16>() {
        Ok(port) if port != 0 => Ok((host, port)),
        _ => {
            let mistake = Mistake::new("the port of this URL is not a number between 1 and 65535");
            let is_ipv6 = |text: &str| text.parse::<Ipv6Addr>().is_ok();
            if is_ipv6(place) || place.rsplit_once(':').is_some_and(|(host, _)| is_ipv6(host)) {
                return Err(mistake.help("an IPv6 address stands in brackets: redis://[::1]:6379"));
            }
            Err(match number.bytes().all(|b| b.is_ascii_digit()) {
                true => mistake,
                false => mistake.help("if that is a password, an `@` and the host come behind it"),
            })
        }
    }
}

/// `/PATH[?db=N]`
fn unix(rest: &str) -> Result<RedisUrl, Mistake> {
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    if !path.starts_with('/') || path.len() == 1 {
        return Err(Mistake::new("the URL of a socket is redis+unix:// and an absolute path")
            .help("such as redis+unix:///run/redis.sock; user and password are fields of `redis`"));
    }
    let database = match query.map(|query| query.strip_prefix("db=").map(database)) {
        None => None,
        Some(Some(Ok(number))) => Some(number),
        Some(_) => {
            return Err(Mistake::new("the URL of a socket has no query but ?db= and a number")
                .help("user and password are fields of `redis`"));
        }
    };
    let address = RedisAddress::Unix(PathBuf::from(percent_decode(path)));
    Ok(RedisUrl { address, tls: false, username: None, password: Secret::default(), database })
}

fn database(number: &str) -> Result<u32, Mistake> {
    let bad =
        || Mistake::new("the database of this URL is not a number").help("such as redis://127.0.0.1:6379/0");
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    number.parse().ok().filter(|number| *number <= MAX_DATABASE).ok_or_else(bad)
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| percent_decode(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> RedisUrl {
        let address = RedisAddress::Tcp { host: host.to_owned(), port };
        RedisUrl { address, tls: false, username: None, password: Secret::default(), database: None }
    }

    #[test]
    fn urls_as_the_manual_writes_them() {
        let app = RedisUrl {
            username: Some("app".to_owned()),
            password: Secret::new("p@:/ss"),
            database: Some(2),
            ..tcp("h", 7)
        };
        let socket = RedisUrl { address: RedisAddress::Unix("/run/r.sock".into()), ..tcp("", 0) };
        for (text, expected) in [
            ("redis://h", tcp("h", 6379)),
            ("redis://h/", tcp("h", 6379)),
            ("redis://h:7", tcp("h", 7)),
            ("redis://[::1]:7/0", RedisUrl { database: Some(0), ..tcp("::1", 7) }),
            ("redis://[::1]", tcp("::1", 6379)),
            ("rediss://h", RedisUrl { tls: true, ..tcp("h", 6379) }),
            ("redis://app@h", RedisUrl { username: Some("app".to_owned()), ..tcp("h", 6379) }),
            ("redis://:s@h", RedisUrl { password: Secret::new("s"), ..tcp("h", 6379) }),
            ("redis://app:p%40%3A%2Fss@h:7/2", app.clone()),
            ("redis://app:p@:%2Fss@h:7/2", app),
            ("unix:///run/r.sock", socket.clone()),
            ("redis+unix:///run/r.sock?db=3", RedisUrl { database: Some(3), ..socket }),
        ] {
            assert_eq!(redis_url(text, 6379).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_told_without_repeating_it() {
        for text in [
            "",
            "redis://",
            "redis://:sesame",
            "redis://user:sesame",
            "redis://:sesame/more@h",
            "redis://:ses ame@h h",
            "redis://:sesame?@h",
            "redis://:sesame#@h",
            "redis://h:0",
            "redis://h:65536",
            "redis://::1:6379",
            "redis://[sesame]:6379",
            "redis://[::1]6379",
            "redis://h/sesame",
            "redis://h/-1",
            "redis://h/4294967296",
            "redis://h?password=sesame",
            "https://:sesame@h",
            "reds://sesame",
            "user:sesame@h",
            "unix://sesame",
            "unix:///",
            "unix:///run/r.sock?pass=sesame",
            "unix:///run/r.sock#sesame",
        ] {
            let mistake = redis_url(text, 6379).unwrap_err();
            assert!(!format!("{mistake:?}").contains("sesame"), "{text}: {mistake:?}");
        }
    }
}
