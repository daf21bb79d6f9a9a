//! How long it takes to read a list of a million lines, and to look an address up in it:
//! `cargo bench --profile dist --bench lists`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used)] // it reads clocks

use std::fmt::Write as _;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use sluicegate_auth::lists::AddressList;
use sluicegate_base::file_watch::Watched;

const LINES: u64 = 1_000_000;
const LOOKUPS: usize = 4_000_000;

/// Numbers that look random, and are the same in every run (splitmix64).
fn scattered(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn v4(n: u64) -> IpAddr {
    Ipv4Addr::from(scattered(n) as u32).into()
}

fn v6(n: u64) -> IpAddr {
    Ipv6Addr::from(u128::from(scattered(n)) << 64 | u128::from(scattered(!n))).into()
}

fn measure(what: &str, address: fn(u64) -> IpAddr) {
    let mut text = String::new();
    for n in 0..LINES {
        writeln!(text, "{}", address(n)).unwrap();
    }
    let begun = Instant::now();
    let list = AddressList::parse(&text, what).unwrap();
    println!("{what}: {LINES} lines are read in {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    for (kind, first) in [("on the list", 0), ("not on it", LINES)] {
        let asked: Vec<IpAddr> = (0..LOOKUPS as u64).map(|n| address(first + scattered(n) % LINES)).collect();
        let begun = Instant::now();
        let found = asked.iter().filter(|asked| list.contains(**black_box(asked))).count();
        let each = begun.elapsed().as_nanos() as f64 / LOOKUPS as f64;
        println!("{what}: {each:.0} ns for an address {kind} ({found} of {LOOKUPS} found)");
    }
}

fn main() {
    measure("IPv4", v4);
    measure("IPv6", v6);
}
