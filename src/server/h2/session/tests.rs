//! Frames in, and what comes of them: nothing here has a socket.

use http::{HeaderMap, StatusCode};
use proptest::prelude::*;

use super::super::fault::Fault;
use super::super::frame::{HEAD, Head, MOST, PREFACE, flag, kind, number};
use super::super::hpack;
use super::*;
use crate::fields::Fields;

const END: u8 = flag::END_STREAM;
const WHOLE: u8 = flag::END_HEADERS;

/// A connection whose client has said SETTINGS with these.
fn greeted(settings: &[(u16, u32)]) -> Session {
    let mut session = Session::new(Most { bytes: 32 << 10, lines: 100 }, Arc::default(), Duration::ZERO);
    assert_eq!(session.greet(&mut &PREFACE[..]), Ok(true));
    let mut bytes = Vec::new();
    frame::settings(&mut bytes, settings);
    say(&mut session, kind::SETTINGS, 0, 0, &bytes[HEAD..]).unwrap();
    session.out.clear();
    session
}

fn say(
    session: &mut Session,
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &[u8],
) -> Result<Option<Event>, Fault> {
    session.receive(&Head { length: payload.len(), kind, flags, stream }, payload)
}

fn block(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    lines.iter().for_each(|(name, value)| hpack::field(&mut block, name.as_bytes(), value.as_bytes()));
    block
}

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")];

/// Opens a stream.
fn open(session: &mut Session, id: u32, flags: u8) -> Key {
    match say(session, kind::HEADERS, WHOLE | flags, id, &block(&POST)) {
        Ok(Some(Event::Request { key, head: Ok(_), .. })) => key,
        other => panic!("{other:?}"),
    }
}

/// What was written since the last time.
fn sent(session: &mut Session) -> Vec<(Head, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut bytes = &session.out[..];
    while let Some(head) = Head::read(bytes) {
        frames.push((head, bytes[HEAD..HEAD + head.length].to_vec()));
        bytes = &bytes[HEAD + head.length..];
    }
    assert!(bytes.is_empty(), "whole frames");
    session.out.clear();
    frames
}

fn kinds(session: &mut Session) -> Vec<(u8, u32)> {
    sent(session).iter().map(|(head, _)| (head.kind, head.stream)).collect()
}

fn answer(session: &mut Session, key: Key, ends: bool) -> bool {
    let answer = Answer { status: StatusCode::OK, headers: &Fields::new(), date: [b'd'; 29], ends };
    session.answer(key, &answer)
}

/// A piece of a body, and whether it is the last.
type Text = (Option<Vec<u8>>, bool);

fn read(session: &mut Session, key: Key) -> Poll<Result<Text, InboundError>> {
    let read = session.read(key, &mut Context::from_waker(Waker::noop()));
    read.map_ok(|(frame, ended)| {
        (
            frame.map(|frame| frame.into_data().map_or_else(|_| b"trailers".to_vec(), |data| data.to_vec())),
            ended,
        )
    })
}

#[test]
fn a_request_and_its_answer() {
    let mut session = greeted(&[]);
    let key = open(&mut session, 1, END);
    assert!(answer(&mut session, key, false));
    assert_eq!(session.room(key), Some(MOST));
    session.send_data(key, b"body", true);
    assert_eq!(kinds(&mut session), [(kind::HEADERS, 1), (kind::DATA, 1)]);
    assert_eq!(session.streams.open(), 0);
    session.serve_no_more(key);
    assert!(session.out.is_empty(), "it has ended");
}

/// What is read gives its room back, in large steps; and what is not read when it is given up.
#[test]
fn windows_of_the_client() {
    let mut session = greeted(&[]);
    let key = open(&mut session, 1, 0);
    let data = vec![b'x'; 16 << 10];
    for _ in 0..4 {
        say(&mut session, kind::DATA, 0, 1, &data).unwrap();
    }
    assert!(session.out.is_empty());
    // One byte more than there is room for.
    let end = say(&mut session, kind::DATA, 0, 1, b"x");
    assert!(matches!(end, Ok(Some(Event::Reset(_)))), "{end:?}");
    let [(_, payload)] = &sent(&mut session)[..] else { panic!("one reset") };
    assert_eq!(number(payload), Reason::FLOW_CONTROL_ERROR.0);
    assert_eq!((session.room + session.used, read(&mut session, key).is_ready()), (WINDOWS, true));

    let key = open(&mut session, 3, 0);
    say(&mut session, kind::DATA, 0, 3, &data).unwrap();
    assert!(
        matches!(read(&mut session, key), Poll::Ready(Ok((Some(data), false))) if data.len() == 16 << 10)
    );
    assert!(session.out.is_empty(), "not for so little");
    // Padding counts as well.
    let padded = [&[255][..], &vec![b'x'; (16 << 10) - 1]].concat();
    say(&mut session, kind::DATA, flag::PADDED, 3, &padded).unwrap();
    assert!(
        matches!(read(&mut session, key), Poll::Ready(Ok((Some(data), false))) if data.len() == (16 << 10) - 256)
    );
    let updates = sent(&mut session);
    assert_eq!(
        updates.iter().map(|(head, payload)| (head.stream, number(payload))).collect::<Vec<_>>(),
        [(3, 32 << 10)]
    );
    say(&mut session, kind::DATA, 0, 3, &data).unwrap();
    session.read_no_more(key);
    session.serve_no_more(key);
    assert_eq!(session.room + session.used, WINDOWS);
}

