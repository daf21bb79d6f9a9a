//! How important a request is, and whether its consumer has its fair share: its place in the order of those that wait.

/// How important a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Goes before all others, and has a part of the limit that others only borrow.
    Critical,
    /// In between.
    #[default]
    Default,
    /// Refused first.
    Sheddable,
}

/// Whether the consumer of a request has its fair share. Those that have less go before those that have more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// It asks for less than its share, or nothing is divided.
    #[default]
    Modest,
    /// It asks for more, and this request is within its share.
    Within,
    /// It has used up its share.
    Above,
}

/// The place of a request in the order of those that wait: its priority, and then its consumer's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// How important it is.
    pub priority: Priority,
    /// Its consumer's share.
    pub share: Share,
}

/// The number of classes, and of those of one priority.
pub(crate) const CLASSES: usize = 9;
pub(crate) const SHARES: usize = 3;

impl Priority {
    /// All of them with their names, the most important one first.
    pub const NAMED: [(&'static str, Self); 3] =
        [("critical", Self::Critical), ("default", Self::Default), ("sheddable", Self::Sheddable)];
    const ALL: [Self; 3] = [Self::Critical, Self::Default, Self::Sheddable];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::NAMED[self as usize].0
    }

    /// The priority with this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.name().as_bytes() == name)
    }
}

impl Class {
    /// All classes, the most important one first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let shares = [Share::Modest, Share::Within, Share::Above];
        Priority::ALL.into_iter().flat_map(move |priority| shares.map(|share| Self { priority, share }))
    }

    /// Its place in that order.
    pub(crate) const fn index(self) -> usize {
        self.priority as usize * SHARES + self.share as usize
    }
}

impl From<Priority> for Class {
    fn from(priority: Priority) -> Self {
        Self { priority, share: Share::Modest }
    }
}
