//! Stores, which keep the locks: the trait of a store, and the two stores that run the commands of
//! `lockcore-proto`, [`memory`] and [`redis`].
//!
//! The rules of each command stand in `docs/protocol.md`.

mod links;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod seen;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[cfg(feature = "redis")]
use client::answer_to;
use futures_util::FutureExt as _;
use proto::node::Lanes;
use proto::{
    Answer, Answers, Command, Event, FencingToken, Link, LockErrorKind, LockName, StoreError,
    Topology,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

pub(crate) use self::links::Links;
use crate::status::ServerStatus;

/// One node's view of a store. Each command is one atomic step on the server.
pub(crate) trait Store: Send + Sync + fmt::Debug + 'static {
    /// Runs one command.
    fn run(&self, lock: &LockName, command: &Command) -> StoreFuture<Answer>;

    /// How its servers are put together: only commands for locks of one counter run together.
    fn topology(&self) -> Topology {
        Topology::Single
    }

    /// The lane of the server that has each slot of a Redis Cluster, read when the state of a
    /// connection has changed.
    fn lanes(&self) -> Option<Lanes> {
        None
    }

    /// Runs several renewals, of at most [`proto::MAX_RENEWALS`] holds, or several touches, of at
    /// most [`proto::MAX_LINES`] locks with [`proto::MAX_BATCH`] members; or any command alone.
    fn run_together(&self, commands: &[(&LockName, &Command)]) -> StoreFuture<Answers>;

    /// As [`run_together`](Self::run_together), for renewals, and waits until replicas have them.
    /// Says how many do. Only asked for where replicas are required.
    fn confirm(&self, renewals: &[(&LockName, &Command)]) -> StoreFuture<(Answers, u32)> {
        let _ = renewals;
        StoreFuture::ready(Err(StoreError::refused(
            LockErrorKind::Unsupported,
            "this store has no replicas",
        )))
    }

    /// Whether commands get through at all.
    fn ping(&self) -> StoreFuture<()>;

    /// The connection that carries commands.
    fn commands(&self) -> watch::Receiver<Link>;

    /// Whether the connection that carries commands for this lock is up.
    fn is_up_for(&self, _lock: &LockName) -> bool {
        self.commands().borrow().is_up()
    }

    /// The outage of the server of this lock, if it cannot answer now; where it `hears`, also if no
    /// grant could be told.
    fn outage(&self, _lock: &LockName, _hears: bool) -> Option<Outage> {
        None
    }

    /// The server's present time, as the node knows it since it connected, µs since the epoch.
    fn now_us(&self) -> u64;

    /// Notes a token that a message told of this lock.
    fn note_token(&self, _lock: &LockName, _token: FencingToken) {}

    /// Counts the servers that commands have gone to. While the count stays, it is one server, with
    /// all that it has acknowledged, unless it was emptied. A primary of a quorum that was emptied
    /// counts as another one once this process knows. Not of a Redis Cluster, whose
    /// [lanes](Self::lanes) tell it.
    fn servers(&self) -> u64 {
        0
    }

    /// As a primary of a quorum: the time for which the server has forgotten nothing. From then on,
    /// tokens are above its present time.
    fn standing(&self) -> StoreFuture<Standing> {
        StoreFuture::ready(Err(no_primary()))
    }

    /// The connections to each server, by their addresses.
    fn server_status(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// The servers on which locks of this namespace may be, each to be searched for them.
    fn searches(&self, namespace: Option<&str>) -> Vec<Arc<dyn Search>> {
        let _ = namespace;
        Vec::new()
    }

    /// Says in which process this node runs, for operators.
    fn tell_process(&self) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    /// The process of a node, as `host:pid`, if it has said so lately.
    fn process_of(&self, _node: &str) -> StoreFuture<Option<String>> {
        StoreFuture::ready(Ok(None))
    }

    /// The connection on which grants arrive.
    fn subscription(&self) -> watch::Receiver<Link>;

    /// Opens the subscription anew: the server does not count it.
    fn reopen_subscription(&self);

    /// Ends the store's background work and closes its connections.
    fn close(&self);
}

fn no_primary() -> StoreError {
    StoreError::refused(LockErrorKind::Unsupported, "this store is no primary of a quorum")
}

/// The search of one server for the names of locks.
pub(crate) trait Search: Send + Sync + fmt::Debug + 'static {
    /// Looks at some of the server's keys. Returns the names of locks that may be held or waited
    /// for, and the cursor of the next step. The first step has the cursor 0, and so has the end.
    fn step(&self, cursor: u64) -> StoreFuture<(Vec<LockName>, u64)>;
}

