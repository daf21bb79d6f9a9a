//! Requests that were refused in the last hour, so that the id in a refusal leads to its explanation. Their memory is
//! bounded: under an attack the oldest are forgotten earlier.
//!
//! Refusals are frequent under an attack, so that remembering one is a few copies into memory that is there: a block has
//! one list of requests, one of their limits, and one text.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use sluicegate_limiter::{Refusal as Why, Span, Time, Usage};
use sluicegate_wire::Headers;

use sluicegate_base::message::RequestId;
use sluicegate_base::refusal_reason::RefusalReason;
use sluicegate_route::keys::KeyText;

/// The bytes that the process remembers, shared by its workers: some ten thousand refusals, if one limit was asked.
const MOST: usize = 8 << 20;
/// They are allocated and forgotten in blocks of this many.
const BLOCK: usize = 256;
/// Each worker may have so many blocks, whatever they take.
const FEWEST: usize = 2;
/// The bytes of a text that are kept: of a host, a path, the name of a consumer, and a key.
const TEXT: usize = 256;
/// The bytes of headers of an answer that are kept.
const HEADERS: usize = 1_024;
/// The bytes that all texts of a refusal usually have.
const USUAL: usize = 384;
/// How long they are remembered.
const HOUR: Span = Span::from_secs(3_600);

/// A refused request without its texts and its limits.
#[derive(Clone, Debug)]
pub struct RefusedRequest {
    /// Its id.
    pub id: RequestId,
    /// When it was refused.
    pub at: Time,
    /// The generation of the configuration that was in force.
    pub generation: u64,
    /// The index of the listener that it came in on.
    pub listener: usize,
    /// The index of its route.
    pub route: Option<usize>,
    /// The address of its client.
    pub client: IpAddr,
    /// Its method.
    pub method: Method,
    /// Why it was refused.
    pub reason: Option<RefusalReason>,
    /// The status of the answer.
    pub status: u16,
    /// The index of the reported limit among those that were asked.
    pub reported: Option<usize>,
}

/// The texts of a refused request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefusedTexts<'a> {
    /// Its host.
    pub host: &'a [u8],
    /// Its path.
    pub path: &'a [u8],
    /// The name of the consumer; empty for none.
    pub consumer: &'a [u8],
}

/// What one limit said.
#[derive(Clone, Copy, Debug)]
pub struct RefusedLimit<K> {
    /// The index of the limit.
    pub index: usize,
    /// Whether its refusals are enforced.
    pub enforced: bool,
    /// Whether it is the candidate of the limit.
    pub candidate: bool,
    /// The delay, or the refusal.
    pub answer: Result<Span, Why>,
    /// What the key has left.
    pub usage: Usage,
    /// The cost of the request.
    pub cost: u64,
    /// The key.
    pub key: K,
}

/// A refusal that was found. Its texts are cut.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The request.
    pub request: RefusedRequest,
    /// Its host.
    pub host: Vec<u8>,
    /// Its path.
    pub path: Vec<u8>,
    /// The name of the consumer; empty for none.
    pub consumer: Vec<u8>,
    /// The limits that were asked.
    pub limits: Vec<RefusedLimit<Vec<u8>>>,
    /// The headers of the answer, as HTTP/1.1 writes them.
    pub headers: Vec<u8>,
}

/// The refusals of one worker, the oldest block first.
#[derive(Debug, Default)]
struct Blocks {
    blocks: VecDeque<Block>,
    /// The bytes of the blocks that are full.
    bytes: usize,
    /// The most bytes that may be kept.
    most: usize,
}

#[derive(Debug, Default)]
struct Block {
    entries: Vec<Entry>,
    /// The limits of all entries, each with the offset at which its key ends.
    limits: Vec<RefusedLimit<usize>>,
    /// The texts of all entries: host, path, consumer, keys, headers.
    text: Vec<u8>,
    /// The bytes of all this, once it is full.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    request: RefusedRequest,
    /// The offsets at which host, path, consumer and headers end.
    ends: [usize; 4],
    /// The number of limits in the block up to its own, with those.
    limits_end: usize,
}

