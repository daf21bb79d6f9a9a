//! What was found out about a request, and what its limits decided.

use std::net::IpAddr;
use std::sync::Arc;

use sluicegate_limiter::Time;
use smallvec::SmallVec;

use crate::auth::Identity;
use crate::limit::{Ask, Decision, Limit};
use crate::server::tls::TlsSession;
use crate::snapshot::{Route, Said};

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The index of the listener in the snapshot.
    pub listener: usize,
    /// The peer of the connection.
    pub peer: IpAddr,
    /// What the handshake has told, where TLS is spoken.
    pub tls: Option<&'a TlsSession>,
}

/// What was found out about a request, and what its limits are asked.
pub struct Found<'s> {
    /// The route.
    pub route: &'s Route,
    /// Its index.
    pub route_index: usize,
    /// The client's address.
    pub client: IpAddr,
    /// What is proved of whoever sent it.
    pub identity: Identity<'s>,
    /// The path in normal form, if the request wrote it differently.
    pub normal_path: Option<String>,
    /// The hash of what keeps its requests on one server, if its upstream wants one and it has it.
    pub affinity: Option<u64>,
    /// The limits that are asked.
    pub asked: SmallVec<[AskedLimit<'s>; 2]>,
    /// What each of them is asked.
    pub asks: SmallVec<[Ask<'s>; 2]>,
    /// The limits that are not, by their index in the snapshot, and why.
    pub spared: SmallVec<[(usize, Spared); 2]>,
}

/// What was found out about a request, and the decision on it.
pub struct Judged<'s> {
    /// The route.
    pub route: &'s Route,
    /// Its index.
    pub route_index: usize,
    /// The client's address.
    pub client: IpAddr,
    /// What is proved of whoever sent it.
    pub identity: Identity<'s>,
    /// The path in normal form, if the request wrote it differently.
    pub normal_path: Option<String>,
    /// The hash of what keeps its requests on one server, if its upstream wants one and it has it.
    pub affinity: Option<u64>,
    /// What is the same in all answers to it.
    pub said: &'s Said,
    /// The limits that were asked; the decision's verdicts are in this order.
    pub asked: SmallVec<[AskedLimit<'s>; 2]>,
    /// The limits that were not, by their index in the snapshot, and why.
    pub spared: SmallVec<[(usize, Spared); 2]>,
    /// What the limits say.
    pub decision: Decision,
    /// When they were asked, on the gateway's clock.
    pub now: Time,
}

/// A limit that a request is under.
#[derive(Clone, Copy)]
pub struct AskedLimit<'s> {
    /// Its index in the snapshot.
    pub index: usize,
    /// The limit, as it is for the request's plan.
    pub limit: &'s Arc<Limit>,
    /// Whether it is only tried.
    pub candidate: bool,
}

/// Why a limit was not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spared {
    /// The client or its key is exempt.
    Exempt,
    /// The request lacks the key and the limit skips those.
    Skipped,
    /// The limit is not about such requests.
    Elsewhere,
}

impl<'s> Found<'s> {
    /// With the decision of its limits, which was made at `now`.
    pub fn decided(self, decision: Decision, now: Time) -> Judged<'s> {
        let Self { route, route_index, client, identity, normal_path, affinity, asked, spared, .. } = self;
        let said = route.said_to(identity.plan());
        Judged {
            route,
            route_index,
            client,
            identity,
            normal_path,
            affinity,
            said,
            asked,
            spared,
            decision,
            now,
        }
    }
}
