//! All patterns of one limit, indexed so that those that match a key are found without looking at each.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::compiled::Compiled;
use crate::key::{KeyPart, Spelled};
use crate::pattern::{Component, Exactness, Family, Range};

/// The most rules with a pattern of one limit.
pub const MAX_PATTERNS: usize = 100_000;
/// The most rules of one limit whose pattern is compared with every key: those with a `*` that is not at the end, and
/// those with several components.
pub const MAX_SCANNED_PATTERNS: usize = 1_000;

/// The rules with a pattern of one limit.
///
/// Texts that end in their only `*` are in one hash map per length, networks in one per length of the mask, so that a
/// key is looked up once per length that occurs. All others are compared one after another.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    rules: Vec<Arc<Compiled>>,
    prefixes: Vec<(usize, ByText)>,
    networks: Vec<((Family, u8), ByRange)>,
    /// The networks by their text, which a value can be too.
    network_texts: ByText,
    scanned: Vec<u32>,
}

/// Places in `rules`.
type Positions = SmallVec<[u32; 2]>;
type ByText = HashMap<Box<[u8]>, Positions>;
type ByRange = HashMap<Range, Positions>;

/// A limit has too many rules with patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyPatterns {
    /// More than [`MAX_PATTERNS`].
    #[error("the limit has {0} rules with a pattern; at most {MAX_PATTERNS} are allowed")]
    InAll(usize),
    /// More than [`MAX_SCANNED_PATTERNS`].
    #[error(
        "the limit has {0} rules whose pattern has a `*` before its end or several components; at most \
         {MAX_SCANNED_PATTERNS} are allowed"
    )]
    Scanned(usize),
}

impl Patterns {
    /// The rules with a pattern of one limit; exact rules among them are left out.
    ///
    /// # Errors
    /// There are more than [`MAX_PATTERNS`], or more than [`MAX_SCANNED_PATTERNS`] that have to be compared one by one.
    pub fn build(mut rules: Vec<Arc<Compiled>>) -> Result<Self, TooManyPatterns> {
        rules.retain(|rule| rule.pattern.is_some());
        if rules.len() > MAX_PATTERNS {
            return Err(TooManyPatterns::InAll(rules.len()));
        }
        let mut prefixes: HashMap<usize, ByText> = HashMap::new();
        let mut networks: HashMap<(Family, u8), ByRange> = HashMap::new();
        let mut built = Self::default();
        for (position, rule) in (0..).zip(&rules) {
            match rule.pattern.as_ref().and_then(|pattern| pattern.only_component()) {
                Some(Component::Glob(glob)) if glob.is_prefix() => {
                    let of_length = prefixes.entry(glob.prefix().len()).or_default();
                    of_length.entry(glob.prefix().into()).or_default().push(position);
                }
                Some(Component::Network(network)) => {
                    let range = network.range;
                    let of_length = networks.entry((range.family, range.bits)).or_default();
                    of_length.entry(range).or_default().push(position);
                    let text = network.text().as_bytes().into();
                    built.network_texts.entry(text).or_default().push(position);
                }
                _ => built.scanned.push(position),
            }
        }
        if built.scanned.len() > MAX_SCANNED_PATTERNS {
            return Err(TooManyPatterns::Scanned(built.scanned.len()));
        }
        built.prefixes = prefixes.into_iter().collect();
        built.networks = networks.into_iter().collect();
        built.rules = rules;
        Ok(built)
    }

    /// The same of as many rules as are allowed: those with the highest priority, of these the newest. And why it is not all
    /// of them, if it is not.
    pub fn of_most(mut rules: Vec<Arc<Compiled>>) -> (Self, Option<TooManyPatterns>) {
        let why = match Self::build(rules.clone()) {
            Ok(all) => return (all, None),
            Err(why) => why,
        };
        rules.sort_by_key(|rule| Reverse((rule.stored.rule.priority, rule.stored.version)));
        let mut scanned = 0;
        rules.retain(|rule| {
            let Some(pattern) = &rule.pattern else { return false };
            let is_scanned = match pattern.only_component() {
                Some(Component::Glob(glob)) => !glob.is_prefix(),
                Some(Component::Network(_)) => false,
                _ => true,
            };
            scanned += usize::from(is_scanned);
            !is_scanned || scanned <= MAX_SCANNED_PATTERNS
        });
        rules.truncate(MAX_PATTERNS);
        (Self::build(rules).unwrap_or_default(), Some(why))
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// All rules, in the order in which they were given.
    pub fn rules(&self) -> &[Arc<Compiled>] {
        &self.rules
    }

    /// The rules whose pattern matches the key, in force or not, each with how exactly it does.
    pub fn matching(&self, key: &[KeyPart<'_>]) -> Vec<(&Arc<Compiled>, Exactness)> {
        if self.rules.is_empty() {
            return Vec::new();
        }
        let key: Vec<Spelled<'_>> = key.iter().map(Spelled::new).collect();
        let mut found: SmallVec<[u32; 16]> = SmallVec::new();
        if let [part] = key.as_slice() {
            self.look_up(part, &mut found);
        }
        // A rule can be found by its text with a name and without.
        found.sort_unstable();
        found.dedup();
        let candidates = found.into_iter().chain(self.scanned.iter().copied());
        candidates
            .filter_map(|position| {
                let rule = &self.rules[position as usize];
                Some((rule, rule.pattern.as_ref()?.matches_spelled(&key)?))
            })
            .collect()
    }

    /// Appends the rules of the maps that may match the only part of a key.
    fn look_up(&self, part: &Spelled<'_>, found: &mut SmallVec<[u32; 16]>) {
        for (length, prefixes) in &self.prefixes {
            for text in [part.text(), part.named()] {
                let positions = text.get(..*length).and_then(|prefix| prefixes.get(prefix));
                found.extend(positions.into_iter().flatten().copied());
            }
        }
        if let Some(address) = part.address {
            for ((_, bits), ranges) in &self.networks {
                let positions = Range::new(address, *bits).and_then(|range| ranges.get(&range));
                found.extend(positions.into_iter().flatten().copied());
            }
        }
        for text in [part.text(), part.named()] {
            found.extend(self.network_texts.get(text).into_iter().flatten().copied());
        }
    }
}
