//! The task that tells those who remember rules what has changed.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_rules::{Changes, Head};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::ear::Heard;
use crate::error::ReadError;
use crate::news::{Changed, News, Position, Step};
use crate::read::Store;

/// The interval at which the position of the store is read, in case that nothing is heard.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// If more changes were missed, all is read anew.
const MOST_MISSED: usize = 1_000;

/// What happened to the rules in Redis, whoever changed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Rules of single keys were created, changed or deleted.
    Keys(Vec<(String, String)>),
    /// Rules whose keys are or were patterns were created, changed or deleted.
    Patterns,
    /// It is not known what changed: the store was reached for the first time, too much was missed, or its history is another
    /// one, because it was emptied or a failover lost batches. Everything has to be read anew.
    Everything,
    /// All changes up to this version were told; it can be lower than the one before if the history is another one.
    At(Head),
    /// From now on changes may be missed, for this reason. What is remembered stays the best that is known.
    Away(String),
    /// What was missed was told before this; from now on nothing is missed.
    Back,
}

/// The task.
pub(crate) struct Follower<F> {
    pub(crate) store: Arc<Store>,
    pub(crate) heard: mpsc::Receiver<Heard>,
    pub(crate) tell: F,
    /// What was told so far.
    position: Option<Position>,
    /// Why nothing is heard.
    deaf: Option<String>,
    /// Whether that was told.
    away: bool,
}

impl<F: FnMut(Event)> Follower<F> {
    pub(crate) fn new(store: Arc<Store>, heard: mpsc::Receiver<Heard>, tell: F) -> Self {
        let deaf = Some("not connected yet".to_owned());
        Self { store, heard, tell, position: None, deaf, away: false }
    }

    /// Runs until nothing more can be heard.
    pub(crate) async fn follow(mut self) {
        let mut next_check = Instant::now() + CHECK_INTERVAL;
        loop {
            tokio::select! {
                biased;
                heard = self.heard.recv() => match heard {
                    None => return,
                    Some(Heard::Message(message)) => {
                        self.take(&message).await;
                        continue;
                    }
                    // Only now is the position read: whatever is written after it will be heard.
                    Some(Heard::Listening) => self.deaf = None,
                    Some(Heard::Deaf(why)) => {
                        self.leave(&why);
                        self.deaf = Some(why);
                        continue;
                    }
                },
                () = sleep_until(next_check) => {}
            }
            self.check().await;
            next_check = Instant::now() + CHECK_INTERVAL;
        }
    }

    /// Takes a message. One that cannot be read counts as a change of anything.
    async fn take(&mut self, message: &[u8]) {
        let Some(known) = &self.position else { return }; // the position will be read
        let Some(news) = News::read(message) else {
            self.catch_up().await;
            return;
        };
        match (news.step(known), news.changed) {
            (Step::Nothing, _) => {}
            (Step::Follows, Changed::Names { keys, patterns }) => {
                self.changed(keys, patterns);
                self.reached(news.position);
            }
            (Step::Follows, Changed::SeeLog) | (Step::Gap, _) => _ = self.catch_up().await,
            (Step::Other, _) => {
                (self.tell)(Event::Everything);
                self.reached(news.position);
            }
        }
    }

    /// Reads the position of the store.
    async fn check(&mut self) {
        let head = match self.store.head().await {
            Ok(head) => head,
            Err(error) => return self.leave(&reason(error)),
        };
        let is_known = match self.position.as_ref().map(|known| head.step(known)) {
            Some(Step::Nothing) => true,
            Some(Step::Gap | Step::Follows) => self.catch_up().await,
            Some(Step::Other) | None => {
                (self.tell)(Event::Everything);
                self.reached(head);
                true
            }
        };
        if is_known && self.deaf.is_none() && self.away {
            self.away = false;
            (self.tell)(Event::Back);
        }
    }

    /// Tells what the log says. Returns whether all is told.
    async fn catch_up(&mut self) -> bool {
        let Some(known) = self.position.clone() else { return false };
        let since = match self.store.since(known.version, MOST_MISSED, true).await {
            Ok(since) => since,
            // A change in the log that this release cannot read.
            Err(ReadError::Content { .. }) => return self.start_anew().await,
            Err(error) => {
                self.leave(&reason(error));
                return false;
            }
        };
        let changes = match since.changes {
            Changes::List(changes) if since.head.epoch == known.epoch => changes,
            _ => return self.anew(since.head),
        };
        let Some(last) = changes.last() else {
            // Nothing is newer.
            return since.head == known || self.anew(since.head);
        };
        if since.mark_before != known.mark || last.version != since.head.version {
            return self.anew(since.head);
        }
        let patterns = changes.iter().any(|change| change.pattern);
        let rules = changes.into_iter().flat_map(|change| [change.before, change.after]).flatten();
        let mut keys: Vec<(String, String)> = rules.map(|rule| (rule.limit, rule.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        self.changed(keys, patterns);
        self.reached(since.head);
        true
    }

    async fn start_anew(&mut self) -> bool {
        match self.store.head().await {
            Ok(head) => self.anew(head),
            Err(error) => {
                self.leave(&reason(error));
                false
            }
        }
    }

    fn anew(&mut self, head: Position) -> bool {
        (self.tell)(Event::Everything);
        self.reached(head);
        true
    }

    fn changed(&mut self, keys: Vec<(String, String)>, patterns: bool) {
        if !keys.is_empty() {
            (self.tell)(Event::Keys(keys));
        }
        if patterns {
            (self.tell)(Event::Patterns);
        }
    }

    fn reached(&mut self, position: Position) {
        (self.tell)(Event::At(Head { epoch: position.epoch.clone(), version: position.version }));
        self.position = Some(position);
    }

    fn leave(&mut self, why: &str) {
        if !self.away {
            self.away = true;
            (self.tell)(Event::Away(why.to_owned()));
        }
    }
}

/// Why nothing can be read, without the words for it.
fn reason(error: ReadError) -> String {
    match error {
        ReadError::Away(why) => why,
        error => error.to_string(),
    }
}