/// Bodies that nobody reads take what they hold from the others on their connection, and no more.
#[test]
fn the_window_of_all_beside_bodies_that_nobody_reads() {
    let mut session = greeted(&[]);
    let data = vec![b'x'; 10_000];
    let mut told = WINDOWS;
    let mut upload = |session: &mut Session, id: u32, reads: bool| {
        let key = open(session, id, 0);
        for _ in 0..6 {
            say(session, kind::DATA, 0, id, &data).unwrap();
            assert!(!reads || read(session, key).is_ready());
            told -= data.len();
            for (head, payload) in sent(session) {
                told += if head.stream == 0 { number(&payload) as usize } else { 0 };
            }
        }
        told
    };
    (0..8).for_each(|n| _ = upload(&mut session, 2 * n + 1, true));
    let left = (8..20).map(|n| upload(&mut session, 2 * n + 1, false)).last().unwrap();
    let held = 12 * 6 * data.len();
    assert!(left > (WINDOWS - held) / 2, "{left} of {}", WINDOWS - held);
}

/// However many uploads stall, others can go on; and what was given for that is taken back.
#[test]
fn uploads_that_stall_leave_room_for_others() {
    let mut session = greeted(&[]);
    let data = vec![b'x'; 16 << 10];
    let mut told = WINDOWS;
    let mut keys = Vec::new();
    for n in 0..80 {
        let id = 2 * n + 1;
        keys.push(open(&mut session, id, 0));
        for _ in 0..4 {
            assert!(told >= WINDOWS / 4, "stream {id} has {told}");
            say(&mut session, kind::DATA, 0, id, &data).unwrap();
            told -= data.len();
            let updates = sent(&mut session).into_iter().filter(|(head, _)| head.stream == 0);
            told += updates.map(|(_, payload)| number(&payload) as usize).sum::<usize>();
        }
    }
    assert_eq!(session.grown, 80 * WINDOW - WINDOWS / 2);
    for key in keys {
        while session.read(key, &mut Context::from_waker(Waker::noop())).is_ready() {}
    }
    assert_eq!((session.grown, session.room + session.used), (0, WINDOWS));
}

#[test]
fn a_body_and_what_stands_behind_it() {
    let mut session = greeted(&[]);
    let key = open(&mut session, 1, 0);
    assert!(read(&mut session, key).is_pending());
    say(&mut session, kind::DATA, 0, 1, b"body").unwrap();
    say(&mut session, kind::HEADERS, WHOLE | END, 1, &block(&[("x-sum", "1")])).unwrap();
    assert!(matches!(read(&mut session, key), Poll::Ready(Ok((Some(data), false))) if data == b"body"));
    assert!(matches!(read(&mut session, key), Poll::Ready(Ok((Some(data), true))) if data == b"trailers"));
    session.serve_no_more(key);
    assert!(matches!(read(&mut session, key), Poll::Ready(Err(_))), "a stream that is gone is no end");
}

/// An answer before the request's end: what is left is not wanted, and ignored for as long as it may come.
#[test]
fn an_early_answer() {
    let mut session = greeted(&[]);
    let key = open(&mut session, 1, 0);
    answer(&mut session, key, true);
    session.serve_no_more(key);
    assert_eq!(kinds(&mut session), [(kind::HEADERS, 1)], "somebody may still read it");
    session.read_no_more(key);
    let [(head, payload)] = &sent(&mut session)[..] else { panic!("one reset") };
    assert_eq!((head.kind, number(payload)), (kind::RST_STREAM, 0));
    say(&mut session, kind::DATA, 0, 1, b"late").unwrap();
    say(&mut session, kind::HEADERS, WHOLE | END, 1, &block(&[("x", "y")])).unwrap();
    assert!(session.out.is_empty());
    assert_eq!(session.room + session.used, WINDOWS);
}

