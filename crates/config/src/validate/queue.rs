//! Validates `accept` and `queue` of a limit.

use std::collections::HashMap;
use std::time::Duration;

use super::checks::{between, check_name, header_name, in_range, missing, value, word};
use super::context::Context;
use super::section::Section;
use crate::language::values::{self, grouped};
use crate::model::limit::LimitConfig;
use crate::model::queue::{QueueConfig, QueueStorage, SharedQueue};
use crate::raw::RawLimit;
use crate::raw::queue::RawQueue;
use crate::raw::scalars::RawCount;
use crate::read::at::At;
use crate::read::is_wrong;
use crate::read::report::{Mistake, Problem, Report};

/// The most requests in a queue when nothing else is said.
const MAX_LENGTH: u64 = 100_000;
/// Their bytes.
const MAX_BYTES: u64 = 1 << 30;
/// The largest body of a request in it.
const MAX_BODY: u64 = 64 << 10;
/// The largest body that may be configured: requests that are being accepted or sent are in memory.
const MOST_BODY: u64 = 16 << 20;
/// How long a request may wait.
const TTL: Duration = Duration::from_secs(3_600);
/// How long its outcome can be read.
const KEEP: Duration = Duration::from_secs(3_600);
const MAX_ATTEMPTS: u64 = 5;
const CONCURRENCY: u64 = 16;

/// The queue of a limit; `Some(None)` if it has none.
pub(super) fn queue(
    name: &At<String>,
    raw: &RawLimit,
    context: Context<'_>,
    report: &mut Report,
) -> Option<Option<QueueConfig>> {
    let accepts_all = accept(raw, report);
    let Some(queue) = &raw.queue else {
        return (!is_wrong!(raw, queue)).then_some(None);
    };
    let mut excludes = |field: &str, help: &str| {
        let problem = Problem::new(queue.at, format!("`queue` and `{field}` exclude each other"));
        report.error(problem.help(help.to_owned()));
    };
    if raw.penalty.is_some() {
        excludes("penalty", "requests above the limit wait in one place; remove one");
    }
    if raw.ban.is_some() {
        excludes("ban", "a ban counts refusals, and a request that is queued is not refused; remove one");
    }
    let of_queue = of_queue(&name.value, queue, accepts_all.unwrap_or(false), context, report);
    accepts_all?;
    of_queue.map(Some)
}

/// Two limits must not have the same queue in Redis: each would deliver the requests of the other.
pub(super) fn check_streams(limits: &Section<LimitConfig>, report: &mut Report) {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (name, limit) in limits.valid() {
        let Some(QueueStorage::Redis(SharedQueue { stream, .. })) = limit.queue.as_ref().map(|q| &q.storage)
        else {
            continue;
        };
        if let Some(other) = seen.insert(stream, &name.value) {
            let problem = name.problem(format!(
                "limits `{other}` and `{}` have the same queue `{stream}` in Redis",
                name.value
            ));
            report.error(problem.help("give each its own `queue.redis.stream`"));
        }
    }
}

/// Whether requests are queued whose clients have not asked for that.
fn accept(raw: &RawLimit, report: &mut Report) -> Option<bool> {
    let Some(accept) = &raw.accept else { return (!is_wrong!(raw, accept)).then_some(false) };
    if accept.value.0 != 202 {
        let problem = accept.problem(format!("`accept` is 202, not {}", accept.value.0));
        report.error(problem.help("202 (Accepted) says that the request is delivered later"));
        return None;
    }
    if raw.queue.is_none() && !is_wrong!(raw, queue) {
        let problem =
            accept.problem("`accept` needs `queue`: requests that are delivered later are kept there");
        report.error(problem.help("such as `queue: {file: queue.db}`"));
        return None;
    }
    Some(true)
}