/// The refusals that one worker remembers.
#[derive(Debug)]
pub struct RefusalLog(Mutex<Blocks>);

/// Those of all workers.
#[derive(Debug, Default)]
pub struct RefusalLogs(Mutex<BTreeMap<usize, Arc<RefusalLog>>>);

impl Block {
    fn is_full(&self) -> bool {
        self.entries.len() == BLOCK
    }

    /// Gives back what it has allocated and does not need, and notes its size.
    fn close(&mut self) {
        self.text.shrink_to_fit();
        self.limits.shrink_to_fit();
        self.bytes = self.entries.capacity() * size_of::<Entry>()
            + self.limits.capacity() * size_of::<RefusedLimit<usize>>()
            + self.text.capacity();
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.entries.reserve_exact(BLOCK);
        self.limits.clear();
        self.limits.reserve(BLOCK);
        self.text.clear();
        self.text.reserve(BLOCK * USUAL);
    }

    /// Appends a text, cut, and returns where it ends.
    fn append(&mut self, text: &[u8]) -> usize {
        self.text.extend_from_slice(&text[..text.len().min(TEXT)]);
        self.text.len()
    }

    /// The last entry whose request is wanted.
    fn position(&self, wanted: impl Fn(&RefusedRequest) -> bool) -> Option<usize> {
        self.entries.iter().rposition(|entry| wanted(&entry.request))
    }

    /// Where the texts and the limits of an entry begin.
    fn start(&self, at: usize) -> (usize, usize) {
        let before = at.checked_sub(1).map(|before| &self.entries[before]);
        before.map_or((0, 0), |entry| (entry.ends[3], entry.limits_end))
    }

    /// The limits of an entry, each with its key.
    fn limits(&self, at: usize) -> impl Iterator<Item = RefusedLimit<&[u8]>> {
        let Entry { ends, limits_end, .. } = &self.entries[at];
        let (_, first) = self.start(at);
        let mut from = ends[2];
        self.limits[first..*limits_end].iter().map(move |limit| {
            let key = &self.text[from..limit.key];
            from = limit.key;
            limit.with_key(key)
        })
    }

    fn refusal(&self, at: usize) -> Refusal {
        let Entry { request, ends: [host, path, consumer, headers], .. } = &self.entries[at];
        let (start, _) = self.start(at);
        let limits: Vec<_> = self.limits(at).map(|limit| limit.with_key(limit.key.to_vec())).collect();
        let keys: usize = limits.iter().map(|limit| limit.key.len()).sum();
        Refusal {
            request: request.clone(),
            host: self.text[start..*host].to_vec(),
            path: self.text[*host..*path].to_vec(),
            consumer: self.text[*path..*consumer].to_vec(),
            headers: self.text[consumer + keys..*headers].to_vec(),
            limits,
        }
    }
}

impl<K> RefusedLimit<K> {
    fn with_key<L>(&self, key: L) -> RefusedLimit<L> {
        let Self { index, enforced, candidate, answer, usage, cost, .. } = *self;
        RefusedLimit { index, enforced, candidate, answer, usage, cost, key }
    }
}

impl Blocks {
    /// The block for the next refusal.
    fn current(&mut self) -> &mut Block {
        if self.blocks.back().is_none_or(Block::is_full) {
            if let Some(full) = self.blocks.back_mut() {
                full.close();
                self.bytes += full.bytes;
            }
            let mut free = Block::default();
            while self.bytes > self.most && self.blocks.len() >= FEWEST {
                free = self.blocks.pop_front().unwrap_or_default();
                self.bytes -= free.bytes;
            }
            free.clear();
            self.blocks.push_back(free);
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }
}

impl RefusalLog {
    fn new(most: usize) -> Self {
        Self(Mutex::new(Blocks { most, ..Blocks::default() }))
    }

