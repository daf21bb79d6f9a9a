//! Asks the home store which part of the limits' rates the region of this gateway may enforce.

use std::rc::Rc;

use redis::Cmd;
use sluicegate_leases::SHARE_BOOKED;

use super::script_text::SHARES;
use super::store::Store;

/// The regions, and the gateway that asks.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// Its region.
    pub name: &'a str,
    /// The floors of all regions, in millionths.
    pub floors: &'a [(String, u32)],
}

/// What a gateway says of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareAsk {
    /// The limit.
    pub limit: String,
    /// The part of its rate that the gateway enforces, in millionths.
    pub applied: u32,
    /// What requests have asked for since the last question.
    pub demand: u64,
    /// How many of them were refused.
    pub refused: u64,
}

impl Store {
    /// Asks the store, which is the home store of the regions. Returns the parts that may be enforced, in the order of `asks`;
    /// `None` if it does not answer, or has answered a later question.
    pub async fn ask_shares(
        self: &Rc<Self>,
        region: Region<'_>,
        question: u64,
        asks: &[ShareAsk],
    ) -> Option<Vec<u32>> {
        let prefix = &self.state.config().prefix;
        let mut call = redis::cmd("EVAL");
        call.arg(SHARES).arg(asks.len());
        for ask in asks {
            call.arg(format!("{prefix}:{{gateways}}:shares:{}", ask.limit));
        }
        arguments(&mut call, 0, region, (&self.state.gateway, question), asks);
        let reply = self.send_to_gateways(&call).await?;
        let reply: Vec<i64> = redis::from_redis_value(reply).ok()?;
        (reply.len() == asks.len())
            .then(|| reply.into_iter().map(|part| u32::try_from(part).ok()).collect())?
    }
}

/// The arguments of the script; `now` in milliseconds, 0 for the clock of the server.
pub(super) fn arguments(
    call: &mut Cmd,
    now: u64,
    region: Region<'_>,
    (gateway, question): (&str, u64),
    asks: &[ShareAsk],
) {
    let life = SHARE_BOOKED.as_nanos() / 1_000_000;
    call.arg(now).arg(life).arg(question).arg(region.name).arg(gateway).arg(region.floors.len());
    for (name, floor) in region.floors {
        call.arg(name).arg(*floor);
    }
    for ask in asks {
        call.arg(ask.applied).arg(ask.demand).arg(ask.refused);
    }
}
