//! Lines that need no conversion, and those that have no equivalent, each with the reason.

use super::parse::Line;
use crate::report::Outcome;

/// Words without an effect on the result.
const IGNORED: [(&str, &str); 8] = [
    (
        "daemon user group uid gid chroot pidfile nbproc nbthread cpu-map master-worker ulimit-n hard-stop-after thread-groups node description \
         set-dumpable unix-bind close-spread-time grace mworker-max-reloads numa-cpu-mapping stats-file h1-case-adjust-file",
        "it manages processes of HAProxy; the gateway has one process with one worker per core",
    ),
    (
        "log log-format log-format-sd log-tag log-send-hostname error-log-format dontlog unique-id-format unique-id-header capture declare",
        "access_log writes a line for each request, and X-Request-Id names it; the process log goes to standard error",
    ),
    (
        "stats",
        "the admin API shows the state (`admin: {address: 127.0.0.1:9090}`), with a page at / and /metrics",
    ),
    (
        "ssl-default-bind-ciphers ssl-default-bind-ciphersuites ssl-default-bind-options ssl-default-bind-curves ssl-default-server-ciphers \
         ssl-default-server-ciphersuites ssl-default-server-options ssl-dh-param-file ssl-server-verify ssl-engine ssl-mode-async \
         ssl-load-extra-files ssl-default-bind-client-sigalgs ssl-default-bind-sigalgs issuers-chain-path ssl-security-level",
        "TLS is 1.2 or 1.3 with modern ciphers, and there is nothing to choose",
    ),
    (
        "spread-checks max-spread-checks busy-polling tune maxsslconn maxpipes noepoll nopoll nosplice \
         nogetaddrinfo maxcompcpuusage maxcomprate maxzlibmem server-state-base server-state-file load-server-state-from-file profiling \
         expose-experimental-directives zero-warning strict-limits limited-quic crt-base ca-base setenv presetenv unsetenv resetenv localpeer \
         hash-balance-factor hash-type dynamic-cookie-key external-check insecure-fork-wanted insecure-setuid-wanted",
        "it tunes HAProxy, or names what other lines use",
    ),
    (
        "fullconn backlog retries retry-on persist force-persist ignore-persist max-keep-alive-queue max-session-srv-conns max-keep-alive",
        "the gateway tries other servers and keeps connections by itself: `retries`, `ejection`, `max_pending` of an upstream",
    ),
    ("id disabled enabled", "it names or switches sections of HAProxy"),
    (
        "monitor-net http-reuse bind-process clitcpka-cnt srvtcpka-cnt",
        "connections to servers are always reused and checked",
    ),
];

/// Options without an effect on the result.
const OPTIONS: [(&str, &str); 5] = [
    (
        "httplog dontlognull dontlog-normal log-separate-errors logasap tcplog httpslog log-health-checks socket-stats contstats",
        "access_log writes a line for each request",
    ),
    (
        "forwardfor http-server-close http-keep-alive httpclose forceclose http-tunnel http-pretend-keepalive prefer-last-server redispatch \
         http-use-htx http-no-delay http-buffer-request abortonclose tcpka clitcpka srvtcpka nolinger splice-auto splice-request \
         splice-response tcp-smart-accept tcp-smart-connect idle-close-on-response checkcache http-ignore-probes allbackups transparent \
         h1-case-adjust-bogus-client h1-case-adjust-bogus-server use-small-buffers",
        "the gateway sets X-Forwarded-For, keeps connections, and tries another server where that is safe",
    ),
    (
        "http-restrict-req-hdr-names",
        "headers with underscores in their names are removed from requests (`underscores`); names with other unusual characters are forwarded",
    ),
    (
        "tcp-check ssl-hello-chk",
        "a server is ejected after failed requests; `health: {path: …}` asks for a path",
    ),
    (
        "accept-invalid-http-request accept-invalid-http-response accept-unsafe-violations-in-http-request accept-unsafe-violations-in-http-response",
        "malformed messages are always refused",
    ),
];

/// Words without an equivalent, and what to do instead.
const UNSUPPORTED: [(&str, &str); 11] = [
    (
        "rate-limit maxconnrate maxsessrate maxsslrate",
        "new connections have no rate: write a limit with `key: global`, and max_connections of a listener",
    ),
    (
        "errorfile errorfiles errorloc errorloc302 errorloc303 http-error",
        "error answers are problem documents; `reject` of a route replaces those of its limits",
    ),
    ("compression", "the gateway does not compress: let the servers do it"),
    ("filter", "filters of HAProxy have no equivalent"),
    (
        "lua-load lua-load-per-thread lua-prepend-path",
        "Lua: use auth.check, a service of yours that decides on requests",
    ),
    ("email-alert", "alerts come from /metrics: deploy/ has rules for Prometheus"),
    ("use-server", "requests are spread over the servers of an upstream: write an upstream for this server"),
    (
        "reqrep reqirep reqadd reqdel reqidel reqallow reqiallow reqpass rspadd rspdel rspidel rsprep rspirep rspdeny rspideny appsession",
        "HAProxy itself has removed it: write the `http-request` or `http-response` rule for it, and import again",
    ),
    ("tcp-response tcp-check dispatch", "it is about TCP: the gateway forwards HTTP"),
    ("http-send-name-header", "servers get the same request, whichever it is"),
    (
        ".if .elif .else .endif .notice .warning .alert .diag",
        "conditional lines are not evaluated: keep those that hold, and import again",
    ),
];

