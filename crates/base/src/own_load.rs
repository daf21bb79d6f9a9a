//! What the gateway itself uses of its memory, its time and its descriptors, and whether that is too much.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_config::OwnOverloadConfig;
use sluicegate_overload::pressure;

/// The parts of a resource between which the pressure rises: of memory and of descriptors.
const USED: (f64, f64) = (0.85, 0.95);
/// The pressure of delays rises from this part of the longest one on.
const DELAYED: f64 = 0.2;

/// The names of the resources.
pub const RESOURCES: [&str; 3] = ["memory", "delay", "connections"];

/// What the gateway itself uses.
#[derive(Debug)]
pub struct OwnLoad {
    /// The highest pressure of all resources, in millionths: see [`pressure`]. 0 without `overload`.
    pressure: AtomicU32,
    /// That of each of [`RESOURCES`].
    each: [AtomicU32; 3],
    /// By how many nanoseconds each worker was late.
    late: Box<[AtomicU64]>,
    /// Refused requests by priority.
    refused: [AtomicU64; 3],
}

impl OwnLoad {
    /// That of a gateway with so many workers.
    pub fn new(workers: usize) -> Self {
        Self {
            pressure: AtomicU32::new(0),
            each: Default::default(),
            late: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            refused: Default::default(),
        }
    }

    /// The pressure in millionths.
    #[inline]
    pub fn pressure(&self) -> u32 {
        self.pressure.load(Ordering::Relaxed)
    }

    /// The pressure of each of [`RESOURCES`].
    pub fn each(&self) -> [u32; 3] {
        [0, 1, 2].map(|at| self.each[at].load(Ordering::Relaxed))
    }

    /// Refused requests by priority.
    pub fn refused(&self) -> [u64; 3] {
        [0, 1, 2].map(|at| self.refused[at].load(Ordering::Relaxed))
    }

    /// Counts a refused request.
    pub fn count_refused(&self, priority: usize) {
        self.refused[priority].fetch_add(1, Ordering::Relaxed);
    }

    /// A worker was late by so much each time that it looked lately.
    pub fn set_late(&self, worker: usize, late: Duration) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.late[worker].store(nanos, Ordering::Relaxed);
    }

    /// Measures the pressure; `connections` is the part of the connections of clients that are open.
    pub fn measure(&self, config: Option<&OwnOverloadConfig>, memory: u64, connections: f64) {
        let each = config.map_or([0; 3], |config| {
            let late = self.late.iter().map(|late| late.load(Ordering::Relaxed)).max().unwrap_or(0) as f64;
            let longest = config.max_delay.as_nanos() as f64;
            [
                pressure(resident().unwrap_or(0) as f64 / memory.max(1) as f64, USED.0, USED.1),
                pressure(late / longest, DELAYED, 1.0),
                pressure(connections, USED.0, USED.1),
            ]
        });
        for (kept, now) in self.each.iter().zip(each) {
            kept.store(now, Ordering::Relaxed);
        }
        self.pressure.store(each.into_iter().max().unwrap_or(0), Ordering::Relaxed);
    }
}

/// The resident memory of the process in bytes.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// The bytes that the process may use: the least that its control groups allow, or else the memory of the machine.
pub fn available_memory() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let allowed = of_groups(&groups, |path| std::fs::read_to_string(path).ok());
    allowed.into_iter().chain(of_machine(&machine)).min().unwrap_or(u64::MAX)
}

/// What the control groups of the process allow, version 2 and version 1 (cgroups(7)).
fn of_groups(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let group = Path::new(root).join(group.trim_start_matches('/'));
        // A group is bound by those above it; in a container only the root can be seen.
        let above = group.ancestors().take_while(|path| path.starts_with(root));
        above.filter_map(|path| read(&path.join(file))?.trim().parse().ok()).min()
    });
    limits.min()
}

fn of_machine(text: &str) -> Option<u64> {
    let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(kilobytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.saturating_mul(1_024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_narrowest_group() {
        let files = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("1000000\n".to_owned()),
            "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => Some("9223372036854771712\n".to_owned()),
            _ => None,
        };
        assert_eq!(of_groups("0::/a/b\n", files), Some(1_000_000));
        assert_eq!(of_groups("5:memory:/c\n4:cpu:/x\n", files), Some(9_223_372_036_854_771_712));
        assert_eq!(of_groups("0::/elsewhere\n", files), None);
        assert_eq!(of_machine("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16_384 * 1_024));
        assert!(resident().is_some_and(|bytes| bytes > 100_000) && available_memory() < u64::MAX);
    }

    #[test]
    fn the_scarcest_resource_counts() {
        let (load, config) =
            (OwnLoad::new(2), OwnOverloadConfig { max_memory: None, max_delay: Duration::from_millis(100) });
        load.set_late(1, Duration::from_millis(60));
        load.measure(Some(&config), u64::MAX, 0.0);
        assert_eq!((load.pressure(), load.each()), (500_000, [0, 500_000, 0]));
        load.measure(Some(&config), 1, 0.9);
        assert_eq!(load.pressure(), 1_000_000);
        load.measure(None, 1, 0.9);
        assert_eq!(load.pressure(), 0);
    }
}