/// A time in which a server cannot answer.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    /// Its beginning.
    pub(crate) since: Instant,
    /// The error of requests meanwhile.
    pub(crate) error: StoreError,
}

/// The time for which a primary of a quorum has forgotten nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// The number of its server, as [`Store::servers`] counts it: one that was emptied is another.
    pub(crate) server: u64,
    /// The time for which that has forgotten nothing.
    pub(crate) age: Duration,
}

/// Receives the events that a server sends to a node unasked. Called from the store's own tasks: it
/// may not block.
pub(crate) trait Listener: Send + Sync + 'static {
    /// One message.
    fn hear(&self, event: Event);
}

/// The answer of a store: there already, or a future.
#[must_use = "futures do nothing unless polled"]
#[cfg_attr(
    not(feature = "redis"),
    allow(dead_code, reason = "the store in memory answers at once")
)]
pub(crate) enum StoreFuture<T> {
    /// An answer that is there already, taken on the first poll.
    Ready(Option<Result<T, StoreError>>),
    /// An answer on its way.
    Pending(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
    /// A request that is sent once it has a recipient, or is polled.
    #[cfg(feature = "redis")]
    Unsent(Option<redis::Unsent<T>>),
}

/// Polls some work at once, and leaves the rest of it to a task: requests that are sent by their
/// first poll keep their order.
pub(crate) fn begin(runtime: &Handle, mut work: Pin<Box<dyn Future<Output = ()> + Send>>) {
    // A guard may be dropped with the local values of a thread, after those of the runtime.
    if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
        runtime.spawn(work);
        return;
    }
    // Its timers belong to the runtime. However many there are: a task that has done enough for
    // now would send a part of them.
    let in_runtime = runtime.enter();
    let polled = unconstrained(work.as_mut()).poll_unpin(&mut Context::from_waker(Waker::noop()));
    drop(in_runtime);
    if polled.is_pending() {
        runtime.spawn(work);
    }
}

/// The error of a request whose runtime has ended.
#[cfg(feature = "redis")]
fn runtime_ended() -> StoreError {
    StoreError::refused(LockErrorKind::Closed, "the runtime has ended")
}

impl<T> StoreFuture<T> {
    /// An answer that is there already.
    pub(crate) fn ready(answer: Result<T, StoreError>) -> Self {
        Self::Ready(Some(answer))
    }

    /// An answer that takes a while.
    #[cfg_attr(
        not(feature = "redis"),
        allow(dead_code, reason = "the store in memory answers at once")
    )]
    pub(crate) fn pending(
        answer: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Self {
        Self::Pending(Box::pin(answer))
    }
}

impl<T: Send + 'static> StoreFuture<T> {
    /// Sends the request, and has its answer taken by `then`: before this returns, or by a task of
    /// the runtime.
    pub(crate) fn give(
        self,
        runtime: &Handle,
        then: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) {
        match self {
            Self::Ready(answer) => {
                if let Some(answer) = answer {
                    then(answer);
                }
            }
            Self::Pending(answer) => begin(runtime, Box::pin(async move { then(answer.await) })),
            #[cfg(feature = "redis")]
            Self::Unsent(request) => {
                if let Some(request) = request {
                    request.send(then);
                }
            }
        }
    }
}

// `Ready` and `Unsent` are only ever moved out of and `Pending` is a box: nothing is pinned in
// place.
impl<T> Unpin for StoreFuture<T> {}

impl<T: Send + 'static> Future for StoreFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        #[cfg(feature = "redis")]
        if let Self::Unsent(request) = &mut *self {
            let request = request.take().expect("it becomes pending with its first poll");
            let answer = answer_to(|then| request.send(then));
            *self = Self::pending(answer.map(|told| told.unwrap_or_else(|| Err(runtime_ended()))));
        }
        match &mut *self {
            Self::Ready(answer) => {
                Poll::Ready(answer.take().expect("a StoreFuture is not polled after it is ready"))
            }
            Self::Pending(answer) => answer.as_mut().poll(cx),
            #[cfg(feature = "redis")]
            Self::Unsent(_) => unreachable!("it is pending by now"),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(_) => f.write_str("StoreFuture::Ready"),
            Self::Pending(_) => f.write_str("StoreFuture::Pending"),
            #[cfg(feature = "redis")]
            Self::Unsent(_) => f.write_str("StoreFuture::Unsent"),
        }
    }
}
