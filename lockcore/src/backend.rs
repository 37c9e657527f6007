//! The store behind a `Locks`: a single store, reached through one node, or a quorum of independent
//! primaries, each reached through a separate node. Only this module and the builder distinguish
//! the two.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use pin_project::pin_project;
use proto::node::Request;
use proto::{Command, Demand, FencingToken, LockErrorKind, LockName};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Span;

use crate::api::shutdown::Shutdown;
use crate::node::class::Class;
use crate::node::{Attempt, HoldCell, LocalOptions, Loss, Node, NodeGuard, NodeRelease, Observer};
use crate::operate::inspection::LockInspection;
use crate::operate::status::Status;
use crate::quorum::{self, AcquireContext, Primaries, QuorumAcquire};
use crate::types::error::LockError;
use crate::types::hold_state::HoldState;

/// The nodes behind a `Locks`: a single [`Node`] for a single store, or a node for each primary of
/// a quorum. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    /// The only node. On a quorum, the node of the first primary in the list that was connected at
    /// the start. Its settings and request classes apply to the whole `Locks`, because all
    /// primaries have the same settings.
    node: Arc<Node>,
    quorum: Option<Arc<Primaries>>,
}

impl Backend {
    pub(crate) fn of_node(node: Arc<Node>) -> Self {
        Self { node, quorum: None }
    }

    pub(crate) fn of_quorum(node: Arc<Node>, primaries: Arc<Primaries>) -> Self {
        Self { node, quorum: Some(primaries) }
    }

    /// Returns the node with the settings and request classes of the whole `Locks`. Send requests
    /// to [`node_to_ask`](Self::node_to_ask) instead, because on a quorum the primary of this node
    /// may be unreachable.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns the node for requests that a single server can answer. On a quorum, this is the node
    /// of the first reachable primary in the list, or [`node`](Self::node) if none is reachable.
    pub(crate) fn node_to_ask(&self) -> &Arc<Node> {
        self.quorum.as_ref().and_then(|primaries| primaries.lowest()).unwrap_or(&self.node)
    }

    /// Returns the nodes that receive a request for every server. On a single store, this is the
    /// only node, whether connected or not. On a quorum, these are the nodes of all reachable
    /// primaries.
    pub(crate) fn reached(&self) -> Vec<&Arc<Node>> {
        match &self.quorum {
            None => vec![&self.node],
            Some(primaries) => primaries.reached().collect(),
        }
    }

    pub(crate) fn observer(&self) -> &Observer {
        match &self.quorum {
            None => &self.node.observer,
            Some(primaries) => &primaries.observer,
        }
    }

    #[cfg(test)]
    pub(crate) fn primaries(&self) -> &Arc<Primaries> {
        self.quorum.as_ref().expect("a quorum")
    }

    /// Returns a future that acquires the lock of `request`. Nothing is sent until the future is
    /// polled; if `request` is an error, the first poll returns this error. `class` groups the
    /// request in metrics, and `local` contains the options that are not sent to the store.
    pub(crate) fn acquire(
        &self,
        request: Result<Request, LockError>,
        class: Arc<Class>,
        local: LocalOptions,
    ) -> Acquisition {
        let Some(primaries) = &self.quorum else {
            return Acquisition::Node(Attempt::new(&self.node, request, class, local));
        };
        let context = request.and_then(|request| {
            primaries.check(&request)?;
            let (primaries, of) = (Arc::clone(primaries), HoldCell::of(class));
            Ok(AcquireContext { primaries, request, of, local })
        });
        Acquisition::Quorum(QuorumAcquire::new(context))
    }

    pub(crate) async fn inspect(
        &self,
        lock: LockName,
        command: Command,
    ) -> Result<LockInspection, LockError> {
        match &self.quorum {
            None => self.node.inspect(lock, command).await,
            Some(primaries) => primaries.inspect(lock, command).await,
        }
    }

    pub(crate) async fn force_release(&self, lock: LockName) -> Result<bool, LockError> {
        match &self.quorum {
            None => self.node.force_release(lock).await,
            Some(primaries) => primaries.force_release(lock).await,
        }
    }

    pub(crate) async fn ping(&self) -> Result<(), LockError> {
        match &self.quorum {
            None => self.node.ping().await,
            Some(primaries) => primaries.ping().await,
        }
    }

    pub(crate) fn status(&self) -> Status {
        match &self.quorum {
            None => self.node.status(),
            Some(primaries) => primaries.status(),
        }
    }

    pub(crate) async fn shut_down(&self, timeout: Duration) -> Shutdown {
        match &self.quorum {
            None => self.node.shut_down(timeout).await,
            Some(primaries) => primaries.shut_down(timeout).await,
        }
    }
}

/// The future of an acquisition, on a single store or on a quorum. Dropping the future takes the
/// request out of the queue, or releases the lock if it was granted in the meantime.
#[pin_project(project = AcquisitionProjection)]
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "on a single server an acquisition must not allocate more"
)]
pub(crate) enum Acquisition {
    Node(#[pin] Attempt),
    Quorum(QuorumAcquire),
}

impl Acquisition {
    /// Returns the number of waiters ahead of this acquisition, as last reported by the server.
    /// `None` before the server has queued it.
    pub(crate) fn position(&self) -> Option<u64> {
        match self {
            Self::Node(attempt) => attempt.position(),
            Self::Quorum(acquire) => *acquire.positions.borrow(),
        }
    }

