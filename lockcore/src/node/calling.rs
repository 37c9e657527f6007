//! A command of the protocol as a call of the store.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::effect::Ask;
use super::sharing;
use crate::error::{LockErrorKind, StoreError};
use crate::store::protocol::{Answer, Command, permits};
use crate::store::{
    Acquired, Each, Inspection, Left, Released, Renewed, Reply, Store, StoreFuture, Touched,
};

/// The answer, or on its way.
#[derive(Debug)]
pub(super) enum Calling {
    Acquired(StoreFuture<Reply<Acquired>>),
    Released(StoreFuture<Reply<Released>>),
    Renewed(StoreFuture<Each<Renewed>>),
    Touched(StoreFuture<Each<Touched>>),
    Left(StoreFuture<Reply<Vec<Left>>>),
    Inspected(StoreFuture<Inspection>),
    /// Of a resource with permits, with what was asked for.
    Shared(permits::Command, StoreFuture<permits::Answer>),
    /// Nothing was asked for.
    Refused(Option<StoreError>),
}

/// A store in memory runs the command before this returns, and may call back.
pub(super) fn call(store: &dyn Store, Ask { lock, command, .. }: &Ask) -> Calling {
    if lock.is_shared() {
        return match sharing::command(command) {
            Ok(command) => Calling::Shared(command.clone(), store.permits(lock, command)),
            Err(error) => Calling::Refused(Some(error)),
        };
    }
    match command {
        Command::Acquire { member, mode, queue_limit } => {
            Calling::Acquired(store.acquire(lock, member, *mode, *queue_limit))
        }
        Command::Release { member } => Calling::Released(store.release(lock, member)),
        Command::Renew { member } => {
            Calling::Renewed(store.renew(vec![(lock.clone(), member.clone())]))
        }
        Command::Touch { members } => {
            Calling::Touched(store.touch(vec![(lock.clone(), members.clone())]))
        }
        Command::Leave { leaving } => Calling::Left(store.leave(lock, leaving.clone())),
        Command::ForceRelease => Calling::Released(store.force_release(lock)),
        Command::Inspect => Calling::Inspected(store.inspect(lock)),
        Command::Downgrade { .. } => Calling::Refused(Some(not_shared())),
    }
}

fn not_shared() -> StoreError {
    StoreError::refused(LockErrorKind::Protocol, "a mutex cannot be downgraded")
}

/// The answer to the only one that was asked for.
fn alone<T>(mut each: Each<T>) -> Result<Reply<T>, StoreError> {
    each.pop().unwrap_or_else(|| Err(StoreError::ambiguous("no answer to the only request")))
}

impl Calling {
    /// The answer, if it is there already.
    pub(super) fn ready(&mut self) -> Option<Result<Answer, StoreError>> {
        fn taken<T>(
            future: &mut StoreFuture<T>,
            answer: fn(T) -> Result<Answer, StoreError>,
        ) -> Option<Result<Answer, StoreError>> {
            match future {
                StoreFuture::Ready(ready) => Some(ready.take()?.and_then(answer)),
                StoreFuture::Pending(_) => None,
            }
        }
        match self {
            Self::Acquired(future) => taken(future, |reply| Ok(Answer::Acquired(reply))),
            Self::Released(future) => taken(future, |reply| Ok(Answer::Released(reply))),
            Self::Renewed(future) => taken(future, |each| alone(each).map(Answer::Renewed)),
            Self::Touched(future) => taken(future, |each| alone(each).map(Answer::Touched)),
            Self::Left(future) => taken(future, |reply| Ok(Answer::Left(reply))),
            Self::Inspected(future) => taken(future, |reply| Ok(Answer::Inspected(reply))),
            Self::Shared(asked, StoreFuture::Ready(ready)) => {
                Some(ready.take()?.and_then(|answer| sharing::answer(asked, answer)))
            }
            Self::Shared(_, StoreFuture::Pending(_)) => None,
            Self::Refused(error) => error.take().map(Err),
        }
    }
}

impl Future for Calling {
    type Output = Result<Answer, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        fn polled<T>(
            future: &mut StoreFuture<T>,
            cx: &mut Context<'_>,
            answer: fn(T) -> Result<Answer, StoreError>,
        ) -> Poll<Result<Answer, StoreError>> {
            Pin::new(future).poll(cx).map(|done| done.and_then(answer))
        }
        match &mut *self {
            Self::Acquired(future) => polled(future, cx, |reply| Ok(Answer::Acquired(reply))),
            Self::Released(future) => polled(future, cx, |reply| Ok(Answer::Released(reply))),
            Self::Renewed(future) => polled(future, cx, |each| alone(each).map(Answer::Renewed)),
            Self::Touched(future) => polled(future, cx, |each| alone(each).map(Answer::Touched)),
            Self::Left(future) => polled(future, cx, |reply| Ok(Answer::Left(reply))),
            Self::Inspected(future) => polled(future, cx, |reply| Ok(Answer::Inspected(reply))),
            Self::Shared(asked, future) => {
                let done = Pin::new(future).poll(cx);
                done.map(|done| done.and_then(|answer| sharing::answer(asked, answer)))
            }
            Self::Refused(error) => {
                Poll::Ready(Err(error.take().expect("not polled after it is ready")))
            }
        }
    }
}
