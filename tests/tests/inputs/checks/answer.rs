//! The answers of scripts as trees of values, and how the wire reads them.

use lockcore::{LockErrorKind, NodeId};
use proto::layout::{Layout, QUEUE};
use proto::wire::{Value, Wire};
use proto::{Answer, Answers, Command, LockName, StoreError, Topology};
use redisson::REDISSON;

use super::source::Source;

pub(super) const NODE: &str = "AAAAAAAAAAAAAAAAAAAAAA";
/// A time, and a token.
pub(super) const CLOCK: u64 = 1_795_242_275_666_200;

/// An answer, or a part of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Tree>),
    Other,
}

impl Tree {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Nil => Value::Nil,
            Self::Int(integer) => Value::Integer(*integer),
            Self::Text(text) => Value::Text(text),
            Self::List(parts) => Value::List(parts.iter().map(Self::value).collect()),
            Self::Other => Value::Other,
        }
    }
}

/// The node's wire, where JVMs share the queues if there are `peers`.
fn wire(peers: bool) -> Wire {
    let layout = if peers { REDISSON } else { QUEUE };
    let of_error = |said: &str, _: &dyn Layout| StoreError::refused(LockErrorKind::Denied, said);
    let node = NodeId::from(NODE);
    Wire { node, prefix: "lockcore".into(), layout, topology: Topology::Single, of_error }
}

/// The answer to the command.
pub(super) fn answer(peers: bool, command: &Command, answer: &Tree) -> Result<Answer, StoreError> {
    wire(peers).answer((&LockName::from("x"), command), &answer.value())
}

/// The answers to so many of one command, which one script runs where JVMs share the queues.
pub(super) fn answers(
    command: &Command,
    count: usize,
    answer: &Tree,
) -> Result<Answers, StoreError> {
    let lock = LockName::from("x");
    let commands = vec![(&lock, command); count];
    wire(true).answers(&commands, &answer.value())
}

/// A refusal leaves the outcome open: the script may have run.
pub(super) fn refused(error: &StoreError) {
    assert_eq!((error.kind, error.may_have_run), (LockErrorKind::Protocol, true));
}

pub(super) fn text(tree: &Tree) -> Option<&str> {
    match tree {
        Tree::Text(text) => Some(text),
        _ => None,
    }
}

/// The text as an answer.
pub(super) fn said(text: impl ToString) -> Tree {
    Tree::Text(text.to_string())
}

/// Any answer.
pub(super) fn tree(source: &mut Source<'_>, depth: usize) -> Tree {
    match source.below(8) {
        0 => Tree::Nil,
        1 => Tree::Int(source.integer()),
        2 => Tree::Text(source.text(3)),
        3 => String::from_utf8(source.bytes(3)).map_or(Tree::Other, Tree::Text),
        4 => Tree::Other,
        _ if depth > 0 => Tree::List(trees(source, depth)),
        _ => Tree::Nil,
    }
}

pub(super) fn trees(source: &mut Source<'_>, depth: usize) -> Vec<Tree> {
    (0..source.below(10)).map(|_| tree(source, depth - 1)).collect()
}

/// The parts, some of them replaced, dropped or doubled.
pub(super) fn bent(mut parts: Vec<Tree>, source: &mut Source<'_>) -> Tree {
    for _ in 0..source.below(4) {
        let at = source.below(parts.len().max(1)).min(parts.len().saturating_sub(1));
        match source.below(4) {
            _ if parts.is_empty() => {}
            0 => drop(parts.remove(at)),
            1 => parts.insert(at, parts[at].clone()),
            _ => parts[at] = tree(source, 1),
        }
    }
    Tree::List(parts)
}
