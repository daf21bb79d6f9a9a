//! The access log: one line of every request, written when it has ended.
//!
//! A worker formats its lines into a buffer of its own and hands that over, at the latest ten times a second, to the
//! thread that writes ([`Sink`]). No worker waits for a disk or a pipe: what cannot be taken is dropped and counted.

mod line;
mod outcome;
mod record;
mod short;
mod writer;

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_limiter::Time;

use self::line::{combined, json};
pub(crate) use self::line::{is_among, shown_target};
pub use self::outcome::Outcome;
use self::record::Kind;
pub use self::record::{End, Record};
use self::short::short;
pub use self::writer::{Sink, try_open as try_log};
use sluicegate_config::{AccessLogConfig, LogFormat};

/// How the combined format writes a second.
const CLF_DATE: &str = "%d/%b/%Y:%H:%M:%S +0000";
/// The part of RFC 3339 that is the same for a second.
const RFC3339_SECOND: &str = "%Y-%m-%dT%H:%M:%S";
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
    /// The second that was last written as a date, the form of the date, and the date.
    date: RefCell<(u64, &'static str, String)>,
}

impl AccessLog {
    /// The log of a worker. The lines that wait in the one `before` stay in their order.
    pub fn new(config: AccessLogConfig, sink: Arc<Sink>, before: Option<&Self>) -> Self {
        let same = before.filter(|before| Arc::ptr_eq(&before.lines.sink, &sink));
        let new = || Lines {
            sink,
            bytes: RefCell::new(Vec::with_capacity(HAND_OVER)),
            count: Cell::new(0),
            date: RefCell::new((u64::MAX, "", String::new())),
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
                let date = self.lines.date(end.begun, CLF_DATE);
                combined(&mut bytes, &self.config, record, end, &date);
            }
            LogFormat::Short => short(&mut bytes, record, end, &self.lines.date(end.begun, RFC3339_SECOND)),
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

    /// The second of a time in this form, in UTC.
    fn date(&self, time: Time, form: &'static str) -> Ref<'_, str> {
        let seconds = time.as_nanos() / 1_000_000_000;
        let mut date = self.date.borrow_mut();
        if (date.0, date.1) != (seconds, form) {
            let time = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
            let time = time.unwrap_or_default().to_zoned(jiff::tz::TimeZone::UTC);
            *date = (seconds, form, time.strftime(form).to_string());
        }
        drop(date);
        Ref::map(self.date.borrow(), |date| date.2.as_str())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
    }
}
