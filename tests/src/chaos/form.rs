//! `Form`: what a lock of a run is used as, what is asked of it, and what is held of it.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;

use futures_util::TryFutureExt;
use lockcore::internals::Demand;
use lockcore::{LockError, LockGuard, LockRequest, Permit, ReadGuard, WriteGuard};
use tokio::time::Instant;

use super::dice::Dice;

/// Which forms the locks of a run have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// Half of them are locked, a quarter is read and written, a quarter is held in permits.
    All,
    /// All of them are locked.
    Lock,
    /// Half of them are read and written, half are held in permits.
    Shared,
}

impl Forms {
    const ALL: [Self; 3] = [Self::All, Self::Lock, Self::Shared];

    /// Whether some of its locks are read, written or held in permits.
    pub(super) fn share(self) -> bool {
        self != Self::Lock
    }
}

impl fmt::Display for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Lock => "lock",
            Self::Shared => "shared",
        })
    }
}

impl FromStr for Forms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|forms| forms.to_string() == text);
        found.ok_or_else(|| format!("no forms are called {text}"))
    }
}

/// What a lock is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Lock,
    ReadWrite,
    /// So many at a time, and now and then all of it for one.
    Permits(u32),
}

impl Form {
    pub(super) fn of(forms: Forms, lock: u32) -> Self {
        let is_shared = match forms {
            Forms::All => lock % 4 > 1,
            Forms::Lock => false,
            Forms::Shared => true,
        };
        match (is_shared, lock % 2) {
            (false, _) => Self::Lock,
            (true, 0) => Self::ReadWrite,
            (true, _) => Self::Permits(2 + lock / 2),
        }
    }

    pub(super) fn is_shared(self) -> bool {
        self != Self::Lock
    }

    /// What a client asks for.
    pub(super) fn demand(self, dice: &mut Dice) -> Demand {
        match self {
            Self::Lock => Demand::ALONE,
            Self::ReadWrite if dice.below(3) == 0 => Demand::ALONE,
            Self::ReadWrite => Demand::READ,
            Self::Permits(_) if dice.below(12) == 0 => Demand::ALONE,
            Self::Permits(limit) => {
                let weight = 1 + dice.below(limit.min(3) as usize) as u32;
                Demand::permits(weight, limit).expect("one or more, and no more than there are")
            }
        }
    }

    /// Waits for it.
    pub(super) fn wait(self, request: LockRequest, demand: Demand) -> Asking {
        match self {
            Self::Lock => asking(request.lock(), |guard| Some(Held::Lock(guard))),
            _ if demand == Demand::READ => asking(request.read(), |guard| Some(Held::Read(guard))),
            _ if demand == Demand::ALONE => {
                asking(request.write(), |guard| Some(Held::Write(guard)))
            }
            _ => {
                let permits = request.permits(demand.weight() as u32, demand.limit() as u32);
                asking(permits, |permits| Some(Held::Permits(permits)))
            }
        }
    }

    /// Asks for it once.
    pub(super) fn try_once(self, request: LockRequest, demand: Demand) -> Asking {
        match self {
            Self::Lock => asking(request.try_lock(), |guard| guard.map(Held::Lock)),
            _ if demand == Demand::READ => {
                asking(request.try_read(), |guard| guard.map(Held::Read))
            }
            _ if demand == Demand::ALONE => {
                asking(request.try_write(), |guard| guard.map(Held::Write))
            }
            _ => {
                let permits = request.try_permits(demand.weight() as u32, demand.limit() as u32);
                asking(permits, |permits| permits.map(Held::Permits))
            }
        }
    }
}

/// An acquisition of any form; nothing if it is taken.
pub(super) type Asking = Pin<Box<dyn Future<Output = Result<Option<Held>, LockError>> + Send>>;

fn asking<T>(
    acquire: impl Future<Output = Result<T, LockError>> + Send + 'static,
    held: fn(T) -> Option<Held>,
) -> Asking
where
    T: 'static,
{
    Box::pin(acquire.map_ok(held))
}

/// What was acquired.
#[derive(Debug)]
pub(super) enum Held {
    Lock(LockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permits(Permit),
}

impl Held {
    /// What is known of all but permits.
    fn guard(&self) -> Result<&LockGuard, &Permit> {
        match self {
            Self::Lock(guard) => Ok(guard),
            Self::Read(guard) => Ok(guard),
            Self::Write(guard) => Ok(guard),
            Self::Permits(permits) => Err(permits),
        }
    }

    /// Permits have none.
    pub(super) fn token(&self) -> Option<u64> {
        self.guard().ok().map(|guard| guard.fencing_token().get())
    }

    pub(super) fn deadline(&self) -> Instant {
        self.guard().map_or_else(Permit::deadline, LockGuard::deadline)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.guard().map_or_else(Permit::is_lost, LockGuard::is_lost)
    }

    pub(super) async fn lost(&self) {
        match self.guard() {
            Ok(guard) => guard.lost().await,
            Err(permits) => permits.lost().await,
        }
    }

    pub(super) async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permits(permits) => permits.release().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_all_forms_has_each_of_them() {
        let of = |forms| (0..8).map(|lock| Form::of(forms, lock)).collect::<Vec<_>>();
        let count = |forms, form: fn(&Form) -> bool| of(forms).iter().filter(|of| form(of)).count();
        let counts = |forms| {
            [
                count(forms, |form| *form == Form::Lock),
                count(forms, |form| *form == Form::ReadWrite),
                count(forms, |form| matches!(form, Form::Permits(2..=5))),
            ]
        };
        assert_eq!(counts(Forms::All), [4, 2, 2]);
        assert_eq!(counts(Forms::Lock), [8, 0, 0]);
        assert_eq!(counts(Forms::Shared), [0, 4, 4]);
    }
}
