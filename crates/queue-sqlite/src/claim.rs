//! Attempts begin.

use rusqlite::OptionalExtension;
use sluicegate_queue::{Claimed, Claims, LONGEST_WAIT, State};

use crate::job::Times;
use crate::rows::{id, signed, unsigned};
use crate::transaction::Transaction;

/// The largest number of flows and messages without a result that one call looks at. The rest is left to the next call.
const MAX_IN_VAIN: usize = 1_000;

/// A message that is due.
struct Due {
    number: i64,
    expires: u64,
    claimed: Claimed,
}

impl Transaction<'_> {
    /// Begins an attempt for each of at most `max` messages of a queue that are due, of each consumer in turn. Messages whose
    /// time is over are ended.
    pub(crate) fn claim(&mut self, limit: &str, times: Times, max: usize) -> rusqlite::Result<Claims> {
        self.statements.wake_flows.execute((limit, 0, signed(times.now)))?;
        self.statements.wake_flows.execute((limit, signed(times.now + LONGEST_WAIT + 1), i64::MAX))?;
        let (mut all, mut expired, mut in_vain) = (Vec::new(), 0, 0);
        while all.len() < max && in_vain < MAX_IN_VAIN {
            let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
            let Some((consumer, turn)) = self.statements.next_flow.query_row([limit], read).optional()?
            else {
                break;
            };
            match self.next_of_flow(limit, &consumer, times.now)? {
                Some(due) if due.expires > times.now => all.push(self.begin(limit, turn, due)?),
                Some(Due { claimed: Claimed { id, .. }, .. }) => {
                    if let Some(message) = self.find(id)? {
                        self.finish(&message, State::Expired, None, None, times)?;
                        expired += 1;
                    }
                    in_vain += 1;
                }
                None => {
                    self.put_to_sleep(limit, &consumer)?;
                    in_vain += 1;
                }
            }
        }
        let next_due = match all.is_empty() {
            true => {
                let due: Option<i64> =
                    self.statements.next_due_of_all.query_row([limit], |row| row.get(0))?;
                due.map(unsigned)
            }
            false => None,
        };
        Ok(Claims { claimed: all, expired, next_due })
    }

    /// The message of a flow that is due first.
    fn next_of_flow(&mut self, limit: &str, consumer: &str, now: u64) -> rusqlite::Result<Option<Due>> {
        let read = |row: &rusqlite::Row<'_>| {
            let claimed = Claimed {
                id: id(row, 1)?,
                key: row.get(2)?,
                consumer: consumer.to_owned(),
                claim: unsigned(row.get(6)?) + 1,
                attempt: u32::try_from(unsigned(row.get(3)?)).unwrap_or(u32::MAX).saturating_add(1),
                accepted: unsigned(row.get(4)?),
                request: Vec::new(),
            };
            let due = unsigned(row.get(7)?);
            let is_due = due <= now || due > now + LONGEST_WAIT;
            Ok(is_due.then_some(Due { number: row.get(0)?, expires: unsigned(row.get(5)?), claimed }))
        };
        Ok(self.statements.next_message.query_row((limit, consumer), read).optional()?.flatten())
    }

    /// Begins an attempt.
    fn begin(&mut self, limit: &str, turn: i64, due: Due) -> rusqlite::Result<Claimed> {
        let Due { number, mut claimed, .. } = due;
        self.has_changed = true;
        self.statements.claim.execute([number])?;
        self.statements.serve_flow.execute((limit, &claimed.consumer, turn))?;
        self.statements.remove_flow.execute((limit, &claimed.consumer))?;
        self.statements.set_turn.execute((limit, turn))?;
        let request = "SELECT request FROM requests WHERE number = ?1";
        // It is missing only if another program has changed the file.
        let request = self.connection.query_row(request, [number], |row| row.get(0)).optional()?;
        claimed.request = request.unwrap_or_default();
        Ok(claimed)
    }

    /// None of the messages of a flow is due: it is not looked at before one is.
    fn put_to_sleep(&mut self, limit: &str, consumer: &str) -> rusqlite::Result<()> {
        self.has_changed = true;
        let due = self.statements.next_due.query_row((limit, consumer), |row| row.get::<_, i64>(0));
        match due.optional()? {
            Some(due) => self.statements.put_to_sleep.execute((limit, consumer, due))?,
            None => self.connection.execute(
                "DELETE FROM flows WHERE lim = ?1 AND consumer = ?2", // another program has changed the file
                (limit, consumer),
            )?,
        };
        Ok(())
    }
}
