//! A message is stored.

use rusqlite::OptionalExtension;
use sluicegate_queue::{Accepted, Bounds, Id, Message, Order, Refused, State};

use crate::rows::{id, signed, unsigned};
use crate::transaction::{Count, Transaction};

/// The figures of a queue that matter to a new message.
#[derive(Default)]
struct Queue {
    length: u64,
    bytes: u64,
    failed: u64,
    accepted: u64,
    ended: u64,
}

impl Transaction<'_> {
    pub(crate) fn accept(
        &mut self,
        message: &Message,
        bounds: Bounds,
    ) -> rusqlite::Result<Result<Accepted, Refused>> {
        if let Some(repeat) = &message.repeat {
            let read = |row: &rusqlite::Row<'_>| {
                Ok((id(row, 0)?, row.get::<_, [u8; 32]>(1)?, unsigned(row.get(2)?), row.get(3)?))
            };
            let known = self.statements.repeat.query_row([&repeat.key[..]], read).optional()?;
            if let Some((id, content, ordinal, limit)) = known {
                return self.repeated(id, content == repeat.content, ordinal, limit);
            }
        }
        let limit = message.limit.as_str();
        let queue = self.queue(limit)?.unwrap_or_default();
        let size = message.request.len() as u64;
        if queue.length + queue.failed >= bounds.max_length
            || queue.bytes.saturating_add(size) > bounds.max_bytes
        {
            return Ok(Err(Refused::Full { length: queue.length }));
        }
        self.statements.add_queue.execute([limit])?;
        self.store(message, queue.accepted)?;
        let ahead = queue.accepted.saturating_sub(queue.ended);
        Ok(Ok(Accepted { id: message.id, ahead, is_repeated: false }))
    }

    /// The answer to a request that an earlier one has stored.
    fn repeated(
        &mut self,
        id: Id,
        is_same: bool,
        ordinal: u64,
        limit: String,
    ) -> rusqlite::Result<Result<Accepted, Refused>> {
        if !is_same {
            return Ok(Err(Refused::Conflict));
        }
        let ended = self.queue(&limit)?.unwrap_or_default().ended;
        Ok(Ok(Accepted { id, ahead: ordinal.saturating_sub(ended), is_repeated: true }))
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

    fn store(&mut self, message: &Message, ordinal: u64) -> rusqlite::Result<()> {
        let (limit, size) = (message.limit.as_str(), signed(message.request.len() as u64));
        let is_ordered = message.order == Order::Key;
        let is_behind = is_ordered && self.statements.is_behind.exists((limit, &message.key, 0))?;
        let state = if is_behind { State::Behind } else { State::Waiting };
        self.statements.add.execute((
            &message.id.0[..],
            limit,
            &message.key,
            &message.consumer,
            &message.owner[..],
            message.repeat.map(|repeat| repeat.key.to_vec()),
            message.repeat.map(|repeat| repeat.content.to_vec()),
            is_ordered,
            signed(ordinal),
            state as u8,
            signed(message.accepted),
            signed(message.expires),
            size,
        ))?;
        let number = self.connection.last_insert_rowid();
        self.statements.add_request.execute((number, &message.request))?;
        self.count(limit, &Count { length: 1, bytes: size, accepted: 1, ..Count::default() })?;
        match is_behind {
            true => Ok(()),
            false => self.join_lane(limit, &message.consumer),
        }
    }
}
