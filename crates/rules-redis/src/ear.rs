//! The connection that listens.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::RedisError;
use redis::aio::{PubSubSink, PubSubStream};
use sluicegate_counters_redis::{Address, Settings, subscriber};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use sluicegate_redis_link::one_line;
use sluicegate_redis_link::{PING_INTERVAL, State, pause, ping_timeout};

/// What the connection hears.
pub(crate) enum Heard {
    /// The server has confirmed that it sends from now on.
    Listening,
    /// A message.
    Message(Vec<u8>),
    /// Nothing is heard any more, for this reason.
    Deaf(String),
}

/// Listens for ever to the server that holds the rules, over one connection after the other.
pub(crate) async fn listen(
    settings: Arc<Settings>,
    channel: String,
    mut states: watch::Receiver<State>,
    heard: mpsc::Sender<Heard>,
) {
    loop {
        let Some(address) = address(&mut states).await else { return };
        let why = listen_once(&settings, &address, &channel, &mut states, &heard).await;
        if heard.send(Heard::Deaf(why)).await.is_err() {
            return;
        }
        sleep(pause()).await;
    }
}

/// The server that the connection for commands has found; `None` at the end.
async fn address(states: &mut watch::Receiver<State>) -> Option<Address> {
    let found = states.wait_for(|state| matches!(state, State::Up(_))).await.ok()?;
    match &*found {
        State::Up(link) => Some(link.address.clone()),
        _ => None,
    }
}

/// Listens until that is of no use any more. Returns why.
async fn listen_once(
    settings: &Settings,
    address: &Address,
    channel: &str,
    states: &mut watch::Receiver<State>,
    heard: &mpsc::Sender<Heard>,
) -> String {
    let connecting = async {
        let (mut sink, stream) = subscriber(settings, address).await?.split();
        sink.subscribe(channel).await?;
        Ok::<_, RedisError>((sink, stream))
    };
    let (sink, stream) = match timeout(settings.round_trips(5), connecting).await {
        Ok(Ok(both)) => both,
        Ok(Err(error)) => return one_line(&error),
        Err(_) => return "Redis does not answer in time".into(),
    };
    if heard.send(Heard::Listening).await.is_err() {
        return String::new();
    }
    let elsewhere = states.wait_for(|state| matches!(state, State::Up(link) if link.address != *address));
    tokio::select! {
        why = forward(stream, heard) => why,
        why = ping(sink, ping_timeout(settings)) => why,
        _ = elsewhere => "another server holds the rules now".into(),
    }
}

async fn forward(mut stream: PubSubStream, heard: &mpsc::Sender<Heard>) -> String {
    while let Some(message) = stream.next().await {
        if heard.send(Heard::Message(message.get_payload_bytes().to_vec())).await.is_err() {
            break;
        }
    }
    "the connection to Redis is lost".into()
}

async fn ping(mut sink: PubSubSink, within: Duration) -> String {
    loop {
        sleep(PING_INTERVAL).await;
        match timeout(within, sink.ping::<redis::Value>()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return one_line(&error),
            Err(_) => return "Redis does not answer in time".into(),
        }
    }
}
