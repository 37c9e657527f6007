//! A command of the protocol as a call of the store.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::effect::Ask;
use crate::error::StoreError;
use crate::protocol::{Answer, Command};
use crate::store::{
    Acquired, Inspection, Left, Released, Renewed, Reply, Store, StoreFuture, Touched,
};

/// The answer, or on its way.
#[derive(Debug)]
pub(super) enum Calling {
    Acquired(StoreFuture<Reply<Acquired>>),
    Released(StoreFuture<Reply<Released>>),
    Renewed(StoreFuture<Reply<Renewed>>),
    Touched(StoreFuture<Reply<Touched>>),
    Left(StoreFuture<Reply<Vec<Left>>>),
    Inspected(StoreFuture<Inspection>),
}

/// A store in memory runs the command before this returns, and may call back.
pub(super) fn call(store: &dyn Store, Ask { lock, command, .. }: &Ask) -> Calling {
    match command {
        Command::Acquire { member, mode, queue_limit } => {
            Calling::Acquired(store.acquire(lock, member, *mode, *queue_limit))
        }
        Command::Release { member } => Calling::Released(store.release(lock, member)),
        Command::Renew { member } => Calling::Renewed(store.renew(lock, member)),
        Command::Touch { members } => Calling::Touched(store.touch(lock, members.clone())),
        Command::Leave { leaving } => Calling::Left(store.leave(lock, leaving.clone())),
        Command::ForceRelease => Calling::Released(store.force_release(lock)),
        Command::Inspect => Calling::Inspected(store.inspect(lock)),
    }
}

impl Calling {
    /// The answer, if it is there already.
    pub(super) fn ready(&mut self) -> Option<Result<Answer, StoreError>> {
        fn taken<T>(
            future: &mut StoreFuture<T>,
            answer: fn(T) -> Answer,
        ) -> Option<Result<Answer, StoreError>> {
            match future {
                StoreFuture::Ready(ready) => Some(ready.take()?.map(answer)),
                StoreFuture::Pending(_) => None,
            }
        }
        match self {
            Self::Acquired(future) => taken(future, Answer::Acquired),
            Self::Released(future) => taken(future, Answer::Released),
            Self::Renewed(future) => taken(future, Answer::Renewed),
            Self::Touched(future) => taken(future, Answer::Touched),
            Self::Left(future) => taken(future, Answer::Left),
            Self::Inspected(future) => taken(future, Answer::Inspected),
        }
    }
}

impl Future for Calling {
    type Output = Result<Answer, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        fn polled<T>(
            future: &mut StoreFuture<T>,
            cx: &mut Context<'_>,
            answer: fn(T) -> Answer,
        ) -> Poll<Result<Answer, StoreError>> {
            Pin::new(future).poll(cx).map(|done| done.map(answer))
        }
        match &mut *self {
            Self::Acquired(future) => polled(future, cx, Answer::Acquired),
            Self::Released(future) => polled(future, cx, Answer::Released),
            Self::Renewed(future) => polled(future, cx, Answer::Renewed),
            Self::Touched(future) => polled(future, cx, Answer::Touched),
            Self::Left(future) => polled(future, cx, Answer::Left),
            Self::Inspected(future) => polled(future, cx, Answer::Inspected),
        }
    }
}
