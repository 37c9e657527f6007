//! What is asked for: the lock, or a part of what others share; and what is held of it.

use lockcore::{
    FencingToken, LockError, LockGuard, LockInspection, LockRequest, Locks, Participant, Permit,
    ReadGuard, SharedInspection, WriteGuard,
};

/// What is asked for.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Lock,
    Read,
    Write,
    Permits { count: u32, limit: u32 },
}

/// What is held.
pub(crate) enum Held {
    Lock(LockGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permits(Permit),
}

/// Holders and waiters, whatever is asked for.
pub(crate) struct Crowd {
    pub(crate) holders: Vec<Participant>,
    /// Of the holder whose lease ends first, if there is one.
    pub(crate) lease: std::time::Duration,
    pub(crate) waiters: Vec<Participant>,
}

impl Form {
    pub(crate) async fn acquire(self, request: LockRequest) -> Result<Held, LockError> {
        match self {
            Self::Lock => request.lock().await.map(Held::Lock),
            Self::Read => request.read().await.map(Held::Read),
            Self::Write => request.write().await.map(Held::Write),
            Self::Permits { count, limit } => {
                request.permits(count, limit).await.map(Held::Permits)
            }
        }
    }

    pub(crate) async fn look(self, locks: &Locks, key: &str) -> Result<Crowd, LockError> {
        match self {
            Self::Lock => locks.inspect(key).await.map(Crowd::of_lock),
            _ => locks.inspect_shared(key).await.map(Crowd::of_shared),
        }
    }
}

impl Held {
    /// The fencing token; permits have none.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Lock(guard) => Some(guard.fencing_token()),
            Self::Read(guard) => Some(guard.fencing_token()),
            Self::Write(guard) => Some(guard.fencing_token()),
            Self::Permits(_) => None,
        }
    }

    pub(crate) async fn lost(&self) {
        match self {
            Self::Lock(guard) => guard.lost().await,
            Self::Read(guard) => guard.lost().await,
            Self::Write(guard) => guard.lost().await,
            Self::Permits(permits) => permits.lost().await,
        }
    }

    pub(crate) async fn release(self) -> Result<(), LockError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permits(permits) => permits.release().await,
        }
    }
}

impl Crowd {
    fn of_lock(found: LockInspection) -> Self {
        let holders = found.holder.into_iter().collect();
        Self { holders, lease: found.lease, waiters: found.waiters }
    }

    fn of_shared(found: SharedInspection) -> Self {
        let lease = found.holders.first().map(|holder| holder.lease).unwrap_or_default();
        let names = |all: Vec<lockcore::Sharer>| all.into_iter().map(|one| one.participant);
        Self {
            holders: names(found.holders).collect(),
            lease,
            waiters: names(found.waiters).collect(),
        }
    }
}
