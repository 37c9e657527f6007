//! Lock stores: the trait `Store`, and the implementations [`memory`] and [`redis`], which run the
//! commands of `lockcore-proto`.
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
use proto::node::{Lanes, RequestGroup};
use proto::{
    Answer, Answers, Event, FencingToken, Link, LockErrorKind, LockName, StoreError, Topology,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

pub(crate) use self::links::Links;
use crate::operate::status::ServerStatus;

/// The replies to a request group, which consists of commands sent together.
#[derive(Debug, Clone)]
pub(crate) struct Replies {
    /// The reply to each command, in order.
    pub(crate) answers: Answers,
    /// The error that leaves the writes of the renewals in the group unconfirmed. The node must not
    /// rely on these renewals then; `None` if it may.
    pub(crate) unconfirmed: Option<StoreError>,
}

impl Replies {
    /// Returns the reply to a request group with a single command.
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

/// The replies to a request group, or an error for all its commands.
pub(crate) type Replied = Result<Replies, StoreError>;

/// The receiver of the replies to a request group. If the runtime ends first, the receiver is
/// dropped without a call.
pub(crate) enum Then {
    /// The node that sent the request group. This needs no allocation.
    Node(Arc<dyn TakeReply>),
    /// A function, called with the request group and the replies.
    Call(Box<dyn FnOnce(RequestGroup, Replied) + Send>),
}

/// Receives the replies to request groups. Implemented by the node, so that a request needs no
/// allocation for a receiver.
pub(crate) trait TakeReply: Send + Sync {
    /// Receives the replies to a request group. Called in a store task, or within the call that
    /// sent the group.
    fn take(self: Arc<Self>, group: RequestGroup, replied: Replied);
}

impl Then {
    pub(crate) fn call(then: impl FnOnce(RequestGroup, Replied) + Send + 'static) -> Self {
        Self::Call(Box::new(then))
    }

    pub(crate) fn take(self, group: RequestGroup, replied: Replied) {
        match self {
            Self::Node(node) => node.take(group, replied),
            Self::Call(call) => call(group, replied),
        }
    }
}

/// The future of a store's result, for requests that do not come from the core, such as a ping.
pub(crate) type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;

/// A node's connection to a store, which executes each command as an atomic step.
pub(crate) trait Store: Send + Sync + fmt::Debug + 'static {
    /// Sends a request group. `then` receives the replies: before this method returns, or later in
    /// a task on the store's runtime.
    fn send(&self, group: RequestGroup, then: Then);

    /// Returns how the servers of the store are arranged. From this follows which locks share a
    /// token counter: only commands for such locks are sent in one group.
    fn topology(&self) -> Topology {
        Topology::Single
    }

    /// Returns true if a free lock can be acquired without a script on the current connections. The
    /// node asks again after each change in a connection's state.
    fn has_fast_path(&self) -> bool {
        false
    }

    /// Returns for each Redis Cluster slot the lane of the slot's server: the number under which
    /// the core keeps the requests and timers for that server. `None` outside a Cluster. The node
    /// asks again after each change in a connection's state.
    fn lanes(&self) -> Option<Lanes> {
        None
    }

    /// Sends renewals like [`send`](Self::send), but replies only once the writes are confirmed.
    /// Called only if a [`Confirmation`](confirmation::Confirmation) is set.
    fn confirm(&self, group: RequestGroup, then: Then) {
        let error = "this store does not confirm writes";
        then.take(group, Err(StoreError::refused(LockErrorKind::Unsupported, error)));
    }

    /// Checks that the server executes commands.
    fn ping(&self) -> StoreFuture<()>;

    /// Returns a channel that shows the state of the command connection.
    fn commands(&self) -> watch::Receiver<Link>;

    /// Returns the error of the command connection to this lock's server; `None` while it is up,
    /// even if the server is slow.
    fn why_down(&self, _lock: &LockName) -> Option<StoreError> {
        self.commands().borrow().why_down()
    }

    /// Returns the current outage of this lock's server; `None` if the server is reachable. If
    /// `hears` is true, the outage of a subscription counts, too, because grants cannot be received
    /// then.
    fn outage(&self, _lock: &LockName, _hears: bool) -> Option<Outage> {
        None
    }

    /// Returns the server's current time, in µs since the epoch. A Redis store estimates this from
    /// the server's time at the last connect.
    fn now_us(&self) -> u64;

    /// Records a fencing token received in a message about this lock, so that new tokens of the
    /// node are above it.
    fn note_token(&self, _lock: &LockName, _token: FencingToken) {}

    /// Returns a number that rises whenever commands go to another server than before. While the
    /// number stays the same, the server still has everything it has acknowledged, unless it has
    /// lost data unnoticed. A quorum primary that has lost its data counts as another server once
    /// this process notices. Always 0 for a Redis Cluster, whose servers have [lanes](Self::lanes)
    /// instead.
    fn servers(&self) -> u64 {
        0
    }

    /// Returns how long a quorum primary has kept its data. After this call, the node draws only
    /// tokens above the current time of the primary there. Fails for any other store.
    fn standing(&self) -> StoreFuture<Standing> {
        ready(Err(no_primary())).boxed()
    }

    /// Returns the connection states for each server, by address.
    fn server_status(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    /// Returns a channel that changes with each connection of a Redis Cluster primary, also if the
    /// states of [`commands`](Self::commands) and [`subscription`](Self::subscription) stay. Never
    /// changes outside a Cluster.
    fn server_links(&self) -> watch::Receiver<()> {
        watch::channel(()).1
    }

    /// Returns searches for the locks in this namespace, one for each server that may have such
    /// locks.
    fn searches(&self, namespace: Option<&str>) -> Vec<Arc<dyn Search>> {
        let _ = namespace;
        Vec::new()
    }

    /// Writes `host:pid` of this process to the server. Operators can look it up there by the node
    /// id.
    fn record_process(&self) -> StoreFuture<()> {
        ready(Ok(())).boxed()
    }

    /// Returns the process of a node, as `host:pid`; `None` if the node has not written it
    /// recently.
    fn process_of(&self, _node: &str) -> StoreFuture<Option<String>> {
        ready(Ok(None)).boxed()
    }

    /// Returns a channel that shows the state of the subscription, the connection by which grants
    /// arrive.
    fn subscription(&self) -> watch::Receiver<Link>;

    /// Opens the subscription again. Called if the server reports no subscriber for this node.
    fn reopen_subscription(&self);

    /// Ends the store's background work and closes the connections.
    fn close(&self);
}

fn no_primary() -> StoreError {
    StoreError::refused(LockErrorKind::Unsupported, "this store is not a quorum primary")
}

/// A search for the names of locks on a server, in steps.
pub(crate) trait Search: Send + Sync + fmt::Debug + 'static {
    /// Examines some of the server's keys, beginning at `cursor`: 0 at first, then the cursor
    /// returned by the previous step. Returns the names of locks that may be held or waited for,
    /// and the next cursor, or 0 if the search is complete.
    fn step(&self, cursor: u64) -> StoreFuture<(Vec<LockName>, u64)>;
}

/// An outage of a server that has not ended yet: commands fail, or grants cannot be received.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    pub(crate) since: Instant,
    /// The error with which requests fail during the outage.
    pub(crate) error: StoreError,
}

/// How long a quorum primary has kept its data, and which server that is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    /// The server's number, as in [`Store::servers`]. It rises when the server loses its data.
    pub(crate) server: u64,
    /// Time since this server last lost data.
    pub(crate) age: Duration,
}

/// The receiver of a server's events, such as grants. Called in a store task, so it must not block.
pub(crate) trait Listener: Send + Sync + 'static {
    /// Receives an event, such as a grant to a waiter of this node.
    fn hear(&self, event: Event);
}

/// Starts `work` on the runtime. The first poll happens within this call, so that requests sent by
/// the first poll keep the order of the calls. The rest runs in a task.
pub(crate) fn begin(runtime: &Handle, mut work: Pin<Box<dyn Future<Output = ()> + Send>>) {
    // A thread's destructors may drop a guard after the runtime's thread-local values are gone.
    if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
        runtime.spawn(work);
        return;
    }
    // Timers need the runtime's context. The poll has no coop budget, because an exhausted budget
    // would delay some of the requests.
    let in_runtime = runtime.enter();
    let polled = unconstrained(work.as_mut()).poll_unpin(&mut Context::from_waker(Waker::noop()));
    drop(in_runtime);
    if polled.is_pending() {
        runtime.spawn(work);
    }
}
