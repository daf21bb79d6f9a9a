//! Keepalive: sends a PING on silent connections, which a live client answers.

use std::time::Duration;

use sluicegate_wire::h2::Session;

use sluicegate_downstream::Connection;

/// The silence after which a PING is sent.
const INTERVAL: Duration = Duration::from_secs(45);
/// The timeout for its answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The state of the keepalive. It uses the request deadline of the connection, which is otherwise unused over HTTP/2.
pub(super) struct Keepalive {
    /// A PING was sent and is not answered.
    pending: bool,
}

impl Keepalive {
    /// The keepalive of a client from which data arrived just now.
    pub(super) fn new(connection: &Connection) -> Self {
        connection.deadline.set_request(Some(connection.worker.deadlines.after(INTERVAL)));
        Self { pending: false }
    }

    /// Sends a PING if it is time. Returns whether the last one was not answered in time. `last_read` is the time of the last data
    /// in the worker's milliseconds.
    pub(super) fn has_expired(
        &mut self,
        session: &mut Session,
        last_read: u64,
        connection: &Connection,
    ) -> bool {
        let deadlines = &connection.worker.deadlines;
        if self.pending && session.keepalive_answered() {
            self.pending = false;
            connection.deadline.set_request(Some(deadlines.after(INTERVAL)));
        }
        if !connection.deadline.request_passed() {
            return false;
        }
        if self.pending {
            return true;
        }
        let silent = Duration::from_millis(deadlines.now().saturating_sub(last_read));
        let next = match INTERVAL.checked_sub(silent).filter(|left| !left.is_zero()) {
            Some(left) => left,
            None => {
                self.pending = true;
                session.send_keepalive();
                TIMEOUT
            }
        };
        connection.deadline.set_request(Some(deadlines.after(next)));
        false
    }
}
