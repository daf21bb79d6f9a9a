//! The known API keys and whose they are.
//!
//! A flat table, sorted by digest: 36 bytes a key, and some 30 for a consumer with a short name. A million of them
//! are found in two steps, because the digests of random keys are spread evenly: their first bits say where to look.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use super::read::{Entry, read};
use sluicegate_base::file_watch::{Digest, Mistakes, Source, Unusable, Watched, hex, sha256};
use sluicegate_config::{Config, LimitConfig, Priority, RateSource, nearest};

/// The longest API key that is looked up, in bytes. A longer one has no owner.
const MAX_KEY: usize = 4 << 10;

/// All consumers of a file. Immutable; a changed file makes another.
pub struct Consumers {
    /// By digest.
    keys: Vec<Key>,
    /// Where the keys begin whose digests begin with these bits.
    starts: Vec<u32>,
    /// How far a digest's first 32 bits are shifted to become such bits.
    shift: u32,
    records: Vec<Record>,
    plans: Vec<Plan>,
    /// Names and metadata.
    text: String,
    source: Option<Source>,
    /// The records by name, once somebody has asked for one.
    names: OnceLock<HashMap<Box<str>, u32>>,
}

/// A consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer<'s> {
    /// Its name.
    pub name: &'s str,
    /// Its plan.
    pub plan: Option<&'s str>,
    /// How important its requests are, if the file says so.
    pub priority: Option<Priority>,
    /// Names and values, each ended by a NUL.
    metadata: &'s str,
}

#[derive(Clone, Copy)]
struct Key {
    digest: Digest,
    owner: u32,
}

/// Where the parts of a consumer are.
struct Record {
    at: u32,
    name: u8,
    /// 0 for none, else the place among the plans from 1.
    plan: u16,
    metadata: u16,
    priority: Option<Priority>,
    /// Where it stands, for messages.
    line: u32,
}

/// A plan that consumers are on.
struct Plan {
    name: Box<str>,
    /// Where the first of them stands.
    line: u32,
    consumers: u32,
}

/// The most consumers of a file.
const MOST: usize = 1_000_000;
/// The most keys of one; a consumer needs two while it changes one.
const MOST_KEYS: usize = 100;
/// The most plans.
const MOST_PLANS: usize = 1_000;

impl std::fmt::Debug for Consumers {
    /// Not the digests: nobody needs them in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumers").field("consumers", &self.len()).field("keys", &self.keys()).finish()
    }
}

impl Watched for Consumers {
    fn parse(text: &str, file: &str) -> Result<Self, Unusable> {
        let mut mistakes = Mistakes::default();
        let mut building = Building::default();
        read(text, &mut mistakes, |entry, mistakes| building.add(&entry, mistakes));
        let consumers = building.finish(&mut mistakes);
        mistakes.or(consumers, file)
    }

    fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    fn read_from(self, source: Source) -> Self {
        Self { source: Some(source), ..self }
    }
}

