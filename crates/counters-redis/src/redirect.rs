//! Sends a call to the server that holds its slot, and follows missing scripts and moving slots.

use std::rc::Rc;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use sluicegate_limiter::{Span, Time};

use super::cluster::Servers;
use super::connection::{CallClass, CallError, Connection};
use super::dial::node;
use super::scripts::server_error_as_err;
use super::store::Store;

/// The number of times that a call is sent without a pause. A slot that moves costs two or three.
const MAX_SENDS: u32 = 6;
/// The pause before a call is sent again whose keys are being moved.
const PAUSE: Span = Span::from_millis(2);

impl Store {
    /// Sends the command that `command` returns, and sends it again if the server lacks the scripts or the slot has moved,
    /// until `until`.
    pub(super) async fn send(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        slot: u16,
        until: Time,
        class: CallClass,
        command: impl Fn(&Connection) -> Cmd,
    ) -> Result<(Rc<Connection>, Value), CallError> {
        let (mut connection, mut asking, mut sent) = (Rc::clone(connection), false, 0);
        while sent < MAX_SENDS {
            sent += 1;
            match connection.call(command(&connection), asking, (until, class), &self.clock).await {
                Ok(value) => return Ok((connection, value)),
                Err(CallError::NoScript) => connection.reload(until, &self.clock).await,
                Err(CallError::Moved(error)) => {
                    asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
                    connection = self.redirected(&connection, slot, &error).ok_or(CallError::Failed)?;
                    connection.first_attempt(self.clock.instant(until)).await;
                }
                // The keys of the call are on two servers until all have moved.
                Err(CallError::BetweenNodes) => {
                    if self.clock.now().plus(PAUSE) >= until {
                        return Err(CallError::Failed);
                    }
                    tokio::time::sleep(PAUSE.into()).await;
                    (connection, asking, sent) =
                        (self.servers.owner_of(slot).ok_or(CallError::Failed)?, false, 0);
                }
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Failed)
    }

    /// Sends a command that no request waits for. A late reply is waited for, because the server executes the command all
    /// the same. `None` if there is no reply.
    pub(super) async fn send_background(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        slot: u16,
        command: impl Fn(&Connection) -> Cmd,
    ) -> Option<RedisResult<Value>> {
        let until = self.clock.now().plus(self.background_timeout());
        match self.send(connection, slot, until, CallClass::Background, command).await {
            Ok((_, value)) => Some(Ok(value)),
            Err(CallError::Late(pending)) => Some(server_error_as_err(pending.await)),
            Err(_) => None,
        }
    }

    /// The server to which `asked` redirects a call.
    pub(super) fn redirected(
        self: &Rc<Self>,
        asked: &Connection,
        slot: u16,
        error: &RedisError,
    ) -> Option<Rc<Connection>> {
        let Servers::Cluster(map) = &self.servers else { return None };
        let (address, _) = error.redirect_node()?;
        let (host, port) = address.rsplit_once(':')?;
        let address = node(host, port.parse().ok()?, asked.address.as_ref()?)?;
        let (connection, new) = map.node(&self.state, self.worker, &address, self.timeout());
        if new {
            self.spawn(Rc::clone(self).maintain(Rc::clone(&connection)));
        }
        if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) {
            map.set_owner(slot, &connection);
            self.state.topology.outdate("MOVED");
        }
        Some(connection)
    }
}
