//! What the layers can be told, and the methods that tell them.

use std::fmt;

use lockcore::Locks;

use crate::options::Options;

/// What happens to a handler whose hold is lost while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLost {
    /// It is dropped where it stands and the request is refused ([`Cause::Lost`](crate::Cause::Lost)). A
    /// handler that had finished when the loss was found has its answer replaced: its writes may have
    /// overlapped with the next holder's.
    #[default]
    Stop,
    /// It goes on, and its answer goes out: for handlers that look at their [`LockHandle`](crate::LockHandle), or
    /// whose writes carry the fencing token.
    Continue,
}

/// The settings of a layer, shared by its services.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) locks: Locks,
    pub(crate) options: Options,
    pub(crate) label: Option<Box<str>>,
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
        /// How long a request waits for its lock at most, for all its keys together; 10 s unless said otherwise.
        /// Zero does not wait.
        pub fn wait(mut self, wait: std::time::Duration) -> Self {
            self.config.options.wait = Some(crate::options::Wait::AtMost(wait));
            self
        }

        /// Waits as long as it takes. Then only the client's patience and the queue limit bound it.
        pub fn wait_forever(mut self) -> Self {
            self.config.options.wait = Some(crate::options::Wait::Forever);
            self
        }

        /// How long others are kept out after this process has died; see
        /// [`LockOptions::lease`](lockcore::LockOptions::lease). Unless set, that of the [`Locks`](lockcore::Locks).
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.config.options.lease = Some(lease);
            self
        }

        /// How many may wait for one key at most, over all processes; one more is refused at once. Unless set,
        /// that of the [`Locks`](lockcore::Locks).
        pub fn queue_limit(mut self, queue_limit: u32) -> Self {
            self.config.options.queue_limit = Some(queue_limit);
            self
        }

        /// The longest hold. When it strikes, the hold is lost, with what [`on_lost`](Self::on_lost) says:
        /// under [`Stop`](crate::OnLost::Stop) the handler is dropped (a body that is being sent ends with an
        /// error) and the lock goes to the next at once; under [`Continue`](crate::OnLost::Continue) work goes
        /// on and the lock goes to the next when the lease has run out.
        ///
        /// A lease that is set here may not be longer. One that is not set becomes 30 s, or this if it is shorter.
        pub fn max_hold(mut self, max_hold: std::time::Duration) -> Self {
            self.config.options.max_hold = Some(max_hold);
            self
        }

        /// Who waits, for people who look at the queue: at most 64 bytes, the rest is cut.
        pub fn label(mut self, label: impl Into<Box<str>>) -> Self {
            self.config.label = Some(label.into());
            self
        }

        /// What happens when the hold is lost while the handler runs. The default is to stop it.
        pub fn on_lost(mut self, on_lost: crate::OnLost) -> Self {
            self.config.on_lost = on_lost;
            self
        }

        /// Lets the response go out before the lock is given back. Saves a round trip to the store; but then a
        /// client's next request can meet its own lock, and a loss that is only found at the release goes
        /// untold.
        pub fn release_in_background(mut self) -> Self {
            self.config.release_in_background = true;
            self
        }
    };
}
pub(crate) use options;

/// The option of the layers that take the locks themselves, and so can serve without.
macro_rules! fail_open {
    () => {
        /// Serves requests *without* the lock while the lock store cannot be reached
        /// ([`LockErrorKind::Unavailable`](crate::LockErrorKind::Unavailable): the connection is down, or an answer
        /// did not come within the [request timeout](lockcore::LocksBuilder::request_timeout)), after having waited
        /// for it as long as for a lock. Off by default: with it, an outage means that requests of one key overlap.
        /// Each is logged at `warn`, and its handler finds no [`LockHandle`](crate::LockHandle).
        ///
        /// All other errors refuse, so that no client can choose to be served without the lock: a key of another type
        /// at the lock's name, a right that is missing, a replica, a full memory, and a server that is slower than
        /// [`wait`](Self::wait) but answers.
        pub fn fail_open(mut self) -> Self {
            self.config.fail_open = true;
            self
        }
    };
}
pub(crate) use fail_open;