    /// Remembers a refusal with the headers of its answer, in place of the oldest if they take too much.
    pub fn push<'k>(
        &self,
        request: RefusedRequest,
        texts: RefusedTexts<'_>,
        limits: impl Iterator<Item = RefusedLimit<&'k [u8]>>,
        headers: &Headers,
    ) {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let block = blocks.current();
        let [host, path, consumer] = [texts.host, texts.path, texts.consumer].map(|text| block.append(text));
        for limit in limits {
            let end = block.append(limit.key);
            block.limits.push(limit.with_key(end));
        }
        let start = block.text.len();
        headers.write(&mut block.text);
        block.text.truncate(start + HEADERS);
        let ends = [host, path, consumer, block.text.len()];
        block.entries.push(Entry { request, ends, limits_end: block.limits.len() });
    }

    /// The last refusal of the last hour with this id.
    fn find(&self, id: &[u8], now: Time) -> Option<Refusal> {
        let blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |request: &RefusedRequest| request.id.as_bytes() == id && now.since(request.at) < HOUR;
        let found = blocks.blocks.iter().rev().find_map(|block| Some((block, block.position(wanted)?)));
        found.map(|(block, at)| block.refusal(at))
    }

    fn keys_of(&self, generation: u64, limit: usize, now: Time) -> Vec<KeyText> {
        let blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let current =
            |request: &RefusedRequest| request.generation == generation && now.since(request.at) < HOUR;
        let keys = blocks.blocks.iter().flat_map(|block| {
            let entries = block.entries.iter().enumerate().filter(|(_, entry)| current(&entry.request));
            let limits = entries.flat_map(|(at, _)| block.limits(at));
            limits.filter(|one| one.index == limit).map(|one| KeyText::from_slice(one.key))
        });
        keys.collect()
    }
}

