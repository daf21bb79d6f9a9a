//! Ends attempts, and removes messages from the queue in other ways.

use sluicegate_queue::{Cancelled, DeadLetters, End, Id, LONGEST_WAIT, MAX_DEAD_LETTERS, Overdue, State};

use crate::arrivals::Count;
use crate::job::Times;
use crate::rows::signed;
use crate::transaction::{Found, Transaction};

impl Transaction<'_> {
    /// Ends an attempt, unless it is not in progress any more.
    pub(crate) fn end(&mut self, id: Id, claim: u64, end: &End, times: Times) -> rusqlite::Result<bool> {
        let Some(message) = self.find(id)? else { return Ok(false) };
        if message.state != State::Claimed || message.claims != claim {
            return Ok(false);
        }
        match end {
            End::Delivered { answer } => {
                self.finish(&message, State::Delivered, None, Some(answer), times)?;
            }
            End::Failed { reason } => {
                self.finish(&message, State::Failed, Some(reason), None, times)?;
            }
            End::Again { due, reason } => {
                self.wait_again(&message, Some(signed(*due)), message.attempts, Some(reason))?;
            }
            End::Released { until } => {
                self.wait_again(&message, None, message.attempts.saturating_sub(1), None)?;
                if let Some(until) = until {
                    let until = (*until).min(times.now + LONGEST_WAIT);
                    let flow = (&message.limit, &message.consumer, signed(until));
                    self.statements.pause_flow.execute(flow)?;
                }
            }
        }
        Ok(true)
    }

    fn wait_again(
        &mut self,
        message: &Found,
        due: Option<i64>,
        attempts: u32,
        reason: Option<&str>,
    ) -> rusqlite::Result<()> {
        self.statements.wait_again.execute((message.number, due, attempts, reason))?;
        self.join_flow(&message.limit, &message.consumer, 1)
    }

    /// Cancels a message of this owner that waits.
    pub(crate) fn cancel(&mut self, id: Id, owner: &[u8; 32], times: Times) -> rusqlite::Result<Cancelled> {
        let Some(message) = self.find(id)?.filter(|message| message.owner == *owner) else {
            return Ok(Cancelled::NotFound);
        };
        match message.state {
            State::Waiting | State::Blocked => {
                self.finish(&message, State::Cancelled, None, None, times)?;
                Ok(Cancelled::Done)
            }
            begun => Ok(Cancelled::TooLate(begun)),
        }
    }

    /// Ends messages of a queue whose time is over, and removes those of all queues that ended long ago.
    pub(crate) fn expire(&mut self, limit: &str, times: Times, max: usize) -> rusqlite::Result<Overdue> {
        let (now, max) = (signed(times.now), signed(max as u64));
        let late = self.names(
            "SELECT id FROM messages WHERE lim = ?3 AND state < 2 AND expires <= ?1 ORDER BY expires LIMIT ?2",
            (now, max, limit),
        )?;
        for id in &late {
            if let Some(message) = self.find(*id)? {
                self.finish(&message, State::Expired, None, None, times)?;
            }
        }
        let old = self.names(
            "SELECT id FROM messages WHERE keep_until IS NOT NULL AND keep_until <= ?1 ORDER BY keep_until LIMIT ?2",
            (now, max),
        )?;
        for id in &old {
            self.remove(*id)?;
        }
        Ok(Overdue { expired: late.len() as u64, removed: old.len() as u64 })
    }

    /// Queues dead letters again, with no attempts.
    pub(crate) fn retry(&mut self, which: &DeadLetters, now: u64, expires: u64) -> rusqlite::Result<u64> {
        let names = self.failed(which)?;
        for id in &names {
            let Some(message) = self.find(*id)? else { continue };
            let Found { number, limit, key, consumer, is_ordered, .. } = &message;
            let is_blocked = *is_ordered && self.statements.is_blocked.exists((limit, key, number))?;
            let state = if is_blocked { State::Blocked } else { State::Waiting };
            self.connection.execute(
                "UPDATE messages SET state = ?2, due = ?3, expires = ?4, attempts = 0, ended = NULL, keep_until = NULL
                 WHERE number = ?1",
                (number, state as u8, signed(now), signed(expires)),
            )?;
            self.count(limit, &Count { length: 1, failed: -1, ended: -1, ..Count::default() })?;
            if !is_blocked {
                self.join_flow(limit, consumer, 1)?;
            }
        }
        Ok(names.len() as u64)
    }

    /// Removes dead letters.
    pub(crate) fn drop_failed(&mut self, which: &DeadLetters) -> rusqlite::Result<u64> {
        let names = self.failed(which)?;
        for id in &names {
            self.remove(*id)?;
        }
        Ok(names.len() as u64)
    }

    /// The names of dead letters.
    fn failed(&mut self, which: &DeadLetters) -> rusqlite::Result<Vec<Id>> {
        match which {
            DeadLetters::One(id) => Ok(self
                .find(*id)?
                .filter(|found| found.state == State::Failed)
                .map(|_| *id)
                .into_iter()
                .collect()),
            DeadLetters::AllOf(limit) => self.names(
                "SELECT id FROM messages WHERE lim = ?1 AND state = 4 ORDER BY number LIMIT ?2",
                (limit, signed(MAX_DEAD_LETTERS)),
            ),
        }
    }

    /// Removes a message that has ended.
    fn remove(&mut self, id: Id) -> rusqlite::Result<()> {
        let Some(message) = self.find(id)? else { return Ok(()) };
        self.has_changed = true;
        self.connection.execute("DELETE FROM messages WHERE number = ?1", [message.number])?;
        if message.state == State::Failed {
            self.statements.remove_request.execute([message.number])?;
            self.count(&message.limit, &Count { bytes: -message.size, failed: -1, ..Count::default() })?;
        }
        Ok(())
    }

    /// Lets the consumers of a queue that are paused have a turn again. Returns how many there were.
    pub(crate) fn wake(&mut self, limit: &str) -> rusqlite::Result<u64> {
        let sql = "UPDATE flows SET ready = 1, paused = 0 WHERE lim = ?1 AND ready = 0 AND paused = 1";
        let woken = self.connection.execute(sql, [limit])?;
        self.has_changed |= woken > 0;
        Ok(woken as u64)
    }

    /// Queues the messages again that an earlier process was sending when it ended. Those attempts count.
    pub(crate) fn recover(&mut self) -> rusqlite::Result<u64> {
        let names = self.names("SELECT id FROM messages WHERE state = 2 ORDER BY number", ())?;
        for id in &names {
            if let Some(message) = self.find(*id)? {
                self.wait_again(&message, None, message.attempts, None)?;
            }
        }
        Ok(names.len() as u64)
    }
}