/// Answers that wait for room are woken when there is some, in turn.
#[test]
fn each_answer_has_its_turn() {
    let mut session = greeted(&[(setting::INITIAL_WINDOW_SIZE, 1 << 20)]);
    let keys: Vec<Key> = (0..5).map(|at| open(&mut session, 2 * at + 1, END)).collect();
    session.window = 1 << 30;
    let mut given = [0; 5];
    for key in &keys {
        answer(&mut session, *key, false);
        session.yields(*key);
        session.streams.get(*key).unwrap().waits = true;
    }
    session.waiting = 5;
    for _ in 0..20 {
        let mut woken = Vec::new();
        session.wake_waiting(|slot| woken.push(slot));
        assert!(!woken.is_empty());
        for slot in woken {
            assert_eq!(session.room(keys[slot]), Some(MOST));
            session.send_data(keys[slot], &[b'x'; MOST], false);
            given[slot] += 1;
            session.room(keys[slot]);
            session.streams.get(keys[slot]).unwrap().waits = true;
        }
        session.waiting = 5;
        assert!(session.unsent() <= UNSENT + MOST + 1024);
        session.out.clear();
    }
    assert!(given.iter().max().unwrap() - given.iter().min().unwrap() <= 1, "{given:?}");
}

#[test]
fn a_head_that_is_larger_than_a_frame_goes_out_in_several() {
    let mut session = greeted(&[]);
    let key = open(&mut session, 1, END);
    let mut headers = Fields::new();
    (0..5).for_each(|_| headers.append("x-large", "x".repeat(9_000)));
    session.answer(key, &Answer { status: StatusCode::OK, headers: &headers, date: [b'd'; 29], ends: true });
    let frames = sent(&mut session);
    let kinds: Vec<_> = frames.iter().map(|(head, _)| (head.kind, head.flags)).collect();
    assert_eq!(kinds, [(kind::HEADERS, END), (kind::CONTINUATION, 0), (kind::CONTINUATION, WHOLE)]);
    let block: Vec<u8> = frames.iter().flat_map(|(_, payload)| payload.clone()).collect();
    let mut lines = 0;
    hpack::Decoder::new(4096).decode(&block, |_, _| lines += 1).unwrap();
    assert_eq!(lines, 7);
}

/// The end: requests that come before the client can know are served, those behind are not, and the table stays in step.
#[test]
fn a_parting_in_two_steps() {
    let mut session = greeted(&[]);
    let first = open(&mut session, 1, END);
    session.part();
    session.part();
    let frames = sent(&mut session);
    assert_eq!(frames.iter().map(|(head, _)| head.kind).collect::<Vec<_>>(), [kind::GOAWAY, kind::PING]);
    let second = open(&mut session, 3, END);
    say(&mut session, kind::PING, flag::ACK, 0, &frames[1].1).unwrap();
    let last = sent(&mut session);
    assert_eq!((last[0].0.kind, number(&last[0].1)), (kind::GOAWAY, 3));
    let kept = [&[0x40, 1, b'x', 1, b'y'][..], &block(&POST)].concat();
    assert!(matches!(say(&mut session, kind::HEADERS, WHOLE | END, 5, &kept), Ok(None)));
    say(&mut session, kind::DATA, 0, 5, b"x").unwrap();
    assert!(!session.is_over());
    for key in [first, second] {
        answer(&mut session, key, true);
    }
    assert!(session.is_over());
    let again = say(&mut session, kind::HEADERS, WHOLE | END, 7, &[0x80 | 62]);
    assert!(matches!(again, Ok(None)), "the line is known: {again:?}");
}

#[test]
fn a_connection_that_closes_ends_what_is_read() {
    let mut session = greeted(&[]);
    let key = open(&mut session, 1, 0);
    assert!(read(&mut session, key).is_pending());
    session.close();
    assert!(matches!(read(&mut session, key), Poll::Ready(Err(InboundError::Http2))));
    session.read_no_more(key);
    assert_eq!((session.streams.open(), session.waiting), (0, 0));
}

