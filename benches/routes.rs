//! How long it takes to find a request's route among many: `cargo bench --profile dist --bench routes`.
//!
//! Tables of routes that differ by path (`/v1/r7/items/{id}`), by host (`h7.example.com`), and by one of a hundred hosts
//! and a path. Requests come in an order that looks random, for a route that is there or for none.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)] // it reads clocks

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use sluicegate_gateway::resources::{LoadedConfig as Config, parse};
use sluicegate_route::{RouteQuery, RouteTable};

const SIZES: [usize; 6] = [1, 8, 10, 100, 1_000, 10_000];
/// Different requests that are asked in turn.
const REQUESTS: usize = 4_096;
/// How long each is measured at least.
const SPAN: Duration = Duration::from_millis(200);

/// What tells one route from another.
#[derive(Clone, Copy, Debug)]
enum By {
    Path,
    Host,
    Both,
}

/// The host and the path that the route `n` is asked with.
fn place(by: By, n: usize) -> (String, String) {
    match by {
        By::Path => ("api.example.com".to_owned(), format!("/v1/r{n}/items/7")),
        By::Host => (format!("h{n}.example.com"), "/v1/items/7".to_owned()),
        By::Both => (format!("h{}.example.com", n % 100), format!("/v1/r{n}/items/7")),
    }
}

fn config(by: By, routes: usize) -> Config {
    let mut text = "listen: [127.0.0.1:8080]\nroutes:\n".to_owned();
    for n in 0..routes {
        let (host, path) = place(by, n);
        let path = path.strip_suffix('7').unwrap();
        let what = match by {
            By::Path => format!("path: '{path}{{id}}'"),
            By::Host => format!("host: {host}"),
            By::Both => format!("host: {host}, path: '{path}{{id}}'"),
        };
        writeln!(text, "  - {{match: {{{what}}}, respond: {{status: 200}}}}").unwrap();
    }
    parse(text, "gateway.yaml", Path::new("")).config.unwrap()
}

/// Nanoseconds for each request of these.
fn each(table: &RouteTable, requests: &[(String, String)], found: bool) -> f64 {
    let headers = Default::default();
    let begun = Instant::now();
    let mut asked = 0;
    while begun.elapsed() < SPAN {
        for (host, path) in requests {
            let method = &Method::GET;
            let request = RouteQuery { listener: 0, host, method, path, headers: &headers, query: "" };
            assert_eq!(table.find(black_box(&request)).is_some(), found);
            asked += 1;
        }
    }
    begun.elapsed().as_nanos() as f64 / f64::from(asked)
}

fn main() {
    println!("{:>8} {:>8} {:>12} {:>14} {:>14}", "by", "routes", "built in ms", "one, ns", "none, ns");
    for by in [By::Path, By::Host, By::Both] {
        for routes in SIZES {
            let config = config(by, routes);
            let begun = Instant::now();
            let table = RouteTable::new(&config);
            let built = begun.elapsed().as_secs_f64() * 1e3;
            let scattered = |n: usize| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let there: Vec<_> = (0..REQUESTS).map(|n| place(by, scattered(n) % routes)).collect();
            let not: Vec<_> = (0..REQUESTS).map(|n| place(by, routes + scattered(n) % routes)).collect();
            let (there, not) = (each(&table, &there, true), each(&table, &not, false));
            let by = format!("{by:?}").to_lowercase();
            println!("{by:>8} {routes:>8} {built:>12.2} {there:>14.0} {not:>14.0}");
        }
    }
}
