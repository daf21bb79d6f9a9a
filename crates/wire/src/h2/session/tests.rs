//! Frames in, and what comes of them: nothing here has a socket.

use http::{HeaderMap, StatusCode};
use proptest::prelude::*;

use super::super::error::H2Error;
use super::super::frame::{FRAME_HEADER, FrameHeader, MAX_FRAME_SIZE, PREFACE, flag, kind, number};
use super::super::hpack;
use super::*;
use crate::Headers;

const END: u8 = flag::END_STREAM;
const WHOLE: u8 = flag::END_HEADERS;

/// A connection whose client has said SETTINGS with these.
fn greeted(settings: &[(u16, u32)]) -> Session {
    let mut session = Session::new(
        HeadLimits { bytes: 32 << 10, fields: 100, target: 8 << 10 },
        Arc::default(),
        Duration::ZERO,
    );
    assert_eq!(session.receive_preface(&mut &PREFACE[..]), Ok(true));
    let mut bytes = Vec::new();
    frame::settings(&mut bytes, settings);
    say(&mut session, kind::SETTINGS, 0, 0, &bytes[FRAME_HEADER..]).unwrap();
    session.out.clear();
    session
}

fn say(
    session: &mut Session,
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &[u8],
) -> Result<Option<Event>, H2Error> {
    session.receive(&FrameHeader { length: payload.len(), kind, flags, stream }, payload)
}

fn block(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    lines.iter().for_each(|(name, value)| hpack::field(&mut block, name.as_bytes(), value.as_bytes()));
    block
}

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "http"), (":authority", "a.test"), (":path", "/")];

/// Opens a stream.
fn open(session: &mut Session, id: u32, flags: u8) -> StreamKey {
    match say(session, kind::HEADERS, WHOLE | flags, id, &block(&POST)) {
        Ok(Some(Event::Request { key, head: Ok(_), .. })) => key,
        other => panic!("{other:?}"),
    }
}

/// What was written since the last time.
fn sent(session: &mut Session) -> Vec<(FrameHeader, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut bytes = &session.out[..];
    while let Some(head) = FrameHeader::read(bytes) {
        frames.push((head, bytes[FRAME_HEADER..FRAME_HEADER + head.length].to_vec()));
        bytes = &bytes[FRAME_HEADER + head.length..];
    }
    assert!(bytes.is_empty(), "whole frames");
    session.out.clear();
    frames
}

fn kinds(session: &mut Session) -> Vec<(u8, u32)> {
    sent(session).iter().map(|(head, _)| (head.kind, head.stream)).collect()
}

fn answer(session: &mut Session, key: StreamKey, ends: bool) -> bool {
    let answer = ResponseHead { status: StatusCode::OK, headers: &Headers::new(), date: [b'd'; 29], ends };
    session.send_head(key, &answer)
}

/// A piece of a body, and whether it is the last.
type Text = (Option<Vec<u8>>, bool);

fn read(session: &mut Session, key: StreamKey) -> Poll<Result<Text, StreamClosed>> {
    let read = session.poll_body(key, &mut Context::from_waker(Waker::noop()));
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
    assert_eq!(session.capacity(key), Some(MAX_FRAME_SIZE));
    session.send_data(key, b"body", true);
    assert_eq!(kinds(&mut session), [(kind::HEADERS, 1), (kind::DATA, 1)]);
    assert_eq!(session.streams.open(), 0);
    session.stop_serving(key);
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
    assert_eq!(
        (session.receive_window + session.unreturned, read(&mut session, key).is_ready()),
        (CONNECTION_WINDOW, true)
    );

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
    session.stop_reading(key);
    session.stop_serving(key);
    assert_eq!(session.receive_window + session.unreturned, CONNECTION_WINDOW);
}

