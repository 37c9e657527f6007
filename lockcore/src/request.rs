//! One acquisition with its own options, between the key and the wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Acquire, TryAcquire};
use crate::demand::Demand;
use crate::error::{LockError, LockErrorKind};
use crate::guard::Guard;
use crate::key::LockName;
use crate::member::Label;
use crate::node::{Node, Request};
use crate::option_setters;
use crate::options::{ConfigError, LockOptions, Wait};
use crate::store::Mode;

/// Says of the other demands how to come by them beside JVMs.
pub(crate) const NOT_WITH_PEERS: &str = "reads, permits and downgrades are not in the layout that JVMs share: \
    use a second Locks, built without redisson_peers, under other names";

/// One acquisition with its own options; made by [`Locks::key`](crate::Locks::key). Options that
/// are not set here are the [defaults](crate::LocksBuilder::defaults) of the `Locks`.
///
/// ```
/// # async fn example() -> Result<(), lockcore::LockError> {
/// # use std::time::Duration;
/// # let locks = lockcore::Locks::in_memory();
/// let guard = locks
///     .key("order:42")
///     .lease(Duration::from_secs(10))
///     .wait(Duration::from_secs(5))
///     .queue_limit(100)
///     .label("checkout")
///     .lock()
///     .await?;
/// # drop(guard);
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "call lock() or try_lock()"]
pub struct LockRequest {
    node: Arc<Node>,
    lock: Result<LockName, LockError>,
    options: LockOptions,
    label: Label,
}

impl LockRequest {
    pub(crate) fn new(node: &Arc<Node>, lock: Result<LockName, LockError>) -> Self {
        let options = node.settings.defaults;
        let label = node.settings.label.clone();
        Self { node: Arc::clone(node), lock, options, label }
    }

    option_setters! { options:
        /// See [`LockOptions::lease`].
        lease,
        /// See [`LockOptions::fixed_lease`].
        fixed_lease,
        /// See [`LockOptions::wait`].
        wait,
        /// See [`LockOptions::wait_forever`].
        wait_forever,
        /// See [`LockOptions::queue_limit`].
        queue_limit,
        /// See [`LockOptions::max_hold`].
        max_hold,
    }

    /// Sets several options at once. What they leave open stays as it is.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// What [`inspect`](crate::Locks::inspect) shows of this waiter or holder: at most 64 bytes,
    /// longer labels are cut.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Label::new(label.as_ref());
        self
    }

    /// Waits for the lock, at most for the [wait](Self::wait). Errors and cancel safety: see
    /// [`Acquire`].
    pub fn lock(self) -> Acquire {
        let mode = self.mode();
        let node = Arc::clone(&self.node);
        Acquire::new(&node, self.build(mode, Ok(Demand::ALONE)))
    }

    /// Tries to acquire the lock once, without waiting. Errors and cancel safety: see
    /// [`TryAcquire`].
    pub fn try_lock(self) -> TryAcquire {
        let node = Arc::clone(&self.node);
        TryAcquire::new(&node, self.build(Mode::Try, Ok(Demand::ALONE)))
    }

    /// Waits for a part of what others share.
    pub(crate) fn share<G: Guard>(self, demand: Result<Demand, ConfigError>) -> Acquire<G> {
        let (node, mode) = (Arc::clone(&self.node), self.mode());
        Acquire::new(&node, self.build(mode, demand))
    }

    /// Tries it once.
    pub(crate) fn try_share<G: Guard>(self, demand: Result<Demand, ConfigError>) -> TryAcquire<G> {
        let node = Arc::clone(&self.node);
        TryAcquire::new(&node, self.build(Mode::Try, demand))
    }

    fn mode(&self) -> Mode {
        match self.options.get_wait() {
            Some(Wait::AtMost(Duration::ZERO)) => Mode::Try,
            _ => Mode::Wait,
        }
    }

    fn build(self, mode: Mode, demand: Result<Demand, ConfigError>) -> Result<Request, LockError> {
        let (terms, demand) = (self.options.terms(), demand?);
        terms.check()?;
        if self.node.settings.redisson_peers && demand != Demand::ALONE {
            return Err(LockError::with_detail(LockErrorKind::Unsupported, NOT_WITH_PEERS));
        }
        Ok(Request { lock: self.lock?, options: terms, mode, label: self.label, demand })
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lock = match &self.lock {
            Ok(_) if self.node.settings.redact_names => "(redacted)",
            Ok(lock) => lock.as_str(),
            Err(_) => "(invalid)",
        };
        f.debug_struct("LockRequest")
            .field("lock", &lock)
            .field("options", &self.options)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