/// What becomes of a line that nothing was said about.
pub(super) fn rest(line: &Line) -> (Outcome, String) {
    let word = line.word(0);
    let bare = if word == "no" || word == "default" { line.word(1) } else { word };
    let in_words = |words: &str, word: &str| words.split_whitespace().any(|known| known == word);
    if bare == "option" {
        let option = line.words.iter().skip_while(|word| *word != "option").nth(1).map_or("", String::as_str);
        if let Some((_, why)) = OPTIONS.iter().find(|(words, _)| in_words(words, option)) {
            return (Outcome::Ignored, (*why).to_owned());
        }
        return (Outcome::Unsupported, format!("this importer does not know `option {option}`"));
    }
    match (word, line.word(1)) {
        ("timeout", "check") => return (Outcome::Ignored, "health.timeout is 1s".to_owned()),
        ("timeout", "queue") => {
            return (
                Outcome::Approximated,
                "a request waits for a server for timeouts.connect of its upstream".to_owned(),
            );
        }
        ("timeout", "tarpit") => {
            return (Outcome::Ignored, "refused requests are answered at once".to_owned());
        }
        ("timeout", _) => {
            return (Outcome::Ignored, "half-closed connections have the timeouts of others".to_owned());
        }
        ("mode", "http") => return (Outcome::Converted, "the gateway forwards HTTP".to_owned()),
        ("mode", _) => return (Outcome::Ignored, "a later `mode` is in force".to_owned()),
        ("maxconn", _) => {
            return (
                Outcome::Ignored,
                "the gateway bounds its connections by its file descriptors; listeners have max_connections"
                    .to_owned(),
            );
        }
        _ => {}
    }
    if bare.starts_with("tune.") || bare.starts_with("stats") {
        let why = if bare.starts_with("tune.") { IGNORED[4].1 } else { IGNORED[2].1 };
        return (Outcome::Ignored, why.to_owned());
    }
    if let Some((_, why)) = IGNORED.iter().find(|(words, _)| in_words(words, bare)) {
        return (Outcome::Ignored, (*why).to_owned());
    }
    if let Some((_, why)) = UNSUPPORTED.iter().find(|(words, _)| in_words(words, bare)) {
        return (Outcome::Unsupported, (*why).to_owned());
    }
    if bare == "default_backend" {
        return (
            Outcome::Ignored,
            "a later `default_backend` is in force, or no request reaches it".to_owned(),
        );
    }
    if matches!(
        bare,
        "bind" | "server" | "acl" | "http-request" | "tcp-request" | "use_backend" | "stick-table"
    ) {
        return (Outcome::Ignored, "no request reaches it".to_owned());
    }
    (Outcome::Unsupported, format!("this importer does not know `{bare}`"))
}

/// What becomes of a section that has no routes.
pub(super) fn section(kind: &str) -> Option<(Outcome, &'static str)> {
    Some(match kind {
        "peers" => (Outcome::Unsupported, "gateways share counters in Redis: `store: {redis: {url: …}}`"),
        "resolvers" => {
            (Outcome::Ignored, "names of servers are resolved by the system, and again every 30 s")
        }
        "userlist" => (Outcome::Unsupported, "passwords: use auth.api_key with consumers, or auth.check"),
        "mailers" => (Outcome::Ignored, "alerts come from /metrics: deploy/ has rules for Prometheus"),
        "ring" | "log-forward" | "log-profile" | "traces" => {
            (Outcome::Ignored, "the gateway logs to standard error, files and OTLP")
        }
        "cache" => (Outcome::Unsupported, "the gateway has no cache"),
        "program" => (Outcome::Unsupported, "start programs with systemd"),
        "http-errors" => (
            Outcome::Unsupported,
            "error answers are problem documents; `reject` of a route replaces those of its limits",
        ),
        "fcgi-app" => (Outcome::Unsupported, "the gateway speaks HTTP to servers, not FastCGI"),
        "crt-store" | "acme" => (Outcome::Unsupported, "name the files of certificates in listen.tls"),
        _ => return None,
    })
}