/// Bodies that nobody reads take what they hold from the others on their connection, and no more.
#[test]
fn the_window_of_all_beside_bodies_that_nobody_reads() {
    let mut session = greeted(&[]);
    let data = vec![b'x'; 10_000];
    let mut window = CONNECTION_WINDOW;
    let mut upload = |session: &mut Session, id: u32, reads: bool| {
        let key = open(session, id, 0);
        for _ in 0..6 {
            say(session, kind::DATA, 0, id, &data).unwrap();
            assert!(!reads || read(session, key).is_ready());
            window -= data.len();
            for (head, payload) in sent(session) {
                window += if head.stream == 0 { number(&payload) as usize } else { 0 };
            }
        }
        window
    };
    (0..8).for_each(|n| _ = upload(&mut session, 2 * n + 1, true));
    let left = (8..20).map(|n| upload(&mut session, 2 * n + 1, false)).last().unwrap();
    let held = 12 * 6 * data.len();
    assert!(left > (CONNECTION_WINDOW - held) / 2, "{left} of {}", CONNECTION_WINDOW - held);
}

/// However many uploads stall, others can go on; and what was given for that is taken back.
#[test]
fn uploads_that_stall_leave_room_for_others() {
    let mut session = greeted(&[]);
    let data = vec![b'x'; 16 << 10];
    let mut window = CONNECTION_WINDOW;
    let mut keys = Vec::new();
    for n in 0..80 {
        let id = 2 * n + 1;
        keys.push(open(&mut session, id, 0));
        for _ in 0..4 {
            assert!(window >= CONNECTION_WINDOW / 4, "stream {id} has {window}");
            say(&mut session, kind::DATA, 0, id, &data).unwrap();
            window -= data.len();
            let updates = sent(&mut session).into_iter().filter(|(head, _)| head.stream == 0);
            window += updates.map(|(_, payload)| number(&payload) as usize).sum::<usize>();
        }
    }
    assert_eq!(session.extra_window, 80 * STREAM_WINDOW - CONNECTION_WINDOW / 2);
    for key in keys {
        while session.poll_body(key, &mut Context::from_waker(Waker::noop())).is_ready() {}
    }
    assert_eq!((session.extra_window, session.receive_window + session.unreturned), (0, CONNECTION_WINDOW));
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
    session.stop_serving(key);
    assert!(matches!(read(&mut session, key), Poll::Ready(Err(_))), "a stream that is gone is no end");
}

/// An answer before the request's end: what is left is not wanted, and ignored for as long as it may come.
#[test]
fn an_early_answer() {
    let mut session = greeted(&[]);
    let key = open(&mut session, 1, 0);
    answer(&mut session, key, true);
    session.stop_serving(key);
    assert_eq!(kinds(&mut session), [(kind::HEADERS, 1)], "somebody may still read it");
    session.stop_reading(key);
    let [(head, payload)] = &sent(&mut session)[..] else { panic!("one reset") };
    assert_eq!((head.kind, number(payload)), (kind::RST_STREAM, 0));
    say(&mut session, kind::DATA, 0, 1, b"late").unwrap();
    say(&mut session, kind::HEADERS, WHOLE | END, 1, &block(&[("x", "y")])).unwrap();
    assert!(session.out.is_empty());
    assert_eq!(session.receive_window + session.unreturned, CONNECTION_WINDOW);
}

/// Answers that wait for room are woken when there is some, in turn.
#[test]
fn each_answer_has_its_turn() {
    let mut session = greeted(&[(setting::INITIAL_WINDOW_SIZE, 1 << 20)]);
    let keys: Vec<StreamKey> = (0..5).map(|at| open(&mut session, 2 * at + 1, END)).collect();
    session.send_window = 1 << 30;
    let mut given = [0; 5];
    for key in &keys {
        answer(&mut session, *key, false);
        session.yield_turn(*key);
        session.streams.get(*key).unwrap().is_blocked = true;
    }
    session.blocked = 5;
    for _ in 0..20 {
        let mut woken = Vec::new();
        session.wake_blocked(|slot| woken.push(slot));
        assert!(!woken.is_empty());
        for slot in woken {
            assert_eq!(session.capacity(keys[slot]), Some(MAX_FRAME_SIZE));
            session.send_data(keys[slot], &[b'x'; MAX_FRAME_SIZE], false);
            given[slot] += 1;
            session.capacity(keys[slot]);
            session.streams.get(keys[slot]).unwrap().is_blocked = true;
        }
        session.blocked = 5;
        assert!(session.unsent() <= SEND_BUFFER + MAX_FRAME_SIZE + 1024);
        session.out.clear();
    }
    assert!(given.iter().max().unwrap() - given.iter().min().unwrap() <= 1, "{given:?}");
}

