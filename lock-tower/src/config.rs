//! The options of all layers, and the methods that set them.

use std::fmt;

use lockcore::Locks;

use crate::options::Options;

/// The fate of a handler whose hold is lost while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLost {
    /// Drops the handler at its current await point, and refuses the request
    /// ([`Cause::Lost`](crate::Cause::Lost)). If the handler has finished when the loss is found,
    /// its answer is replaced: its writes may overlap with the next holder's.
    #[default]
    Stop,
    /// Lets the handler continue, and sends its answer. For handlers that look at their
    /// [`LockHandle`](crate::LockHandle), or whose writes carry the fencing token.
    Continue,
}

/// The settings of a layer, shared by its services.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) locks: Locks,
    pub(crate) options: Options,
    pub(crate) label: Option<Box<str>>,
    pub(crate) class: Option<Box<str>>,
    pub(crate) records_holders: bool,
    pub(crate) refuses_early: bool,
    pub(crate) on_lost: OnLost,
    pub(crate) fail_open: bool,
    pub(crate) release_in_background: bool,
}

impl Config {
    pub(crate) fn new(locks: Locks) -> Self {
        Self {
            locks,
            options: Options::default(),
            label: None,
            class: None,
            records_holders: false,
            refuses_early: false,
            on_lost: OnLost::Stop,
            fail_open: false,
            release_in_background: false,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("options", &self.options)
            .field("on_lost", &self.on_lost)
            .field("fail_open", &self.fail_open)
            .field("release_in_background", &self.release_in_background)
            .finish_non_exhaustive()
    }
}

/// The options that all layers have, on a type with a field `config`.
macro_rules! options {
    () => {
        lockcore::option_setters! { options:
            /// The longest wait of a request for its locks, for all keys together that it asks for
            /// at once. Behind a [`LockScopeLayer`](crate::LockScopeLayer), each extractor and each
            /// [`RequestLocks::lock`](crate::RequestLocks::lock) has a wait of its own. The default
            /// is 10 s. Zero does not wait.
            wait,
            /// Waits without a limit of time. Only a client that disconnects and the queue limit
            /// bound the wait.
            wait_forever,
            /// The longest wait for the store, of a request that it has not queued yet. After it
            /// the request is refused ([`Cause::Unavailable`](crate::Cause::Unavailable), 503),
            /// within its [wait](Self::wait); once the store has been away for as long, further
            /// ones are refused at once. The default is the [request
            /// timeout](lockcore::LocksBuilder::request_timeout), 2 s, and 8 s where a failover may
            /// help. See [`LockOptions::store_wait`](lockcore::LockOptions::store_wait).
            store_wait,
            /// The time that the lock stays held after this process has died; see
            /// [`LockOptions::lease`](lockcore::LockOptions::lease). The default is that of the
            /// [`Locks`](lockcore::Locks).
            lease,
            /// A lease that is never renewed. A handler that takes longer loses its hold. See
            /// [`LockOptions::fixed_lease`](lockcore::LockOptions::fixed_lease).
            fixed_lease,
            /// The most requests that may wait for one key, over all processes. A further one is
            /// refused at once. The default is that of the [`Locks`](lockcore::Locks).
            queue_limit,
            /// The longest hold. After it the hold is lost, as [`on_lost`](Self::on_lost)
            /// describes. Under [`Stop`](crate::OnLost::Stop) the handler is dropped (a body that
            /// is being sent ends with an error), and the lock is granted to the next waiter at
            /// once. Under [`Continue`](crate::OnLost::Continue) the work continues, and the lock
            /// is granted to the next waiter when the lease expires.
            ///
            /// A lease that is set, here or in the [`Locks`](lockcore::Locks), may not be longer.
            /// One that is not set becomes 30 s, or this if it is shorter.
            max_hold,
            /// The course of a request whose key is busy: it waits, is refused at once, or waits
            /// only while no newer one does ([`Cause::Superseded`](crate::Cause::Superseded), 409).
            /// See [`LockOptions::when_busy`](lockcore::LockOptions::when_busy).
            when_busy,
        }

        /// Sets several options at once. An option that they leave open stays as it is, or is left
        /// to the [defaults](lockcore::LocksBuilder::defaults) of the [`Locks`](lockcore::Locks),
        /// except for the wait: its default is 10 s.
        pub fn options(mut self, options: lockcore::LockOptions) -> Self {
            self.config.options = crate::options::Options(options).or(self.config.options);
            self
        }

        /// Sets the label of the requests in [`inspect`](lockcore::Locks::inspect), for operators.
        /// At most 64 bytes; the rest is cut.
        pub fn label(mut self, label: impl AsRef<str>) -> Self {
            self.config.label = Some(label.as_ref().into());
            self
        }

        /// Sets the class of the requests in metrics and in the status of the
        /// [`Locks`](lockcore::Locks): a use of locks, such as a route or "wallet", of which there
        /// are few. See [`LockRequest::class`](lockcore::LockRequest::class).
        pub fn class(mut self, class: impl AsRef<str>) -> Self {
            self.config.class = Some(class.as_ref().into());
            self
        }

        /// Records the labels of the holders in the span `acquire` of a request that waits for
        /// them, at the cost of a request to the server. Off by default. See
        /// [`LockRequest::record_holders`](lockcore::LockRequest::record_holders).
        pub fn record_holders(mut self, records_holders: bool) -> Self {
            self.config.records_holders = records_holders;
            self
        }

        /// Refuses a request at once ([`Cause::WaitTooLong`](crate::Cause::WaitTooLong), 503) where
        /// the queue is so long that it would hardly be served within its [wait](Self::wait), as
        /// the lengths of past holds of its [class](Self::class) tell. `Retry-After` then is the
        /// time that the queue is expected to take, also for requests whose wait times out. Off by
        /// default. See [`LockRequest::refuse_early`](lockcore::LockRequest::refuse_early).
        pub fn refuse_early(mut self, refuses_early: bool) -> Self {
            self.config.refuses_early = refuses_early;
            self
        }

        /// Stops the handler when its hold is lost, or lets it continue. The default is to stop it.
        pub fn on_lost(mut self, on_lost: crate::OnLost) -> Self {
            self.config.on_lost = on_lost;
            self
        }

        /// Sends the response before the lock is released. This saves a round trip to the store.
        /// But a client's next request can then meet its own lock, and a loss that only the release
        /// finds is not reported.
        pub fn release_in_background(mut self, in_background: bool) -> Self {
            self.config.release_in_background = in_background;
            self
        }
    };
}
pub(crate) use options;

/// The option of the layers that acquire the locks themselves, and so can serve without them.
macro_rules! fail_open {
    () => {
        /// Serves requests *without* the lock while the lock store cannot be reached
        /// ([`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable): the connection is
        /// down, or an answer did not come within the [request
        /// timeout](lockcore::LocksBuilder::request_timeout)). The first requests of an outage are
        /// served after the [`store_wait`](Self::store_wait), also those that are queued; once the
        /// store has been away for as long, further ones at once. Off by default: with it, requests
        /// of one key overlap during an outage. Each such request is logged at `warn`, and its
        /// handler finds no [`LockHandle`](crate::LockHandle).
        ///
        /// A server that is loading its data counts as unavailable, too. So does a grant that fewer
        /// replicas acknowledged than
        /// [`require_replicas`](lockcore::LocksBuilder::require_replicas) asks for: do not combine
        /// the two.
        ///
        /// All other errors refuse, so that no client can choose to be served without the lock: a
        /// key of another type at the lock's name, a right that is missing, a replica, a full
        /// memory, and a server that is slower than [`wait`](Self::wait) but answers.
        pub fn fail_open(mut self, fail_open: bool) -> Self {
            self.config.fail_open = fail_open;
            self
        }
    };
}
pub(crate) use fail_open;
