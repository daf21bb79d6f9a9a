//! What is done about changes that others make to rules in Redis.

use std::sync::Weak;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use sluicegate_rules_redis::Event;
use tokio::sync::mpsc::UnboundedReceiver;

use super::Rules;

/// How long it takes until patterns that could not be read are read again.
const PAUSE: Duration = Duration::from_millis(250);

/// Forgets what others have changed. `ready` is told when the rules were read for the first time.
pub(super) async fn follow(rules: Weak<Rules>, mut events: UnboundedReceiver<Event>, ready: SyncSender<()>) {
    let mut unread = false;
    let mut reached = None;
    loop {
        let event = match unread {
            true => match tokio::time::timeout(PAUSE, events.recv()).await {
                Ok(event) => event.map(Some),
                Err(_) => Some(None),
            },
            false => events.recv().await.map(Some),
        };
        let (Some(event), Some(rules)) = (event, rules.upgrade()) else { return };
        let mut next = event;
        while let Some(event) = next {
            match event {
                Event::Keys(keys) => {
                    keys.iter().for_each(|(limit, key)| rules.key_changed(limit, key));
                }
                Event::Patterns => unread = true,
                Event::Everything => {
                    rules.forget_all();
                    unread = true;
                }
                Event::At(head) => reached = Some(head.version),
                Event::Away(why) => rules.say(Some(why)),
                Event::Back => rules.say(None),
            }
            next = events.try_recv().ok();
        }
        if unread {
            // Asked by nobody who waits: what fails is asked again.
            match rules.read_patterns().await {
                Ok(()) => {
                    unread = false;
                    let _ = ready.try_send(()); // only the first one is waited for
                }
                Err(why) => tracing::debug!(why, "the patterns of rules cannot be read"),
            }
        }
        if !unread && let Some(version) = reached.take() {
            rules.reached(version);
        }
    }
}
