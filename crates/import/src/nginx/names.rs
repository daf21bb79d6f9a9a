//! The names of servers, and the order in which the gateway has to try them.

use super::context::{Context, Scope};
use super::listen::Listener;
use crate::accepted;
use crate::names::escaped;
use crate::regex::{regex, whole, wider};
use crate::yaml::{Node, map, text};

/// The names of a server.
pub(super) struct Names {
    pub(super) hosts: Vec<Host>,
    /// For names of routes and `$server_name`.
    pub(super) first: String,
}

/// One name.
pub(super) struct Host {
    written: String,
    node: Node,
    rank: Rank,
    /// It stands for a name that is left out, of a server that protects something.
    lost: bool,
}

impl Names {
    /// Whether a host is one of the names.
    pub(super) fn has(&self, host: &str) -> bool {
        self.hosts.iter().any(|name| name.rank == Rank::Exact && name.node == text(host))
    }

    /// Whether a host is one of the names, or may match one.
    pub(super) fn may_match(&self, host: &str) -> bool {
        let matches = |name: &Host| match name.rank {
            Rank::Exact => name.node == text(host),
            Rank::Front(_) => host.ends_with(name.written.trim_start_matches('*')),
            Rank::End(_) => host.starts_with(name.written.trim_end_matches('*')),
            Rank::Expression => true,
        };
        self.hosts.iter().any(matches)
    }
}

/// Exact names are tried first, then wildcards, the longest first, then expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Exact,
    /// `*.example.com`, without what its length lacks to the longest possible name.
    Front(usize),
    /// `www.example.*`
    End(usize),
    Expression,
}

impl Rank {
    const fn of(name: &str, end: bool) -> Self {
        let shorter = usize::MAX - name.len();
        if end { Self::End(shorter) } else { Self::Front(shorter) }
    }
}

/// The servers of a listener, in order, each with the hosts of its routes; the default server is last and has none. A server with names
/// of several kinds comes several times, if another server's wildcard would otherwise take its requests. With `true`, the hosts may have a
/// name that is left out, and have to be denied.
pub(super) fn order(listener: &Listener<'_>, names: &[Names]) -> Vec<(usize, Vec<Node>, bool)> {
    let wild = |number: &usize| names[*number].hosts.iter().any(|host| host.rank != Rank::Exact);
    let wilds = listener.servers.iter().filter(|number| wild(number)).count();
    let mut groups: Vec<(Rank, usize, Vec<Node>, bool)> = Vec::new();
    for number in &listener.servers {
        let others = wilds - usize::from(wild(number));
        if *number == listener.default && others == 0 {
            continue;
        }
        for host in &names[*number].hosts {
            if host.lost && *number == listener.default {
                continue; // it has the hosts without another server anyway
            }
            let joined = groups.iter_mut().find(|(rank, other, _, lost)| {
                other == number && *lost == host.lost && (others == 0 || *rank == host.rank)
            });
            match joined {
                Some((rank, _, hosts, _)) => {
                    *rank = (*rank).max(host.rank);
                    hosts.push(host.node.clone());
                }
                None => groups.push((host.rank, *number, vec![host.node.clone()], host.lost)),
            }
        }
    }
    groups.sort_by_key(|(rank, ..)| *rank); // stable: expressions stay in the order of the file
    let mut order: Vec<_> =
        groups.into_iter().map(|(_, number, hosts, lost)| (number, hosts, lost)).collect();
    order.push((listener.default, Vec::new(), false));
    order
}

/// The names of a server as hosts of its routes.
pub(super) fn server_names(scope: &Scope<'_>, cx: &mut Context) -> Names {
    let mut names = Names { hosts: Vec::new(), first: String::new() };
    for directive in scope.own("server_name") {
        let mut trouble = None;
        for written in &directive.args {
            match hosts(written) {
                Ok(found) => {
                    if names.first.is_empty() && !found.is_empty() {
                        written
                            .to_ascii_lowercase()
                            .trim_start_matches(['*', '.', '~', '^'])
                            .clone_into(&mut names.first);
                    }
                    names.hosts.extend(found);
                }
                Err(why) if scope.is_protected() => {
                    let pattern = match written.strip_prefix('~') {
                        Some(pattern) => wider(pattern, true),
                        None => ".*".to_owned(),
                    };
                    trouble = Some(format!(
                        "`{written}` is left out: {why}. Because its server protects something, all hosts that match `{pattern}` and that no \
                         earlier server has are denied until you write the name"
                    ));
                    let node = regex(&pattern);
                    names.hosts.push(Host {
                        written: written.clone(),
                        node,
                        rank: Rank::Expression,
                        lost: true,
                    });
                }
                Err(why) => trouble = Some(format!("`{written}` is left out: {why}")),
            }
        }
        match trouble {
            Some(why) => cx.unsupported(directive, why),
            None => cx.converted(
                directive,
                "match.host of its routes; a default server matches all other hosts, too",
            ),
        }
    }
    names
}

