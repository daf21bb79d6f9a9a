//! Whether the client of a silent connection still lives: it is asked, and has to answer.

use std::cell::Cell;
use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use h2::{Ping, PingPong};

use super::super::connection::Connection;

/// How long a connection is silent before its client is asked whether it lives.
const SILENT: Duration = Duration::from_secs(45);
/// How long it has to say so.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is known of the client's life. The deadline for requests on the connection's own, which has no requests of its
/// own over HTTP/2, says when to look.
pub(super) struct Alive {
    /// `None` if the library did not give it.
    pings: Option<PingPong>,
    asked: bool,
    /// When something came last: the worker's milliseconds.
    heard: Rc<Cell<u64>>,
}

impl Alive {
    /// A client that was heard just now.
    pub(super) fn new(pings: Option<PingPong>, heard: Rc<Cell<u64>>, connection: &Connection) -> Self {
        connection.deadline.set_request(Some(connection.worker.deadlines.after(SILENT)));
        Self { pings, asked: false, heard }
    }

    /// Asks if it is time, and says, once, whether an answer has not come in time.
    pub(super) fn is_over(&mut self, context: &mut Context<'_>, connection: &Connection) -> bool {
        let Some(pings) = &mut self.pings else { return false };
        if self.asked && pings.poll_pong(context).is_ready() {
            self.asked = false;
            connection.deadline.set_request(Some(connection.worker.deadlines.after(SILENT)));
        }
        if !connection.deadline.request_passed() {
            return false;
        }
        if self.asked {
            self.pings = None;
            return true;
        }
        let deadlines = &connection.worker.deadlines;
        let silent = Duration::from_millis(deadlines.now().saturating_sub(self.heard.get()));
        let next = match SILENT.checked_sub(silent).filter(|left| !left.is_zero()) {
            Some(left) => left,
            None => {
                self.asked = pings.send_ping(Ping::opaque()).is_ok();
                PATIENCE
            }
        };
        connection.deadline.set_request(Some(deadlines.after(next)));
        false
    }
}
