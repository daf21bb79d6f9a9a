//! Stores messages.

use std::collections::hash_map::Entry;

use rusqlite::OptionalExtension;
use sluicegate_queue::{Accepted, Bounds, Id, MAX_OF_KEY, Message, Order, Refused, State};

use crate::arrivals::{Arrivals, Count, Queue};
use crate::rows::{id, signed, state, unsigned};
use crate::transaction::Transaction;

/// A message that is stored already.
struct Known {
    id: Id,
    /// Whether it is the same request.
    is_same: bool,
    state: State,
    ordinal: u64,
    limit: String,
    key: Vec<u8>,
}

impl Transaction<'_> {
    /// Stores a message, unless it is there already: a caller that does not know whether an earlier call succeeded repeats it.
    /// It counts in the figures and the flows only after [`arrived`](Self::arrived).
    pub(crate) fn accept<'m>(
        &mut self,
        arrivals: &mut Arrivals<'m>,
        message: &'m Message,
        bounds: Bounds,
    ) -> rusqlite::Result<Result<Accepted, Refused>> {
        if let Some(known) = self.known(message)? {
            let is_over = matches!(known.state, State::Expired | State::Cancelled) && known.id != message.id;
            if !is_over {
                return self.duplicate(&known);
            }
            // The client may send it again.
            self.has_changed = true;
            self.statements.forget_idempotency.execute([&known.id.0[..]])?;
        }
        let (limit, size) = (message.limit.as_str(), message.request.len() as u64);
        let (queue, count) = match arrivals.queues.entry(limit) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert((self.queue_to_fill(limit)?, Count::default())),
        };
        if queue.length + queue.failed >= bounds.max_length
            || queue.bytes.saturating_add(size) > bounds.max_bytes
        {
            return Ok(Err(Refused::Full { length: queue.length }));
        }
        let (ordinal, ahead) = (queue.accepted, queue.accepted.saturating_sub(queue.ended));
        queue.length += 1;
        queue.bytes += size;
        queue.accepted += 1;
        count.length += 1;
        count.bytes += signed(size);
        count.accepted += 1;
        let of_key = match arrivals.of_key.entry((limit, &message.key)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(self.of_key(limit, &message.key)?),
        };
        let before = *of_key;
        *of_key = MAX_OF_KEY.min(before + 1);
        let state = self.store(message, ordinal)?;
        if state == State::Waiting {
            *arrivals.joins.entry((limit, &message.consumer)).or_default() += 1;
        }
        Ok(Ok(Accepted { id: message.id, state, ahead, of_key: before, is_duplicate: false }))
    }

    /// Writes the figures and flows that the stored messages change.
    pub(crate) fn arrived(&mut self, arrivals: &mut Arrivals<'_>) -> rusqlite::Result<()> {
        for (limit, (_, count)) in arrivals.queues.drain() {
            if count.accepted > 0 {
                self.count(limit, &count)?;
            }
        }
        for ((limit, consumer), messages) in arrivals.joins.drain() {
            self.join_flow(limit, consumer, messages)?;
        }
        arrivals.of_key.clear();
        Ok(())
    }

    /// A message that has the name or the `Idempotency-Key` of this one.
    fn known(&mut self, message: &Message) -> rusqlite::Result<Option<Known>> {
        let key = message.idempotency.map(|idempotency| idempotency.key.to_vec());
        let content = message.idempotency.map(|idempotency| idempotency.content.to_vec());
        let read = |row: &rusqlite::Row<'_>| {
            let known = id(row, 0)?;
            let is_same = match known == message.id {
                true => row.get::<_, [u8; 32]>(2)? == message.owner,
                false => row.get::<_, Option<Vec<u8>>>(1)? == content,
            };
            Ok(Known {
                id: known,
                is_same,
                ordinal: unsigned(row.get(3)?),
                limit: row.get(4)?,
                key: row.get(5)?,
                state: state(row, 6)?,
            })
        };
        self.statements.known.query_row((&message.id.0[..], key), read).optional()
    }

    /// The answer to a request that an earlier one has stored.
    fn duplicate(&mut self, known: &Known) -> rusqlite::Result<Result<Accepted, Refused>> {
        if !known.is_same {
            return Ok(Err(Refused::Conflict));
        }
        let ended = self.queue(&known.limit)?.unwrap_or_default().ended;
        let ahead = if known.state.has_ended() { 0 } else { known.ordinal.saturating_sub(ended) };
        let of_key = self.of_key(&known.limit, &known.key)?;
        Ok(Ok(Accepted { id: known.id, state: known.state, ahead, of_key, is_duplicate: true }))
    }

    /// How many messages of a key have not ended.
    fn of_key(&mut self, limit: &str, key: &[u8]) -> rusqlite::Result<u64> {
        self.statements.of_key.query_row((limit, key, signed(MAX_OF_KEY)), |row| row.get(0)).map(unsigned)
    }

    /// The figures of a queue that a message is about to be put into.
    fn queue_to_fill(&mut self, limit: &str) -> rusqlite::Result<Queue> {
        if let Some(queue) = self.queue(limit)? {
            return Ok(queue);
        }
        self.statements.add_queue.execute([limit])?;
        Ok(Queue::default())
    }

    fn queue(&mut self, limit: &str) -> rusqlite::Result<Option<Queue>> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Queue {
                length: unsigned(row.get(0)?),
                bytes: unsigned(row.get(1)?),
                failed: unsigned(row.get(2)?),
                accepted: unsigned(row.get(3)?),
                ended: unsigned(row.get(4)?),
            })
        };
        self.statements.queue.query_row([limit], read).optional()
    }

    fn store(&mut self, message: &Message, ordinal: u64) -> rusqlite::Result<State> {
        let (limit, size) = (message.limit.as_str(), signed(message.request.len() as u64));
        let is_ordered = message.order == Order::Key;
        let is_blocked = is_ordered && self.statements.is_blocked.exists((limit, &message.key, 0))?;
        let state = if is_blocked { State::Blocked } else { State::Waiting };
        self.statements.add.execute((
            &message.id.0[..],
            limit,
            &message.key,
            &message.consumer,
            &message.owner[..],
            message.idempotency.map(|idempotency| idempotency.key.to_vec()),
            message.idempotency.map(|idempotency| idempotency.content.to_vec()),
            is_ordered,
            signed(ordinal),
            state as u8,
            signed(message.accepted),
            signed(message.expires),
            size,
        ))?;
        let number = self.connection.last_insert_rowid();
        self.statements.add_request.execute((number, &message.request))?;
        self.has_changed = true;
        Ok(state)
    }
}
