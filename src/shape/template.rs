//! Texts with variables.

use std::fmt;

use http::HeaderValue;

use super::{Facts, Variable};
use crate::fields::is_value;

/// A text with variables, as the value of a header.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
    /// The value, if it is always the same.
    fixed: Option<HeaderValue>,
}

/// A piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// What stands there.
    Text(String),
    /// What the request says.
    Variable(Variable),
}

impl Template {
    /// The template of these pieces; `None` if their texts cannot stand in a header.
    pub fn new(pieces: Vec<Piece>) -> Option<Self> {
        let mut texts = String::new();
        let mut varies = false;
        for piece in &pieces {
            match piece {
                Piece::Text(text) => texts += text,
                Piece::Variable(_) => varies = true,
            }
        }
        let value =
            HeaderValue::from_str(&texts).or_else(|_| HeaderValue::from_bytes(texts.as_bytes())).ok()?;
        Some(Self { pieces, fixed: (!varies).then_some(value) })
    }

    /// The variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        variables(&self.pieces)
    }

    /// The value, if it is always the same.
    pub(super) const fn fixed(&self) -> Option<&HeaderValue> {
        self.fixed.as_ref()
    }

    /// The value for a request. `None` if nothing is left of it, or if it is none that a header can have: no user
    /// name breaks a line.
    pub(super) fn value(&self, facts: &Facts<'_>) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => value.extend_from_slice(text.as_bytes()),
                Piece::Variable(variable) => {
                    value.extend_from_slice(&facts.value(variable).unwrap_or_default());
                }
            }
        }
        (!value.is_empty() && is_value(&value)).then_some(value)
    }
}

/// Values may be secrets: only the variables are shown.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").field(&self.variables().collect::<Vec<_>>()).finish()
    }
}

pub(super) fn variables(pieces: &[Piece]) -> impl Iterator<Item = &Variable> {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Variable(variable) => Some(variable),
        Piece::Text(_) => None,
    })
}