/// The hosts of one name; none for names that no request has.
fn hosts(written: &str) -> Result<Vec<Host>, String> {
    let host = written.to_ascii_lowercase();
    let found = match host.as_str() {
        "" | "_" | "$hostname" => Vec::new(),
        _ if host.starts_with('~') => {
            let pattern = &written[1..];
            let pattern = whole(pattern, false).or_else(|_| expression(pattern))?;
            vec![(regex(&pattern), Rank::Expression)]
        }
        _ => match (host.strip_prefix('.'), host.strip_suffix(".*")) {
            (Some(rest), _) => {
                vec![(text(rest), Rank::Exact), (text(format!("*.{rest}")), Rank::of(rest, false))]
            }
            (None, Some(front)) => vec![(regex(&format!("{}\\..*", escaped(front))), Rank::of(front, true))],
            (None, None) if host.starts_with("*.") => vec![(text(&host), Rank::of(&host[1..], false))],
            (None, None) => vec![(text(&host), Rank::Exact)],
        },
    };
    for (node, _) in &found {
        accepted::matches(&map().with("host", node.clone()))?;
    }
    let host = |(node, rank)| Host { written: host.clone(), node, rank, lost: false };
    Ok(found.into_iter().map(host).collect())
}

/// An expression for hosts, which the rules for paths do not fit.
fn expression(pattern: &str) -> Result<String, String> {
    let body = pattern.trim_start_matches('^').trim_end_matches('$');
    let begin = if pattern.starts_with('^') { "" } else { ".*" };
    let end = if pattern.ends_with('$') { "" } else { ".*" };
    Ok(format!("{begin}{body}{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nginx::listen::listeners;
    use crate::nginx::parse::parse;

    fn tried(config: &str) -> Vec<(usize, Vec<String>)> {
        let directives = parse("n", config).unwrap();
        let http = Scope::top(&directives);
        let mut cx = Context::default();
        let servers: Vec<_> =
            http.own("server").into_iter().map(|server| (server, http.within(server.children()))).collect();
        let listeners = listeners(&servers, &mut cx);
        let names: Vec<_> = servers.iter().map(|(_, scope)| server_names(scope, &mut cx)).collect();
        let shown = |(number, hosts, lost): (usize, Vec<Node>, bool)| {
            let lost = lost.then(|| "closed".to_owned());
            (number, hosts.iter().map(Node::file_value).chain(lost).collect())
        };
        order(&listeners[0], &names).into_iter().map(shown).collect()
    }

    #[test]
    fn exact_names_come_before_wildcards() {
        let names = |hosts: &[&str]| hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let one = tried("server { server_name a.test *.a.test; } server { server_name b.test; }");
        assert_eq!(one, [(1, names(&["b.test"])), (0, vec![])]);
        let several = tried(
            "server { server_name api.a.test; } server { server_name *.a.test; } server { server_name *.b.a.test c.a.test ~^x; }",
        );
        let expected = [
            (0, names(&["api.a.test"])),
            (2, names(&["c.a.test"])),
            (2, names(&["\"*.b.a.test\""])),
            (1, names(&["\"*.a.test\""])),
            (2, names(&["{regex: x.*}"])),
            (0, vec![]),
        ];
        assert_eq!(several, expected);
    }

    #[test]
    fn a_name_that_is_left_out_is_closed_if_its_server_protects_something() {
        let config =
            "server {} server { server_name ~^(?!www)api; deny all; } server { server_name ~^(?=x); }";
        let expected = [(1, vec!["{regex: \"(?i)api.*\"}".to_owned(), "closed".to_owned()]), (0, vec![])];
        assert_eq!(tried(config), expected);
    }
}
