//! Requests that were refused in the last hour, so that the id in a refusal leads to its explanation. Their memory is
//! bounded: under an attack the oldest are forgotten earlier.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use sluicegate_limiter::{Refusal as Why, Span, Time, Usage};
use sluicegate_wire::Headers;
use smallvec::SmallVec;

use crate::keys::KeyText;
use crate::message::RequestId;
use crate::refusal_reason::RefusalReason;

/// The bytes that the process remembers, shared by its workers: some thousand refusals, of about 1 kB if one limit was asked.
const MOST: usize = 8 << 20;
/// They are allocated and forgotten in blocks of this many.
const BLOCK: usize = 256;
/// Each worker may have so many blocks, whatever they take.
const FEWEST: usize = 2;
/// The bytes of headers of an answer that are kept, and those that one usually has.
const HEADERS: usize = 1_024;
const USUAL: usize = 320;
/// How long they are remembered.
const HOUR: Span = Span::from_secs(3_600);

/// A request that was refused.
#[derive(Clone, Debug)]
pub struct Refusal {
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
    /// Its host, cut.
    pub host: SmallVec<[u8; 32]>,
    /// Its path, cut.
    pub path: SmallVec<[u8; 64]>,
    /// The name of the consumer; empty for none.
    pub consumer: SmallVec<[u8; 24]>,
    /// Why it was refused.
    pub reason: Option<RefusalReason>,
    /// The status of the answer.
    pub status: u16,
    /// The index of the reported limit in `limits`.
    pub reported: Option<usize>,
    /// The limits that were asked.
    pub limits: SmallVec<[RefusedLimit; 2]>,
}

/// What one limit said.
#[derive(Clone, Debug)]
pub struct RefusedLimit {
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
    /// The key, cut.
    pub key: KeyText,
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

/// Refusals with the headers of their answers.
#[derive(Debug, Default)]
struct Block {
    /// Each with the offset at which its headers end.
    refusals: Vec<(Refusal, usize)>,
    /// The headers, as HTTP/1.1 writes them.
    headers: Vec<u8>,
    /// The bytes of all this, once it is full.
    bytes: usize,
}

/// The refusals that one worker remembers.
#[derive(Debug)]
pub struct RefusalLog(Mutex<Blocks>);

/// Those of all workers.
#[derive(Debug, Default)]
pub struct RefusalLogs(Mutex<BTreeMap<usize, Arc<RefusalLog>>>);

impl Refusal {
    /// The bytes that it has outside of itself.
    fn spilled(&self) -> usize {
        fn of<A: smallvec::Array>(list: &SmallVec<A>) -> usize {
            if list.spilled() { list.capacity() * size_of::<A::Item>() } else { 0 }
        }
        let keys: usize = self.limits.iter().map(|limit| of(&limit.key)).sum();
        of(&self.host) + of(&self.path) + of(&self.consumer) + of(&self.limits) + keys
    }
}

impl Block {
    fn is_full(&self) -> bool {
        self.refusals.len() == BLOCK
    }

