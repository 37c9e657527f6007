//! The options that all layers have, and the macros for their setters.

use std::fmt;

use lockcore::Locks;

use crate::options::Options;

/// What a layer does with a running handler whose lock is lost. After the loss, the store may grant
/// the lock to another request while the handler still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnLost {
    /// The handler is dropped at the current await point, and the request is refused
    /// ([`Cause::Lost`](crate::Cause::Lost)). If the handler has already finished, the refusal
    /// replaces its response, because its writes may overlap with the writes of the next holder.
    #[default]
    Stop,
    /// The handler continues, and its response is sent. For handlers that check the
    /// [`LockHandle`](crate::LockHandle) themselves, or whose writes carry the fencing token.
    Continue,
}

/// The settings that all kinds of layers have. A service and its requests share them in an `Arc`.
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

/// Defines the setters that all layers have. The type needs a field `config` of type [`Config`].
macro_rules! options {
    () => {
        lockcore::option_setters! { options:
            /// Sets how long a request may wait for its locks. The default comes from the
            /// [`Locks`](lockcore::Locks), or is 10 s if none is set there. Zero does not wait: the
            /// request is refused at once if its key is busy. The time covers all keys that are
            /// acquired together. Behind a [`LockScopeLayer`](crate::LockScopeLayer), each
            /// extractor and each [`RequestLocks::lock`](crate::RequestLocks::lock) has a separate
            /// wait.
            wait,
            /// Lets requests wait for their locks without a time limit, instead of at most for the
            /// [`wait`](Self::wait). Clients that disconnect still leave the queue, and the queue
            /// limit still refuses requests.
            wait_forever,
            /// Sets how long a request that is not queued yet waits for a store that does not
            /// respond. After this time the request is refused
            /// ([`Cause::Unavailable`](crate::Cause::Unavailable), 503), and further requests are
            /// refused at once until the store responds again. The [wait](Self::wait) also limits
            /// this time. The default is the [request
            /// timeout](lockcore::LocksBuilder::request_timeout), 2 s. Over Sentinel and on a Redis
            /// Cluster it is at least 8 s, so that the store can fail over in the meantime. See
            /// [`LockOptions::store_wait`](lockcore::LockOptions::store_wait).
            store_wait,
            /// Sets how long the lock stays held after this process has died. While the process
            /// lives, it renews the lease. The default comes from the [`Locks`](lockcore::Locks).
            /// See [`LockOptions::lease`](lockcore::LockOptions::lease).
            lease,
            /// Sets a lease that is not renewed, so that a handler that takes longer loses the
            /// lock. See [`LockOptions::fixed_lease`](lockcore::LockOptions::fixed_lease).
            fixed_lease,
            /// Sets the maximum number of requests that wait for the same key, over all processes.
            /// Further requests are refused at once ([`Cause::QueueFull`](crate::Cause::QueueFull),
            /// 429). The default comes from the [`Locks`](lockcore::Locks).
            queue_limit,
            /// Sets how long a request may hold its lock. After this time the lock is lost, with
            /// the effect that [`on_lost`](Self::on_lost) sets: under
            /// [`Stop`](crate::OnLost::Stop) the handler is dropped (a response body in progress
            /// ends with an error), under [`Continue`](crate::OnLost::Continue) it continues. The
            /// next waiter is granted the lock at once in both cases, even if the client does not
            /// read the response body.
            ///
            /// A lease set in this layer or in the [`Locks`](lockcore::Locks) must not be longer
            /// than this duration. If no lease is set, it is 30 s, or this duration if shorter.
            max_hold,
            /// Sets what a request does if its key is busy: wait, as by default, be refused at
            /// once, or wait only until a newer request for the key arrives
            /// ([`Cause::Superseded`](crate::Cause::Superseded), 409). See
            /// [`LockOptions::when_busy`](lockcore::LockOptions::when_busy).
            when_busy,
        }

        /// Sets several options at once. An option that is unset in `options` keeps its present
        /// value. An option that is set nowhere comes from the
        /// [defaults](lockcore::LocksBuilder::defaults) of the [`Locks`](lockcore::Locks). A wait
        /// that is not set there either is 10 s.
        ///
        /// An option out of range is noticed with a request, which is then refused as
        /// [`Misconfigured`](crate::Cause::Misconfigured). To notice it at the start, set all
        /// options here, and [`check`](lockcore::LockOptions::check) them before, together with
        /// these defaults: `options.or(defaults).check()?`.
        pub fn options(mut self, options: lockcore::LockOptions) -> Self {
            self.config.options = crate::options::Options(options).or(self.config.options);
            self
        }

        /// Sets the label of the layer's requests. Operators see it in
        /// [`inspect`](lockcore::Locks::inspect), for requests that hold a lock or wait for it.
        /// Only the first 64 bytes are kept.
        pub fn label(mut self, label: impl AsRef<str>) -> Self {
            self.config.label = Some(label.as_ref().into());
            self
        }

        /// Sets the class by which metrics and the status of the [`Locks`](lockcore::Locks) group
        /// the layer's requests. A class names a use of locks, such as a route or "wallet"; there
        /// should be few. See [`LockRequest::class`](lockcore::LockRequest::class).
        pub fn class(mut self, class: impl AsRef<str>) -> Self {
            self.config.class = Some(class.as_ref().into());
            self
        }

        /// Records who holds the lock while a request waits for it: the labels of the holders are
        /// added to the `tracing` span `acquire` of the waiting request. This costs another request
        /// to the server. Off by default. See
        /// [`LockRequest::record_holders`](lockcore::LockRequest::record_holders).
        pub fn record_holders(mut self, records_holders: bool) -> Self {
            self.config.records_holders = records_holders;
            self
        }

        /// Refuses a request at once ([`Cause::WaitTooLong`](crate::Cause::WaitTooLong), 503) if
        /// its queue is so long that it would hardly be served within the [wait](Self::wait). The
        /// estimate uses the durations of past holds in the same [class](Self::class).
        /// `Retry-After` is then the expected queue time, also for requests whose wait times out.
        /// Off by default. See [`LockRequest::refuse_early`](lockcore::LockRequest::refuse_early).
        pub fn refuse_early(mut self, refuses_early: bool) -> Self {
            self.config.refuses_early = refuses_early;
            self
        }

        /// Sets what happens to a running handler when its lock is lost. By default the handler is
        /// [stopped](crate::OnLost::Stop).
        pub fn on_lost(mut self, on_lost: crate::OnLost) -> Self {
            self.config.on_lost = on_lost;
            self
        }

        /// Sends the response without waiting for the release of the lock, if `in_background` is
        /// true. This saves a round trip to the store. But a client's next request may then wait
        /// for the lock of its previous request, and a loss discovered only by the release is not
        /// reported. Off by default.
        pub fn release_in_background(mut self, in_background: bool) -> Self {
            self.config.release_in_background = in_background;
            self
        }
    };
}
pub(crate) use options;