#[test]
fn a_head_that_is_larger_than_a_frame_goes_out_in_several() {
    let mut session = greeted(&[]);
    let key = open(&mut session, 1, END);
    let mut headers = Headers::new();
    (0..5).for_each(|_| headers.append("x-large", "x".repeat(9_000)));
    session.send_head(
        key,
        &ResponseHead { status: StatusCode::OK, headers: &headers, date: [b'd'; 29], ends: true },
    );
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
    session.begin_shutdown();
    session.begin_shutdown();
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
    assert!(matches!(read(&mut session, key), Poll::Ready(Err(StreamClosed))));
    session.stop_reading(key);
    assert_eq!((session.streams.open(), session.blocked), (0, 0));
}

/// What a client may do, and what the gateway does meanwhile.
#[derive(Clone, Debug)]
enum Step {
    Frame { kind: u8, flags: u8, stream: u32, payload: Vec<u8> },
    Head { stream: u32, ends: bool, length: Option<u8> },
    Data { stream: u32, ends: bool, length: usize },
    ResponseHead { stream: u32, length: usize, ends: bool },
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
            .prop_map(|(stream, length, ends)| Step::ResponseHead { stream, length, ends }),
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
fn run(session: &mut Session, step: &Step) -> Result<Option<Event>, H2Error> {
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
            let length = (*length).min(MAX_FRAME_SIZE);
            return say(session, kind::DATA, flags, *stream, &vec![b'x'; length]);
        }
        Step::ResponseHead { stream, length, ends } => {
            let Some(key) = key(session, *stream) else { return Ok(None) };
            if session.streams.get(key).is_some_and(|stream| stream.is_sent) {
                return Ok(None);
            }
            answer(session, key, false);
            let mut left = *length;
            while let Some(room) = session.capacity(key).filter(|room| *room > 0) {
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
                && session.streams.get(key).is_some_and(|stream| !stream.is_sent)
            {
                session.send_trailers(key, &HeaderMap::new());
            }
        }
        Step::Read(id) => _ = key(session, *id).map(|key| read(session, key)),
        Step::Drop(id) => _ = key(session, *id).map(|key| session.stop_reading(key)),
        Step::Leave(id) => _ = key(session, *id).map(|key| session.stop_serving(key)),
        Step::Wake => session.wake_blocked(|_| ()),
        Step::Flush => session.out.clear(),
        Step::Part => session.begin_shutdown(),
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
                let padding_or_read = STREAM_WINDOW - stream.receive_window - stream.data.len();
                prop_assert!(stream.receive_window <= STREAM_WINDOW && stream.data.len() <= STREAM_WINDOW);
                prop_assert!(stream.unreturned <= padding_or_read);
                prop_assert!(stream.send_window <= i64::from(i32::MAX));
                prop_assert!(!(stream.is_sent && stream.is_received));
                unread += stream.data.len();
                waiting += usize::from(stream.is_blocked);
            }
            prop_assert_eq!(session.receive_window + session.unreturned + unread, CONNECTION_WINDOW + session.extra_window, "{:?}", step);
            prop_assert!(session.receive_window + session.unreturned >= CONNECTION_WINDOW / 2);
            prop_assert!(session.unreturned == 0 || 2 * session.unreturned < session.receive_window);
            prop_assert_eq!(session.blocked, waiting);
            prop_assert!(session.streams.open() <= STREAMS);
            prop_assert!(session.unsent() <= SEND_BUFFER + MAX_FRAME_SIZE + (8 << 10), "{}", session.unsent());
        }
        session.close();
        prop_assert_eq!((session.streams.open(), session.blocked), (0, 0));
        prop_assert_eq!(session.receive_window + session.unreturned, CONNECTION_WINDOW);
    }
}