/// What a client may do, and what the gateway does meanwhile.
#[derive(Clone, Debug)]
enum Step {
    Frame { kind: u8, flags: u8, stream: u32, payload: Vec<u8> },
    Head { stream: u32, ends: bool, length: Option<u8> },
    Data { stream: u32, ends: bool, length: usize },
    Answer { stream: u32, length: usize, ends: bool },
    Trail(u32),
    Read(u32),
    Drop(u32),
    Leave(u32),
    Wake,
    Flush,
    Part,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = || prop_oneof![8 => 1_u32..16, 1 => Just(0_u32), 1 => any::<u32>().prop_map(|id| id >> 1)];
    let odd = || (0_u32..12).prop_map(|at| 2 * at + 1);
    let step = prop_oneof![
        2 => (0_u8..12, any::<u8>(), stream(), prop::collection::vec(any::<u8>(), 0..24))
            .prop_map(|(kind, flags, stream, payload)| Step::Frame { kind, flags, stream, payload }),
        2 => (prop::sample::select(vec![kind::WINDOW_UPDATE, kind::RST_STREAM]), stream(), 0_u32..100_000)
            .prop_map(|(kind, stream, more)| Step::Frame { kind, flags: 0, stream, payload: more.to_be_bytes().to_vec() }),
        1 => (0_u32..200_000).prop_map(|window| Step::Frame {
            kind: kind::SETTINGS, flags: 0, stream: 0,
            payload: [&[0, 4][..], &window.to_be_bytes()].concat(),
        }),
        8 => (odd(), any::<bool>(), prop::option::of(0_u8..40))
            .prop_map(|(stream, ends, length)| Step::Head { stream, ends, length }),
        8 => (odd(), any::<bool>(), 0_usize..17_000)
            .prop_map(|(stream, ends, length)| Step::Data { stream, ends, length }),
        8 => (odd(), 0_usize..70_000, any::<bool>())
            .prop_map(|(stream, length, ends)| Step::Answer { stream, length, ends }),
        1 => odd().prop_map(Step::Trail),
        4 => odd().prop_map(Step::Read),
        2 => odd().prop_map(Step::Drop),
        2 => odd().prop_map(Step::Leave),
        2 => Just(Step::Wake),
        2 => Just(Step::Flush),
        1 => Just(Step::Part),
    ];
    prop::collection::vec(step, 0..80)
}

/// Does one step.
fn run(session: &mut Session, step: &Step) -> Result<Option<Event>, Fault> {
    let key = |session: &Session, id: u32| session.streams.find(id);
    match step {
        Step::Frame { kind, flags, stream, payload } => return say(session, *kind, *flags, *stream, payload),
        Step::Head { stream, ends, length } => {
            let length = length.map(|length| length.to_string());
            let mut lines = POST.to_vec();
            lines.extend(length.as_deref().map(|length| ("content-length", length)));
            let flags = WHOLE | if *ends { END } else { 0 };
            return say(session, kind::HEADERS, flags, *stream, &block(&lines));
        }
        Step::Data { stream, ends, length } => {
            let flags = if *ends { END } else { 0 };
            let length = (*length).min(MOST);
            return say(session, kind::DATA, flags, *stream, &vec![b'x'; length]);
        }
        Step::Answer { stream, length, ends } => {
            let Some(key) = key(session, *stream) else { return Ok(None) };
            if session.streams.get(key).is_some_and(|stream| stream.sent) {
                return Ok(None);
            }
            answer(session, key, false);
            let mut left = *length;
            while let Some(room) = session.room(key).filter(|room| *room > 0) {
                let piece = room.min(left);
                left -= piece;
                session.send_data(key, &vec![b'y'; piece], *ends && left == 0);
                if left == 0 {
                    break;
                }
            }
        }
        Step::Trail(id) => {
            if let Some(key) = key(session, *id)
                && session.streams.get(key).is_some_and(|stream| !stream.sent)
            {
                session.trail(key, &HeaderMap::new());
            }
        }
        Step::Read(id) => _ = key(session, *id).map(|key| read(session, key)),
        Step::Drop(id) => _ = key(session, *id).map(|key| session.read_no_more(key)),
        Step::Leave(id) => _ = key(session, *id).map(|key| session.serve_no_more(key)),
        Step::Wake => session.wake_waiting(|_| ()),
        Step::Flush => session.out.clear(),
        Step::Part => session.part(),
    }
    Ok(None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever comes, the books agree: no window is larger than it may be, nothing is lost of the client's, what waits
    /// is counted, and what ends leaves nothing.
    #[test]
    fn the_books_agree(steps in steps()) {
        let mut session = greeted(&[]);
        for step in &steps {
            if run(&mut session, step).is_err() {
                session.close();
                return Ok(());
            }
            let (mut unread, mut waiting) = (0, 0);
            for (_, stream) in session.streams.from(0) {
                let padding_or_read = WINDOW - stream.room - stream.data.len();
                prop_assert!(stream.room <= WINDOW && stream.data.len() <= WINDOW);
                prop_assert!(stream.used <= padding_or_read);
                prop_assert!(stream.window <= i64::from(i32::MAX));
                prop_assert!(!(stream.sent && stream.received));
                unread += stream.data.len();
                waiting += usize::from(stream.waits);
            }
            prop_assert_eq!(session.room + session.used + unread, WINDOWS + session.grown, "{:?}", step);
            prop_assert!(session.room + session.used >= WINDOWS / 2);
            prop_assert!(session.used == 0 || 2 * session.used < session.room);
            prop_assert_eq!(session.waiting, waiting);
            prop_assert!(session.streams.open() <= STREAMS);
            prop_assert!(session.unsent() <= UNSENT + MOST + (8 << 10), "{}", session.unsent());
        }
        session.close();
        prop_assert_eq!((session.streams.open(), session.waiting), (0, 0));
        prop_assert_eq!(session.room + session.used, WINDOWS);
    }
}