/// Where the queue is kept.
fn storage(
    limit: &str,
    At { at, value: raw }: At<&RawQueue>,
    context: Context<'_>,
    report: &mut Report,
) -> Option<QueueStorage> {
    match (&raw.file, &raw.redis) {
        (Some(file), None) => Some(QueueStorage::File(context.folder.file(file))),
        (None, Some(redis)) => {
            if !context.store {
                let problem = Problem::new(redis.at, "`queue.redis` needs a store, and the file has none");
                let help = "such as `store: {redis: {url: redis://127.0.0.1:6379}}`, or keep it in a `file`";
                report.error(problem.help(help));
                return None;
            }
            let stream = redis.value.stream.as_ref();
            if let Some(stream) = stream {
                check_name(stream, "queue", report);
            }
            let stream = stream.map_or_else(|| limit.to_owned(), |stream| stream.value.clone());
            Some(QueueStorage::Redis(SharedQueue { stream, redis: Box::new(context.redis?.clone()) }))
        }
        (Some(_), Some(redis)) => {
            let problem = Problem::new(redis.at, "a queue is kept in one place");
            report.error(problem.help("give one of `file` and `redis`"));
            None
        }
        (None, None) => {
            if !is_wrong!(raw, redis) {
                missing(at, "`queue`", ("file", "queue.db"), &raw.wrong, report);
            }
            None
        }
    }
}

fn of_queue(
    limit: &str,
    At { at, value: raw }: &At<RawQueue>,
    accepts_all: bool,
    context: Context<'_>,
    report: &mut Report,
) -> Option<QueueConfig> {
    let storage = storage(limit, At { at: *at, value: raw }, context, report);
    let count = |given: Option<&At<RawCount>>, field, usual, most, report: &mut Report| {
        given.map_or(Some(usual), |count| in_range(count, 1..=most, field, report))
    };
    let max_length = count(raw.max_length.as_ref(), "max_length", MAX_LENGTH, 100_000_000, report);
    let max_attempts = count(raw.max_attempts.as_ref(), "max_attempts", MAX_ATTEMPTS, 100, report);
    let concurrency = count(raw.concurrency.as_ref(), "concurrency", CONCURRENCY, 1_000, report);
    let max_body = match &raw.max_body {
        None => Some(MAX_BODY),
        Some(text) => value(text, report, |text| match values::bytes(text)? {
            fits if fits <= MOST_BODY => Ok(fits),
            _ => Err(Mistake::new(format!("`max_body` of a queue is at most 16MiB, not {text}"))),
        }),
    };
    let max_bytes = raw.max_bytes.as_ref().map_or(Some(MAX_BYTES), |text| value(text, report, values::bytes));
    if let Some((all, one)) = max_bytes.zip(max_body).filter(|(all, one)| all < one) {
        let at = raw.max_bytes.as_ref().map_or(*at, |text| text.at);
        let problem =
            format!("a body of {} bytes does not fit into {} (`max_bytes`)", grouped(one), grouped(all));
        report.error(Problem::new(at, problem).help("raise `max_bytes`, or lower `max_body`"));
    }
    let bounds = [(Duration::from_secs(1), "1s"), (Duration::from_secs(30 * 86_400), "30d")];
    let ttl = raw.ttl.as_ref();
    let ttl = ttl.map_or(Some(TTL), |text| between(text, "ttl", bounds[0], bounds[1], report));
    let keep = raw.keep.as_ref();
    let keep = keep.map_or(Some(KEEP), |text| between(text, "keep", bounds[0], bounds[1], report));
    let orders = [("none", false), ("key", true)];
    let ordered = raw.order.as_ref().map_or(Some(false), |text| word(text, "order", &orders, report));
    let on_full =
        raw.on_full.as_ref().map_or(Some(()), |text| word(text, "on_full", &[("refuse", ())], report));
    let keep_credentials = raw.keep_credentials.as_ref().filter(|keep| keep.value);
    if let (Some(keep), Some(QueueStorage::Redis(_)), None) = (keep_credentials, &storage, &raw.key_file) {
        let problem = keep.problem("credentials in Redis need `key_file`, which all gateways have");
        report.error(
            problem.help(
                "make one with `head -c 32 /dev/urandom > queue.key`, and name it: `key_file: queue.key`",
            ),
        );
    }
    let names = raw.headers.iter().flat_map(|names| &names.value);
    // All of them are looked at, so that each mistake is reported.
    let headers: Vec<Option<_>> = names.map(|name| value(name, report, header_name)).collect();
    on_full?;
    Some(QueueConfig {
        accepts_all,
        storage: storage?,
        max_length: max_length?,
        max_bytes: max_bytes?,
        max_body: max_body?,
        ttl: ttl?,
        keep: keep?,
        max_attempts: max_attempts? as u32,
        concurrency: concurrency? as usize,
        ordered: ordered?,
        keep_credentials: keep_credentials.is_some(),
        key_file: raw.key_file.as_ref().map(|path| context.folder.file(path)),
        headers: headers.into_iter().collect::<Option<_>>()?,
    })
}