impl Consumers {
    /// Whose key was sent, if anybody's.
    pub fn find(&self, sent: &[u8]) -> Option<Consumer<'_>> {
        if sent.is_empty() || sent.len() > MAX_KEY {
            return None;
        }
        let wanted = sha256(sent);
        let bucket = bucket(&wanted, self.shift);
        let (from, to) = (*self.starts.get(bucket)? as usize, *self.starts.get(bucket + 1)? as usize);
        let keys = self.keys.get(from..to)?;
        let at = keys.binary_search_by(|key| key.digest.cmp(&wanted)).ok()?;
        self.consumer(&self.records[keys[at].owner as usize])
    }

    /// The consumer of this name. The first call reads all names.
    pub fn named(&self, name: &str) -> Option<Consumer<'_>> {
        self.consumer(self.records.get(self.record_of(name)? as usize)?)
    }

    /// The index of the record of this name.
    fn record_of(&self, name: &str) -> Option<u32> {
        let names = self.names.get_or_init(|| {
            let all = (0..).zip(&self.records);
            all.filter_map(|(at, record)| Some((self.consumer(record)?.name.into(), at))).collect()
        });
        names.get(name).copied()
    }

    /// The consumer of a key by the digest of the key: its first 16 hexadecimal digits, or all 64, in lower case.
    pub fn with_digest(&self, digits: &str) -> Option<Consumer<'_>> {
        let first = u64::from_str_radix(digits.get(..16)?, 16).ok()?.to_be_bytes();
        let at = self.keys.partition_point(|key| key.digest[..8] < first[..]);
        let key = self.keys.get(at).filter(|key| hex(&key.digest).starts_with(digits))?;
        self.consumer(&self.records[key.owner as usize])
    }

    /// How many keys the consumer of this name has.
    pub fn keys_of(&self, name: &str) -> usize {
        let Some(owner) = self.record_of(name) else { return 0 };
        self.keys.iter().filter(|key| key.owner == owner).count()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many keys they have.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    fn consumer(&self, record: &Record) -> Option<Consumer<'_>> {
        let name = record.at as usize;
        let metadata = name + usize::from(record.name);
        let plan = usize::from(record.plan).checked_sub(1);
        Some(Consumer {
            name: self.text.get(name..metadata)?,
            metadata: self.text.get(metadata..metadata + usize::from(record.metadata))?,
            plan: plan.and_then(|at| self.plans.get(at)).map(|plan| &*plan.name),
            priority: record.priority,
        })
    }

    /// The plans that they are on.
    pub fn plans(&self) -> impl Iterator<Item = &str> {
        self.plans.iter().map(|plan| &*plan.name)
    }

    /// Whether each is on a plan that some limit has, if limits have plans at all (otherwise a plan is only told), and whether
    /// limits can have the rates that the metadata name.
    ///
    /// # Errors
    /// What does not fit, and where it stands in `file`.
    pub fn check(&self, config: &Config, file: &str) -> Result<(), Unusable> {
        let mut mistakes = Mistakes::default();
        for plan in self.plans.iter().filter(|_| !config.plans.is_empty()) {
            let of = match plan.consumers {
                1 => String::new(),
                count => format!(" of {count} consumers"),
            };
            if let Err(message) = known_plan(&plan.name, &of, &config.plans) {
                mistakes.add(plan.line, message);
            }
        }
        config.limits.iter().for_each(|limit| self.check_rates(limit, &mut mistakes));
        mistakes.or((), file)
    }

    fn check_rates(&self, limit: &LimitConfig, mistakes: &mut Mistakes) {
        let Some(rates) = &limit.identity_rate else { return };
        let RateSource::Metadata(name) = &rates.source else { return };
        let mut checked = HashMap::new();
        for record in &self.records {
            let Some(consumer) = self.consumer(record) else { continue };
            let named = consumer.metadata().find(|(known, _)| known == name);
            let Some(rate) = named.and_then(|(_, text)| rates.read(text)) else { continue };
            let fits = checked.entry(rate).or_insert_with(|| limit.with_identity_rate(rate, None).err());
            if let Some(why) = fits {
                let (who, limit, why) = (consumer.name, &limit.name, why.join("; "));
                mistakes.add(
                    record.line,
                    format!("limit `{limit}` cannot have the rate {rate} of `{who}`: {why}"),
                );
            }
        }
    }
}

impl<'s> Consumer<'s> {
    /// What the file says of it besides: names and values, in the order of the file.
    pub fn metadata(&self) -> impl Iterator<Item = (&'s str, &'s str)> {
        let mut parts = self.metadata.split_terminator('\0');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }
}

/// Whether a limit has this plan. `of` says whose it is.
///
/// # Errors
/// What it can have been meant for.
pub(super) fn known_plan(plan: &str, of: &str, known: &[String]) -> Result<(), String> {
    if known.iter().any(|name| name == plan) {
        return Ok(());
    }
    let meant = match nearest(plan, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: {}", known.join(", ")),
    };
    Err(format!("no limit has the plan `{plan}`{of}; {meant}"))
}

/// The bits that a digest is looked up by.
fn bucket(digest: &Digest, shift: u32) -> usize {
    let first = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    first.checked_shr(shift).unwrap_or(0) as usize
}

/// Consumers of which not all are read.
#[derive(Default)]
struct Building {
    keys: Vec<Key>,
    records: Vec<Record>,
    /// The hashes of the names, to find those that are given twice, and whose they are.
    names: Vec<(u64, u32)>,
    hashes: RandomState,
    plans: Vec<Plan>,
    plan_numbers: HashMap<String, u16>,
    text: String,
}

impl Building {
    fn add(&mut self, entry: &Entry<'_>, mistakes: &mut Mistakes) {
        let line = entry.lines.0;
        if self.records.len() == MOST {
            return mistakes.add(line, "a file holds at most 1,000,000 consumers");
        }
        if entry.keys.len() > MOST_KEYS {
            return mistakes.add(line, format!("a consumer has at most {MOST_KEYS} keys"));
        }
        let plan = match entry.plan.as_deref().map(|plan| self.plan(plan, line)) {
            None => 0,
            Some(Some(number)) => number,
            Some(None) => return mistakes.add(line, format!("a file has at most {MOST_PLANS} plans")),
        };
        let owner = self.records.len() as u32; // at most MOST
        let Ok(at) = u32::try_from(self.text.len()) else {
            return mistakes.add(line, "the names and metadata of a file are at most 4 GiB");
        };
        self.names.push((self.hashes.hash_one(&entry.name), owner));
        self.text.push_str(&entry.name);
        for (name, value) in &entry.metadata {
            for part in [name, value] {
                self.text.push_str(part);
                self.text.push('\0');
            }
        }
        let name = entry.name.len() as u8; // names and metadata are bounded by the reader
        let metadata = (self.text.len() - at as usize - entry.name.len()) as u16;
        self.records.push(Record { at, name, plan, metadata, priority: entry.priority, line });
        self.keys.extend(entry.keys.iter().map(|key| Key { digest: key.digest, owner }));
    }

