//! The access log: one line per request, written when the request has ended.
//!
//! A worker formats lines into its own buffer and passes the buffer, ten times a second or when it is full, to the
//! thread of the [`LogWriter`]. No worker waits for a disk or a pipe: lines that do not fit its queue are dropped and counted.

mod line;
mod names;
mod outcome;
mod record;
mod short;
mod writer;

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use sluicegate_limiter::Time;

use self::line::{combined, json};
pub use self::line::{is_among, shown_target};
pub use self::names::Names;
pub use self::outcome::Outcome;
use self::record::Kind;
pub use self::record::{End, Record};
use self::short::short;
pub use self::writer::{LogWriter, try_open as try_log};
use sluicegate_config::{AccessLogConfig, LogFormat};

/// The date of the combined format.
const CLF_DATE: &str = "%d/%b/%Y:%H:%M:%S +0000";
/// A date of RFC 3339 without the fraction of the second and the zone.
const RFC3339_SECOND: &str = "%Y-%m-%dT%H:%M:%S";
/// The length at which a worker passes its buffer to the writer.
const FLUSH_LENGTH: usize = 16 << 10;

/// The access log of one worker under one configuration.
pub struct AccessLog {
    config: AccessLogConfig,
    lines: Rc<Lines>,
}

/// The lines of one worker that the writer does not have yet.
struct Lines {
    writer: Arc<LogWriter>,
    bytes: RefCell<Vec<u8>>,
    count: Cell<u64>,
    /// The last date: its second, its format and its text.
    date: RefCell<(u64, &'static str, String)>,
}

impl AccessLog {
    /// The log of a worker. Lines that are buffered in `before` are written first.
    pub fn new(config: AccessLogConfig, writer: Arc<LogWriter>, before: Option<&Self>) -> Self {
        let same = before.filter(|before| Arc::ptr_eq(&before.lines.writer, &writer));
        let new = || Lines {
            writer,
            bytes: RefCell::new(Vec::with_capacity(FLUSH_LENGTH)),
            count: Cell::new(0),
            date: RefCell::new((u64::MAX, "", String::new())),
        };
        if let Some(before) = before {
            before.flush();
        }
        Self { config, lines: same.map_or_else(|| Rc::new(new()), |before| Rc::clone(&before.lines)) }
    }

    /// The configuration of the log.
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
        let full = bytes.len() >= FLUSH_LENGTH;
        drop(bytes);
        if full {
            self.flush();
        }
    }

    /// Passes the buffered lines to the writer.
    pub fn flush(&self) {
        self.lines.flush();
    }
}

impl Lines {
    fn flush(&self) {
        let mut bytes = self.bytes.borrow_mut();
        if !bytes.is_empty() {
            self.writer.push(&bytes, self.count.take());
            bytes.clear();
        }
    }

    /// The date of a time in this format, in UTC.
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
