//! Whether the client of a silent connection still lives: it is asked, and has to answer.

use std::time::Duration;

use sluicegate_wire::h2::Session;

use crate::client_connection::Connection;

/// How long a connection is silent before its client is asked whether it lives.
const SILENT: Duration = Duration::from_secs(45);
/// How long it has to say so.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is known of the client's life. The deadline for requests on the connection's own, which has no requests of its
/// own over HTTP/2, says when to look.
pub(super) struct Keepalive {
    asked: bool,
}

impl Keepalive {
    /// A client that was heard just now.
    pub(super) fn new(connection: &Connection) -> Self {
        connection.deadline.set_request(Some(connection.worker.deadlines.after(SILENT)));
        Self { asked: false }
    }

    /// Asks if it is time, and says whether an answer has not come in time. Something was `heard` last at this of the
    /// worker's milliseconds.
    pub(super) fn is_over(&mut self, session: &mut Session, heard: u64, connection: &Connection) -> bool {
        let deadlines = &connection.worker.deadlines;
        if self.asked && session.keepalive_answered() {
            self.asked = false;
            connection.deadline.set_request(Some(deadlines.after(SILENT)));
        }
        if !connection.deadline.request_passed() {
            return false;
        }
        if self.asked {
            return true;
        }
        let silent = Duration::from_millis(deadlines.now().saturating_sub(heard));
        let next = match SILENT.checked_sub(silent).filter(|left| !left.is_zero()) {
            Some(left) => left,
            None => {
                self.asked = true;
                session.send_keepalive();
                PATIENCE
            }
        };
        connection.deadline.set_request(Some(deadlines.after(next)));
        false
    }
}