/// Defines the setter `fail_open`, for layers that acquire the locks themselves, because only these
/// can serve a request without its locks.
macro_rules! fail_open {
    () => {
        /// Serves requests *without* the lock while the lock store is unavailable
        /// ([`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable)): the connection is
        /// down, or no response arrived within the [request
        /// timeout](lockcore::LocksBuilder::request_timeout). Off by default, because requests with
        /// the same key overlap during an outage. Each request served without the lock is logged at
        /// `warn`, and the handler finds no [`LockHandle`](crate::LockHandle), not even an outer
        /// layer's. So the handler must look for it as an option, in axum with
        /// `Option<Extension<LockHandle>>`: a handler that demands it fails in each outage.
        ///
        /// The first requests in an outage, including queued requests, are served after the
        /// [`store_wait`](Self::store_wait). Once the store has been unavailable for this time,
        /// further requests are served at once.
        ///
        /// The option also applies while a server is loading its data, and if fewer replicas
        /// acknowledge a grant than [`require_replicas`](lockcore::LocksBuilder::require_replicas)
        /// demands. Do not combine it with `require_replicas`, because requests would then be
        /// served without the lock when replicas fail. With
        /// [`require_fsync`](lockcore::LocksBuilder::require_fsync) each request is refused as
        /// misconfigured (500).
        ///
        /// All other errors still refuse the request, so that no client can choose to be served
        /// without the lock. Such errors are a key of another type under the lock name, a missing
        /// permission, a replica and a server out of memory. So is a server that responds, but is
        /// slower than the [`wait`](Self::wait) or, without a wait, than the request timeout.
        pub fn fail_open(mut self, fail_open: bool) -> Self {
            self.config.fail_open = fail_open;
            self
        }
    };
}
pub(crate) use fail_open;
