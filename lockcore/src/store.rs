//! Stores, which keep the locks: the trait of a store, and the two stores that run the commands of
//! `lockcore-proto`, [`memory`] and [`redis`].
//!
//! The rules of each command stand in `docs/protocol.md`.

mod links;
pub(crate) mod memory;
pub(crate) mod process;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod seen;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use proto::node::{Batch, Lanes};
use proto::{
    Answer, Answers, Event, FencingToken, Link, LockErrorKind, LockName, StoreError, Topology,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

pub(crate) use self::links::Links;
use crate::operate::status::ServerStatus;

/// The answers to a batch.
#[derive(Debug, Clone)]
pub(crate) struct Replies {
    /// An answer for each command.
    pub(crate) answers: Answers,
    /// The number of replicas that have the renewals, if these were to be confirmed.
    pub(crate) replicas: u32,
}

impl Replies {
    /// The answer to the only command.
    pub(crate) fn only(mut self) -> Result<Answer, StoreError> {
        debug_assert_eq!(self.answers.len(), 1, "a batch of one command has one answer");
        self.answers.pop().unwrap_or_else(|| Err(StoreError::ambiguous("there is no answer")))
    }
}

impl From<Answers> for Replies {
    fn from(answers: Answers) -> Self {
        Self { answers, replicas: 0 }
    }
}

/// A reply, or the error of all commands of the batch.
pub(crate) type Replied = Result<Replies, StoreError>;

/// Takes a reply. It is dropped without one if the runtime ends.
pub(crate) enum Then {
    /// The node that has sent the batch: nothing is allocated for it.
    Node(Arc<dyn TakeReply>),
    /// A function.
    Call(Box<dyn FnOnce(Batch, Replied) + Send>),
}

/// A node, which takes the replies to what it has sent.
pub(crate) trait TakeReply: Send + Sync {
    /// Takes a reply. Called from the store's own tasks, or within the call that has sent the
    /// batch.
    fn take(self: Arc<Self>, batch: Batch, replied: Replied);
}

impl Then {
    pub(crate) fn call(then: impl FnOnce(Batch, Replied) + Send + 'static) -> Self {
        Self::Call(Box::new(then))
    }

    pub(crate) fn take(self, batch: Batch, replied: Replied) {
        match self {
            Self::Node(node) => node.take(batch, replied),
            Self::Call(call) => call(batch, replied),
        }
    }
}

/// A request that no core has to know of.
pub(crate) type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// One node's view of a store. Each command is one atomic step on the server.
pub(crate) trait Store: Send + Sync + fmt::Debug + 'static {
    /// Sends the commands of a batch, and has their answers taken by `then`: before this returns,
    /// or by a task of the runtime that the store was made in.
    fn send(&self, batch: Batch, then: Then);

    /// How its servers are put together: only commands for locks of one counter run together.
    fn topology(&self) -> Topology {
        Topology::Single
    }

    /// Whether its connections may acquire a free lock without a script, read when the state of a
    /// connection has changed.
    fn has_fast_path(&self) -> bool {
        false
    }

    /// The lane of the server that has each slot of a Redis Cluster, read when the state of a
    /// connection has changed.
    fn lanes(&self) -> Option<Lanes> {
        None
    }

    /// As [`send`](Self::send), for renewals, and waits until replicas have them. Says how many do.
    /// Only asked for where replicas are required.
    fn confirm(&self, batch: Batch, then: Then) {
        let error = "this store has no replicas";
        then.take(batch, Err(StoreError::refused(LockErrorKind::Unsupported, error)));
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
        ready(Err(no_primary())).boxed()
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
        ready(Ok(())).boxed()
    }

    /// The process of a node, as `host:pid`, if it has said so lately.
    fn process_of(&self, _node: &str) -> StoreFuture<Option<String>> {
        ready(Ok(None)).boxed()
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
