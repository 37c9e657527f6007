//! How a name is locked, and where that is said.

use std::fmt;
use std::panic::Location;

use crate::key::KeyError;

/// A write has as much as there is, so limits are below it.
const ALL: u32 = 1 << 30;

/// How a name is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    #[default]
    Mutex,
    Read,
    Write,
    Permits {
        count: u32,
        limit: u32,
    },
}

impl Form {
    /// Whether it excludes, or waits with, the other forms of its name. A mutex is another thing
    /// than the reads, writes and permits of the name.
    pub(crate) fn is_shared(self) -> bool {
        self != Self::Mutex
    }

    /// Whether a hold of it does for this demand. Permits are counted, so none do for others.
    pub(crate) fn covers(self, asked: Self) -> bool {
        match (self, asked) {
            (Self::Permits { .. }, _) => false,
            (Self::Write, Self::Read) => true,
            (held, asked) => held == asked,
        }
    }
}

/// The form in which a name is asked for, and where.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mode {
    pub(crate) form: Form,
    /// None of a mutex, of which nothing is said.
    place: Option<Place>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Line(&'static Location<'static>),
    Name(&'static str),
}

impl Mode {
    /// As the caller's line says.
    #[track_caller]
    pub(crate) fn here(form: Form) -> Self {
        Self { form, place: Some(Place::Line(Location::caller())) }
    }

    /// Another form, said at the same place.
    pub(crate) fn of(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// With another place.
    pub(crate) fn at(self, place: &'static str) -> Self {
        Self { place: Some(Place::Name(place)), ..self }
    }

    /// # Errors
    /// If there is no such number of permits.
    pub(crate) fn check(&self) -> Result<(), KeyError> {
        match self.form {
            Form::Permits { count, limit } if count == 0 || count > limit || limit >= ALL => {
                Err(KeyError::misuse(format!(
                    "There cannot be {self}: the number is at least 1 and at most the limit, and the limit is below 2^30."
                )))
            }
            _ => Ok(()),
        }
    }

    /// What is said of one name, when `other` has been said of it, too.
    pub(crate) fn or_clash(self, other: Self) -> Result<Self, KeyError> {
        match self.form {
            Form::Mutex => Ok(other),
            form if form == other.form => Ok(self),
            _ => Err(KeyError::clash(self, other)),
        }
    }

    /// One acquisition for a name that is asked for twice at once.
    pub(crate) fn join(self, other: Self) -> Result<Self, KeyError> {
        match (self.form, other.form) {
            (Form::Permits { count, limit }, Form::Permits { count: more, limit: same })
                if limit == same && count.saturating_add(more) <= limit =>
            {
                Ok(Self { form: Form::Permits { count: count + more, limit }, ..self })
            }
            (one, other) if one.covers(other) && other.covers(one) => Ok(self),
            _ => Err(KeyError::clash(self, other)),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Mutex => f.write_str("a lock")?,
            Form::Read => f.write_str("a read")?,
            Form::Write => f.write_str("a write")?,
            Form::Permits { count, limit } => write!(f, "permits, {count} of {limit}")?,
        }
        match self.place {
            Some(Place::Line(line)) => write!(f, " ({line})"),
            Some(Place::Name(name)) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}
