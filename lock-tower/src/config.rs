//! The options of all layers, and their setters.

use std::fmt;

use lockcore::Locks;

use crate::options::Options;

/// What happens to a running handler when its hold is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLost {
    /// Drops the handler at the current await point, and refuses the request
    /// ([`Cause::Lost`](crate::Cause::Lost)). If the handler has finished by then, its response is
    /// replaced: its writes may overlap with the next holder's.
    #[default]
    Stop,
    /// Lets the handler continue, and sends its response. For handlers that check the
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

/// Setters for the options of all layers, for a type with a field `config`.
macro_rules! options {
    () => {
        lockcore::option_setters! { options:
            /// The maximum wait of a request for its locks, covering all keys acquired together.
            /// Behind a [`LockScopeLayer`](crate::LockScopeLayer), each extractor and each
            /// [`RequestLocks::lock`](crate::RequestLocks::lock) has a separate wait. The default
            /// is 10 s. Zero does not wait.
            wait,
            /// Waits without a time limit. Only a client disconnect and the queue limit bound the
            /// wait.
            wait_forever,
            /// The maximum time to wait for the store, for a request not yet queued. Afterwards the
            /// request is refused ([`Cause::Unavailable`](crate::Cause::Unavailable), 503), within
            /// the [wait](Self::wait); once the store has been unavailable for as long, further
            /// requests are refused at once. The default is the [request
            /// timeout](lockcore::LocksBuilder::request_timeout), 2 s, and 8 s where a failover may
            /// help. See [`LockOptions::store_wait`](lockcore::LockOptions::store_wait).
            store_wait,
            /// How long the lock stays held after this process has died; see
            /// [`LockOptions::lease`](lockcore::LockOptions::lease). The default comes from the
            /// [`Locks`](lockcore::Locks).
            lease,
            /// A lease without renewal. A handler that takes longer loses the hold. See
            /// [`LockOptions::fixed_lease`](lockcore::LockOptions::fixed_lease).
            fixed_lease,
            /// The maximum number of waiters per key, over all processes. Further requests are
            /// refused at once. The default comes from the [`Locks`](lockcore::Locks).
            queue_limit,
            /// The maximum hold duration. Afterwards the hold is lost, as
            /// [`on_lost`](Self::on_lost) describes. Under [`Stop`](crate::OnLost::Stop) the
            /// handler is dropped (a response body in progress ends with an error), and the lock is
            /// granted to the next waiter at once. Under [`Continue`](crate::OnLost::Continue) the
            /// work continues, and the lock is granted to the next waiter when the lease expires.
            ///
            /// An explicit lease, here or in the [`Locks`](lockcore::Locks), may not be longer. The
            /// default lease is 30 s, or this duration if shorter.
            max_hold,
            /// What to do with a request whose key is busy: wait, refuse at once, or wait only
            /// while no newer request does ([`Cause::Superseded`](crate::Cause::Superseded), 409).
            /// See [`LockOptions::when_busy`](lockcore::LockOptions::when_busy).
            when_busy,
        }

        /// Sets several options at once. An unset option keeps its value, or comes from the
        /// [defaults](lockcore::LocksBuilder::defaults) of the [`Locks`](lockcore::Locks), except
        /// for the wait: its default is 10 s.
        pub fn options(mut self, options: lockcore::LockOptions) -> Self {
            self.config.options = crate::options::Options(options).or(self.config.options);
            self
        }

        /// Sets the request label in [`inspect`](lockcore::Locks::inspect), for operators. At most
        /// 64 bytes; the rest is cut off.
        pub fn label(mut self, label: impl AsRef<str>) -> Self {
            self.config.label = Some(label.as_ref().into());
            self
        }

        /// Sets the request class in metrics and in the [`Locks`](lockcore::Locks) status: a use of
        /// locks with few distinct values, such as a route or "wallet". See
        /// [`LockRequest::class`](lockcore::LockRequest::class).
        pub fn class(mut self, class: impl AsRef<str>) -> Self {
            self.config.class = Some(class.as_ref().into());
            self
        }

        /// Records the labels of current holders in a waiting request's span `acquire`, at the cost
        /// of an extra request to the server. Off by default. See
        /// [`LockRequest::record_holders`](lockcore::LockRequest::record_holders).
        pub fn record_holders(mut self, records_holders: bool) -> Self {
            self.config.records_holders = records_holders;
            self
        }

        /// Refuses a request at once ([`Cause::WaitTooLong`](crate::Cause::WaitTooLong), 503) if
        /// the queue is too long to be served within the [wait](Self::wait), judging by past holds
        /// in the same [class](Self::class). `Retry-After` is then the expected queue time, also
        /// for requests whose wait times out. Off by default. See
        /// [`LockRequest::refuse_early`](lockcore::LockRequest::refuse_early).
        pub fn refuse_early(mut self, refuses_early: bool) -> Self {
            self.config.refuses_early = refuses_early;
            self
        }

        /// Sets what happens to the handler when its hold is lost. The default is to stop it.
        pub fn on_lost(mut self, on_lost: crate::OnLost) -> Self {
            self.config.on_lost = on_lost;
            self
        }

        /// Sends the response before the lock is released. This saves a round trip to the store,
        /// but a client's next request can then meet its own lock, and a loss discovered only by
        /// the release is not reported.
        pub fn release_in_background(mut self, in_background: bool) -> Self {
            self.config.release_in_background = in_background;
            self
        }
    };
}
pub(crate) use options;

/// Setter for layers that acquire the locks themselves, and so can serve without them.
macro_rules! fail_open {
    () => {
        /// Serves requests *without* the lock while the lock store is unavailable
        /// ([`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable): the connection is
        /// down, or no response arrived within the [request
        /// timeout](lockcore::LocksBuilder::request_timeout)). The first requests in an outage,
        /// queued ones included, are served after the [`store_wait`](Self::store_wait); once the
        /// store has been unavailable for as long, further requests are served at once. Off by
        /// default: with it, requests with the same key overlap during an outage. Each such request
        /// is logged at `warn`, and the handler finds no [`LockHandle`](crate::LockHandle).
        ///
        /// A server still loading data counts as unavailable. So does a grant acknowledged by fewer
        /// replicas than [`require_replicas`](lockcore::LocksBuilder::require_replicas) demands: do
        /// not combine the two options. With
        /// [`require_fsync`](lockcore::LocksBuilder::require_fsync) each request is refused as
        /// misconfigured (500).
        ///
        /// All other errors refuse the request, so that no client can choose to be served without
        /// the lock: a key of another type under the lock name, a missing permission, a replica, a
        /// server out of memory, and a server slower than [`wait`](Self::wait) but responsive.
        pub fn fail_open(mut self, fail_open: bool) -> Self {
            self.config.fail_open = fail_open;
            self
        }
    };
}
pub(crate) use fail_open;