    pub(crate) fn positions(&self) -> watch::Receiver<Option<u64>> {
        match self {
            Self::Node(attempt) => attempt.positions(),
            Self::Quorum(acquire) => acquire.positions.clone(),
        }
    }
}

impl Future for Acquisition {
    /// The hold, or `Ok(None)` if the lock is busy and the request does not wait.
    type Output = Result<Option<Hold>, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            AcquisitionProjection::Node(attempt) => {
                attempt.poll(cx).map_ok(|guard| guard.map(Hold::Node))
            }
            AcquisitionProjection::Quorum(acquire) => {
                Pin::new(acquire).poll(cx).map_ok(|hold| hold.map(Hold::Quorum))
            }
        }
    }
}

/// A guard's share of a held lock. Guards that re-enter share the lock, and dropping the last share
/// releases it.
pub(crate) enum Hold {
    Node(NodeGuard),
    Quorum(Arc<quorum::Hold>),
}

/// Evaluates `$answer` with `$hold` bound to the content of either variant, because both types have
/// the same methods.
macro_rules! of_either {
    ($either:expr, |$hold:ident| $answer:expr) => {
        match $either {
            Hold::Node($hold) => $answer,
            Hold::Quorum($hold) => $answer,
        }
    };
}

impl Hold {
    pub(crate) fn demand(&self) -> Demand {
        of_either!(self, |hold| hold.demand())
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        of_either!(self, |hold| hold.fencing_token())
    }

    pub(crate) fn lock(&self) -> &LockName {
        of_either!(self, |hold| hold.lock())
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        of_either!(self, |hold| hold.namespace())
    }

    pub(crate) fn waited(&self) -> Duration {
        of_either!(self, |hold| hold.waited())
    }

    pub(crate) fn position(&self) -> Option<u64> {
        of_either!(self, |hold| hold.position())
    }

    pub(crate) fn span(&self) -> &Span {
        of_either!(self, |hold| hold.span())
    }

    /// Returns the runtime with the tasks that renew the hold and report its loss.
    pub(crate) fn runtime(&self) -> &Handle {
        of_either!(self, |hold| hold.runtime())
    }

    pub(crate) fn is_lost(&self) -> bool {
        of_either!(self, |hold| hold.is_lost())
    }

    pub(crate) fn loss(&self) -> &Loss {
        of_either!(self, |hold| hold.loss())
    }

    pub(crate) fn state(&self) -> HoldState {
        of_either!(self, |hold| hold.state())
    }

    pub(crate) fn deadline(&self) -> Instant {
        of_either!(self, |hold| hold.deadline())
    }

    /// Returns another share, for a guard that re-enters. The lock stays held until all shares are
    /// gone.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Node(guard) => Self::Node(guard.reenter()),
            Self::Quorum(hold) => Self::Quorum(Arc::clone(hold)),
        }
    }

    /// Returns the number of guards that share the lock.
    pub(crate) fn shares(&self) -> usize {
        match self {
            Self::Node(guard) => guard.guards(),
            Self::Quorum(hold) => Arc::strong_count(hold),
        }
    }

    /// Downgrades an exclusive lock to a read, so that other reads can share the lock. On a quorum
    /// this always fails with [`Unsupported`](LockErrorKind::Unsupported).
    pub(crate) async fn downgrade(&mut self) -> Result<(), LockError> {
        match self {
            Self::Node(guard) => guard.reduce().await,
            Self::Quorum(_) => {
                let detail = "a lock on a quorum cannot be downgraded to a read: the primaries \
                    cannot change in a single step";
                Err(LockError::with_detail(LockErrorKind::Unsupported, detail))
            }
        }
    }

    /// Releases the lock if no other guard shares it. Otherwise only drops this share.
    pub(crate) fn release(self) -> HoldRelease {
        match self {
            Self::Node(guard) => HoldRelease::Node(guard.release()),
            Self::Quorum(hold) => HoldRelease::Quorum(hold.release()),
        }
    }

    /// Drops this share without a release, so that the server keeps the lock until the lease ends.
    /// Guards with other shares of the lock are notified of a loss.
    pub(crate) fn leak(self) {
        match self {
            Self::Node(guard) => guard.leak(),
            Self::Quorum(hold) => hold.leak(),
        }
    }
}

/// The future of a release. The release continues even if the future is dropped.
pub(crate) enum HoldRelease {
    Node(NodeRelease),
    /// The releases at all primaries of a quorum, which run concurrently.
    Quorum(BoxFuture<'static, Result<(), LockError>>),
}

impl fmt::Debug for HoldRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(release) => release.fmt(f),
            Self::Quorum(_) => f.write_str("running"),
        }
    }
}

impl Future for HoldRelease {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Node(release) => Pin::new(release).poll(cx),
            Self::Quorum(all) => all.as_mut().poll(cx),
        }
    }
}
