//! One acquisition in whichever form, and the guard that it ends with.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lockcore::{
    Acquire, FencingToken, LockGuard, LockRequest, Permit, ReadGuard, Release, WriteGuard,
};
use pin_project::pin_project;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::key::Want;
use crate::key::mode::Form;
use crate::refusal::LockError;

/// What was acquired for a key.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) want: Want,
    pub(crate) guard: Guard,
}

/// A hold that ends when this is dropped.
#[derive(Debug)]
pub(crate) enum Guard {
    /// A mutex, a read or a write: guards can share it.
    Lock(LockGuard),
    /// Has no token, and cannot be shared.
    Permits(Permit),
}

impl Guard {
    /// Permits have none, since others hold some at the same time. Zero is what every resource that
    /// checks tokens refuses.
    pub(crate) fn token(&self) -> FencingToken {
        match self {
            Self::Lock(guard) => guard.fencing_token(),
            Self::Permits(_) => FencingToken::try_from(0).expect("0 is in the range of tokens"),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Lock(guard) => guard.is_lost(),
            Self::Permits(permit) => permit.is_lost(),
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        match self {
            Self::Lock(guard) => guard.deadline(),
            Self::Permits(permit) => permit.deadline(),
        }
    }

    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        match self {
            Self::Lock(guard) => guard.cancellation_token(),
            Self::Permits(permit) => permit.cancellation_token(),
        }
    }

    pub(crate) fn release(self) -> Release {
        match self {
            Self::Lock(guard) => guard.release(),
            Self::Permits(permit) => permit.release(),
        }
    }

    /// One more guard on the same hold.
    pub(crate) fn reenter(&self) -> Result<LockGuard, LockError> {
        match self {
            Self::Lock(guard) => Ok(guard.reenter()?),
            Self::Permits(_) => Err(LockError::misuse(
                "Permits have no guard beside their layer's. Hold them until the end of the body, finish work under \
                 them with `detach`, or acquire them with `Locks::permit`.",
            )),
        }
    }

    /// The guard that a caller can keep; permits have none.
    pub(crate) fn into_lock(self) -> Option<LockGuard> {
        match self {
            Self::Lock(guard) => Some(guard),
            Self::Permits(_) => None,
        }
    }
}

/// Waits for one key in its form. Dropping it leaves the queue.
#[pin_project(project = AcquiringProjection)]
pub(crate) enum Acquiring {
    Lock(#[pin] Acquire),
    Read(#[pin] Acquire<ReadGuard>),
    Write(#[pin] Acquire<WriteGuard>),
    Permits(#[pin] Acquire<Permit>),
}

impl Acquiring {
    pub(crate) fn new(request: LockRequest, form: Form) -> Self {
        match form {
            Form::Lock => Self::Lock(request.lock()),
            Form::Read => Self::Read(request.read()),
            Form::Write => Self::Write(request.write()),
            Form::Permits { count, limit } => Self::Permits(request.permits(count, limit)),
        }
    }
}

impl Future for Acquiring {
    type Output = Result<Guard, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project() {
            AcquiringProjection::Lock(acquire) => Ok(Guard::Lock(ready!(acquire.poll(cx))?)),
            // From here on a read and a write are holds as all others, whose guards can be shared.
            AcquiringProjection::Read(acquire) => {
                Ok(Guard::Lock(ready!(acquire.poll(cx))?.reenter()?))
            }
            AcquiringProjection::Write(acquire) => {
                Ok(Guard::Lock(ready!(acquire.poll(cx))?.reenter()?))
            }
            AcquiringProjection::Permits(acquire) => Ok(Guard::Permits(ready!(acquire.poll(cx))?)),
        })
    }
}
