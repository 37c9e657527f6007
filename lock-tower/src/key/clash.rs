//! One name in two forms, which one request cannot have.

use std::error::Error;
use std::fmt;

use crate::key::mode::Mode;

/// One request asks for one name twice, in forms that it cannot have: it would wait for itself,
/// requests of its kind would wait for each other, or one of the forms is a mistake.
///
/// Each is told with its place: the line that says [`read`](crate::Keys::read),
/// [`write`](crate::Keys::write) or [`permits`](crate::Keys::permits), or what
/// [`asked_by`](crate::Keys::asked_by) calls it. Ask for what the request needs in the end where it
/// asks first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clash {
    first: String,
    second: String,
}

impl Clash {
    pub(crate) fn new(first: Mode, second: Mode) -> Self {
        Self { first: first.to_string(), second: second.to_string() }
    }

    /// What the request has or asks for first, and where: `a read (src/documents.rs:12:34)`.
    pub fn first(&self) -> &str {
        &self.first
    }

    /// What it asks for as well, and where.
    pub fn second(&self) -> &str {
        &self.second
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second } = self;
        write!(f, "one request cannot have one name as {first} and as {second}")
    }
}

impl Error for Clash {}
