//! The master that the sentinels name: all are asked, and the latest election counts.

use std::collections::HashMap;

use futures_util::StreamExt;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult};
use sluicegate_limiter::Span;
use tokio::time::Instant;

use super::dial::{credentials, dial};
use super::scripts::denied;
use crate::Clock;
use crate::{Address, Deployment, Settings};

/// The time for further answers after the first one, and after those of a majority.
const GRACE: Span = Span::from_millis(500);
const GRACE_OF_MAJORITY: Span = Span::from_millis(50);

/// The answer of one sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    master: Address,
    /// Increases with every election of a master. Zero if the sentinel does not return it.
    epoch: u64,
}

/// The connections to the sentinels, and their last result.
#[derive(Default)]
pub(super) struct Sentinels {
    /// Connections that are open.
    open: HashMap<String, MultiplexedConnection>,
    /// The last result.
    last: Option<Answer>,
}

impl Sentinels {
    /// Asks all of them who the master is.
    ///
    /// # Errors
    /// The error of the last of them, if none knows.
    pub(super) async fn master(&mut self, config: &Settings, clock: &Clock) -> RedisResult<Address> {
        let Deployment::Sentinel { master, nodes, .. } = &config.servers else {
            return Err((ErrorKind::InvalidClientConfig, "there are no sentinels").into());
        };
        let mut asked: FuturesUnordered<_> = nodes
            .iter()
            .map(|node| {
                let known = self.open.remove(&node.to_string());
                async move { (node, ask(config, node, master, known).await) }
            })
            .collect();
        let mut answers = Vec::new();
        let mut last = RedisError::from((ErrorKind::InvalidClientConfig, "there are no sentinels"));
        let mut until = None;
        loop {
            let next = match until {
                None => asked.next().await,
                Some(until) => tokio::time::timeout_at(until, asked.next()).await.unwrap_or_default(),
            };
            match next {
                None => break,
                Some((node, Ok((channel, answer)))) => {
                    self.open.insert(node.to_string(), channel);
                    answers.push(answer);
                    let most = answers.len() * 2 > nodes.len();
                    let grace = clock.instant(clock.now().plus(if most { GRACE_OF_MAJORITY } else { GRACE }));
                    until = Some(until.map_or(grace, |until: Instant| until.min(grace)));
                }
                Some((_, Err(error))) => last = error,
            }
        }
        let answer = elect(&answers, nodes.len(), self.last.as_ref()).ok_or(last)?;
        let master = answer.master.clone();
        self.last = Some(answer);
        Ok(master)
    }
}

/// The master of the latest election; among several, the one that most sentinels name. If only a minority answers, the last
/// result counts too, because the minority may have missed an election.
fn elect(answers: &[Answer], sentinels: usize, before: Option<&Answer>) -> Option<Answer> {
    let named_by = |answer: &Answer| answers.iter().filter(|other| *other == answer).count();
    let best =
        answers.iter().max_by_key(|answer| (answer.epoch, named_by(answer), answer.master.to_string()))?;
    let known = before.filter(|before| answers.len() * 2 <= sentinels && before.epoch > best.epoch);
    Some(known.unwrap_or(best).clone())
}

async fn ask(
    config: &Settings,
    node: &Address,
    master: &str,
    known: Option<MultiplexedConnection>,
) -> RedisResult<(MultiplexedConnection, Answer)> {
    if let Some(mut channel) = known
        && let Ok(answer) = ask_over(&mut channel, master).await
    {
        return Ok((channel, answer));
    }
    let Deployment::Sentinel { username, password, .. } = &config.servers else {
        return Err((ErrorKind::InvalidClientConfig, "there are no sentinels").into());
    };
    let mut channel = dial(config, node, credentials(username.as_deref(), password.as_deref())).await?;
    let answer = ask_over(&mut channel, master).await?;
    Ok((channel, answer))
}

/// Reads the epoch before the address: if a master is elected in between, the new master gets the old epoch until the next
/// refresh, and never the old master the new epoch. Both are sent at once, and a server answers in order. `SENTINEL MASTER` returns the old address until a failover has ended, so
/// the address is read with the command for clients.
async fn ask_over(channel: &mut MultiplexedConnection, master: &str) -> RedisResult<Answer> {
    let ask = |what| {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg(what).arg(master);
        ask
    };
    let mut first = channel.clone();
    let (fields, known) =
        join(async { ask("MASTER").query_async::<HashMap<String, String>>(&mut first).await }, async {
            ask("GET-MASTER-ADDR-BY-NAME").query_async::<Option<(String, u16)>>(channel).await
        })
        .await;
    let fields = match fields {
        Err(error) if denied(&error) => HashMap::new(), // the user may only read the address
        fields => fields?,
    };
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let known = known?;
    let none = (ErrorKind::Io, "a sentinel does not know the master's name");
    let (host, port) = known.ok_or_else(|| RedisError::from(none))?;
    Ok(Answer { master: Address::Tcp { host, port }, epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(port: u16, epoch: u64) -> Answer {
        Answer { master: Address::Tcp { host: "h".to_owned(), port }, epoch }
    }

    #[test]
    fn the_latest_election_counts_and_then_the_majority() {
        let elect = |answers: &[Answer]| elect(answers, 3, None);
        assert_eq!(elect(&[]), None);
        assert_eq!(elect(&[answer(1, 7), answer(2, 8), answer(1, 7)]), Some(answer(2, 8)));
        assert_eq!(
            elect(&[answer(1, 0), answer(2, 0), answer(2, 0)]),
            Some(answer(2, 0)),
            "where no epoch is told"
        );
        assert_eq!(elect(&[answer(2, 0), answer(2, 0), answer(1, 0)]), Some(answer(2, 0)));
        let both = [answer(1, 7), answer(2, 7)];
        assert_eq!(elect(&both), elect(&[both[1].clone(), both[0].clone()]), "every gateway takes the same");
    }

    #[test]
    fn a_minority_does_not_bring_an_old_master_back() {
        let before = answer(2, 8);
        assert_eq!(elect(&[answer(1, 7)], 3, Some(&before)), Some(before.clone()));
        assert_eq!(elect(&[answer(3, 9)], 3, Some(&before)), Some(answer(3, 9)));
        assert_eq!(
            elect(&[answer(1, 0), answer(1, 0)], 3, Some(&before)),
            Some(answer(1, 0)),
            "they were set up anew"
        );
    }
}
