//! The next messages are taken for an attempt.

use rusqlite::OptionalExtension;
use sluicegate_queue::Taken;

use crate::rows::{id, signed, unsigned};
use crate::transaction::Transaction;

/// The most lanes that are looked at without finding a message that is due. The rest are looked at by the next call.
const MAX_ASLEEP: usize = 1_000;

/// A message that is due.
struct Due {
    number: i64,
    taken: Taken,
}

impl Transaction<'_> {
    /// Takes at most `most` messages of a queue that are due, of each consumer in turn.
    pub(crate) fn take(&mut self, limit: &str, now: u64, most: usize) -> rusqlite::Result<Vec<Taken>> {
        self.statements.wake_lanes.execute((limit, signed(now)))?;
        let (mut all, mut asleep) = (Vec::new(), 0);
        while all.len() < most && asleep < MAX_ASLEEP {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
            let Some((consumer, turn)) = self.statements.next_lane.query_row([limit], read).optional()?
            else {
                break;
            };
            match self.next_of_lane(limit, &consumer, now)? {
                Some(due) => all.push(self.begin(limit, turn, due)?),
                None => {
                    self.put_to_sleep(limit, &consumer)?;
                    asleep += 1;
                }
            }
        }
        Ok(all)
    }

    /// The message of a lane that is due first.
    fn next_of_lane(&mut self, limit: &str, consumer: &str, now: u64) -> rusqlite::Result<Option<Due>> {
        let read = |row: &rusqlite::Row<'_>| {
            let taken = Taken {
                id: id(row, 1)?,
                key: row.get(2)?,
                consumer: consumer.to_owned(),
                attempt: u32::try_from(unsigned(row.get(3)?)).unwrap_or(u32::MAX).saturating_add(1),
                accepted: unsigned(row.get(4)?),
                request: Vec::new(),
            };
            Ok(Due { number: row.get(0)?, taken })
        };
        self.statements.next_message.query_row((limit, consumer, signed(now)), read).optional()
    }

    /// Begins an attempt.
    fn begin(&mut self, limit: &str, turn: i64, due: Due) -> rusqlite::Result<Taken> {
        let Due { number, mut taken } = due;
        self.has_changed = true;
        self.statements.take.execute([number])?;
        self.statements.serve_lane.execute((limit, &taken.consumer, turn))?;
        self.statements.remove_lane.execute((limit, &taken.consumer))?;
        self.statements.set_turn.execute((limit, turn))?;
        let request = "SELECT request FROM requests WHERE number = ?1";
        taken.request = self.connection.query_row(request, [number], |row| row.get(0))?;
        Ok(taken)
    }

    /// None of the messages of a lane is due: it is not looked at before one is.
    fn put_to_sleep(&mut self, limit: &str, consumer: &str) -> rusqlite::Result<()> {
        self.has_changed = true;
        let due = self.statements.next_due.query_row((limit, consumer), |row| row.get::<_, i64>(0));
        match due.optional()? {
            Some(due) => self.statements.put_to_sleep.execute((limit, consumer, due))?,
            None => self.connection.execute(
                "DELETE FROM lanes WHERE lim = ?1 AND consumer = ?2", // somebody else has edited the file
                (limit, consumer),
            )?,
        };
        Ok(())
    }
}