    /// Gives back what it has allocated and does not need, and notes its size.
    fn close(&mut self) {
        self.headers.shrink_to_fit();
        let spilled: usize = self.refusals.iter().map(|(refusal, _)| refusal.spilled()).sum();
        self.bytes =
            self.refusals.capacity() * size_of::<(Refusal, usize)>() + self.headers.capacity() + spilled;
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
            free.refusals.clear();
            free.refusals.reserve_exact(BLOCK);
            free.headers.clear();
            free.headers.reserve(BLOCK * USUAL);
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
    pub fn push(&self, refusal: Refusal, headers: &Headers) {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let block = blocks.current();
        let start = block.headers.len();
        headers.write(&mut block.headers);
        block.headers.truncate(start + HEADERS);
        block.refusals.push((refusal, block.headers.len()));
    }

    /// The last refusal of the last hour with this id, and the headers of its answer.
    fn find(&self, id: &[u8], now: Time) -> Option<(Refusal, Vec<u8>)> {
        let blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = blocks.blocks.iter().flat_map(|block| {
            let starts = std::iter::once(0).chain(block.refusals.iter().map(|(_, end)| *end));
            block
                .refusals
                .iter()
                .zip(starts)
                .map(|((refusal, end), start)| (refusal, &block.headers[start..*end]))
        });
        let of_id = all.filter(|(refusal, _)| refusal.id.as_bytes() == id && now.since(refusal.at) < HOUR);
        of_id
            .max_by_key(|(refusal, _)| refusal.at)
            .map(|(refusal, headers)| (refusal.clone(), headers.to_vec()))
    }

    fn keys_of(&self, generation: u64, limit: usize, now: Time) -> Vec<KeyText> {
        let blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = blocks.blocks.iter().flat_map(|block| &block.refusals).map(|(refusal, _)| refusal);
        let current = all.filter(|refusal| refusal.generation == generation && now.since(refusal.at) < HOUR);
        let limits = current.flat_map(|refusal| &refusal.limits).filter(|one| one.index == limit);
        limits.map(|one| one.key.clone()).collect()
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

    /// The last refusal of the last hour with this id, and the headers of its answer as HTTP/1.1 writes them, the last of them
    /// possibly cut; `None` if no worker remembers it.
    pub fn find(&self, id: &str, now: Time) -> Option<(Refusal, Vec<u8>)> {
        let all: Vec<_> = self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.iter().filter_map(|log| log.find(id.as_bytes(), now)).max_by_key(|(refusal, _)| refusal.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(number: u64, at: Time) -> Refusal {
        Refusal {
            id: RequestId::of(number),
            at,
            generation: 1,
            listener: 0,
            route: None,
            client: IpAddr::from([192, 0, 2, 1]),
            method: Method::GET,
            host: SmallVec::new(),
            path: SmallVec::new(),
            consumer: SmallVec::new(),
            reason: None,
            status: 429,
            reported: None,
            limits: SmallVec::new(),
        }
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
        (0..40_000).for_each(|number| one.push(refusal(number, at), &headers(number)));
        two.push(refusal(99_999, at), &headers(99_999));
        let known = |number: u64, now: Time| logs.find(RequestId::of(number).as_str(), now).is_some();
        assert!(known(99_999, at) && known(39_999, at) && known(36_000, at));
        assert!(!known(30_000, at), "the oldest make room");
        let (_, told) = logs.find(RequestId::of(39_998).as_str(), at).unwrap();
        assert_eq!(told, b"x-number: 39998\r\n");
        assert!(known(99_999, at.plus(Span::from_secs(3_599))) && !known(99_999, at.plus(HOUR)));
    }

    /// What the refusals take is bounded, whatever their size and the number of limits that were asked.
    #[test]
    fn the_bytes_of_all_are_bounded() {
        let at = Time::from_nanos(1_795_000_000_000_000_000);
        let large = |number| Refusal {
            path: SmallVec::from_slice(&[b'p'; 256]),
            limits: (0..8)
                .map(|index| RefusedLimit {
                    index,
                    enforced: true,
                    candidate: false,
                    answer: Ok(Span::ZERO),
                    usage: Usage { capacity: 1, remaining: 0, reset: Span::ZERO },
                    cost: 1,
                    key: SmallVec::from_slice(&[b'k'; 256]),
                })
                .collect(),
            ..refusal(number, at)
        };
        let long: Headers = [("x-number", "7".repeat(2_000).as_str())].into_iter().collect();
        let logs = RefusalLogs::default();
        let one = logs.of_worker(0, 2);
        (0..4_000).for_each(|number| one.push(large(number), &long));
        let blocks = one.0.lock().unwrap();
        let kept: usize = blocks.blocks.iter().map(|block| block.refusals.len()).sum();
        let each = blocks.blocks[0].bytes / BLOCK;
        assert!((4_000..8_000).contains(&each), "{each} bytes each");
        assert!(
            blocks.bytes <= MOST / 2 + BLOCK * each && kept * each > MOST / 2 - BLOCK * each,
            "{kept} kept"
        );
    }
}
