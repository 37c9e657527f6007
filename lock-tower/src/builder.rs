//! The layers as methods of [`ServiceBuilder`].

use lockcore::Locks;
use tower::ServiceBuilder;
use tower::layer::util::Stack;

use crate::LockLayer;

/// Adds the layers of this crate, with default options, to a [`ServiceBuilder`].
///
/// ```
/// use lock_tower::{ByPath, ServiceBuilderExt};
/// use tower::ServiceBuilder;
///
/// # fn build(locks: lockcore::Locks) {
/// let stack = ServiceBuilder::new().http_lock(locks, ByPath::new()).detach().into_inner();
/// # let _ = stack;
/// # }
/// ```
pub trait ServiceBuilderExt<L>: sealed::Builder<L> {
    /// Adds a [`LockLayer`], which serves requests of any type with the same key one at a time.
    fn lock<K>(self, locks: Locks, key: K) -> ServiceBuilder<Stack<LockLayer<K>, L>> {
        self.builder().layer(LockLayer::new(locks, key))
    }

    /// Adds an [`HttpLockLayer`](crate::HttpLockLayer), which serves HTTP requests with the same
    /// key one at a time.
    #[cfg(feature = "http")]
    fn http_lock<K>(
        self,
        locks: Locks,
        key: K,
    ) -> ServiceBuilder<Stack<crate::HttpLockLayer<K>, L>> {
        self.builder().layer(crate::HttpLockLayer::new(locks, key))
    }

    /// Adds an [`HttpLockLayer`](crate::HttpLockLayer) that serves at most `limit` requests per key
    /// at a time; see [`HttpLockLayer::permits`](crate::HttpLockLayer::permits).
    #[cfg(feature = "http")]
    fn http_permit<K, P>(
        self,
        locks: Locks,
        key: K,
        limit: P,
    ) -> ServiceBuilder<Stack<crate::HttpLockLayer<crate::key::WithPermits<K, P>>, L>> {
        self.builder().layer(crate::HttpLockLayer::permits(locks, key, limit))
    }

    /// Adds a [`LockScopeLayer`](crate::LockScopeLayer). Extractors and handlers behind this layer
    /// acquire locks from `locks`, and the layer keeps these locks until the response.
    #[cfg(feature = "http")]
    fn lock_scope(self, locks: Locks) -> ServiceBuilder<Stack<crate::LockScopeLayer, L>> {
        self.builder().layer(crate::LockScopeLayer::new(locks))
    }

    /// Adds a [`DetachLayer`](crate::DetachLayer), so that a handler with a lock finishes even if
    /// the client disconnects. Call this method after the method that adds the lock, because the
    /// layer must be inside the lock.
    #[cfg(feature = "http")]
    fn detach(self) -> ServiceBuilder<Stack<crate::DetachLayer, L>> {
        self.builder().layer(crate::DetachLayer::new())
    }
}

impl<L> ServiceBuilderExt<L> for ServiceBuilder<L> {}

mod sealed {
    /// Keeps other types than `ServiceBuilder` from implementing `ServiceBuilderExt`.
    pub trait Builder<L>: Sized {
        fn builder(self) -> tower::ServiceBuilder<L>;
    }

    impl<L> Builder<L> for tower::ServiceBuilder<L> {
        fn builder(self) -> Self {
            self
        }
    }
}
