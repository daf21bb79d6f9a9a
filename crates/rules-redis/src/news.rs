//! What a batch publishes, and what it means for one who knows a position.

/// A position in the history of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Of the store.
    pub(crate) epoch: String,
    /// How many batches have changed something.
    pub(crate) version: u64,
    /// A random text of the batch that made the version. After a failover that lost batches, others get their versions, but
    /// not their marks.
    pub(crate) mark: String,
}

/// What one batch publishes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct News {
    /// The position after it.
    pub(crate) position: Position,
    /// The mark before it.
    mark_before: String,
    /// What it changed.
    pub(crate) changed: Changed,
}

/// What a batch changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// Rules of these limits and keys, and perhaps patterns.
    Names {
        /// Pairs of limit and key.
        keys: Vec<(String, String)>,
        /// Whether rules that are or were patterns changed too.
        patterns: bool,
    },
    /// Too much for a message.
    SeeLog,
}

/// What is to be done about news or about a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is known.
    Nothing,
    /// It follows on what is known.
    Follows,
    /// There is something between.
    Gap,
    /// It is of another history: nothing that is known can be relied on.
    Other,
}

impl News {
    /// Reads a message; `None` if it is none of ours.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let texts: Vec<String> = serde_json::from_slice(message).ok()?;
        let (head, names) = texts.split_at_checked(5)?;
        let [epoch, version, mark, mark_before, kind] = head else { return None };
        let changed = match kind.as_str() {
            "log" => Changed::SeeLog,
            kind => Changed::Names {
                keys: names.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
                patterns: kind == "patterns",
            },
        };
        let position = Position { epoch: epoch.clone(), version: version.parse().ok()?, mark: mark.clone() };
        Some(Self { position, mark_before: mark_before.clone(), changed })
    }

    /// What they mean for one at `known`. News arrive in order, but late: a position that was read may be beyond them.
    pub(crate) fn step(&self, known: &Position) -> Step {
        let new = &self.position;
        if new.epoch != known.epoch || (new.version == known.version && new.mark != known.mark) {
            Step::Other
        } else if new.version <= known.version {
            Step::Nothing
        } else if new.version > known.version + 1 {
            Step::Gap
        } else if self.mark_before != known.mark {
            Step::Other
        } else {
            Step::Follows
        }
    }
}

impl Position {
    /// What it means for one at `known`, if it was read after `known` was.
    pub(crate) fn step(&self, known: &Position) -> Step {
        if self == known {
            Step::Nothing
        } else if self.epoch != known.epoch || self.version <= known.version {
            Step::Other
        } else {
            Step::Gap
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: &str, version: u64, mark: &str) -> Position {
        Position { epoch: epoch.into(), version, mark: mark.into() }
    }

    fn news(position: Position, mark_before: &str) -> News {
        let changed = Changed::SeeLog;
        News { position, mark_before: mark_before.into(), changed }
    }

    #[test]
    fn messages_are_read() {
        let keys = vec![("l".to_owned(), "k,\"".to_owned())];
        let expected = News {
            position: at("e", 8, "m8"),
            mark_before: "m7".into(),
            changed: Changed::Names { keys, patterns: true },
        };
        let message = br#"["e","8","m8","m7","patterns","l","k,\""]"#;
        assert_eq!(News::read(message), Some(expected));
        for wrong in ["", "{}", "[]", r#"["e","x","m","m",""]"#, r#"["e","8","m","m"]"#] {
            assert_eq!(News::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn only_the_next_version_of_the_same_history_follows() {
        let known = at("e", 7, "m7");
        assert_eq!(news(at("e", 8, "m8"), "m7").step(&known), Step::Follows);
        assert_eq!(news(at("e", 7, "m7"), "m6").step(&known), Step::Nothing);
        assert_eq!(news(at("e", 5, "m5"), "m4").step(&known), Step::Nothing);
        assert_eq!(news(at("e", 9, "m9"), "m8").step(&known), Step::Gap);
        // A failover lost version 7, and others made it again.
        assert_eq!(news(at("e", 7, "n7"), "m6").step(&known), Step::Other);
        assert_eq!(news(at("e", 8, "n8"), "n7").step(&known), Step::Other);
        assert_eq!(news(at("f", 8, "m8"), "m7").step(&known), Step::Other);
    }

    #[test]
    fn a_position_that_was_read_is_known_later_or_of_another_history() {
        let known = at("e", 7, "m7");
        assert_eq!(at("e", 7, "m7").step(&known), Step::Nothing);
        assert_eq!(at("e", 9, "m9").step(&known), Step::Gap);
        assert_eq!(at("e", 7, "n7").step(&known), Step::Other);
        assert_eq!(at("e", 6, "m6").step(&known), Step::Other);
        assert_eq!(at("f", 9, "m9").step(&known), Step::Other);
    }
}
