//! The task that keeps the connection for commands open.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisResult};
use sluicegate_counters_redis::{Address, Locator};
use tokio::time::{Instant, timeout};

use crate::call::one_line;
use crate::link::{Line, Link, PING_INTERVAL, State, pause, ping_timeout};

/// How many checks pass between two questions to the sentinels.
const CHECKS_PER_QUESTION: u32 = 2;
/// A connection that lasted this long is first opened again without a pause.
const STABLE_AFTER: Duration = Duration::from_secs(1);
/// The pause after the server refused the credentials: an operator must act.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// Opens the connection again whenever it is lost, for ever.
pub async fn keep(line: Arc<Line>, mut locator: Locator) {
    loop {
        match open(&mut locator).await {
            Ok(link) => {
                let (link, begun) = (Arc::new(link), Instant::now());
                line.set(State::Up(Arc::clone(&link)));
                let why = watch_over(&link, &mut locator).await;
                tracing::debug!(server = %link.address, why, "the connection for commands is lost");
                link.condemn(why);
                line.set(State::Opening);
                if begun.elapsed() >= STABLE_AFTER {
                    continue; // callers wait for it
                }
            }
            Err(error) => {
                line.set(State::Down(one_line(&error)));
                if error.kind() == ErrorKind::AuthenticationFailed {
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
        tokio::time::sleep(pause()).await;
    }
}

async fn open(locator: &mut Locator) -> RedisResult<Link> {
    let address = locator.find().await?;
    let channel = locator.connect(&address).await?;
    Ok(Link::new(address, channel))
}

/// Returns why the connection is unusable, as soon as it is.
async fn watch_over(link: &Link, locator: &mut Locator) -> String {
    let mut checks = 0;
    loop {
        // A call that got no answer in time starts the check earlier.
        _ = timeout(PING_INTERVAL, link.doubted.notified()).await;
        if let Some(why) = link.fault() {
            return why;
        }
        match timeout(ping_timeout(locator.settings()), check(link, locator)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return one_line(&error),
            Err(_) => return "Redis does not answer in time".into(),
        }
        checks += 1;
        if checks % CHECKS_PER_QUESTION == 0 && has_moved(link, locator).await {
            return "another server holds the keys now".into();
        }
    }
}

async fn check(link: &Link, locator: &Locator) -> RedisResult<()> {
    let mut channel = link.channel.clone();
    let answer: RedisResult<redis::Value> = redis::cmd("PING").query_async(&mut channel).await;
    if let Err(error) = answer {
        if error.is_io_error() {
            link.set_broken(one_line(&error));
        }
        return Err(error);
    }
    match link.fault() {
        Some(why) => Err((ErrorKind::Io, "the connection is lost", why).into()),
        None => locator.check_role(&mut channel).await,
    }
}

/// Whether the sentinels name another server. If none answers, the master is unknown, which is not a move.
async fn has_moved(link: &Link, locator: &mut Locator) -> bool {
    let named: RedisResult<Address> = match &locator.settings().servers {
        // Without sentinels the server itself says so in its answer to a command.
        sluicegate_counters_redis::Deployment::Sentinel { .. } => locator.find().await,
        _ => return false,
    };
    named.is_ok_and(|named| named != link.address)
}
