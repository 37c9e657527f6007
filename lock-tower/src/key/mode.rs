//! How a name is locked.

use std::fmt;

use crate::key::KeyError;

/// A write has as much as there is, so limits are below it.
const ALL: u32 = 1 << 30;

/// How a name is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Form {
    #[default]
    Lock,
    Read,
    Write,
    Permits {
        count: u32,
        limit: u32,
    },
}

impl Form {
    /// Whether a hold of it does for this demand. Permits are counted, so none do for others.
    pub(crate) fn covers(self, asked: Self) -> bool {
        match (self, asked) {
            (Self::Permits { .. }, _) => false,
            (Self::Lock | Self::Write, Self::Lock | Self::Write | Self::Read) => true,
            (held, asked) => held == asked,
        }
    }

    /// # Errors
    /// If there is no such number of permits.
    pub(crate) fn check(self) -> Result<(), KeyError> {
        match self {
            Self::Permits { count, limit } if count == 0 || count > limit || limit >= ALL => {
                Err(KeyError::misuse(format!(
                    "There cannot be {self}: the number is at least 1 and at most the limit, and the limit is below 2^30."
                )))
            }
            _ => Ok(()),
        }
    }

    /// The form of a name that was given this form first, and then `other`.
    pub(crate) fn or_clash(self, other: Self) -> Result<Self, KeyError> {
        match self {
            Self::Lock => Ok(other),
            form if form == other => Ok(form),
            _ => Err(KeyError::clash(self, other)),
        }
    }

    /// One acquisition for a name that is asked for twice at once.
    pub(crate) fn join(self, other: Self) -> Result<Self, KeyError> {
        match (self, other) {
            (Self::Permits { count, limit }, Self::Permits { count: more, limit: same })
                if limit == same && count.saturating_add(more) <= limit =>
            {
                Ok(Self::Permits { count: count + more, limit })
            }
            (Self::Permits { .. }, _) => Err(KeyError::clash(self, other)),
            (one, other) if one == other => Ok(one),
            _ => Err(KeyError::clash(self, other)),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("a lock"),
            Self::Read => f.write_str("a read"),
            Self::Write => f.write_str("a write"),
            Self::Permits { count, limit } => write!(f, "permits, {count} of {limit}"),
        }
    }
}
