//! Figures of the process itself, as the kernel's `/proc` has them.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::families::{self, Family};

/// The gauges of the process. A figure that the system does not provide is left out.
pub(super) fn figures() -> Vec<(&'static Family, f64)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(Stat::parse);
    let started = stat.as_ref().zip(boot_time()).map(|(stat, booted)| booted as f64 + stat.started);
    let open_fds = count(Path::new("/proc/self/fd"));
    let max_fds = getrlimit(Resource::Nofile).current;
    let figures = [
        (&families::PROCESS_RESIDENT, stat.as_ref().map(|stat| stat.resident as f64)),
        (&families::PROCESS_VIRTUAL, stat.as_ref().map(|stat| stat.virtual_bytes as f64)),
        (&families::PROCESS_OPEN_FDS, open_fds.map(|open| open as f64)),
        (&families::PROCESS_MAX_FDS, Some(max_fds.map_or(f64::INFINITY, |most| most as f64))),
        (&families::PROCESS_START, started),
        (&families::PROCESS_THREADS, stat.as_ref().map(|stat| stat.threads as f64)),
    ];
    figures.into_iter().filter_map(|(family, figure)| Some((family, figure?))).collect()
}

/// The fields of `/proc/self/stat` (proc_pid_stat(5)) that are shown.
struct Stat {
    threads: u64,
    /// Seconds from the boot of the machine to the start of the process.
    started: f64,
    virtual_bytes: u64,
    /// Bytes.
    resident: u64,
}

impl Stat {
    /// `None` if the text is not in the kernel's format.
    fn parse(text: &str) -> Option<Self> {
        // The name of the program, the second field, may contain spaces and parentheses.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // Fields are numbered from 1 in the manual, and the first one here is the third.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = rustix::param::clock_ticks_per_second();
        let pages = field(24)?;
        Some(Self {
            threads: field(20)?,
            started: field(22)? as f64 / ticks as f64,
            virtual_bytes: field(23)?,
            resident: pages.saturating_mul(rustix::param::page_size() as u64),
        })
    }
}

/// When the machine was booted, in seconds since the Unix epoch.
fn boot_time() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// How many entries a folder has.
fn count(folder: &Path) -> Option<usize> {
    Some(std::fs::read_dir(folder).ok()?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_program_name() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 13 0 4200 9000000 250 184467";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.threads, stat.virtual_bytes), (13, 9_000_000));
        assert_eq!(stat.resident, 250 * rustix::param::page_size() as u64);
        assert!(Stat::parse("7 (a) S 1 7").is_none());
        assert!(Stat::parse("").is_none());
    }

    #[test]
    fn this_process_has_every_figure() {
        let figures = figures();
        assert_eq!(figures.len(), 6);
        assert!(figures.iter().all(|(_, figure)| *figure > 0.0));
    }
}
