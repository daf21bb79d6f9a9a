//! The answers of all limits of a request.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

use super::ask::Verdict;

/// A verdict for each limit asked, in the same order. It is a slice of verdicts, and two of them need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts(pub(super) SmallVec<[Verdict; 2]>);

/// The verdicts, one after another.
#[derive(Debug)]
pub struct IntoVerdicts(smallvec::IntoIter<[Verdict; 2]>);

impl Verdicts {
    /// One verdict.
    #[inline]
    pub(super) fn one(verdict: Verdict) -> Self {
        Self(SmallVec::from_buf_and_len([verdict; 2], 1))
    }

    /// The same verdict, so many times.
    #[inline]
    pub(super) fn repeated(verdict: Verdict, times: usize) -> Self {
        let mut verdicts = SmallVec::new();
        verdicts.resize(times, verdict);
        Self(verdicts)
    }

    /// Inserts a verdict before the one with this index.
    ///
    /// # Panics
    /// If there are fewer verdicts.
    pub fn insert(&mut self, index: usize, verdict: Verdict) {
        self.0.insert(index, verdict);
    }
}

impl Deref for Verdicts {
    type Target = [Verdict];

    #[inline]
    fn deref(&self) -> &[Verdict] {
        &self.0
    }
}

impl DerefMut for Verdicts {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Verdict] {
        &mut self.0
    }
}

impl FromIterator<Verdict> for Verdicts {
    #[inline]
    fn from_iter<I: IntoIterator<Item = Verdict>>(verdicts: I) -> Self {
        Self(verdicts.into_iter().collect())
    }
}

impl Extend<Verdict> for Verdicts {
    fn extend<I: IntoIterator<Item = Verdict>>(&mut self, verdicts: I) {
        self.0.extend(verdicts);
    }
}

impl Iterator for IntoVerdicts {
    type Item = Verdict;

    #[inline]
    fn next(&mut self) -> Option<Verdict> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl IntoIterator for Verdicts {
    type Item = Verdict;
    type IntoIter = IntoVerdicts;

    #[inline]
    fn into_iter(self) -> IntoVerdicts {
        IntoVerdicts(self.0.into_iter())
    }
}

impl<'a> IntoIterator for &'a Verdicts {
    type Item = &'a Verdict;
    type IntoIter = std::slice::Iter<'a, Verdict>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a mut Verdicts {
    type Item = &'a mut Verdict;
    type IntoIter = std::slice::IterMut<'a, Verdict>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}
