//! `sluicegate size`

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::json;
use sluicegate_config::{Mistake, grouped, parse_bytes, parse_count, parse_rate};
use sluicegate_limiter::Rate;

use super::output::{INVALID, fail, print_and_exit};
use crate::sizing::{Demand, Figures, Layout, Need, QueueNeed, Traffic, admitted, queue, size};

#[derive(clap::Args)]
#[command(
    after_help = "The figures that it starts from were measured (docs/performance.md, docs/redis.md), the prices are \
                  assumed: give your own. docs/scale.md explains the layouts.\n\n\
                  Examples:\n  sluicegate size --users 100M --qps 100M --limit 100/min\n  \
                  sluicegate size --users 1M --qps 50k --limit 10/s --demand zipf\n  \
                  sluicegate size --users 1M --qps 50k --limit 10/s --queued 1M --queued-bytes 2000\n  \
                  sluicegate size --users 1M --qps 50k --limit 10/s --key-bytes 190 --json"
)]
pub(super) struct Args {
    /// Keys in use, such as users: 20, 10k, 100M
    #[arg(long, value_name = "COUNT", value_parser = count)]
    users: u64,
    /// Requests per second, of all keys together
    #[arg(long, value_name = "COUNT", value_parser = count)]
    qps: u64,
    /// The limit of each key, such as 100/min
    #[arg(long, value_name = "RATE", value_parser = rate)]
    limit: Rate,
    /// Shared limits of a request
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    limits: u32,
    /// How often the keys are used
    #[arg(long, value_enum, default_value = "uniform")]
    demand: Demand,
    /// Requests that wait in a queue at most (`queue` of a limit)
    #[arg(long, value_name = "COUNT", value_parser = count)]
    queued: Option<u64>,
    /// Bytes of the body of such a request, such as 2000 or 64KiB
    #[arg(long, value_name = "BYTES", default_value_t = 1_000, value_parser = bytes, requires = "queued")]
    queued_bytes: u64,
    #[command(flatten)]
    figures: Options,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The figures, which have defaults.
#[derive(clap::Args)]
#[command(next_help_heading = "Figures")]
struct Options {
    /// Processor time of a forwarded request, in microseconds
    #[arg(long, value_name = "US", default_value_t = Figures::default().request_us, value_parser = positive)]
    request_us: f64,
    /// Processor time that a call of the store adds in the gateway, in microseconds
    #[arg(long, value_name = "US", default_value_t = Figures::default().call_us, value_parser = positive)]
    call_us: f64,
    /// Processor time of a call in the store for each limit, in microseconds
    #[arg(long, value_name = "US", default_value_t = Figures::default().store_us, value_parser = positive)]
    store_us: f64,
    /// Bytes of a key in the store
    #[arg(long, value_name = "BYTES", default_value_t = Figures::default().key_bytes, value_parser = bytes)]
    key_bytes: u64,
    /// The part of a processor that is used, 0 to 1
    #[arg(long, value_name = "PART", default_value_t = Figures::default().load, value_parser = part)]
    load: f64,
    /// Copies of the store's data
    #[arg(long, value_name = "COUNT", default_value_t = Figures::default().replicas, value_parser = clap::value_parser!(u32).range(0..=5))]
    replicas: u32,
    /// Cores of a gateway
    #[arg(long, value_name = "COUNT", default_value_t = Figures::default().cores, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    cores: u32,
    /// The memory of a store's shard, in GB
    #[arg(long, value_name = "GB", default_value_t = Figures::default().store_gb, value_parser = positive)]
    store_gb: f64,
    /// For how long a lease lasts, in seconds. This version's last 0.05 s; more shows what longer ones would save
    #[arg(long, value_name = "SECONDS", default_value_t = Figures::default().hold, value_parser = positive)]
    hold: f64,
    /// Bytes of a request and its answer
    #[arg(long, value_name = "BYTES", default_value_t = Figures::default().request_bytes, value_parser = bytes)]
    request_bytes: u64,
    /// Money for a core, a month
    #[arg(long, value_name = "MONEY", default_value_t = Figures::default().core_price, value_parser = positive)]
    core_price: f64,
    /// Money for a GB of memory, a month
    #[arg(long, value_name = "MONEY", default_value_t = Figures::default().gb_price, value_parser = positive)]
    gb_price: f64,
}

impl Options {
    fn figures(&self) -> Figures {
        Figures {
            request_us: self.request_us,
            call_us: self.call_us,
            store_us: self.store_us,
            key_bytes: self.key_bytes,
            load: self.load,
            replicas: self.replicas,
            cores: self.cores,
            store_gb: self.store_gb,
            hold: self.hold,
            request_bytes: self.request_bytes,
            core_price: self.core_price,
            gb_price: self.gb_price,
            ..Figures::default()
        }
    }
}

fn count(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("it is at least 1".to_owned()),
        Ok(count) if count > 1_000_000_000_000 => Err("it is at most 1,000,000,000,000".to_owned()),
        other => other.map_err(described),
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(described)
}

fn rate(text: &str) -> Result<Rate, String> {
    parse_rate(text).map_err(described)
}

fn described(mistake: Mistake) -> String {
    match mistake.help {
        Some(help) => format!("{} ({help})", mistake.message),
        None => mistake.message,
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1e9).contains(number));
    number.filter(|number| *number > 0.0).ok_or_else(|| "expected a number above 0".to_owned())
}

