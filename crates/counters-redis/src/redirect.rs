//! The way of a call to the server that holds its slot: scripts that are missing, slots that move.

use std::rc::Rc;
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use sluicegate_limiter::{Span, Time};

use super::cluster::Servers;
use super::connection::{Link, Trouble, Weight};
use super::store::Store;
use crate::Address;

/// How often a call is sent on without a pause. A slot that moves costs two or three.
const SENDINGS: u32 = 6;
/// The pause before a call is sent again whose keys are on their way.
const PAUSE: Span = Span::from_millis(2);

impl Store {
    /// Sends what `question` says, and again where the server lacked its scripts or the slot is moving, as long as there
    /// is time.
    pub(super) async fn send(
        self: &Rc<Self>,
        link: &Rc<Link>,
        slot: u16,
        until: Time,
        weight: Weight,
        question: impl Fn(&Link) -> Cmd,
    ) -> Result<(Rc<Link>, Value), Trouble> {
        let (mut link, mut asking, mut sent) = (Rc::clone(link), false, 0);
        while sent < SENDINGS {
            sent += 1;
            match link.call(question(&link), asking, (until, weight), &self.clock).await {
                Ok(value) => return Ok((link, value)),
                Err(Trouble::NoScript) => link.reload(until, &self.clock).await,
                Err(Trouble::Moved(error)) => {
                    asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
                    link = self.redirected(slot, &error).ok_or(Trouble::Failed)?;
                    link.known(self.clock.instant(until)).await;
                }
                // Some keys of the call are here and some there, until all have moved.
                Err(Trouble::BetweenNodes) => {
                    if self.clock.now().plus(PAUSE) >= until {
                        return Err(Trouble::Failed);
                    }
                    tokio::time::sleep(Duration::from_nanos(PAUSE.as_nanos())).await;
                    (link, asking, sent) = (self.servers.of(slot).ok_or(Trouble::Failed)?, false, 0);
                }
                Err(trouble) => return Err(trouble),
            }
        }
        Err(Trouble::Failed)
    }

    /// The server that the cluster names for a slot instead of the one that was asked.
    pub(super) fn redirected(self: &Rc<Self>, slot: u16, error: &RedisError) -> Option<Rc<Link>> {
        let Servers::Cluster(map) = &self.servers else { return None };
        let (address, _) = error.redirect_node()?;
        let (host, port) = address.rsplit_once(':')?;
        let address = Address::Tcp { host: host.to_owned(), port: port.parse().ok()? };
        let (link, new) = map.node(&self.state, self.worker, &address, self.timeout());
        if new {
            self.spawn(Rc::clone(self).tend(Rc::clone(&link)));
        }
        if error.kind() == ErrorKind::Server(ServerErrorKind::Moved) {
            map.moved(slot, &link);
            self.state.topology.outdated.notify_one();
        }
        Some(link)
    }
}
