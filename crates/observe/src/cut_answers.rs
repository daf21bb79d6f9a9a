//! The answers that were cut last, for `explain --request`: a fixed number, by who ended them, so that clients that leave do not
//! push out what an upstream has done.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use sluicegate_base::cut_reason::CutReason;

/// How many are remembered that clients have ended, and as many that others have.
const MOST: usize = 1_000;
/// The longest error that is remembered, in bytes.
const LONGEST: usize = 200;

/// An answer that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutAnswer {
    /// The id of its request.
    pub id: Box<str>,
    /// Who ended it.
    pub reason: CutReason,
    /// The error with its causes, if it was not the client.
    pub error: Option<String>,
    /// Its status.
    pub status: u16,
    /// The bytes of its body that were sent.
    pub sent: u64,
}

/// The answers that were cut last. A cut is rare, so that workers share them.
#[derive(Debug, Default)]
pub struct CutAnswers([Mutex<VecDeque<CutAnswer>>; 2]);

impl CutAnswers {
    /// Remembers an answer, in the place of the oldest one if there are many.
    #[cold]
    pub fn push(&self, mut cut: CutAnswer) {
        if let Some(error) = &mut cut.error {
            let end = (0..=LONGEST).rev().find(|end| error.is_char_boundary(*end)).unwrap_or(0);
            error.truncate(end); // a shorter text stays as it is
        }
        let ring = &self.0[usize::from(cut.reason == CutReason::ClientLeft)];
        let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.len() == MOST {
            ring.pop_front();
        }
        ring.push_back(cut);
    }

    /// The answer to the request with this id.
    pub fn find(&self, id: &str) -> Option<CutAnswer> {
        self.0.iter().find_map(|ring| {
            let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            ring.iter().rev().find(|cut| &*cut.id == id).cloned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(id: usize, reason: CutReason) -> CutAnswer {
        CutAnswer { id: id.to_string().into(), reason, error: Some("é".repeat(200)), status: 200, sent: 9 }
    }

    #[test]
    fn clients_that_leave_push_out_nothing_else() {
        let cuts = CutAnswers::default();
        cuts.push(cut(0, CutReason::UpstreamReset));
        (1..=MOST + 1).for_each(|id| cuts.push(cut(id, CutReason::ClientLeft)));
        let found = |id: usize| cuts.find(&id.to_string());
        assert!(found(1).is_none() && found(2).is_some());
        assert_eq!(found(0).and_then(|cut| cut.error), Some("é".repeat(100)));
    }
}
