//! Which server is the master, by the word of the sentinels: all are asked, and the latest election counts.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, RedisResult};
use sluicegate_limiter::Span;
use tokio::time::Instant;

use super::dial::{credentials, dial};
use super::scripts::denied;
use crate::Clock;
use crate::{Address, Deployment, Settings};

/// How long further sentinels are waited for after the first answer, and after answers of more than half of them.
const GRACE: Span = Span::from_millis(500);
const GRACE_OF_MOST: Span = Span::from_millis(50);
/// How long a connection to a sentinel may take.
const DIAL: Duration = Duration::from_secs(1);

/// What one sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    master: Address,
    /// Grows with every election of a master. Zero where the sentinel does not tell it.
    epoch: u64,
}

/// The sentinels, as far as they are known.
#[derive(Default)]
pub(super) struct Sentinels {
    /// Connections that are open.
    open: HashMap<String, MultiplexedConnection>,
    /// What was taken for true last.
    last: Option<Word>,
}

impl Sentinels {
    /// Asks all of them who the master is.
    ///
    /// # Errors
    /// What the last of them said, if none knows.
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
        let mut words = Vec::new();
        let mut last = RedisError::from((ErrorKind::InvalidClientConfig, "there are no sentinels"));
        let mut until = None;
        loop {
            let next = match until {
                None => asked.next().await,
                Some(until) => tokio::time::timeout_at(until, asked.next()).await.unwrap_or_default(),
            };
            match next {
                None => break,
                Some((node, Ok((channel, word)))) => {
                    self.open.insert(node.to_string(), channel);
                    words.push(word);
                    let most = words.len() * 2 > nodes.len();
                    let grace = clock.instant(clock.now().plus(if most { GRACE_OF_MOST } else { GRACE }));
                    until = Some(until.map_or(grace, |until: Instant| until.min(grace)));
                }
                Some((_, Err(error))) => last = error,
            }
        }
        let word = elect(&words, nodes.len(), self.last.as_ref()).ok_or(last)?;
        let master = word.master.clone();
        self.last = Some(word);
        Ok(master)
    }
}

/// The master of the latest election; of several with the same, the one that most sentinels name. What was known before
/// counts beside the words of a minority, which may have slept through the election.
fn elect(words: &[Word], sentinels: usize, before: Option<&Word>) -> Option<Word> {
    let named = |word: &Word| words.iter().filter(|other| *other == word).count();
    let best = words.iter().max_by_key(|word| (word.epoch, named(word), word.master.to_string()))?;
    let known = before.filter(|before| words.len() * 2 <= sentinels && before.epoch > best.epoch);
    Some(known.unwrap_or(best).clone())
}

async fn ask(
    config: &Settings,
    node: &Address,
    master: &str,
    known: Option<MultiplexedConnection>,
) -> RedisResult<(MultiplexedConnection, Word)> {
    if let Some(mut channel) = known
        && let Ok(word) = ask_over(&mut channel, master).await
    {
        return Ok((channel, word));
    }
    let Deployment::Sentinel { username, password, .. } = &config.servers else {
        return Err((ErrorKind::InvalidClientConfig, "there are no sentinels").into());
    };
    let mut channel = dial(config, node, credentials(username.as_deref(), password.as_deref()), DIAL).await?;
    let word = ask_over(&mut channel, master).await?;
    Ok((channel, word))
}

/// The epoch is asked for first: were a master elected in between, the new one would go by the old epoch until it is
/// asked next, and not the old one by the new epoch. The address is the one that sentinels mean for clients:
/// `SENTINEL MASTER` goes on showing the old one until a failover has ended.
async fn ask_over(channel: &mut MultiplexedConnection, master: &str) -> RedisResult<Word> {
    let ask = |what| {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg(what).arg(master);
        ask
    };
    let fields: HashMap<String, String> = match ask("MASTER").query_async(channel).await {
        Err(error) if denied(&error) => HashMap::new(), // a user who may ask for the address alone
        fields => fields?,
    };
    let epoch = fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    let known: Option<(String, u16)> = ask("GET-MASTER-ADDR-BY-NAME").query_async(channel).await?;
    let none = (ErrorKind::Io, "a sentinel does not know the master's name");
    let (host, port) = known.ok_or_else(|| RedisError::from(none))?;
    Ok(Word { master: Address::Tcp { host, port }, epoch })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(port: u16, epoch: u64) -> Word {
        Word { master: Address::Tcp { host: "h".to_owned(), port }, epoch }
    }

    #[test]
    fn the_latest_election_counts_and_then_the_most() {
        let elect = |words: &[Word]| elect(words, 3, None);
        assert_eq!(elect(&[]), None);
        assert_eq!(elect(&[says(1, 7), says(2, 8), says(1, 7)]), Some(says(2, 8)));
        assert_eq!(elect(&[says(1, 0), says(2, 0), says(2, 0)]), Some(says(2, 0)), "where no epoch is told");
        assert_eq!(elect(&[says(2, 0), says(2, 0), says(1, 0)]), Some(says(2, 0)));
        let both = [says(1, 7), says(2, 7)];
        assert_eq!(elect(&both), elect(&[both[1].clone(), both[0].clone()]), "every gateway takes the same");
    }

    #[test]
    fn a_minority_does_not_bring_an_old_master_back() {
        let before = says(2, 8);
        assert_eq!(elect(&[says(1, 7)], 3, Some(&before)), Some(before.clone()));
        assert_eq!(elect(&[says(3, 9)], 3, Some(&before)), Some(says(3, 9)));
        assert_eq!(
            elect(&[says(1, 0), says(1, 0)], 3, Some(&before)),
            Some(says(1, 0)),
            "they were set up anew"
        );
    }
}