fn part(text: &str) -> Result<f64, String> {
    positive(text)
        .ok()
        .filter(|part| *part <= 1.0)
        .ok_or_else(|| "expected a part of 1, such as 0.6".to_owned())
}

pub(super) fn run(args: &Args) -> ExitCode {
    let Args { users, qps, limit: rate, limits, demand, .. } = *args;
    let traffic = Traffic { users, qps, rate, limits, demand };
    if users.checked_mul(u64::from(limits)).is_none_or(|keys| keys > 1_000_000_000_000) {
        return fail(INVALID, "users times limits is at most 1,000,000,000,000");
    }
    let figures = args.figures.figures();
    let needs = size(&traffic, &figures);
    let queued = args.queued.map(|queued| queue(queued, args.queued_bytes, &figures));
    if args.json {
        let described = json!({
            "users": users, "qps": qps, "demand": demand, "limits": limits,
            "admitted": admitted(&traffic), "figures": figures, "layouts": needs, "queue": queued,
        });
        return print_and_exit(&format!("{described:#}\n"));
    }
    let mut text = text(&traffic, &figures, &needs);
    if let Some(QueueNeed { requests, body_bytes, file_gb, redis_gb }) = queued {
        let (requests, body_bytes) = (grouped(requests), grouped(body_bytes));
        let _ = writeln!(
            text,
            "Queue: {requests} requests with bodies of {body_bytes} bytes take {file_gb:.1} GB on disk, or {redis_gb:.1} GB of memory in Redis.",
        );
    }
    print_and_exit(&text)
}

const fn name(layout: Layout) -> &'static str {
    match layout {
        Layout::Exact => "any gateway, exact",
        Layout::Leased => "any gateway, leased",
        Layout::Pairs => "pairs of gateways with a store, leased",
        Layout::Affine => "one gateway for each key, leased",
        Layout::Local => "one gateway for each key, local",
    }
}

fn text(traffic: &Traffic, figures: &Figures, needs: &[Need]) -> String {
    let mut out = format!(
        "{} keys, {} requests/s ({} a key on average, {}), of which the limit admits {:.1} %\n\n{:<40}{:>10}{:>12}{:>10}{:>10}{:>12}{:>14}\n",
        grouped(traffic.users),
        grouped(traffic.qps),
        short(traffic.qps as f64 / traffic.users as f64),
        match traffic.demand {
            Demand::Uniform => "all alike",
            Demand::Zipf => "Zipf's law",
        },
        admitted(traffic) * 100.0,
        "",
        "calls",
        "gateways of",
        "shards",
        "memory",
        "store",
        "money",
    );
    let _ = writeln!(
        out,
        "{:<40}{:>10}{:>12}{:>10}{:>10}{:>12}{:>14}",
        "",
        "a request",
        format!("{} cores", figures.cores),
        "",
        "GB",
        "Gbit/s",
        "a month"
    );
    for need in needs {
        let _ = writeln!(
            out,
            "{:<40}{:>10.3}{:>12}{:>10}{:>10.1}{:>12.1}{:>14}",
            name(need.layout),
            need.calls_per_request,
            grouped(need.gateways),
            grouped(need.shards),
            need.store_gb + need.gateway_gb,
            need.store_gbit,
            grouped(need.money.round() as u64),
        );
    }
    let traffic_gbit = needs.first().map_or(0.0, |need| need.traffic_gbit);
    let _ = write!(
        out,
        "\nClients and upstreams: {traffic_gbit:.1} Gbit/s at {} bytes for a request and its answer.\n\
         Processors are {:.0} % busy; stores have {} for each shard, and {:.1} times the memory of their keys.\n",
        grouped(figures.request_bytes),
        figures.load * 100.0,
        match figures.replicas {
            1 => "a replica".to_owned(),
            n => format!("{n} replicas"),
        },
        figures.fork,
    );
    out
}

fn short(number: f64) -> String {
    match number >= 100.0 {
        true => format!("{number:.0}"),
        false => format!("{number:.2}"),
    }
}
