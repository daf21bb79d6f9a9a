//! Who is next.

use sluicegate_queue::{End, LONGEST_WAIT, Message};

use crate::common::{LATER, LIMIT, NOW, accept, id, message, numbers, open, place};

#[test]
fn consumers_are_served_in_turn_however_much_one_has_queued() {
    let (_folder, path) = place();
    let file = open(&path);
    (1..=100).for_each(|number| _ = accept(&file, message(number, "greedy")));
    accept(&file, message(101, "modest"));
    accept(&file, message(102, "other"));
    assert_eq!(numbers(&file.claim(LIMIT, NOW, LATER, 5).unwrap().claimed), [1, 101, 102, 2, 3]);
    accept(&file, message(103, "modest"));
    assert_eq!(
        numbers(&file.claim(LIMIT, NOW, LATER, 2).unwrap().claimed),
        [103, 4],
        "who comes again is not before its turn"
    );
}

#[test]
fn each_limit_has_a_queue_of_its_own() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    accept(&file, Message { limit: "mails".to_owned(), ..message(2, "a") });
    assert_eq!(numbers(&file.claim("mails", NOW, LATER, 5).unwrap().claimed), [2]);
    assert_eq!(numbers(&file.claim(LIMIT, NOW, LATER, 5).unwrap().claimed), [1]);
    let figures = file.figures().unwrap();
    assert_eq!(figures.iter().map(|(limit, _)| limit.as_str()).collect::<Vec<_>>(), ["mails", LIMIT]);
}

/// Consumers whose messages all wait for another attempt are not looked at each time.
#[test]
fn those_who_wait_do_not_hide_those_who_are_due() {
    let (_folder, path) = place();
    let file = open(&path);
    for number in 1..=2_500 {
        accept(&file, message(number, &format!("c{number:04}")));
    }
    for claimed in file.claim(LIMIT, NOW, LATER, 2_500).unwrap().claimed {
        let again = End::Again { due: NOW + 1_000, reason: "status 503".to_owned() };
        assert!(file.end(claimed.id, 1, again, NOW, LATER).unwrap());
    }
    accept(&file, message(3_000, "z"));
    let found =
        (0..4).flat_map(|_| file.claim(LIMIT, NOW, LATER, 10).unwrap().claimed).map(|claimed| claimed.id);
    assert_eq!(found.collect::<Vec<_>>(), [id(3_000)]);
    assert_eq!(file.claim(LIMIT, NOW, LATER, 0).unwrap().next_due, Some(NOW + 1_000));
    assert_eq!(file.claim(LIMIT, NOW + 1_000, LATER, 5_000).unwrap().claimed.len(), 2_500);
}

/// A step of the clock backwards delays nothing for longer than the step.
#[test]
fn a_clock_that_steps_loses_nothing() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    assert_eq!(file.claim(LIMIT, NOW - 10_000, LATER, 1).unwrap().claimed, []);
    assert_eq!(numbers(&file.claim(LIMIT, NOW, LATER, 1).unwrap().claimed), [1]);
}

/// What was to be tried again soon is not put off for as long as the clock was set back.
#[test]
fn a_clock_that_is_set_back_delays_nothing_for_longer_than_ten_minutes() {
    let (_folder, path) = place();
    let file = open(&path);
    accept(&file, message(1, "a"));
    accept(&file, message(2, "b"));
    let claimed = |now: u64| numbers(&file.claim(LIMIT, now, LATER, 5).unwrap().claimed);
    assert_eq!(claimed(NOW), [1, 2]);
    let again = End::Again { due: NOW + 1_000, reason: "status 503".to_owned() };
    assert!(file.end(id(1), 1, again, NOW, LATER).unwrap());
    let paused = End::Released { until: Some(NOW + 86_400_000) };
    assert!(file.end(id(2), 1, paused, NOW, LATER).unwrap());
    assert_eq!(claimed(NOW), []);
    assert_eq!(claimed(NOW + 1_000 - LONGEST_WAIT), [], "it may be due in ten minutes");
    assert_eq!(claimed(NOW - LONGEST_WAIT), [1]);
    assert_eq!(claimed(NOW), [2], "nor is a pause longer");
}
