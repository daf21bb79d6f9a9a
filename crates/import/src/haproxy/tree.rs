//! Routes as a tree: at each node those that pass a test, and the others.

use super::place::{Place, Test};
use super::rules::Header;
use crate::report::Source;
use crate::yaml::Node;

/// What a route does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// `respond` or `redirect`, and its value.
    pub(super) answer: Option<(&'static str, Node, Source)>,
    /// The section with its servers, and the line that chooses it.
    pub(super) backend: Option<(String, Source)>,
    pub(super) limits: Vec<(String, Source)>,
    pub(super) deny: Vec<String>,
    pub(super) allow: Option<Vec<String>>,
    pub(super) request: Vec<Header>,
    pub(super) response: Vec<Header>,
    pub(super) rewrite: Option<(Node, Source)>,
    pub(super) reject: Option<Node>,
}

/// A route: where it is, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) place: Place,
    pub(super) effect: Effect,
}

/// The routes of a walk.
pub(super) enum Tree {
    Leaf(Box<Leaf>),
    Split(Test, Box<Tree>, Box<Tree>),
}

/// Whether two trees do the same, wherever they are.
pub(super) fn same(one: &Tree, other: &Tree) -> bool {
    match (one, other) {
        (Tree::Leaf(a), Tree::Leaf(b)) => a.effect == b.effect,
        (Tree::Split(a, yes, no), Tree::Split(b, other_yes, other_no)) => {
            a == b && same(yes, other_yes) && same(no, other_no)
        }
        _ => false,
    }
}

/// The leaves of a tree, in the order of routes.
pub(super) fn flatten(tree: Tree, out: &mut Vec<Leaf>) {
    match tree {
        Tree::Leaf(leaf) => out.push(*leaf),
        Tree::Split(_, yes, no) => {
            flatten(*yes, out);
            flatten(*no, out);
        }
    }
}