    /// The number of a plan; `None` if there are too many.
    fn plan(&mut self, plan: &str, line: u32) -> Option<u16> {
        if let Some(number) = self.plan_numbers.get(plan) {
            self.plans[usize::from(*number) - 1].consumers += 1;
            return Some(*number);
        }
        let number = u16::try_from(self.plans.len() + 1).ok().filter(|n| usize::from(*n) <= MOST_PLANS)?;
        self.plans.push(Plan { name: plan.into(), line, consumers: 1 });
        self.plan_numbers.insert(plan.to_owned(), number);
        Some(number)
    }

    /// Reports names that are given twice. Names of one hash stand together then, and there are few.
    fn check_names(&mut self, mistakes: &mut Mistakes) {
        let mut names = std::mem::take(&mut self.names);
        names.sort_unstable();
        let name = |owner: u32| {
            let Record { at, name, .. } = self.records[owner as usize];
            &self.text[at as usize..at as usize + usize::from(name)]
        };
        for same in names.chunk_by(|one, next| one.0 == next.0).filter(|same| same.len() > 1) {
            for (at, (_, owner)) in same.iter().enumerate().skip(1) {
                if let Some((_, first)) = same[..at].iter().find(|(_, first)| name(*first) == name(*owner)) {
                    let (line, first) =
                        (self.records[*owner as usize].line, self.records[*first as usize].line);
                    let name = name(*owner);
                    mistakes.add(
                        line,
                        format!("two consumers are called `{name}`: the first is on line {first}"),
                    );
                }
            }
        }
    }

