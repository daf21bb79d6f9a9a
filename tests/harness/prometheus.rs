//! A strict parser of the text format of Prometheus.

use std::collections::{BTreeMap, BTreeSet};

/// All series of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    pub families: BTreeMap<String, Family>,
}

/// The series of one name.
#[derive(Clone, Debug, Default)]
pub struct Family {
    pub help: String,
    pub kind: String,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

type Result<T> = std::result::Result<T, String>;

fn is_name(text: &str, colons: bool) -> bool {
    let good = |c: char| c.is_ascii_alphabetic() || c == '_' || (colons && c == ':');
    text.starts_with(good) && text.chars().all(|c| good(c) || c.is_ascii_digit())
}

impl Scrape {
    /// Reads a scrape: HELP and TYPE once before the samples of each family, families in one piece, names and
    /// escapes right, no series twice, histograms whole.
    pub fn parse(text: &str) -> Result<Self> {
        if !text.ends_with('\n') {
            return Err("the last line does not end".into());
        }
        let mut scrape = Self::default();
        let mut current = String::new();
        for line in text.lines() {
            let step = match line.strip_prefix("# ") {
                Some(comment) => scrape.comment(comment, &mut current),
                None => scrape.sample(line, &current),
            };
            step.map_err(|error| format!("{error}: {line}"))?;
        }
        for (name, family) in &scrape.families {
            family.check(name).map_err(|error| format!("{error} in {name}"))?;
        }
        Ok(scrape)
    }

    fn comment(&mut self, comment: &str, current: &mut String) -> Result<()> {
        let mut words = comment.splitn(3, ' ');
        let (Some(word), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
            return Err("neither HELP nor TYPE".into());
        };
        match word {
            "HELP" => {
                if !is_name(name, true) || rest.trim().is_empty() {
                    return Err("no name or no help".into());
                }
                if self.families.contains_key(name) {
                    return Err("a family comes twice".into());
                }
                current.replace_range(.., name);
                self.families.insert(name.to_owned(), Family { help: rest.to_owned(), ..Family::default() });
                Ok(())
            }
            "TYPE" => {
                let family =
                    self.families.get_mut(name).filter(|_| name == current).ok_or("TYPE without HELP")?;
                if !matches!(rest, "counter" | "gauge" | "histogram") || !family.kind.is_empty() {
                    return Err("no type, or a second one".into());
                }
                family.kind = rest.to_owned();
                Ok(())
            }
            _ => Err("neither HELP nor TYPE".into()),
        }
    }

    fn sample(&mut self, line: &str, current: &str) -> Result<()> {
        let end = line.find(['{', ' ']).ok_or("no value")?;
        let (name, mut rest) = line.split_at(end);
        let mut labels = Vec::new();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = read_labels(inner, &mut labels)?;
        }
        let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
        let value: f64 = match value {
            "+Inf" => f64::INFINITY,
            _ => value.parse().map_err(|_| "no number")?,
        };
        let family =
            self.families.get_mut(current).filter(|f| !f.kind.is_empty()).ok_or("a sample without TYPE")?;
        let suffix = name.strip_prefix(current).ok_or("a sample of another family")?;
        let fits = match family.kind.as_str() {
            "histogram" => matches!(suffix, "_bucket" | "_sum" | "_count"),
            _ => suffix.is_empty(),
        };
        if !fits || !is_name(name, true) {
            return Err("no name of this family".into());
        }
        if family.kind == "counter" && (value < 0.0 || !value.is_finite()) {
            return Err("a counter below zero".into());
        }
        if labels.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len() != labels.len() {
            return Err("a label twice".into());
        }
        let sample = Sample { name: name.to_owned(), labels, value };
        if family.samples.iter().any(|known| known.name == sample.name && known.labels == sample.labels) {
            return Err("a series twice".into());
        }
        family.samples.push(sample);
        Ok(())
    }

    /// The value of one series; 0 if it is missing.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.families.values().flat_map(|family| &family.samples);
        let wanted = |sample: &&Sample| {
            sample.name == name
                && sample.labels.len() == labels.len()
                && labels.iter().all(|(name, value)| sample.label(name) == Some(value))
        };
        samples.filter(wanted).map(|sample| sample.value).sum()
    }

    /// All series, without their values.
    pub fn series(&self) -> BTreeSet<String> {
        let samples = self.families.values().flat_map(|family| &family.samples);
        samples.map(|sample| format!("{}{:?}", sample.name, sample.labels)).collect()
    }

    /// The values that a label has in a family.
    pub fn label_values(&self, family: &str, label: &str) -> BTreeSet<String> {
        let samples = self.families.get(family).map(|family| &family.samples[..]).unwrap_or_default();
        samples.iter().filter_map(|sample| sample.label(label)).map(str::to_owned).collect()
    }
}

/// Reads `name="value",…}` and returns what follows.
fn read_labels<'a>(mut rest: &'a str, labels: &mut Vec<(String, String)>) -> Result<&'a str> {
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("no label")?;
        if !is_name(name, false) || name.starts_with("__") {
            return Err("no label name".into());
        }
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().ok_or("a label without end")? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, c @ ('\\' | '"'))) => c,
                    _ => return Err("an unknown escape".into()),
                }),
                (_, c) => value.push(c),
            }
        };
        labels.push((name.to_owned(), value));
        let after = &after[end + 1..];
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return after.strip_prefix('}').ok_or_else(|| "labels without end".into()),
        }
    }
}

impl Sample {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Family {
    fn check(&self, name: &str) -> Result<()> {
        if self.kind.is_empty() || self.samples.is_empty() {
            return Err("no type or no sample".into());
        }
        if self.kind == "counter" && !name.ends_with("_total") {
            return Err("a counter that is no _total".into());
        }
        if self.kind != "histogram" {
            return Ok(());
        }
        let mut histograms: BTreeMap<String, Vec<&Sample>> = BTreeMap::new();
        for sample in &self.samples {
            let own: Vec<_> = sample.labels.iter().filter(|(name, _)| name != "le").collect();
            histograms.entry(format!("{own:?}")).or_default().push(sample);
        }
        histograms.values().try_for_each(|samples| histogram(name, samples))
    }
}

/// Buckets have rising bounds and cumulative counts, and the last is all that were observed.
fn histogram(name: &str, samples: &[&Sample]) -> Result<()> {
    let one = |suffix: &str| {
        let mut found = samples.iter().filter(|sample| sample.name == format!("{name}{suffix}"));
        match (found.next(), found.next()) {
            (Some(sample), None) => Ok(sample.value),
            _ => Err(format!("not one {suffix}")),
        }
    };
    let (count, sum) = (one("_count")?, one("_sum")?);
    let mut last = (f64::NEG_INFINITY, 0.0);
    for sample in samples.iter().filter(|sample| sample.name == format!("{name}_bucket")) {
        let bound = match sample.label("le").ok_or("a bucket without le")? {
            "+Inf" => f64::INFINITY,
            bound => bound.parse().map_err(|_| "no bound")?,
        };
        if bound <= last.0 || sample.value < last.1 {
            return Err("buckets do not rise".into());
        }
        last = (bound, sample.value);
    }
    if last != (f64::INFINITY, count) || sum < 0.0 {
        return Err("the last bucket is not +Inf with the count of all".into());
    }
    Ok(())
}
