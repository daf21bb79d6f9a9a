//! Requests that were refused in the last hour, so that the id in a refusal leads to its explanation. The number that is
//! remembered is bounded: under an attack the oldest are forgotten earlier.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;
use sluicegate_limiter::{Refusal as Why, Span, Time, Usage};
use sluicegate_wire::Headers;
use smallvec::SmallVec;

use crate::keys::KeyText;
use crate::message::RequestId;
use crate::refusal_reason::RefusalReason;

/// The number that the process remembers, of less than 1 kB each; the workers share it.
const MOST: usize = 16_384;
/// They are allocated in blocks of this many.
const BLOCK: usize = 256;
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

/// The refusals of one worker, a ring of blocks.
#[derive(Debug, Default)]
struct Ring {
    blocks: Vec<Block>,
    /// The most that are kept, a multiple of [`BLOCK`].
    most: usize,
    /// The number of the next one, below `most`.
    next: usize,
}

/// Refusals with the headers of their answers. All are forgotten before new ones take their places.
#[derive(Debug)]
struct Block {
    /// Each with the offset at which its headers end.
    refusals: Vec<(Refusal, usize)>,
    /// The headers, as HTTP/1.1 writes them.
    headers: Vec<u8>,
}

/// The refusals that one worker remembers.
#[derive(Debug)]
pub struct RefusalLog(Mutex<Ring>);

/// Those of all workers.
#[derive(Debug, Default)]
pub struct RefusalLogs(Mutex<BTreeMap<usize, Arc<RefusalLog>>>);

impl RefusalLog {
    fn new(most: usize) -> Self {
        Self(Mutex::new(Ring { most, ..Ring::default() }))
    }

    /// Remembers a refusal with the headers of its answer, in place of the oldest if there are too many.
    pub fn push(&self, refusal: Refusal, headers: &Headers) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (block, place) = (ring.next / BLOCK, ring.next % BLOCK);
        if block == ring.blocks.len() {
            ring.blocks.push(Block {
                refusals: Vec::with_capacity(BLOCK),
                headers: Vec::with_capacity(BLOCK * USUAL),
            });
        }
        ring.next = (ring.next + 1) % ring.most;
        let block = &mut ring.blocks[block];
        if place == 0 {
            block.refusals.clear();
            block.headers.clear();
        }
        let start = block.headers.len();
        headers.write(&mut block.headers);
        block.headers.truncate(start + HEADERS);
        block.refusals.push((refusal, block.headers.len()));
    }

    /// The last refusal of the last hour with this id, and the headers of its answer.
    fn find(&self, id: &[u8], now: Time) -> Option<(Refusal, Vec<u8>)> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = ring.blocks.iter().flat_map(|block| {
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
}

impl RefusalLogs {
    /// The log of a worker, of `workers`.
    pub fn of_worker(&self, worker: usize, workers: usize) -> Arc<RefusalLog> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let most = (MOST / workers.max(1)).max(BLOCK) / BLOCK * BLOCK;
        Arc::clone(all.entry(worker).or_insert_with(|| Arc::new(RefusalLog::new(most))))
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
        assert!(known(99_999, at) && known(39_999, at) && known(32_000, at));
        assert!(!known(31_999, at), "the oldest make room, a block at a time");
        let (_, told) = logs.find(RequestId::of(39_998).as_str(), at).unwrap();
        assert_eq!(told, b"x-number: 39998\r\n");
        assert!(known(99_999, at.plus(Span::from_secs(3_599))) && !known(99_999, at.plus(HOUR)));
        let stored: usize = one.0.lock().unwrap().blocks.iter().map(|block| block.refusals.len()).sum();
        assert_eq!(stored, 8_000);
    }
}
