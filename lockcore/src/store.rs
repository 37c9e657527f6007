//! Lock stores: the `Store` trait and its two implementations, [`memory`] and [`redis`], which run
//! the commands of `lockcore-proto`.
//!
//! The rules of each command are in `docs/protocol.md`.

pub(crate) mod confirmation;
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

/// The replies to a batch.
#[derive(Debug, Clone)]
pub(crate) struct Replies {
    /// A reply per command.
    pub(crate) answers: Answers,
    /// The reason why renewals do not count that were to be confirmed and were not.
    pub(crate) unconfirmed: Option<StoreError>,
}

impl Replies {
    /// The reply to a batch with a single command.
    pub(crate) fn only(mut self) -> Result<Answer, StoreError> {
        debug_assert_eq!(self.answers.len(), 1, "a pipeline of one command has one reply");
        self.answers.pop().unwrap_or_else(|| Err(StoreError::ambiguous("no reply")))
    }
}

impl From<Answers> for Replies {
    fn from(answers: Answers) -> Self {
        Self { answers, unconfirmed: None }
    }
}

/// The replies, or an error for all commands in the batch.
pub(crate) type Replied = Result<Replies, StoreError>;

/// Receives a reply. Dropped without a reply if the runtime ends.
pub(crate) enum Then {
    /// The node that sent the batch: needs no allocation.
    Node(Arc<dyn TakeReply>),
    /// A function.
    Call(Box<dyn FnOnce(Batch, Replied) + Send>),
}

/// A node that receives replies to batches.
pub(crate) trait TakeReply: Send + Sync {
    /// Receives a reply. Called from the store's own tasks, or within the call that sent the batch.
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

/// A request that bypasses the core.
pub(crate) type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// A store as seen by a node. Each command is an atomic step on the server.
pub(crate) trait Store: Send + Sync + fmt::Debug + 'static {
    /// Sends a batch; `then` receives the replies before this returns, or in a task of the runtime
    /// in which the store was created.
    fn send(&self, batch: Batch, then: Then);

    /// How the store's servers are arranged: only commands for locks with the same counter run
    /// together.
    fn topology(&self) -> Topology {
        Topology::Single
    }

    /// Whether the connections may acquire a free lock without a script; read after each change of
    /// a connection's state.
    fn has_fast_path(&self) -> bool {
        false
    }

    /// The server lane of each Redis Cluster slot; read after each change of a connection's state.
    fn lanes(&self) -> Option<Lanes> {
        None
    }

    /// Like [`send`](Self::send), for renewals, and then waits until their writes are confirmed.
    /// Only used if a [`Confirmation`](confirmation::Confirmation) is set.
    fn confirm(&self, batch: Batch, then: Then) {
        let error = "this store does not confirm writes";
        then.take(batch, Err(StoreError::refused(LockErrorKind::Unsupported, error)));
    }

    /// Checks that the server executes commands.
    fn ping(&self) -> StoreFuture<()>;

    /// The command connection's state.
    fn commands(&self) -> watch::Receiver<Link>;

    /// Whether the command connection for this lock is up.
    fn is_up_for(&self, _lock: &LockName) -> bool {
        self.commands().borrow().is_up()
    }

    /// The current outage of this lock's server, if any; with `hears`, also an outage of the
    /// subscription, during which grants cannot be received.
    fn outage(&self, _lock: &LockName, _hears: bool) -> Option<Outage> {
        None
    }

    /// The server's current time, µs since the epoch, as estimated by the node since it connected.
    fn now_us(&self) -> u64;

    /// Records a token received in a message about this lock.
    fn note_token(&self, _lock: &LockName, _token: FencingToken) {}

    /// Counts the servers that commands have been sent to. As long as the count stays the same, so
    /// does the server, with everything it has acknowledged, unless its data were lost. A quorum
    /// primary that lost its data counts as another server once this process notices. Not used for
    /// a Redis Cluster, which has [lanes](Self::lanes) instead.
    fn servers(&self) -> u64 {
        0
    }

    /// For a quorum primary: the time since the server last lost data. From then on, tokens are
    /// above the server's current time.
    fn standing(&self) -> StoreFuture<Standing> {
        ready(Err(no_primary())).boxed()
    }

    /// The connections to each server, by address.
    fn server_status(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// The servers that may have locks of this namespace, each of which can be searched.
    fn searches(&self, namespace: Option<&str>) -> Vec<Arc<dyn Search>> {
        let _ = namespace;
        Vec::new()
    }

    /// Publishes this node's process, for operators.
    fn tell_process(&self) -> StoreFuture<()> {
        ready(Ok(())).boxed()
    }

    /// The process of a node, as `host:pid`, if published recently.
    fn process_of(&self, _node: &str) -> StoreFuture<Option<String>> {
        ready(Ok(None)).boxed()
    }

    /// The subscription's state.
    fn subscription(&self) -> watch::Receiver<Link>;

    /// Reopens the subscription, because the server does not count it.
    fn reopen_subscription(&self);

    /// Ends the store's background work and closes the connections.
    fn close(&self);
}

fn no_primary() -> StoreError {
    StoreError::refused(LockErrorKind::Unsupported, "this store is not a quorum primary")
}

/// A search for lock names on a server.
pub(crate) trait Search: Send + Sync + fmt::Debug + 'static {
    /// Examines some of the server's keys. Returns the names of locks that may be held or waited
    /// for, and the next cursor. The search starts at cursor 0 and is complete when 0 is returned.
    fn step(&self, cursor: u64) -> StoreFuture<(Vec<LockName>, u64)>;
}

/// A period in which a server cannot execute commands.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    /// When the outage began.
    pub(crate) since: Instant,
    /// The error of requests during the outage.
    pub(crate) error: StoreError,
}

/// How long a quorum primary has kept its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// The server number, as in [`Store::servers`]: a server that lost its data gets another
    /// number.
    pub(crate) server: u64,
    /// The time since this server last lost data.
    pub(crate) age: Duration,
}

/// Receives events from a server. Called from the store's own tasks: must not block.
pub(crate) trait Listener: Send + Sync + 'static {
    /// Receives an event.
    fn hear(&self, event: Event);
}

/// Polls `work` once, and spawns a task for the rest: requests sent by the first poll keep their
/// order.
pub(crate) fn begin(runtime: &Handle, mut work: Pin<Box<dyn Future<Output = ()> + Send>>) {
    // A guard may be dropped by a thread's destructors, after the runtime's thread-local values.
    if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
        runtime.spawn(work);
        return;
    }
    // Timers need the runtime's context. Without a coop budget, since an exhausted budget would
    // delay some of the requests.
    let in_runtime = runtime.enter();
    let polled = unconstrained(work.as_mut()).poll_unpin(&mut Context::from_waker(Waker::noop()));
    drop(in_runtime);
    if polled.is_pending() {
        runtime.spawn(work);
    }
}
