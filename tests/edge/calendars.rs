//! Days, weeks and months of a time zone: counted alike in the process, in Redis and in replays, and told to clients
//! with their true length.

use crate::harness::fleet::limit;
use crate::harness::{Fleet, RedisServer, Setup, until};
use jiff::{ToSpan, Zoned};

const KEY: [(&str, &str); 1] = [("x-api-key", "k")];

/// The seconds of the present month, and those that are left of it.
fn month(zone: &str) -> (u64, u64) {
    let now = Zoned::now().in_tz(zone).unwrap();
    let first = now.first_of_month().unwrap().start_of_day().unwrap();
    let next = first.checked_add(1.month()).unwrap();
    let seconds = |from: &Zoned| u64::try_from(from.duration_until(&next).as_secs()).unwrap();
    (seconds(&first), seconds(&now))
}

#[test]
fn a_month_is_counted_and_told() {
    for store in [None, Some(RedisServer::start())] {
        let before = month("Europe/Berlin");
        let text = limit("rate: 4/month, zone: Europe/Berlin, algorithm: fixed_window");
        let text = store.as_ref().map_or_else(String::new, RedisServer::store) + &text;
        let fleet = match &store {
            Some(_) => Fleet::start(2, &text),
            None => Fleet::cold(1, &text),
        };
        assert_eq!(fleet.in_turn(6, "k"), [200, 200, 200, 200, 429, 429]);
        let (admitted, refused) =
            (fleet[0].ask("GET", "/", &[("x-api-key", "other")]), fleet[0].ask("GET", "/", &KEY));
        let after = month("Europe/Berlin");
        for answer in [&admitted, &refused] {
            let policy = |seconds: u64| format!("\"l\";q=4;w={seconds}");
            let shown = answer.header("ratelimit-policy").unwrap();
            assert!(shown == policy(before.0) || shown == policy(after.0), "{shown}");
        }
        assert_eq!((admitted.status, refused.status), (200, 429));
        let wait = refused.number("retry-after");
        assert!(
            wait >= after.1 && wait <= before.1 + 1,
            "{wait} is not between {} and {}",
            after.1,
            before.1
        );
    }
}

/// Other calendars, and what is left in them after three requests.
const CALENDARS: [(&str, u64); 5] = [
    ("rate: 10/month, zone: Asia/Tokyo", 7),
    ("rate: 5/week, zone: Asia/Tokyo", 2),
    ("rate: 4/day", 1),
    ("rate: 6/month", 3),
    ("rate: 4/month, zone: Europe/Berlin", 1),
];

/// The dates in their zones. While these stay the same no period ends.
fn dates() -> [jiff::civil::Date; 3] {
    ["Asia/Tokyo", "UTC", "Europe/Berlin"].map(|zone| Zoned::now().in_tz(zone).unwrap().date())
}

/// Three requests, what is left after each reload, and two more requests.
fn spent(store: Option<&RedisServer>) -> (Vec<u16>, [(&'static str, u64); 5], Vec<u16>) {
    let text = |rate: &str| {
        let store = store.map_or_else(String::new, RedisServer::store);
        store + &limit(&format!("{rate}, algorithm: fixed_window"))
    };
    let fleet = Fleet::cold(1, &text("rate: 4/month, zone: Europe/Berlin"));
    if store.is_some() {
        fleet.up();
    }
    let before = fleet.in_turn(3, "k");
    let left = CALENDARS.map(|(rate, _)| {
        fleet[0].reload(&text(rate));
        (rate, fleet[0].remaining("l", "k"))
    });
    (before, left, fleet.in_turn(2, "k"))
}

/// What was spent counts in the present period of another calendar, here and in Redis.
#[test]
fn a_reload_keeps_what_was_spent() {
    for shared in [false, true] {
        let seen = until("midnight is not in between", || {
            let (before, store) = (dates(), shared.then(RedisServer::start));
            Some(spent(store.as_ref())).filter(|_| dates() == before)
        });
        assert_eq!(seen, (vec![200; 3], CALENDARS, vec![200, 429]));
    }
}

/// A client that asks for its limits is told the length of the present month.
#[test]
fn usage_shows_the_current_period() {
    let text = "limits: {l: {key: ip, algorithm: fixed_window, rate: 4/month}}\nroutes:\n  \
                - {name: usage, match: {path: /*}, respond: usage, limits: [l]}\n";
    let before = month("UTC").0 as f64;
    let answer = Setup::default().start(text).get("/");
    let shown = answer.json()["limits"][0]["window"].as_f64().unwrap();
    assert!(shown == before || shown == month("UTC").0 as f64, "{shown}");
}

/// A replay counts by the calendar of the log: months end at midnight in their zone, and the day on which summer time
/// ends has 25 hours.
#[test]
fn a_replay_counts_by_the_calendar_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let text = "listen: [127.0.0.1:0]\nlimits:\n  \
                month: {key: ip, algorithm: fixed_window, rate: 1/month, zone: Europe/Berlin}\n  \
                day: {key: ip, algorithm: fixed_window, rate: 1/day, zone: Europe/Berlin}\nroutes:\n  \
                - {name: month, match: {path: /month}, respond: {status: 200}, limits: [month]}\n  \
                - {name: day, match: {path: /day}, respond: {status: 200}, limits: [day]}\n";
    std::fs::write(folder.path().join("gateway.yaml"), text).unwrap();
    let cases = [
        ("2026-03-01T00:00:00Z", "/month", false),
        ("2026-03-31T21:59:59Z", "/month", true),
        ("2026-03-31T22:00:00Z", "/month", false),
        ("2026-10-24T22:00:00Z", "/day", false),
        ("2026-10-25T22:59:59Z", "/day", true),
        ("2026-10-25T23:00:00Z", "/day", false),
        ("2026-10-26T22:59:59Z", "/day", true),
    ];
    let lines = cases.map(|(time, path, _)| {
        format!("{{\"time\": \"{time}\", \"client_ip\": \"203.0.113.9\", \"path\": \"{path}\"}}\n")
    });
    std::fs::write(folder.path().join("log.jsonl"), lines.concat()).unwrap();
    let mut replay = crate::harness::program();
    replay.args(["replay", "log.jsonl", "--decisions", "out.jsonl"]).current_dir(folder.path());
    let output = replay.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown = std::fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let refused: Vec<bool> = shown.lines().map(|line| line.contains("refused")).collect();
    assert_eq!(refused, cases.map(|(_, _, refused)| refused));
}