    fn finish(mut self, mistakes: &mut Mistakes) -> Consumers {
        self.check_names(mistakes);
        self.keys.sort_unstable_by_key(|key| (key.digest, key.owner));
        for pair in self.keys.windows(2).filter(|pair| pair[0].digest == pair[1].digest) {
            let [first, second] = [pair[0], pair[1]].map(|key| self.records[key.owner as usize].line);
            mistakes.add(
                second,
                match first == second {
                    true => "a consumer has the same key twice".to_owned(),
                    false => format!("two consumers have the same key: the first is on line {first}"),
                },
            );
        }
        // One bucket per key, or up to twice as many.
        let bits = usize::BITS - self.keys.len().leading_zeros();
        let shift = 32 - bits.min(24);
        let mut starts = vec![0_u32; (1 << bits.min(24)) + 1];
        for key in &self.keys {
            starts[bucket(&key.digest, shift) + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        self.keys.shrink_to_fit();
        self.records.shrink_to_fit();
        self.text.shrink_to_fit();
        let Self { keys, records, plans, text, .. } = self;
        Consumers { keys, starts, shift, records, plans, text, source: None, names: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(key: &str) -> String {
        sha256(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A file of this many consumers with a key each.
    fn file(count: usize) -> String {
        let entry =
            |n| format!("- name: c{n}\n  key: sha256:{}\n  plan: p{}\n", hex(&format!("k{n}")), n % 3);
        if count == 0 { "[]\n".to_owned() } else { (0..count).map(entry).collect() }
    }

    #[test]
    fn every_key_is_found_and_no_other() {
        for count in [0, 1, 2, 3, 17, 1_000] {
            let consumers = Consumers::parse(&file(count), "c.yaml").unwrap();
            assert_eq!((consumers.len(), consumers.keys()), (count, count));
            for n in 0..count {
                let found = consumers.find(format!("k{n}").as_bytes()).unwrap();
                assert_eq!((found.name, found.plan), (&*format!("c{n}"), Some(&*format!("p{}", n % 3))));
            }
            for sent in ["", "k", "K0", &format!("k{count}"), &hex("k0")] {
                assert_eq!(consumers.find(sent.as_bytes()), None, "{sent}");
            }
        }
    }

    #[test]
    fn a_key_that_is_too_long_is_nobodys() {
        for (length, found) in [(MAX_KEY, true), (MAX_KEY + 1, false)] {
            let key = "k".repeat(length);
            let consumers =
                Consumers::parse(&format!("- {{name: a, key: sha256:{}}}", hex(&key)), "c").unwrap();
            assert_eq!(consumers.find(key.as_bytes()).is_some(), found);
        }
    }

    #[test]
    fn the_file_in_every_form_means_what_it_says() {
        let text = include_str!("../../../tests/config/good/consumers/consumers.yaml");
        for text in [text.to_owned(), text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
            let consumers = Consumers::parse(&text, "c").unwrap();
            let found = |key: &str| {
                let consumer = consumers.find(key.as_bytes()).unwrap();
                (consumer.name, consumer.plan, consumer.metadata().collect::<Vec<_>>())
            };
            assert_eq!(
                found("k1"),
                ("acme", Some("pro"), vec![("team", "blue"), ("contact", "ops@acme.example")])
            );
            assert_eq!(
                (found("k2"), found("k3")),
                (("beta", Some("free"), vec![]), ("beta", Some("free"), vec![]))
            );
            assert_eq!(found("k4"), ("@gamma", None, vec![("note", "it's new"), ("of", "2026")]));
            assert_eq!((found("k5").0, found("k6").0, consumers.keys()), ("@gamma", "json", 6));
        }
    }

    #[test]
    fn the_file_may_be_json_lines() {
        let key = |key: &str| format!("\"sha256:{}\"", hex(key));
        let text = format!(
            "# all\n\t{{\"name\":\"acme\",\"key\":{},\"keys\":null,\"plan\":\"pro\",\"metadata\":{{\"team\":\"bl\\u00fce\"}}}}\n\n  \
             {{ \"keys\" : [{}, {}], \"name\" : \"beta\", \"plan\": null, \"key\": null, \"metadata\": null }} \r\n",
            key("k1"),
            key("k2"),
            key("k3")
        );
        let consumers = Consumers::parse(&text, "c.jsonl").unwrap();
        let acme = consumers.find(b"k1").unwrap();
        assert_eq!((acme.name, acme.plan), ("acme", Some("pro")));
        assert_eq!(acme.metadata().collect::<Vec<_>>(), [("team", "blüe")]);
        assert_eq!(consumers.find(b"k2"), consumers.find(b"k3"));
        assert_eq!(consumers.find(b"k3").unwrap().name, "beta");
        assert_eq!((consumers.len(), consumers.keys()), (2, 3));
    }

    #[test]
    fn mistakes_in_json_lines_name_their_line_and_no_secret() {
        let good = format!("{{\"name\":\"a\",\"key\":\"sha256:{}\"}}", hex("k"));
        for (line, message) in [
            ("{\"name\":\"b\",\"key\":\"sesame\"}", "a key is `sha256:`"),
            ("{\"name\":\"b\",\"key\":5}", "numbers and booleans are written as texts"),
            ("{\"name\":\"b\",\"sesame", "the line is not one JSON object"),
            ("{\"name\":\"b\"} {\"name\":\"sesame\"}", "the line is not one JSON object"),
            ("[\"sesame\"]", "expected the fields of a consumer"),
            ("- name: b", "the line is not one JSON object"),
            ("{\"name\":\"b\"}", "`b` has no key"),
            ("{\"key\":\"sha256:00\"}", "a key is `sha256:`"),
            ("{\"name\":\"b\",\"keys\":[]}", "`keys` is a list of keys"),
            ("{\"name\":null,\"key\":\"x\"}", "`name` is a text"),
            ("  {\"name\":\"ü\" x}", "malformed at column 15"),
            ("{\"name\":\"b\",\"key\":\"\\u0073ha256:00\"}", "without escapes"),
            ("{\"name\":\"b\",\"name\":\"c\"}", "`name` is given twice"),
            ("{\"name\":\"b\",\"nmae\":\"c\"}", "unknown field `nmae`"),
            (good.as_str(), "two consumers"),
        ] {
            let wrong = Consumers::parse(&format!("{good}\n{line}\n"), "c.jsonl").unwrap_err().to_string();
            assert!(wrong.contains("c.jsonl:2") && wrong.contains(message), "{line}: {wrong}");
            assert!(!wrong.contains("sesame"), "{wrong}");
        }
    }

    /// Any beginning of a file, and any line less, is read without a panic; what is read has its name and key.
    #[test]
    fn half_a_file_is_read_or_told() {
        let text = include_str!("../../../tests/config/good/consumers/consumers.yaml").to_owned()
            + include_str!("../../../tests/config/bad/consumers/mistakes.yaml");
        for (end, _) in text.char_indices() {
            match Consumers::parse(&text[..end], "c") {
                Ok(consumers) => assert!(consumers.keys() >= consumers.len()),
                Err(unusable) => assert!(!unusable.to_string().contains("sesame"), "{unusable}"),
            }
        }
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            let _ = Consumers::parse(&[&lines[..at], &lines[at + 1..]].concat().join("\n"), "c");
        }
    }
}