impl RefusalLogs {
    /// The log of a worker, of `workers`.
    pub fn of_worker(&self, worker: usize, workers: usize) -> Arc<RefusalLog> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = MOST / workers.max(1);
        Arc::clone(all.entry(worker).or_insert_with(|| Arc::new(RefusalLog::new(most))))
    }

    /// The keys that refused requests of the last hour had under a limit, which has this index in the configuration of this
    /// generation. Long ones are cut.
    pub fn keys_of(&self, generation: u64, limit: usize, now: Time) -> Vec<KeyText> {
        let all: Vec<_> = self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.iter().flat_map(|log| log.keys_of(generation, limit, now)).collect()
    }

    /// The last refusal of the last hour with this id; `None` if no worker remembers it.
    pub fn find(&self, id: &str, now: Time) -> Option<Refusal> {
        let all: Vec<_> = self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.iter().filter_map(|log| log.find(id.as_bytes(), now)).max_by_key(|refusal| refusal.request.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u64, at: Time) -> RefusedRequest {
        RefusedRequest {
            id: RequestId::of(number),
            at,
            generation: 1,
            listener: 0,
            route: None,
            client: IpAddr::from([192, 0, 2, 1]),
            method: Method::GET,
            reason: None,
            status: 429,
            reported: None,
        }
    }

    /// Remembers a refusal with limits that have these keys.
    fn push(log: &RefusalLog, number: u64, at: Time, path: &[u8], keys: &[&[u8]], headers: &Headers) {
        let limits = keys.iter().enumerate().map(|(index, key)| RefusedLimit {
            index,
            enforced: true,
            candidate: false,
            answer: Ok(Span::ZERO),
            usage: Usage { capacity: 1, remaining: 0, reset: Span::ZERO },
            cost: 1,
            key: *key,
        });
        let texts = RefusedTexts { host: b"a.test", path, consumer: b"acme" };
        log.push(request(number, at), texts, limits, headers);
    }

    fn headers(number: u64) -> Headers {
        [("x-number", number.to_string().as_str())].into_iter().collect()
    }

    /// Those of the last hour are found, on whichever worker they were refused, and the number of all is bounded.
    #[test]
    fn the_latest_are_remembered_for_an_hour() {
        let logs = RefusalLogs::default();
        let (one, two) = (logs.of_worker(0, 2), logs.of_worker(1, 2));
        let at = Time::from_nanos(1_795_000_000_000_000_000);
        (0..80_000).for_each(|number| push(&one, number, at, b"/", &[b"k"], &headers(number)));
        push(&two, 99_999, at, b"/", &[b"k"], &headers(99_999));
        let known = |number: u64, now: Time| logs.find(RequestId::of(number).as_str(), now).is_some();
        assert!(known(99_999, at) && known(79_999, at) && known(72_000, at));
        assert!(!known(60_000, at), "the oldest make room");
        let found = logs.find(RequestId::of(79_998).as_str(), at).unwrap();
        assert_eq!(found.headers, b"x-number: 79998\r\n");
        assert!(known(99_999, at.plus(Span::from_secs(3_599))) && !known(99_999, at.plus(HOUR)));
    }

    /// What the refusals take is bounded, whatever their size and the number of limits that were asked.
    #[test]
    fn the_bytes_of_all_are_bounded() {
        let at = Time::from_nanos(1_795_000_000_000_000_000);
        let long: Headers = [("x-number", "7".repeat(2_000).as_str())].into_iter().collect();
        let logs = RefusalLogs::default();
        let one = logs.of_worker(0, 2);
        let (path, key) = ([b'p'; 300], [b'k'; 300]);
        (0..4_000).for_each(|number| push(&one, number, at, &path, &[&key[..]; 8], &long));
        let blocks = one.0.lock().unwrap();
        let kept: usize = blocks.blocks.iter().map(|block| block.entries.len()).sum();
        let each = blocks.blocks[0].bytes / BLOCK;
        assert!((4_000..8_000).contains(&each), "{each} bytes each");
        assert!(
            blocks.bytes <= MOST / 2 + BLOCK * each && kept * each > MOST / 2 - BLOCK * each,
            "{kept} kept"
        );
    }

    /// What is found of each is its own, whatever the number of its limits and the length of its texts.
    #[test]
    fn what_is_found_is_what_was_remembered() {
        let at = Time::from_nanos(1_795_000_000_000_000_000);
        let logs = RefusalLogs::default();
        let log = logs.of_worker(0, 1);
        let long = [b'l'; 300];
        let all: [(&[u8], &[&[u8]]); 4] =
            [(b"/a", &[]), (b"", &[b"k1", &long, b""]), (&long, &[b"k2"]), (b"/d", &[b"k3", b"k4"])];
        for (number, (path, keys)) in (0..).zip(all) {
            push(&log, number, at, path, keys, &headers(number));
        }
        for (number, (path, keys)) in (0..).zip(all) {
            let found = logs.find(RequestId::of(number).as_str(), at).unwrap();
            let cut = |text: &[u8]| text[..text.len().min(TEXT)].to_vec();
            assert_eq!((&found.host[..], found.path), (&b"a.test"[..], cut(path)));
            assert_eq!(found.consumer, b"acme");
            assert_eq!(found.headers, format!("x-number: {number}\r\n").into_bytes());
            let limits: Vec<_> = found.limits.into_iter().map(|limit| (limit.index, limit.key)).collect();
            let expected: Vec<_> = keys.iter().map(|key| cut(key)).enumerate().collect();
            assert_eq!(limits, expected);
        }
        let mut keys: Vec<Vec<u8>> = logs.keys_of(1, 0, at).iter().map(|key| key.to_vec()).collect();
        keys.sort();
        assert_eq!(keys, [b"k1", b"k2", b"k3"]);
    }
}
