//! Messages for the cases that hold for every store.

use sluicegate_queue::{Accepted, Bounds, Claimed, Id, Message, Order};

use super::Store;

pub(crate) const LIMIT: &str = "orders";
pub(crate) const OWNER: [u8; 32] = [7; 32];
/// When messages are accepted, unless a test says otherwise.
pub(crate) const NOW: u64 = 1_800_000_000_000;
/// When they expire, and when those that have ended are forgotten.
pub(crate) const LATER: u64 = NOW + 3_600_000;
pub(crate) const BOUNDS: Bounds = Bounds { max_length: 10_000, max_bytes: 100 << 20 };

pub(crate) fn id(number: u64) -> Id {
    Id(u128::from(number).to_be_bytes())
}

/// A message of a consumer, whose key is the consumer's name.
pub(crate) fn message(number: u64, consumer: &str) -> Message {
    Message {
        id: id(number),
        limit: LIMIT.to_owned(),
        key: consumer.as_bytes().to_vec(),
        consumer: consumer.to_owned(),
        owner: OWNER,
        idempotency: None,
        order: Order::None,
        accepted: NOW,
        expires: LATER,
        request: format!("request {number}").into_bytes(),
    }
}

pub(crate) fn accept(file: &Store, message: Message) -> Accepted {
    file.accept(message, BOUNDS).unwrap().unwrap()
}

/// The numbers of messages.
pub(crate) fn numbers(claimed: &[Claimed]) -> Vec<u64> {
    claimed.iter().map(|claimed| u128::from_be_bytes(claimed.id.0) as u64).collect()
}
