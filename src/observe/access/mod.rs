//! The access log: one line of every request, written when it has ended.
//!
//! A worker formats its lines into a buffer of its own and hands that over, at the latest ten times a second, to the
//! thread that writes ([`Sink`]). No worker waits for a disk or a pipe: what cannot be taken is dropped and counted.

mod line;
mod record;
mod sink;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_limiter::Time;

use self::line::{combined, json};
pub(crate) use self::line::{is_among, shown_target};
use self::record::Kind;
pub use self::record::{End, Record};
pub use self::sink::{Sink, try_open as try_log};
use crate::config::{AccessLogConfig, LogFormat};

/// A worker's buffer is handed over when it is this long.
const HAND_OVER: usize = 16 << 10;

/// The access log as one worker sees it under one configuration.
pub struct AccessLog {
    config: AccessLogConfig,
    lines: Rc<Lines>,
}

/// The lines of one worker that are not handed over yet.
struct Lines {
    sink: Arc<Sink>,
    bytes: RefCell<Vec<u8>>,
    count: Cell<u64>,
    /// The second that was last written as a date, and the date.
    date: RefCell<(u64, String)>,
}

impl AccessLog {
    /// The log of a worker. The lines that wait in the one `before` stay in their order.
    pub fn new(config: AccessLogConfig, sink: Arc<Sink>, before: Option<&Self>) -> Self {
        let same = before.filter(|before| Arc::ptr_eq(&before.lines.sink, &sink));
        let new = || Lines {
            sink,
            bytes: RefCell::new(Vec::with_capacity(HAND_OVER)),
            count: Cell::new(0),
            date: RefCell::new((u64::MAX, String::new())),
        };
        if let Some(before) = before {
            before.flush();
        }
        Self { config, lines: same.map_or_else(|| Rc::new(new()), |before| Rc::clone(&before.lines)) }
    }

    /// What the file says of it.
    pub const fn config(&self) -> &AccessLogConfig {
        &self.config
    }

    /// Writes the line of a request that has ended, if it is in the sample. `random` decides that.
    pub fn write(&self, record: &Record, end: &End<'_>, random: u64) {
        let sample = &self.config.sample;
        let share = match record.kind(end) {
            Kind::Ok => sample.ok,
            Kind::Refused => sample.refused,
            Kind::Error => sample.error,
        };
        if !share.takes(random) {
            return;
        }
        let mut bytes = self.lines.bytes.borrow_mut();
        match self.config.format {
            LogFormat::Json => json(&mut bytes, &self.config, record, end),
            LogFormat::Combined => {
                combined(&mut bytes, &self.config, record, end, &self.lines.date(end.begun))
            }
        }
        bytes.push(b'\n');
        self.lines.count.set(self.lines.count.get() + 1);
        let full = bytes.len() >= HAND_OVER;
        drop(bytes);
        if full {
            self.flush();
        }
    }

    /// Hands over what waits.
    pub fn flush(&self) {
        self.lines.flush();
    }
}

impl Lines {
    fn flush(&self) {
        let mut bytes = self.bytes.borrow_mut();
        if !bytes.is_empty() {
            self.sink.take(&bytes, self.count.take());
            bytes.clear();
        }
    }

    /// A time as the combined format writes it, in UTC.
    fn date(&self, time: Time) -> String {
        let seconds = time.as_nanos() / 1_000_000_000;
        let mut date = self.date.borrow_mut();
        if date.0 != seconds {
            let time = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
            let time = time.unwrap_or_default().to_zoned(jiff::tz::TimeZone::UTC);
            *date = (seconds, time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string());
        }
        date.1.clone()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}
